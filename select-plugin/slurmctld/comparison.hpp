// SPDX-License-Identifier: GPL-2.0-or-later
// Collects what a comparison of records with the public API found.
#pragma once

#include "layout.hpp"

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace singularity::records {

struct Disagreement {
    std::string field; // struct.field
    std::string read;
    std::string shown;

    friend bool operator==(const Disagreement &, const Disagreement &) = default;
};

// Invariant: a value that was not the same in both reads counts neither as agreeing nor as disagreeing.
class Comparison {
  public:
    template <std::integral Value, std::integral Shown>
    void field(const FieldLayout &layout, Value before, Value after, Shown shown) {
        if (before != after)
            return;
        // Through 64 bits: the public structs hold some values in another width.
        if (static_cast<std::int64_t>(before) == static_cast<std::int64_t>(shown))
            ++agreed_;
        else
            disagree(layout, fmt::format("{}", before), fmt::format("{}", shown));
    }

    void field(const FieldLayout &layout, const std::string &before, const std::string &after,
               const char *shown) {
        if (before != after)
            return;
        if (before == (shown == nullptr ? std::string_view() : std::string_view(shown)))
            ++agreed_;
        else
            disagree(layout, fmt::format("'{}'", before),
                     shown == nullptr ? "nothing" : fmt::format("'{}'", shown));
    }

    void disagree(const FieldLayout &layout, std::string read, std::string shown) {
        if (!first_)
            first_ = Disagreement{fmt::format("{}.{}", layout.record->name, layout.name), std::move(read),
                                  std::move(shown)};
    }

    [[nodiscard]] std::size_t agreed() const { return agreed_; }
    [[nodiscard]] const std::optional<Disagreement> &disagreement() const { return first_; }

  private:
    std::size_t agreed_ = 0;
    std::optional<Disagreement> first_;
};

} // namespace singularity::records
