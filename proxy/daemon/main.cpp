// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-proxyd: the device proxy. One process for each device; it alone talks to the driver.
#include "back_end.hpp"
#include "daemon.hpp"
#include "device_memory.hpp"
#include "device_output.hpp"
#include "image_service.hpp"
#include "late_device.hpp"
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

// What proxies of a job need to meet, whether this one's device is used or not.
struct Meeting {
    std::optional<collectives::JobKey> key;
    std::unique_ptr<collectives::Rendezvous> rendezvous; // if it is here
};

Expected<Meeting> prepare_meeting(const Options &options) {
    Meeting out;
    if (options.job_key_fd) {
        const UniqueFd descriptor(*options.job_key_fd);
        auto key = collectives::read_job_key(descriptor.get());
        if (!key)
            return propagate(key);
        out.key = *key;
    }
    if (options.rendezvous_fd) {
        auto rendezvous = collectives::Rendezvous::start(UniqueFd(*options.rendezvous_fd),
                                                         out.key.value_or(collectives::JobKey{}));
        if (!rendezvous)
            return propagate(rendezvous);
        out.rendezvous = std::move(*rendezvous);
    }
    return out;
}

Expected<CollectiveParts> start_collectives(const Options &options, const Meeting &meeting,
                                            const BackEnd &back_end) {
    CollectiveParts out;
    const bool stages = options.reductions == Reductions::device ||
                        (options.reductions == Reductions::automatic && !back_end.is_software());
    if (stages)
        out.device = std::make_shared<StagingDevice>(back_end, options.area.end);
    if (stages && !options.nccl.empty()) {
        auto library = NcclLibrary::open(options.nccl);
        if (!library)
            return propagate(library);
        kLog.info("NCCL {} links this device to others", (*library)->version);
        out.nccl = std::move(*library);
    }
    collectives::EngineOptions about{.rendezvous = options.rendezvous,
                                     .host = options.host_name,
                                     .address = options.address,
                                     .key = {},
                                     .links = out.nccl != nullptr};
    if (meeting.key)
        about.key = *meeting.key;
    auto engine = collectives::Engine::start(about);
    if (!engine)
        return propagate(engine);
    out.engine = std::move(*engine);
    return out;
}

Expected<ServedDevice> open_device(const Options &options, const Meeting &meeting,
                                   const UniqueFd &neighbours_file) {
    ServedDevice out;
    auto back_end = BackEnd::open(options.driver, options.device);
    if (!back_end)
        return propagate(back_end);
    out.back_end = std::move(*back_end);
    const auto &identity = out.back_end->identity();
    kLog.info("serving {} ({} MiB, compute capability {}.{}) on {}", identity.name.data(),
              identity.total_memory >> 20, identity.compute_major, identity.compute_minor,
              options.socket.native());
    auto collectives = start_collectives(options, meeting, *out.back_end);
    if (!collectives)
        return propagate(collectives);
    out.collectives = std::move(*collectives);
    out.residency = std::make_shared<Residency>(
        Residency::Rules{.device_bytes = identity.total_memory, .quantum = options.turn});
    if (neighbours_file) {
        auto neighbours = Neighbours::open(neighbours_file.get(), identity.uuid);
        if (!neighbours)
            return propagate(neighbours);
        out.residency->use_neighbours(std::move(*neighbours));
    }
    out.contents = std::make_shared<Contents>(*out.back_end, options.share_content);
    return out;
}

// Destructors would wait for threads that are in the driver.
[[noreturn]] void leave_at_once(const Options &options) {
    if (!options.socket_fd)
        static_cast<void>(unlink(options.socket.c_str()));
    _exit(EXIT_FAILURE);
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
    auto meeting = prepare_meeting(*options);
    if (!meeting)
        return give_up(meeting.error());
    const UniqueFd neighbours_file(options->neighbours_fd.value_or(-1));
    LateDevice device([&] { return open_device(*options, *meeting, neighbours_file); });
    if (!options->with_first_client)
        if (auto opened = device.open(); !opened)
            return give_up(opened.error());
    Daemon daemon(*options, device, output->get(), std::move(*listener), std::move(*windows));
    std::optional<ImageService> images;
    if (control)
        images.emplace(std::move(*control), daemon, device, options->area.window_size);
    if (ready && !say_ready(ready.get(), options->socket))
        kLog.warning("{}", errno_error("write to", "--ready-fd").message());
    ready.reset();
    const auto served = daemon.serve();
    if (device.is_opening()) {
        kLog.warning("the driver is still starting: ending without waiting for it");
        leave_at_once(*options);
    }
    images.reset();
    if (!daemon.end_sessions()) {
        kLog.error("the driver keeps what some sessions had: ending without waiting for it");
        leave_at_once(*options);
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
