// SPDX-License-Identifier: GPL-2.0-or-later
// What calls end with: NCCL's result codes, their texts, and the last error in words (ncclGetLastError).
#pragma once

#include "common/error.hpp"
#include "proxy/nccl/abi.hpp"

#include <expected>
#include <string_view>

#include <fmt/format.h>

namespace singularity::nccl {

template <class T>
using Outcome = std::expected<T, Result>;

// ncclGetErrorString
[[nodiscard]] const char *text_of(Result result);

// Notes why: for ncclGetLastError, and for the log where NCCL_DEBUG asks for it (WARN or more).
void note(std::string_view why) noexcept;
// Of the process, whoever made it: the thread that asks is rarely the one that failed. The text stays until
// many others have followed.
[[nodiscard]] const char *last_error();
// NCCL_DEBUG is read anew.
void read_log_settings();

// return refuse(Result::invalid_argument, "{} : invalid type {}", ...);
template <class... Args>
[[nodiscard]] Result refuse(Result result, fmt::format_string<Args...> format, Args &&...args) {
    note(fmt::format(format, std::forward<Args>(args)...));
    return result;
}
[[nodiscard]] inline Result refuse(Result result, const Error &error) {
    note(error.message());
    return result;
}

// For functions that return an Outcome.
template <class... Args>
[[nodiscard]] std::unexpected<Result> refused(Result result, fmt::format_string<Args...> format,
                                              Args &&...args) {
    return std::unexpected(refuse(result, format, std::forward<Args>(args)...));
}

} // namespace singularity::nccl
