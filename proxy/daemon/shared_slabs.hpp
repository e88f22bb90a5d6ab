// SPDX-License-Identifier: GPL-2.0-or-later
// Slabs that several sessions have (CUDA IPC): the memory of one, mapped in others as well. Who knows a
// slab's key and one of the allocations that its maker has exported may open it; keys are random numbers. The
// memory stays where it is, on the device or lent, as long as anybody has it: nobody's turn ends with it.
#pragma once

#include "back_end.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace singularity::proxyd {

// Any thread.
class SharedSlab {
  public:
    using Key = std::array<std::uint64_t, 2>; // zeros: none
    struct Part {
        CUmemGenericAllocationHandle memory{};
        std::uint64_t size = 0;
    };
    // An allocation that may be opened.
    struct Export {
        std::uint64_t offset = 0;
        std::uint64_t size = 0;
        std::uint64_t number = 0; // random: another allocation at the same place has another one
        auto operator<=>(const Export &) const = default;
    };
    // The memory of all slabs' chunks, in order; the handles are the slab's own from here on.
    SharedSlab(const BackEnd &back_end, const Key &key, std::uint32_t device, std::vector<Part> parts);
    SharedSlab(const SharedSlab &) = delete;
    SharedSlab &operator=(const SharedSlab &) = delete;
    SharedSlab(SharedSlab &&) = delete;
    SharedSlab &operator=(SharedSlab &&) = delete;
    ~SharedSlab();

    [[nodiscard]] const Key &key() const { return key_; }
    // Which of its processes' devices it is on.
    [[nodiscard]] std::uint32_t device() const { return device_; }
    [[nodiscard]] std::uint64_t size() const { return size_; }
    [[nodiscard]] const std::vector<Part> &parts() const { return parts_; }

    // Of an allocation that is exported already the same; the slab holds it.
    [[nodiscard]] Export add(std::uint64_t offset, std::uint64_t size);
    // From an image. false: it does not lie in the slab.
    [[nodiscard]] bool add(const Export &known);
    void remove(std::uint64_t offset);
    // Its maker has none of it any more.
    void remove_all();
    [[nodiscard]] bool has(const Export &wanted);
    [[nodiscard]] std::vector<Export> exports();

  private:
    const BackEnd &back_end_;
    Key key_;
    std::uint32_t device_;
    std::vector<Part> parts_;
    std::uint64_t size_ = 0;
    std::mutex lock_;
    std::map<std::uint64_t, Export> exports_; // by offset
};

class SharedSlabs {
  public:
    [[nodiscard]] static SharedSlabs &all();

    [[nodiscard]] static SharedSlab::Key new_key();
    void add(const std::shared_ptr<SharedSlab> &slab);
    // nullptr: nobody has one.
    [[nodiscard]] std::shared_ptr<SharedSlab> find(const SharedSlab::Key &key);

  private:
    std::mutex lock_;
    std::map<SharedSlab::Key, std::weak_ptr<SharedSlab>> slabs_;
};

} // namespace singularity::proxyd
