// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/program_output.hpp"

#include "common/exec.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity {

namespace {

constexpr std::size_t kMostOutput = std::size_t{64} << 20U; // a list of many thousand nodes

struct Pipe {
    UniqueFd reader;
    UniqueFd writer;
};

Expected<Pipe> make_pipe(const std::string &program) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return std::unexpected(errno_error("make a pipe for", program));
    return Pipe{.reader = UniqueFd(ends[0]), .writer = UniqueFd(ends[1])};
}

Expected<pid_t> spawn(std::vector<std::string> &command, const Pipe &out, const Pipe &err) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out.writer.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err.writer.get(), STDERR_FILENO);
    // A daemon blocks the signals that end it; a program must not inherit that.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none{};
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    auto arguments = exec_list(command);
    pid_t child = 0;
    const int spawned = posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (spawned != 0)
        return std::unexpected(errno_error("run", command[0], spawned));
    return child;
}

// Until both pipes have come to their end.
Expected<void> read_both(const Pipe &out, const Pipe &err, ProgramOutput &into, const Deadline &deadline,
                         const std::string &program) {
    std::array<pollfd, 2> waiting{{{.fd = out.reader.get(), .events = POLLIN, .revents = 0},
                                   {.fd = err.reader.get(), .events = POLLIN, .revents = 0}}};
    const std::array<std::string *, 2> texts{&into.out, &into.err};
    while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
        const int ready = poll(waiting.data(), waiting.size(), deadline.poll_timeout());
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0)
            return std::unexpected(errno_error("read the output of", program));
        if (ready == 0)
            return std::unexpected(timeout_error(deadline, fmt::format("the end of '{}'", program)));
        for (std::size_t i = 0; i < waiting.size(); ++i) {
            if (waiting[i].fd < 0 || waiting[i].revents == 0)
                continue;
            std::array<char, 4096> buffer{};
            const ssize_t size = read(waiting[i].fd, buffer.data(), buffer.size());
            if (size < 0 && (errno == EINTR || errno == EAGAIN))
                continue;
            if (size < 0)
                return std::unexpected(errno_error("read the output of", program));
            if (size == 0)
                waiting[i].fd = -1;
            else
                texts[i]->append(buffer.data(), static_cast<std::size_t>(size));
            if (texts[i]->size() > kMostOutput)
                return failure("run", program, fmt::format("it writes more than {} bytes", kMostOutput),
                               EFBIG);
        }
    }
    return {};
}

} // namespace

Expected<ProgramOutput> output_of(std::vector<std::string> command, const Deadline &deadline) {
    const std::string program = fmt::format("{}", fmt::join(command, " "));
    auto out = make_pipe(program);
    if (!out)
        return propagate(out);
    auto err = make_pipe(program);
    if (!err)
        return propagate(err);
    auto child = spawn(command, *out, *err);
    if (!child)
        return propagate(child);
    out->writer.reset();
    err->writer.reset();
    ProgramOutput output;
    auto done = read_both(*out, *err, output, deadline, program);
    // A program may close its output and go on: its end is waited for as its output was.
    if (done)
        done =
            wait_until([&] { return waitpid(*child, &output.status, WNOHANG) == *child; }, deadline, program);
    if (!done) {
        kill(*child, SIGKILL);
        while (waitpid(*child, &output.status, 0) < 0 && errno == EINTR) {
        }
        return propagate(done);
    }
    return output;
}

Expected<std::string> answer_of(std::vector<std::string> command, const Deadline &deadline) {
    const std::string program = fmt::format("{}", fmt::join(command, " "));
    auto output = output_of(std::move(command), deadline);
    if (!output)
        return propagate(output);
    if (WIFEXITED(output->status) && WEXITSTATUS(output->status) == 0)
        return std::move(output->out);
    std::string words = output->err.empty() ? output->out : output->err;
    words.resize(words.find_last_not_of(" \n") + 1);
    const std::string end = WIFEXITED(output->status) ? fmt::format("exit {}", WEXITSTATUS(output->status))
                                                      : fmt::format("signal {}", WTERMSIG(output->status));
    return failure("run", program,
                   words.empty() ? "it ended with " + end : fmt::format("{} ({})", words, end));
}

} // namespace singularity
