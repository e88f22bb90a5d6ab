// SPDX-License-Identifier: GPL-2.0-or-later
// The part of YAML that a configuration needs: mappings and scalars, every key once.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::yaml {

inline constexpr std::size_t kMaxBytes = 1U << 20U;
inline constexpr std::size_t kMaxDepth = 8;

struct Node {
    enum class Kind : std::uint8_t { kScalar, kMapping, kSequence };

    std::string name; // keys from the top, joined by dots: "elastic.min_gpus"
    std::string key;  // the last of them, which may itself contain dots
    std::size_t line; // of the key, from 1
    Kind kind;
    std::string text;    // of a scalar
    bool quoted = false; // a scalar with a style of its own, which YAML takes for a string whatever it says
};

// The nodes of the one document in the order of the text; none for an empty document.
// Refused: everything that is not UTF-8 text, more than kMaxBytes or kMaxDepth, several documents,
// directives, anchors, aliases, tags, keys that occur twice, keys that are not scalars. Reading stops behind
// the first sequence, since no setting takes one: the caller reports the last node when its kind is
// kSequence.
[[nodiscard]] Expected<std::vector<Node>> read(std::string_view text, std::string_view file_name);

// "cannot read FILE:LINE: KEY: WHY"; without a key where none is concerned.
[[nodiscard]] Error error_at(std::string_view file_name, std::size_t line, std::string_view key,
                             std::string_view why);

} // namespace singularity::yaml
