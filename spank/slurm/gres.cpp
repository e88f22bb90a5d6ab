// SPDX-License-Identifier: GPL-2.0-or-later
#include "gres.hpp"

#include <charconv>

namespace singularity::slurm {

std::optional<std::uint32_t> gpus_of(std::string_view gres) {
    std::uint32_t out = 0;
    while (!gres.empty()) {
        const auto part = gres.substr(0, gres.find(','));
        gres.remove_prefix(part.size() == gres.size() ? part.size() : part.size() + 1);
        const auto before = part.rfind(':');
        std::uint32_t count = 0;
        if (before == std::string_view::npos)
            return std::nullopt;
        const auto number = part.substr(before + 1);
        if (std::from_chars(number.begin(), number.end(), count).ec != std::errc())
            return std::nullopt;
        if (part.starts_with("gpu:"))
            out += count;
    }
    return out;
}

} // namespace singularity::slurm
