// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/launcher/run.hpp"

#include "child.hpp"
#include "installation.hpp"
#include "log.hpp"
#include "proxies.hpp"
#include "statistics.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace singularity::launcher {

namespace {

// What a terminal or an administrator sends to end a program: it is the program's to answer.
constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// Blocks the signals and makes them readable; unblocks at the end.
class ForwardedSignals {
  public:
    ForwardedSignals() {
        sigset_t set;
        sigemptyset(&set);
        for (const int number : kForwarded)
            sigaddset(&set, number);
        sigprocmask(SIG_BLOCK, &set, &before_);
        fd_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    }
    ~ForwardedSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    ForwardedSignals(const ForwardedSignals &) = delete;
    ForwardedSignals &operator=(const ForwardedSignals &) = delete;
    ForwardedSignals(ForwardedSignals &&) = delete;
    ForwardedSignals &operator=(ForwardedSignals &&) = delete;

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] std::optional<signalfd_siginfo> next() const {
        signalfd_siginfo info{};
        return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? std::optional(info) : std::nullopt;
    }

  private:
    sigset_t before_{};
    UniqueFd fd_;
};

Expected<std::string> choose_driver(const Installation &installation, const std::string &wish) {
    if (wish.empty()) {
        // Only whether it can be opened: what it can do is the daemon's to find out.
        if (void *const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL); library != nullptr) {
            dlclose(library);
            return "libcuda.so.1";
        }
    } else if (wish != "software") {
        return wish;
    }
    const auto software = installation.software_gpu();
    if (access(software.c_str(), R_OK) != 0)
        return std::unexpected(errno_error("open the software GPU", software.string()));
    return software.string();
}

// Forwards signals until the program has ended. A proxy that dies is said; the program learns it from its
// calls.
Expected<int> supervise(Child &program, const Proxies &proxies, const ForwardedSignals &signals) {
    std::vector<pollfd> watched{{.fd = program.pidfd(), .events = POLLIN, .revents = 0},
                                {.fd = signals.fd(), .events = POLLIN, .revents = 0}};
    for (const auto &process : proxies.processes())
        watched.push_back({.fd = process.pidfd(), .events = POLLIN, .revents = 0});
    for (;;) {
        if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "the program"));
        if (watched[0].revents != 0)
            return program.reap();
        while (const auto signal = signals.next()) {
            // The terminal has sent it to the whole foreground group, the program included.
            if (signal->ssi_code != SI_KERNEL)
                program.signal(static_cast<int>(signal->ssi_signo));
        }
        for (std::size_t at = 2; at < watched.size(); ++at)
            if (watched[at].revents != 0) {
                kLog.error("the proxy of device {} has ended; the program's calls fail from now on", at - 2);
                watched[at].fd = -1; // poll(2) passes over it
            }
    }
}

} // namespace

Expected<int> run(const RunOptions &options) {
    if (options.command.empty())
        return failure("run", "", "no program was named");
    if (options.devices == 0)
        return failure("run on", "0 devices", "at least 1 is needed");
    auto installation = find_installation();
    if (!installation)
        return propagate(installation);
    auto driver = choose_driver(*installation, options.backend);
    if (!driver)
        return propagate(driver);
    const ForwardedSignals signals;
    auto proxies = Proxies::start(*installation, *driver, options.devices, options.proxyd_arguments);
    if (!proxies)
        return propagate(proxies);

    const auto statistics = proxies->directory() / "statistics";
    Command command;
    command.arguments = options.command;
    command.environment = {
        {"SINGULARITY_PROXY_SOCKETS", proxies->sockets()},
        {"LD_AUDIT", installation->redirect()},
        {"SINGULARITY_REDIRECT_TO", installation->client().parent_path()},
    };
    if (options.statistics)
        command.environment.emplace_back("SINGULARITY_PROXY_STATS", statistics);
    auto program = Child::start(command);
    if (!program)
        return propagate(program);
    auto status = supervise(*program, *proxies, signals);
    if (status && options.statistics)
        fmt::print(stderr, "singularityctl: {}\n", summary(statistics, options.devices, *driver));
    return status;
}

} // namespace singularity::launcher
