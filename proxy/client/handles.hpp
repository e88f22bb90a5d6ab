// SPDX-License-Identifier: GPL-2.0-or-later
// The client's handles: numbers that it makes up, and what it keeps about the object behind each.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace singularity::client {

class Session;
struct Context;

// A handle is kHandleTag | kind << 36 | index << 4. An index is never used again. Those with kChosenByDaemon
// are objects that the daemon has named in an output.
inline constexpr std::uint64_t kHandleTag = 0x0C00'0000'0000;
inline constexpr unsigned kKindShift = 36;
inline constexpr unsigned kIndexShift = 4;
inline constexpr std::uint32_t kChosenByDaemon = 1U << 31;

[[nodiscard]] constexpr std::uint64_t handle_value(unsigned kind, std::uint32_t index) {
    return kHandleTag | std::uint64_t{kind} << kKindShift | std::uint64_t{index} << kIndexShift;
}
// 0: it is no handle of ours.
[[nodiscard]] constexpr unsigned kind_of(std::uint64_t handle) {
    if ((handle & ((1U << kIndexShift) - 1)) != 0 || (handle >> 42) != (kHandleTag >> 42))
        return 0;
    return static_cast<unsigned>(handle >> kKindShift) & 0x3F;
}
[[nodiscard]] constexpr std::uint32_t index_of(std::uint64_t handle) {
    return static_cast<std::uint32_t>(handle >> kIndexShift);
}

// What is known of every object. Lives from made to gone; whoever uses a handle while another thread ends it
// breaks CUDA's rules as much as ours.
struct Object {
    Object() = default;
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;
    Object(Object &&) = delete;
    Object &operator=(Object &&) = delete;
    virtual ~Object() = default;

    std::uint64_t handle = 0;
    Context *context = nullptr; // that it was made in; nullptr: none (libraries, kernels)
    Session *session = nullptr;
    std::uint64_t owner = 0; // handle of the module or library it came from, of a node's graph
};

// All objects of one kind by index. find() takes no lock.
class HandleTable {
  public:
    explicit HandleTable(unsigned kind) : kind_(kind) {}
    HandleTable(const HandleTable &) = delete;
    HandleTable &operator=(const HandleTable &) = delete;
    HandleTable(HandleTable &&) = delete;
    HandleTable &operator=(HandleTable &&) = delete;
    // For tests: a process's own tables are never destroyed.
    ~HandleTable();

    // A number for an object that is about to be made; 0: there are no more.
    [[nodiscard]] std::uint64_t reserve();
    void add(std::uint64_t handle, std::unique_ptr<Object> object);
    [[nodiscard]] Object *find(std::uint64_t handle) const;
    // The object of a handle that the daemon has named; made by `make` when it is seen for the first time.
    [[nodiscard]] Object *adopt(std::uint64_t handle, const std::function<std::unique_ptr<Object>()> &make);
    [[nodiscard]] std::unique_ptr<Object> remove(std::uint64_t handle);
    // All objects for which the condition holds leave the table.
    [[nodiscard]] std::vector<std::unique_ptr<Object>>
    remove_if(const std::function<bool(const Object &)> &condition);

  private:
    static constexpr unsigned kLeafBits = 10;
    static constexpr unsigned kMiddleBits = 11;
    static constexpr unsigned kTopBits = 11;
    struct Leaf {
        std::array<std::atomic<Object *>, 1U << kLeafBits> objects{};
        unsigned live = 0;
    };
    struct Middle {
        std::array<std::atomic<Leaf *>, 1U << kMiddleBits> leaves{};
    };

    void store(std::uint64_t handle, std::unique_ptr<Object> object); // with change_ held
    [[nodiscard]] std::unique_ptr<Object> take(std::uint32_t index);  // with change_ held

    unsigned kind_;
    std::atomic<std::uint32_t> next_ = 1;
    std::mutex change_;
    std::array<std::atomic<Middle *>, 1U << kTopBits> tops_{};
};

} // namespace singularity::client
