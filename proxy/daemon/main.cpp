// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-proxyd: the device proxy. One process for each device; it alone talks to the driver.
#include "back_end.hpp"
#include "daemon.hpp"
#include "device_memory.hpp"
#include "device_output.hpp"
#include "image_service.hpp"
#include "listener.hpp"
#include "log.hpp"
#include "log_file.hpp"
#include "nccl_library.hpp"
#include "options.hpp"
#include "proxy/collectives/engine.hpp"
#include "proxy/collectives/rendezvous.hpp"
#include "same_addresses.hpp"
#include "window_area.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace singularity::proxyd;

int give_up(const Error &error) {
    kLog.error("{}", error.message());
    return EXIT_FAILURE;
}

// Before any thread is made: they all inherit it.
void block_signals() {
    sigset_t ends{};
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    // A client or a reader of the output that is gone is an error of a call, not a death.
    static_cast<void>(signal(SIGPIPE, SIG_IGN));
}

bool say_ready(int fd, const std::filesystem::path &socket) {
    const auto line = fmt::format("singularity-proxyd: serving on {}\n", socket.native());
    return std::cmp_equal(write(fd, line.data(), line.size()), line.size());
}

// Communicators, and the rendezvous if it is here.
struct Collectives {
    std::unique_ptr<collectives::Rendezvous> rendezvous;
    CollectiveParts parts;
};

Expected<Collectives> start_collectives(const Options &options, const BackEnd &back_end) {
    Collectives out;
    const bool stages = options.reductions == Reductions::device ||
                        (options.reductions == Reductions::automatic && !back_end.is_software());
    if (stages)
        out.parts.device = std::make_shared<StagingDevice>(back_end, options.area.end);
    if (stages && !options.nccl.empty()) {
        auto library = NcclLibrary::open(options.nccl);
        if (!library)
            return propagate(library);
        kLog.info("NCCL {} links this device to others", (*library)->version);
        out.parts.nccl = std::move(*library);
    }
    collectives::EngineOptions about{.rendezvous = options.rendezvous,
                                     .host = options.host_name,
                                     .address = options.address,
                                     .key = {},
                                     .links = out.parts.nccl != nullptr};
    if (options.job_key_fd) {
        const UniqueFd descriptor(*options.job_key_fd);
        auto key = collectives::read_job_key(descriptor.get());
        if (!key)
            return propagate(key);
        about.key = *key;
    }
    if (options.rendezvous_fd) {
        auto rendezvous = collectives::Rendezvous::start(UniqueFd(*options.rendezvous_fd), about.key);
        if (!rendezvous)
            return propagate(rendezvous);
        out.rendezvous = std::move(*rendezvous);
    }
    auto engine = collectives::Engine::start(about);
    if (!engine)
        return propagate(engine);
    out.parts.engine = std::move(*engine);
    return out;
}

int run(int argc, char **argv) {
    const pid_t parent = getppid();
    const auto options = parse_options(argc, argv);
    if (!options)
        return options.error().status;
    log::set_level(options->log_level);
    if (!options->log_file.empty())
        if (auto opened = log_to(options->log_file); !opened)
            return give_up(opened.error());
    if (options->die_with_parent) {
        if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
            return give_up(errno_error("bind the life to", "the parent process"));
        // It may have died before.
        if (getppid() != parent)
            return EXIT_SUCCESS;
    }
    if (auto same = want_same_addresses(argv); !same)
        kLog.warning("{}: a program that knows addresses of its variables cannot be restored in another "
                     "process of NVIDIA's driver",
                     same.error().message());
    block_signals();
    // The output's pipe takes descriptor 1: whoever waits there gets its line from a copy.
    UniqueFd ready;
    if (options->ready_fd) {
        ready = UniqueFd(fcntl(*options->ready_fd, F_DUPFD_CLOEXEC, 3));
        if (!ready)
            return give_up(errno_error("use", "--ready-fd"));
        if (*options->ready_fd > STDERR_FILENO)
            close(*options->ready_fd);
    }
    auto windows = WindowArea::create(options->area);
    if (!windows)
        return give_up(windows.error());
    // First: a second daemon must not touch the device.
    auto listener =
        options->socket_fd ? Listener::adopt(UniqueFd(*options->socket_fd)) : Listener::open(options->socket);
    if (!listener)
        return give_up(listener.error());
    std::optional<Listener> control;
    if (options->control_fd || !options->control.empty()) {
        auto opened = options->control_fd ? Listener::adopt(UniqueFd(*options->control_fd))
                                          : Listener::open(options->control);
        if (!opened)
            return give_up(opened.error());
        control.emplace(std::move(*opened));
    }
    auto output = DeviceOutput::capture();
    if (!output)
        return give_up(output.error());
    auto back_end = BackEnd::open(options->driver, options->device);
    if (!back_end)
        return give_up(back_end.error());
    const auto &identity = (*back_end)->identity();
    kLog.info("serving {} ({} MiB, compute capability {}.{}) on {}", identity.name.data(),
              identity.total_memory >> 20, identity.compute_major, identity.compute_minor,
              options->socket.native());
    auto ranks = start_collectives(*options, **back_end);
    if (!ranks)
        return give_up(ranks.error());
    Daemon daemon(*options, **back_end, output->get(), std::move(*listener), std::move(*windows),
                  std::move(ranks->parts));
    if (options->neighbours_fd) {
        const UniqueFd file(*options->neighbours_fd);
        auto neighbours = Neighbours::open(file.get(), identity.uuid);
        if (!neighbours)
            return give_up(neighbours.error());
        daemon.use_neighbours(std::move(*neighbours));
    }
    std::optional<ImageService> images;
    if (control)
        images.emplace(std::move(*control), daemon, **back_end, options->area.window_size);
    if (ready && !say_ready(ready.get(), options->socket))
        kLog.warning("{}", errno_error("write to", "--ready-fd").message());
    ready.reset();
    const auto served = daemon.serve();
    images.reset();
    if (!daemon.end_sessions()) {
        kLog.error("the driver keeps what some sessions had: ending without waiting for it");
        // Destructors would wait for threads that are in the driver.
        if (!options->socket_fd)
            static_cast<void>(unlink(options->socket.c_str()));
        _exit(EXIT_FAILURE);
    }
    return served ? EXIT_SUCCESS : give_up(served.error());
}

} // namespace

int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return EXIT_FAILURE;
    }
}
