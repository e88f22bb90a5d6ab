// SPDX-License-Identifier: GPL-2.0-or-later
// For whoever moves programs from one device proxy to another: a node agent, a test.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/control/messages.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>

namespace singularity::proxy_control {

// Bytes of the stream so far; called now and then.
using Progress = std::function<void(std::uint64_t bytes)>;

struct SaveOptions {
    Afterwards afterwards = Afterwards::run_on;
    // For the clients to stop in front of their next calls and the device to finish what it has. A kernel
    // that takes longer is an error, and the clients run on.
    std::chrono::milliseconds quiesce{10'000};
    Progress progress;
};

// control_socket, of all of these: singularity-proxyd --control. Before a save to an empty file that is open
// for reading and writing: gets the memory for what the clients have on the device, while they run. Where
// there is no room for it, or it takes too long, nothing has happened to anybody.
[[nodiscard]] Expected<Answer> prepare(const std::filesystem::path &control_socket, int file,
                                       const Progress &progress, const Deadline &deadline);

// What is written to the descriptor is an image only if this
// succeeds. After Afterwards::detach no client knows the proxy any more: it may be ended. Until then, and
// also where detaching has failed half-way, resume() brings them back.
[[nodiscard]] Expected<Answer> save(const std::filesystem::path &control_socket, int descriptor,
                                    const SaveOptions &options, const Deadline &deadline);

// Several streams may be restored into one proxy, one after the other. On success the proxy holds the
// sessions until their clients attach, by themselves, to their sockets.
[[nodiscard]] Expected<Answer> restore(const std::filesystem::path &control_socket, int descriptor,
                                       const Progress &progress, const Deadline &deadline);

// The clients may attach again, by themselves, to what they had here. Where none has detached nothing
// happens.
[[nodiscard]] Expected<Answer> resume(const std::filesystem::path &control_socket, const Deadline &deadline);

// All clients of restored sessions, and those that may come back, have attached. processes: a /proc of their
// PID namespace, for those that have ended instead; -1: these are waited for as well.
[[nodiscard]] Expected<Answer> await_attached(const std::filesystem::path &control_socket, int processes,
                                              const Deadline &deadline);

} // namespace singularity::proxy_control
