// SPDX-License-Identifier: GPL-2.0-or-later
// Which objects a call has to do with, as the object table sees it: what is looked up, made, named and ended
// by one thread while a Trace is its active one. With `names` the other way round: what was named then is
// what the same call must name now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace singularity::proxyd {

struct Trace {
    std::vector<std::uint64_t> used;
    std::vector<std::uint64_t> made;
    std::vector<std::uint64_t> gone;
    std::vector<std::uint64_t> named;    // in the order of the questions, known ones as well
    std::vector<std::uint64_t> invented; // those of them that were new

    bool repeating = false;
    std::span<const std::uint64_t> names; // while repeating: what named has to become
    std::optional<std::string> differs;   // it did not
};

// The calling thread's; nullptr: nobody is interested.
inline thread_local Trace *active_trace = nullptr;

class Tracing {
  public:
    explicit Tracing(Trace *trace) : before_(std::exchange(active_trace, trace)) {}
    ~Tracing() { active_trace = before_; }
    Tracing(const Tracing &) = delete;
    Tracing &operator=(const Tracing &) = delete;
    Tracing(Tracing &&) = delete;
    Tracing &operator=(Tracing &&) = delete;

  private:
    Trace *before_;
};

// Things that have an address instead of a handle, for the trace: no handle has these bits.
[[nodiscard]] constexpr std::uint64_t reservation_mark(std::uint64_t address) {
    return std::uint64_t{1} << 63 | address;
}
[[nodiscard]] constexpr std::uint64_t mapping_mark(std::uint64_t address) {
    return std::uint64_t{1} << 62 | address;
}

inline void trace_used(std::uint64_t what) {
    if (active_trace != nullptr)
        active_trace->used.push_back(what);
}
inline void trace_made(std::uint64_t what) {
    if (active_trace != nullptr)
        active_trace->made.push_back(what);
}
inline void trace_gone(std::uint64_t what) {
    if (active_trace != nullptr)
        active_trace->gone.push_back(what);
}

} // namespace singularity::proxyd
