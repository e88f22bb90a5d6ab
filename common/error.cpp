// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/error.hpp"

#include "common/text.hpp"

#include <system_error>

#include <fmt/core.h>

namespace singularity {

std::string Error::message() const {
    return escaped(on.empty() ? fmt::format("cannot {}: {}", doing, why)
                              : fmt::format("cannot {} {}: {}", doing, on, why));
}

Error errno_error(std::string_view doing, std::string_view on, int code) {
    return {std::string(doing), std::string(on), std::generic_category().message(code), code};
}

} // namespace singularity
