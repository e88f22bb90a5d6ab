// SPDX-License-Identifier: GPL-2.0-or-later
// Texture and surface objects of a context. Kernels are given their numbers as parameters. A number is the
// smallest that is free, so that whoever makes the same objects again can have them under the same numbers.
#pragma once

#include "driver/result.hpp"
#include "engine/texture.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace singularity::softgpu::driver {

struct TextureObject {
    CUDA_RESOURCE_DESC resource{};
    CUDA_TEXTURE_DESC texture{};
    std::optional<CUDA_RESOURCE_VIEW_DESC> view;
    std::shared_ptr<const Texture> sampled;
};

struct SurfaceObject {
    CUDA_RESOURCE_DESC resource{};
    std::shared_ptr<const Surface> surface;
};

class TextureTable {
  public:
    [[nodiscard]] CUtexObject add(TextureObject object);
    [[nodiscard]] CUsurfObject add(SurfaceObject object);
    [[nodiscard]] std::optional<TextureObject> texture(CUtexObject number) const;
    [[nodiscard]] std::optional<SurfaceObject> surface(CUsurfObject number) const;
    // False: there is none.
    bool remove_texture(CUtexObject number);
    bool remove_surface(CUsurfObject number);
    void clear();
    // What a launch may use: all that there are now. Never changes.
    [[nodiscard]] std::shared_ptr<const TextureObjects> objects() const;

  private:
    template <class Object>
    struct Numbered {
        std::map<std::uint64_t, Object> objects;
        std::set<std::uint64_t> given_back;
        std::uint64_t next = 1; // and those behind it have never been given

        std::uint64_t add(Object object);
        bool remove(std::uint64_t number);
        [[nodiscard]] std::optional<Object> find(std::uint64_t number) const;
    };

    mutable std::mutex mutex_;
    Numbered<TextureObject> textures_;
    Numbered<SurfaceObject> surfaces_;
    // Made when a launch asks for it first behind a change: changes are few, launches are many.
    mutable std::shared_ptr<const TextureObjects> objects_;
};

} // namespace singularity::softgpu::driver
