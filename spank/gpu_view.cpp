// SPDX-License-Identifier: GPL-2.0-or-later
#include "gpu_view.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

namespace singularity::spank {

std::string to_string(const GpuView &view) {
    return fmt::format("{}:{}:{}", view.requested, view.now, view.per_task);
}

std::optional<GpuView> gpu_view_of(std::string_view text) {
    std::array<std::uint32_t, 3> numbers{};
    for (std::size_t at = 0; at < numbers.size(); ++at) {
        const auto part = text.substr(0, text.find(':'));
        const auto [end, error] = std::from_chars(part.begin(), part.end(), numbers.at(at));
        const bool last = at + 1 == numbers.size();
        if (error != std::errc() || end != part.end() || last != (part.size() == text.size()))
            return std::nullopt;
        text.remove_prefix(std::min(text.size(), part.size() + 1));
    }
    return GpuView{.requested = numbers[0], .now = numbers[1], .per_task = numbers[2]};
}

} // namespace singularity::spank
