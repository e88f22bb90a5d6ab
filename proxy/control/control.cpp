// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/control/control.hpp"

#include "common/unix_socket.hpp"
#include "proxy/control/connection.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxy_control {

namespace {

std::uint64_t milliseconds(const Deadline &deadline) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining()).count());
}

Expected<Answer> ask(const std::filesystem::path &control_socket, const Request &request, int descriptor,
                     const char *doing, const Progress &progress, const Deadline &deadline) {
    auto socket = connect_unix(control_socket, deadline);
    if (!socket)
        return propagate(socket);
    if (auto sent = send_packet(socket->get(), std::as_bytes(std::span(&request, 1)), descriptor, deadline);
        !sent)
        return propagate(sent);
    for (;;) {
        Answer answer;
        if (auto got = receive_packet(socket->get(), std::as_writable_bytes(std::span(&answer, 1)), nullptr,
                                      deadline);
            !got) {
            if (got.error().code == ECONNRESET)
                return failure(
                    doing, control_socket.native(),
                    "the device proxy has hung up: it serves root and its own user, one request at a time",
                    ECONNRESET);
            return propagate(got);
        }
        answer.text.back() = '\0';
        switch (static_cast<AnswerKind>(answer.kind)) {
        case AnswerKind::progress:
            if (progress)
                progress(answer.bytes);
            continue;
        case AnswerKind::done:
            return answer;
        case AnswerKind::failed:
            return failure(doing, control_socket.native(), answer.text.data(), EIO);
        }
        return failure(doing, control_socket.native(), fmt::format("it answers with {}", answer.kind),
                       EPROTO);
    }
}

} // namespace

Expected<Answer> prepare(const std::filesystem::path &control_socket, int file, const Progress &progress,
                         const Deadline &deadline) {
    return ask(control_socket,
               {.operation = std::to_underlying(Operation::prepare), .within = milliseconds(deadline)}, file,
               "prepare to save the device images of", progress, deadline);
}

Expected<Answer> save(const std::filesystem::path &control_socket, int descriptor, const SaveOptions &options,
                      const Deadline &deadline) {
    return ask(control_socket,
               {.operation = std::to_underlying(Operation::save),
                .afterwards = std::to_underlying(options.afterwards),
                .quiesce = static_cast<std::uint64_t>(std::max<std::int64_t>(options.quiesce.count(), 0)),
                .within = milliseconds(deadline)},
               descriptor, "save the device images of", options.progress, deadline);
}

Expected<Answer> restore(const std::filesystem::path &control_socket, int descriptor,
                         const Progress &progress, const Deadline &deadline) {
    return ask(control_socket,
               {.operation = std::to_underlying(Operation::restore), .within = milliseconds(deadline)},
               descriptor, "restore device images with", progress, deadline);
}

Expected<Answer> resume(const std::filesystem::path &control_socket, const Deadline &deadline) {
    return ask(control_socket,
               {.operation = std::to_underlying(Operation::resume), .within = milliseconds(deadline)}, -1,
               "bring back the clients of", {}, deadline);
}

Expected<Answer> await_attached(const std::filesystem::path &control_socket, int processes,
                                const Deadline &deadline) {
    return ask(control_socket,
               {.operation = std::to_underlying(Operation::await_attached), .within = milliseconds(deadline)},
               processes, "wait for the clients of", {}, deadline);
}

} // namespace singularity::proxy_control
