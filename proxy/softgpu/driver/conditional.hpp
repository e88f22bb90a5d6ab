// SPDX-License-Identifier: GPL-2.0-or-later
// Conditional handles: what kernels set (cudaGraphSetConditional), and conditional nodes of graphs look at. A
// handle has a value for each launch of its graph, which begins with the default.
#pragma once

#include "driver/result.hpp"

#include <cstdint>
#include <memory>

namespace singularity::softgpu::driver {

class Context;

// Kernels are given the number as a parameter. It is the smallest that is free in the context, so that
// whoever makes the same handles again can have them under the same numbers. Free again at the end of this
// object.
class Conditional {
  public:
    Conditional(std::uint64_t context, std::uint64_t number, std::uint32_t value)
        : context_(context), number_(number), value_(value) {}
    ~Conditional();
    Conditional(const Conditional &) = delete;
    Conditional &operator=(const Conditional &) = delete;
    Conditional(Conditional &&) = delete;
    Conditional &operator=(Conditional &&) = delete;

    [[nodiscard]] std::uint64_t number() const { return number_; }
    [[nodiscard]] std::uint32_t default_value() const { return value_; }

    bool has_node = false; // a handle is for one conditional node; guarded by graph_mutex()

  private:
    std::uint64_t context_; // Context::id()
    std::uint64_t number_;
    std::uint32_t value_;
};

[[nodiscard]] std::shared_ptr<Conditional> make_conditional(const Context &context, std::uint32_t value);
// nullptr: there is none of that number in the context.
[[nodiscard]] std::shared_ptr<Conditional> conditional_of(const Context &context, std::uint64_t number);

} // namespace singularity::softgpu::driver
