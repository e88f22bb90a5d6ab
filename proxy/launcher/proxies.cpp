// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxies.hpp"

#include "log.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace singularity::launcher {

namespace {

constexpr std::chrono::seconds kStartPatience{
    30}; // NVIDIA's driver takes seconds to initialise a cold device
constexpr std::chrono::seconds kEndPatience{5};

// The line of --ready-fd, or the end of the pipe when the daemon has died.
Expected<void> await_ready(int fd, const Deadline &deadline, const std::string &what) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    for (;;) {
        const int found = poll(&ready, 1, deadline.poll_timeout());
        if (found > 0)
            break;
        if (found < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", what));
        if (found == 0 && deadline.expired())
            return std::unexpected(timeout_error(deadline, what));
    }
    std::array<char, 64> line{};
    if (read(fd, line.data(), line.size()) <= 0)
        return failure("start", what, "it has ended; its own message is above");
    return {};
}

// A descriptor from which the key is read once.
Expected<UniqueFd> readable(const collectives::JobKey &key) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return std::unexpected(errno_error("make a pipe for", "the job's key"));
    UniqueFd reading(ends[0]);
    const UniqueFd writing(ends[1]);
    if (!std::cmp_equal(write(writing.get(), key.data(), key.size()), key.size()))
        return std::unexpected(errno_error("pass on", "the job's key"));
    return reading;
}

} // namespace

Expected<Proxies> Proxies::start(const Installation &installation, const std::string &driver,
                                 unsigned devices, const std::vector<std::string> &arguments) {
    auto directory = RunDirectory::make();
    if (!directory)
        return propagate(directory);
    Proxies out(std::move(*directory));
    const auto secret = collectives::make_job_key();
    if (!secret)
        return std::unexpected(secret.error());
    auto rendezvous = collectives::Rendezvous::start(
        fmt::format("unix:{}", (out.directory() / "rendezvous").native()), *secret);
    if (!rendezvous)
        return propagate(rendezvous);
    out.rendezvous_ = std::move(*rendezvous);
    const auto deadline = Deadline::after(kStartPatience);
    std::vector<UniqueFd> ready;
    for (unsigned device = 0; device < devices; ++device) {
        std::array<int, 2> ends{};
        if (pipe2(ends.data(), O_CLOEXEC) != 0)
            return std::unexpected(errno_error("make a pipe for", "singularity-proxyd"));
        ready.emplace_back(ends[0]);
        const UniqueFd writing(ends[1]);
        const auto key = readable(*secret);
        if (!key)
            return std::unexpected(key.error());
        Command command;
        command.arguments = {installation.proxyd(),
                             "--driver",
                             driver,
                             "--device",
                             std::to_string(device),
                             "--socket",
                             out.socket(device),
                             "--ready-fd",
                             std::to_string(writing.get()),
                             "--die-with-parent",
                             "--node-devices",
                             std::to_string(devices),
                             "--rendezvous",
                             out.rendezvous_->address(),
                             "--job-key-fd",
                             std::to_string(key->get()),
                             "--log-file",
                             out.directory() / fmt::format("{}.log", device)};
        command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
        if (driver == installation.software_gpu())
            command.environment = {{"SINGULARITY_SOFTGPU_DEVICES", std::to_string(devices)}};
        command.keep_open = {writing.get(), key->get()};
        auto started = Child::start(command);
        if (!started)
            return propagate(started);
        out.processes_.push_back(std::move(*started));
    }
    for (unsigned device = 0; device < devices; ++device)
        if (auto serves =
                await_ready(ready[device].get(), deadline, fmt::format("the proxy of device {}", device));
            !serves)
            return propagate(serves);
    return out;
}

Proxies::~Proxies() {
    for (const auto &process : processes_)
        process.signal(SIGTERM);
    const auto deadline = Deadline::after(kEndPatience);
    for (auto &process : processes_)
        if (auto ended = process.wait(deadline); !ended)
            kLog.warning("{}; it is killed", ended.error().message());
    processes_.clear(); // kills what is left
}

std::filesystem::path Proxies::socket(std::size_t device) const {
    return directory() / fmt::format("{}.sock", device);
}

std::string Proxies::sockets() const {
    std::string out;
    for (std::size_t device = 0; device < processes_.size(); ++device)
        out += fmt::format("{}{}", device == 0 ? "" : ":", socket(device).string());
    return out;
}

} // namespace singularity::launcher
