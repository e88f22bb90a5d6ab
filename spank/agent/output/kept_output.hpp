// SPDX-License-Identifier: GPL-2.0-or-later
// How much output of each user's programs the agent keeps in its state directories, which lie in memory: what
// nobody has read yet, and the newest of what was read, for `logs`.
#pragma once

#include <cstdint>
#include <utility>

namespace singularity::agent {

// Of one task, rank or device proxy. All of a user's share Budget::output_bytes: who comes first has it. Not
// thread-safe: it is the agent's own, for its one thread.
class KeptOutput {
  public:
    // So much each may have even so, or a program of the user's could wait for others of theirs for ever. Up
    // to twice the budget for all together: files without number must not add up.
    static constexpr std::uint64_t kLeast = std::uint64_t{128} << 10;

    KeptOutput() = default;
    explicit KeptOutput(std::uint32_t uid) : uid_(uid) {}
    KeptOutput(KeptOutput &&other) noexcept : uid_(other.uid_), bytes_(std::exchange(other.bytes_, 0)) {}
    KeptOutput &operator=(KeptOutput &&other) noexcept {
        std::swap(uid_, other.uid_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    KeptOutput(const KeptOutput &) = delete;
    KeptOutput &operator=(const KeptOutput &) = delete;
    ~KeptOutput() { set(0); }

    // It has so many bytes now, whatever was allowed.
    void set(std::uint64_t bytes);
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

    // How many bytes more the budget has, and how many more this one may have.
    [[nodiscard]] std::uint64_t left() const;
    [[nodiscard]] std::uint64_t room() const;
    // The user has more than the budget.
    [[nodiscard]] bool over() const;
    // For one that wanted so many more: counted and logged once, until the user has less than half of the
    // budget.
    void tell(std::uint64_t more) const;

  private:
    std::uint32_t uid_ = 0;
    std::uint64_t bytes_ = 0;
};

} // namespace singularity::agent
