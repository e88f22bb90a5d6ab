// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/texture_table.hpp"

#include <utility>

namespace singularity::softgpu::driver {

namespace {

// Textures and surfaces do not have each other's numbers.
constexpr std::uint64_t kSurfaces = std::uint64_t{1} << 32U;

} // namespace

template <class Object>
std::uint64_t TextureTable::Numbered<Object>::add(Object object) {
    const bool again = !given_back.empty();
    const std::uint64_t number = again ? *given_back.begin() : next;
    objects.emplace(number, std::move(object));
    if (again)
        given_back.erase(given_back.begin());
    else
        ++next;
    return number;
}

template <class Object>
bool TextureTable::Numbered<Object>::remove(std::uint64_t number) {
    if (objects.erase(number) == 0)
        return false;
    given_back.insert(number);
    return true;
}

template <class Object>
std::optional<Object> TextureTable::Numbered<Object>::find(std::uint64_t number) const {
    const auto found = objects.find(number);
    return found == objects.end() ? std::nullopt : std::optional(found->second);
}

CUtexObject TextureTable::add(TextureObject object) {
    const std::scoped_lock lock(mutex_);
    objects_.reset();
    return textures_.add(std::move(object));
}

CUsurfObject TextureTable::add(SurfaceObject object) {
    const std::scoped_lock lock(mutex_);
    objects_.reset();
    return kSurfaces | surfaces_.add(std::move(object));
}

std::optional<TextureObject> TextureTable::texture(CUtexObject number) const {
    const std::scoped_lock lock(mutex_);
    return textures_.find(number);
}

std::optional<SurfaceObject> TextureTable::surface(CUsurfObject number) const {
    const std::scoped_lock lock(mutex_);
    return surfaces_.find(number ^ kSurfaces);
}

bool TextureTable::remove_texture(CUtexObject number) {
    const std::scoped_lock lock(mutex_);
    objects_.reset();
    return textures_.remove(number);
}

bool TextureTable::remove_surface(CUsurfObject number) {
    const std::scoped_lock lock(mutex_);
    objects_.reset();
    return surfaces_.remove(number ^ kSurfaces);
}

void TextureTable::clear() {
    const std::scoped_lock lock(mutex_);
    textures_ = {};
    surfaces_ = {};
    objects_.reset();
}

std::shared_ptr<const TextureObjects> TextureTable::objects() const {
    const std::scoped_lock lock(mutex_);
    if (objects_ == nullptr) {
        auto all = std::make_shared<TextureObjects>();
        for (const auto &[number, object] : textures_.objects)
            all->textures.emplace(number, object.sampled);
        for (const auto &[number, object] : surfaces_.objects)
            all->surfaces.emplace(kSurfaces | number, object.surface);
        objects_ = std::move(all);
    }
    return objects_;
}

} // namespace singularity::softgpu::driver
