// SPDX-License-Identifier: GPL-2.0-or-later
#include "options.hpp"

#include "common/text.hpp"
#include "common/unix_socket.hpp"
#include "proxy/channel/segment.hpp"
#include "window_area.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {

Expected<std::uint64_t> parse_address(const std::string &text, const std::string &whole) {
    std::size_t used = 0;
    std::uint64_t value = 0;
    try {
        value = std::stoull(text, &used, 0);
    } catch (const std::exception &) {
        used = 0;
    }
    if (text.empty() || used != text.size() || text.front() == '-')
        return failure("read the window area", quote(whole),
                       fmt::format("{} is no address; write BEGIN-END, as in 0x200000000000-0x540000000000",
                                   quote(text)));
    return value;
}

// What CLI11 cannot check one by one. The text of what is wrong; empty: nothing.
std::string wrong(const Options &options) {
    if (auto address = unix_address(options.socket); !options.socket_fd && !address)
        return fmt::format("--socket: {}", address.error().message());
    if (auto address = unix_address(options.control); !options.control.empty() && !address)
        return fmt::format("--control: {}", address.error().message());
    if (auto area = WindowArea::create(options.area); !area)
        return area.error().message();
    if (auto geometry = channel::check(options.geometry); !geometry)
        return geometry.error().message();
    if (options.socket_fd && fcntl(*options.socket_fd, F_GETFD) < 0)
        return fmt::format("--socket-fd: descriptor {} is not open", *options.socket_fd);
    if (options.control_fd && !options.control.empty())
        return "--control and --control-fd: one of the two";
    if (options.control_fd && fcntl(*options.control_fd, F_GETFD) < 0)
        return fmt::format("--control-fd: descriptor {} is not open", *options.control_fd);
    if (options.ready_fd && fcntl(*options.ready_fd, F_GETFD) < 0)
        return fmt::format("--ready-fd: descriptor {} is not open", *options.ready_fd);
    if (options.rendezvous.empty() != !options.job_key_fd)
        return "--rendezvous and --job-key-fd: both, or neither";
    if (options.rendezvous.empty() && !(options.address.empty() && options.host_name.empty()))
        return "--address and --host-name are for collectives with other proxies: they need --rendezvous";
    if (options.rendezvous_fd && options.rendezvous.empty())
        return "--rendezvous-fd: --rendezvous says where that is";
    if (options.rendezvous_fd && fcntl(*options.rendezvous_fd, F_GETFD) < 0)
        return fmt::format("--rendezvous-fd: descriptor {} is not open", *options.rendezvous_fd);
    if (options.neighbours_fd && fcntl(*options.neighbours_fd, F_GETFD) < 0)
        return fmt::format("--neighbours-fd: descriptor {} is not open", *options.neighbours_fd);
    if (options.job_key_fd && fcntl(*options.job_key_fd, F_GETFD) < 0)
        return fmt::format("--job-key-fd: descriptor {} is not open", *options.job_key_fd);
    return {};
}

} // namespace

std::uint64_t window_size_for(const channel::WindowArea &area, std::uint64_t devices) {
    constexpr std::uint64_t kSlice = std::uint64_t{256} << 30;
    constexpr std::uint64_t kUnit = std::uint64_t{1} << 30;
    const auto room = (area.end - area.begin) / (2 * devices) / kUnit * kUnit;
    return std::min(kSlice * (devices + 1), std::max(room, kUnit));
}

Expected<channel::WindowArea> parse_area(const std::string &text, std::uint64_t window_size) {
    const auto dash = text.find('-', 1);
    if (dash == std::string::npos)
        return failure("read the window area", quote(text),
                       "write BEGIN-END, as in 0x200000000000-0x540000000000");
    auto begin = parse_address(text.substr(0, dash), text);
    if (!begin)
        return propagate(begin);
    auto end = parse_address(text.substr(dash + 1), text);
    if (!end)
        return propagate(end);
    return channel::WindowArea{.begin = *begin, .end = *end, .window_size = window_size};
}

