// SPDX-License-Identifier: GPL-2.0-or-later
// What every function that can fail returns.
#pragma once

#include <cerrno>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace singularity {

// The three parts are kept apart because they come from different places: the caller knows what was being
// done, the callee why it failed. Read together they are one sentence: "cannot <doing> <on>: <why>".
struct Error {
    std::string doing; // verb: "read", "mount tmpfs on"
    std::string on;    // the thing by name; may be empty
    std::string why;   // the reason, the value found and, where there is one, the fix
    int code = 0;      // errno value, 0 where none applies

    // One line whatever the parts hold: control characters are escaped.
    [[nodiscard]] std::string message() const;
};

template <class T>
using Expected = std::expected<T, Error>;

// The reason is the C library's text for the code. Call it before anything else can change errno.
[[nodiscard]] Error errno_error(std::string_view doing, std::string_view on, int code = errno);

// Hands the error of a failed call to one's own caller:
//     auto file = open_file(path, O_RDONLY);
//     if (!file)
//         return propagate(file);
template <class T>
[[nodiscard]] std::unexpected<Error> propagate(Expected<T> &failed) {
    return std::unexpected(std::move(failed.error()));
}

// return failure("parse", text, "expected ...");
[[nodiscard]] inline std::unexpected<Error> failure(std::string doing, std::string on, std::string why,
                                                    int code = 0) {
    return std::unexpected(Error{std::move(doing), std::move(on), std::move(why), code});
}

} // namespace singularity
