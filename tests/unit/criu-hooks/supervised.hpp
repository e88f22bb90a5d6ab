// SPDX-License-Identifier: GPL-2.0-or-later
// A process whose system calls on files below a directory are told to this one before they happen, which may
// let them happen, make them fail, answer them itself, or end the process right there (seccomp_unotify(2)).
// The program under test does not take part in this: it is the code that runs in production, and every call
// of it is a point to try.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include <sys/types.h>

namespace singularity::test {

struct Call {
    int number = 0; // from 0, of those that are told
    pid_t thread = 0;
    std::string_view name; // "renameat"
    bool changes = false;  // what is in the directory; fsync is among these, reading is not
    int file = -1;         // descriptor in that process: what is read, written or synced
    std::string path;      // below the directory
    std::string to;        // of renameat
};

struct Proceed {};
struct Fail {
    int code = 0; // an errno value
};
struct Answer {}; // success, without the call being made
struct Kill {};   // SIGKILL to the process before the call is made
using Verdict = std::variant<Proceed, Fail, Answer, Kill>;

struct Outcome {
    bool killed = false;
    int status = 0; // exit status if it was not killed
    int calls = 0;
    std::string last; // "renameat pending/ID -> checkpoints/ID": what it was killed at
};

// Runs body, which returns its exit status, in a process of its own that is supervised until it ends. A hang,
// or an end by another signal than that of Kill, fails the test.
[[nodiscard]] Outcome supervise(const std::filesystem::path &directory, const std::function<int()> &body,
                                const std::function<Verdict(const Call &)> &decide);

// As a file in /proc: what a descriptor of a supervised process is open on.
[[nodiscard]] std::filesystem::path descriptor_of(const Call &call);

[[nodiscard]] std::string text_of(const Call &call);

} // namespace singularity::test
