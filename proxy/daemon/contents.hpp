// SPDX-License-Identifier: GPL-2.0-or-later
// What the chunks of all sessions of a device contain, as far as it is known: ranks that are replicas have
// much in common, and what is there already is not moved again.
//
// Copies in memory of the host are known by their content as long as somebody has them. They never change:
// who writes to his own forgets it here first, and makes another if others have it, too.
//
// Memory of the device that somebody has just left is known by its content until it is given back. Nobody has
// it mapped, and no work of anybody is on its way to it, so it contains what it did when it was left; who has
// left it has his copy. So it may become anybody's, who may then write to it.
#pragma once

#include "back_end.hpp"
#include "digest.hpp"
#include "driver_api/backend.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace singularity::proxyd {

// Memory of this process, given back with it.
class HostCopy {
  public:
    // Nothing: there is no such memory.
    [[nodiscard]] static std::shared_ptr<HostCopy> make(std::uint64_t size);
    ~HostCopy();
    HostCopy(const HostCopy &) = delete;
    HostCopy &operator=(const HostCopy &) = delete;
    HostCopy(HostCopy &&) = delete;
    HostCopy &operator=(HostCopy &&) = delete;
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

  private:
    explicit HostCopy(std::span<std::byte> bytes) : bytes_(bytes) {}
    std::span<std::byte> bytes_;
};

// Any thread.
class Contents {
  public:
    enum class Look : std::uint8_t { never, when_it_pays, always };
    Contents(const BackEnd &back_end, Look look) : back_end_(back_end), look_(look) {}
    Contents(const Contents &) = delete;
    Contents &operator=(const Contents &) = delete;
    Contents(Contents &&) = delete;
    Contents &operator=(Contents &&) = delete;
    ~Contents() { static_cast<void>(release()); }

    // nullptr: nobody has one.
    [[nodiscard]] std::shared_ptr<HostCopy> copy_of(const Digest &content, std::uint64_t size);
    void add(const Digest &content, const std::shared_ptr<HostCopy> &copy);
    // It is about to change.
    void forget(const Digest &content, const HostCopy &copy);

    // Memory of the device that is mapped nowhere.
    struct Left {
        CUmemGenericAllocationHandle memory{};
        std::uint64_t size = 0;
        std::optional<Digest> content;
    };
    void leave(const Left &left);
    // The handle is the caller's. content: which it must have; nothing: any, also what somebody may look for.
    [[nodiscard]] std::optional<CUmemGenericAllocationHandle> take(std::uint64_t size,
                                                                   const std::optional<Digest> &content);
    // Gives back all that is left: so many bytes.
    [[nodiscard]] std::uint64_t release();

    // Whether the content of the next chunk is to be found out. That costs time, which what is not moved
    // saves, on a GPU much more than it costs and on others perhaps never.
    [[nodiscard]] bool looks();
    using Clock = std::chrono::steady_clock;
    void looked(std::uint64_t bytes, Clock::duration took);
    void copied(std::uint64_t bytes, Clock::duration took);
    void spared(std::uint64_t bytes); // that would have been copied

    struct Counts {
        std::uint64_t copied = 0; // bytes, out or in
        std::uint64_t spared = 0; // bytes that were not, since they were there
        std::uint64_t looked = 0; // bytes whose content was found out
        Clock::duration copying{};
        Clock::duration looking{};
    };
    [[nodiscard]] Counts counts();

  private:
    struct Key {
        Digest content;
        std::uint64_t size = 0;
        friend auto operator<=>(const Key &, const Key &) = default;
    };

    const BackEnd &back_end_;
    Look look_;
    std::mutex lock_;
    std::map<Key, std::weak_ptr<HostCopy>> copies_;
    std::vector<Left> left_;
    Counts counts_;
    std::uint64_t asked_ = 0; // looks()
};

} // namespace singularity::proxyd