std::expected<Options, EarlyExit> parse_options(int argc, char **argv) {
    Options options;
    options.user = geteuid();
    CLI::App app("singularity-proxyd: serves one device to the programs of one user, and talks to the driver "
                 "for them");
    app.set_version_flag("--version", SINGULARITY_VERSION);
    std::string area;
    std::string socket;
    std::string control;
    std::string driver = options.driver;
    std::string log_file;
    std::string nccl;
    unsigned idle_exit = 0;
    unsigned turn = static_cast<unsigned>(options.turn.count());
    std::uint64_t ring_size = options.geometry.ring_size;
    int ready_fd = -1;
    int socket_fd = -1;
    int control_fd = -1;
    int job_key_fd = -1;
    int rendezvous_fd = -1;
    int neighbours_fd = -1;
    std::map<std::string, log::Level> levels;
    for (const auto &[name, level] : log::kLevels)
        levels.emplace(name, level);
    app.add_option("--driver", driver,
                   "driver library: NVIDIA's or the software GPU; a name without a slash is looked for as "
                   "dlopen(3) does")
        ->capture_default_str();
    app.add_option("--device", options.device, "ordinal of the device in that library")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--socket", socket, "Unix socket to listen on")->required();
    app.add_option(
           "--socket-fd", socket_fd,
           "descriptor of a socket that listens at --socket already: its maker decides who reaches it, "
           "and removes it")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--control", control,
                   "Unix socket on which root and this daemon's user save and restore device images");
    app.add_option("--control-fd", control_fd,
                   "descriptor of a listening socket to use in place of --control's: its maker decides who "
                   "reaches it")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--window-area", area,
                   "BEGIN-END: addresses from which each client gets a window for its device memory");
    app.add_option("--window-size", options.area.window_size,
                   "bytes of one client's window (256 GiB for each of --node-devices and as much for shared "
                   "memory; less where the area has not two windows for each device)")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--node-devices", options.node_devices,
                   "virtual devices of the node: programs that use any of them may meet on one")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option("--max-clients", options.max_clients, "clients at a time")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--ring-size", ring_size, "bytes of each client's ring of calls; a power of two")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::uint64_t{64} << 10, std::uint64_t{1} << 30))
        ->capture_default_str();
    app.add_option("--user", options.user, "number of the user whose programs are served, besides root's")
        ->capture_default_str();
    app.add_option("--ready-fd", ready_fd, "descriptor that gets one line when clients are served")
        ->check(CLI::NonNegativeNumber);
    app.add_flag("--with-first-client", options.with_first_client,
                 "open the driver and its device when the first client connects, or is restored; until then "
                 "this is a process that listens");
    app.add_option("--rendezvous", options.rendezvous,
                   "unix:PATH or tcp:HOST:PORT of the job's rendezvous: ranks of one communicator may use "
                   "several proxies");
    app.add_option("--job-key-fd", job_key_fd,
                   "descriptor from which the job's key is read: 32 bytes, up to its end")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--rendezvous-fd", rendezvous_fd,
                   "descriptor of a listening socket, at --rendezvous: this proxy serves it for the others")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--host-name", options.host_name,
                   "proxies with the same name share memory; by default the machine's name");
    app.add_option("--address", options.address,
                   "tcp:HOST:PORT where proxies of other hosts reach this one; port 0: any");
    const std::map<std::string, Reductions> reductions{
        {"auto", Reductions::automatic}, {"host", Reductions::host}, {"device", Reductions::device}};
    app.add_option(
           "--reductions", options.reductions,
           "where collectives among ranks of this device are carried out: host, device, or auto: on the "
           "device unless it is the software GPU")
        ->transform(CLI::CheckedTransformer(reductions).description(""));
    app.add_option("--nccl", nccl,
                   "NVIDIA's libnccl.so.2, through which ranks exchange data where each has a device of its "
                   "own; without it they do through memory of their hosts");
    app.add_option("--turn", turn,
                   "milliseconds until a program that never waits leaves the device to the next, where the "
                   "memory of all does not fit on it; at least four times as long as changing takes")
        ->check(CLI::Range(1U, 86'400'000U))
        ->capture_default_str();
    const std::map<std::string, Contents::Look> looks{{"auto", Contents::Look::when_it_pays},
                                                      {"always", Contents::Look::always},
                                                      {"never", Contents::Look::never}};
    app.add_option("--share-content", options.share_content,
                   "where ranks take turns, whether what several of them have in common is moved once: "
                   "always, never, or "
                   "auto: as long as finding out saves more time than it costs")
        ->transform(CLI::CheckedTransformer(looks).description(""));
    app.add_option("--neighbours-fd", neighbours_fd,
                   "descriptor of a sealed memfd, of 256 KiB of zeros when it is new: device proxies that "
                   "have it and serve the same device take turns at it")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--idle-exit", idle_exit,
                   "end when there has been no client for so many seconds; 0: never")
        ->capture_default_str();
    app.add_flag("--die-with-parent", options.die_with_parent,
                 "end when the process that started this one has ended");
    app.add_option("--log-level", options.log_level, "error, warning, info or debug")
        ->transform(CLI::CheckedTransformer(levels).description(""));
    app.add_option("--log-file", log_file,
                   "file that log lines are appended to; only warnings and errors then go to stderr as well")
        ->take_last();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return std::unexpected(EarlyExit{app.exit(error)});
    }
    const auto refuse = [&app](const std::string &why) {
        return std::unexpected(EarlyExit{app.exit(CLI::ValidationError(why))});
    };
    options.driver = driver;
    options.socket = socket;
    options.control = control;
    options.log_file = log_file;
    options.nccl = nccl;
    options.turn = std::chrono::milliseconds(turn);
    options.idle_exit = std::chrono::seconds(idle_exit);
    options.geometry.ring_size = static_cast<std::uint32_t>(ring_size);
    // A small ring carries small records.
    while (channel::record_span(options.geometry.record_limit) > options.geometry.ring_size / 2)
        options.geometry.record_limit /= 2;
    if (socket_fd >= 0)
        options.socket_fd = socket_fd;
    if (control_fd >= 0)
        options.control_fd = control_fd;
    if (rendezvous_fd >= 0)
        options.rendezvous_fd = rendezvous_fd;
    if (neighbours_fd >= 0)
        options.neighbours_fd = neighbours_fd;
    if (job_key_fd >= 0)
        options.job_key_fd = job_key_fd;
    if (ready_fd >= 0)
        options.ready_fd = ready_fd;
    if (!area.empty()) {
        auto parsed = parse_area(area, options.area.window_size);
        if (!parsed)
            return refuse(parsed.error().message());
        options.area = *parsed;
    }
    if (options.area.window_size == 0)
        options.area.window_size = window_size_for(options.area, options.node_devices);
    if (const auto why = wrong(options); !why.empty())
        return refuse(why);
    return options;
}

} // namespace singularity::proxyd
