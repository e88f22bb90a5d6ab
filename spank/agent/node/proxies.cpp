// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxies.hpp"

#include "adoption.hpp"
#include "agent/log.hpp"
#include "agent/protocol/device_variables.hpp"
#include "common/exec.hpp"
#include "node/cgroups.hpp"
#include "node/user_process.hpp"
#include "node_socket.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kProxyEndPatience = 5s; // for the driver to take everything back
constexpr const char *kNvidia = "libcuda.so.1";
constexpr int kControlBacklog = 16;
constexpr int kClientBacklog = 128; // as proxyd's own

// What a proxy's process has open besides 0, 1 and 2.
constexpr int kReady = 3;
constexpr int kControl = 4;
constexpr int kJobKey = 5;
constexpr int kClientSocket = 6;
constexpr int kRendezvous = 7; // the first proxy's
constexpr int kNeighbours = 8;

// In front of a line on the ready pipe that says what is wrong.
constexpr char kTrouble = '!';

std::string driver_of(const ProxyPlan &plan) {
    const auto &backend = plan.spec.backend;
    if (backend == "software" || (backend.empty() && access("/dev/nvidiactl", F_OK) != 0))
        return plan.libraries.software_gpu();
    return backend.empty() || backend == "nvidia" ? kNvidia : backend;
}

// What a proxy writes its log to. With the file itself its user, whose process it is, could fill the host's
// /run. It has a name, so that the next agent finds it. The proxy has it open for reading as well: with no
// agent there it does not break. When it is full, what the proxy writes is lost: nothing waits.
Expected<UniqueFd> make_log_pipe(const node::Room &room, std::uint32_t number) {
    const auto path = room.proxy_pipe(number);
    if (mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST)
        return std::unexpected(errno_error("make the pipe", path.native()));
    return open_file(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW);
}

struct Ends {
    UniqueFd reading;
    UniqueFd writing;
};

Expected<Ends> make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return std::unexpected(errno_error("make", "a pipe"));
    return Ends{.reading = UniqueFd(ends[0]), .writing = UniqueFd(ends[1])};
}

// Devices of the software GPU are as the agent's environment says; nothing else of that is the user's
// business.
std::vector<std::string> environment_of(const ProxyPlan &plan, std::uint32_t number) {
    std::vector<std::string> out{"PATH=/usr/local/bin:/usr/bin:/bin",
                                 // Each proxy sees one device, of number 0: any can take any other's images.
                                 fmt::format("CUDA_VISIBLE_DEVICES={}", plan.share.first + number)};
    constexpr std::string_view kSoftware = "SINGULARITY_SOFTGPU_";
    const std::string devices = fmt::format("{}DEVICES", kSoftware);
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        if (const std::string_view text(*entry); text.starts_with(kSoftware) && !text.starts_with(devices))
            out.emplace_back(text);
    out.push_back(fmt::format("{}={}", devices, plan.share.first + plan.share.count));
    return out;
}

struct Descriptors {
    int go;
    int ready;
    int control;
    int key;
    int socket;
    int rendezvous; // the null device for all but the first
    int neighbours; // the null device if there can be none
    int log;
    int null;
};

// A descriptor from which the key is read once.
Expected<UniqueFd> readable(std::span<const std::byte> key) {
    auto pipe = make_pipe();
    if (!pipe)
        return propagate(pipe);
    if (!std::cmp_equal(write(pipe->writing.get(), key.data(), key.size()), key.size()))
        return std::unexpected(errno_error("pass on", "the key of a node's proxies"));
    return std::move(pipe->reading);
}

Expected<void> arrange(const Descriptors &given) {
    // Above all places that they are to take.
    const std::array places{given.null, given.null,   given.log,        given.ready,     given.control,
                            given.key,  given.socket, given.rendezvous, given.neighbours};
    static_assert(places.size() == kNeighbours + 1);
    std::array<int, places.size()> high{};
    for (std::size_t at = 0; at < places.size(); ++at)
        if (high.at(at) = fcntl(places.at(at), F_DUPFD_CLOEXEC, 16); high.at(at) < 0)
            return std::unexpected(errno_error("arrange", "descriptors"));
    for (std::size_t at = 0; at < places.size(); ++at)
        if (dup2(high.at(at), static_cast<int>(at)) < 0)
            return std::unexpected(errno_error("arrange", "descriptors"));
    if (close_range(kNeighbours + 1, ~0U, 0) != 0)
        return std::unexpected(errno_error("close", "the agent's descriptors"));
    return {};
}

// The process of one proxy, until it is one. The error goes to the ready pipe.
Expected<void> become_proxy(const ProxyPlan &plan, std::uint32_t number, const Descriptors &given,
                            const Rendezvous &rendezvous) {
    // Until the agent has written down that we exist. Its death ends the wait as well.
    char allowed = 0;
    ssize_t got = 0;
    do
        got = read(given.go, &allowed, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1)
        _exit(EXIT_FAILURE);
    const auto &places = plan.share.cgroups;
    if (auto joined = node::join_cgroups(number < places.size() ? places[number] : plan.cgroups); !joined)
        return joined;
    if (auto arranged = arrange(given); !arranged)
        return arranged;
    setsid();
    umask(077);
    for (int signal = 1; signal < NSIG; ++signal)
        static_cast<void>(std::signal(signal, SIG_DFL)); // SIGKILL and SIGSTOP refuse, which is right
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (auto become = node::become_user(plan.spec); !become)
        return become;
    std::vector<std::string> arguments{plan.libraries.proxyd(),
                                       "--driver",
                                       driver_of(plan),
                                       "--socket",
                                       plan.room.devices() / node::device_socket(number),
                                       "--socket-fd",
                                       std::to_string(kClientSocket),
                                       "--control-fd",
                                       std::to_string(kControl),
                                       "--ready-fd",
                                       std::to_string(kReady),
                                       "--rendezvous",
                                       rendezvous.place,
                                       "--job-key-fd",
                                       std::to_string(kJobKey),
                                       "--node-devices",
                                       std::to_string(plan.spec.devices)};
    if (plan.turn != std::chrono::milliseconds::zero())
        arguments.insert(arguments.end(), {"--turn", std::to_string(plan.turn.count())});
    if (plan.share.with_first_client)
        arguments.emplace_back("--with-first-client");
    if (!plan.libraries.nccl.empty())
        arguments.insert(arguments.end(), {"--nccl", plan.libraries.nccl});
    if (number == 0 && rendezvous.socket)
        arguments.insert(arguments.end(), {"--rendezvous-fd", std::to_string(kRendezvous)});
    if (plan.share.neighbours != nullptr)
        arguments.insert(arguments.end(), {"--neighbours-fd", std::to_string(kNeighbours)});
    if (!rendezvous.host.empty())
        arguments.insert(arguments.end(), {"--host-name", rendezvous.host, "--address", rendezvous.address});
    // As it wants to have it (proxy/daemon/same_addresses): else it would do so itself, and start a second
    // time.
    constexpr unsigned long kAsk = 0xffffffff;
    if (const int now = personality(kAsk); now >= 0)
        static_cast<void>(personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE));
    auto environment = environment_of(plan, number);
    const auto argument_list = exec_list(arguments);
    const auto environment_list = exec_list(environment);
    execve(argument_list[0], argument_list.data(), environment_list.data());
    return std::unexpected(errno_error("run", arguments[0]));
}

[[noreturn]] void run_proxy(const ProxyPlan &plan, std::uint32_t number, const Descriptors &given,
                            const Rendezvous &rendezvous) {
    std::string trouble;
    try {
        if (auto become = become_proxy(plan, number, given, rendezvous); !become)
            trouble = become.error().message();
    } catch (const std::exception &error) {
        trouble = error.what();
    }
    trouble.insert(0, 1, kTrouble);
    // Whichever of the two it is by now; who does not hear it sees the end.
    for (const int fd : {given.ready, kReady})
        if (write(fd, trouble.data(), trouble.size()) > 0)
            break;
    _exit(EXIT_FAILURE);
}

std::string last_line(const std::filesystem::path &path) {
    constexpr off_t kEnough = 2048;
    auto file = open_file(path, O_RDONLY | O_NOFOLLOW);
    if (!file)
        return file.error().message();
    std::array<char, kEnough> end{};
    const off_t size = lseek(file->get(), 0, SEEK_END);
    const ssize_t got = pread(file->get(), end.data(), end.size(), std::max<off_t>(0, size - kEnough));
    std::string_view text(end.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!text.empty() && text.back() == '\n')
        text.remove_suffix(1);
    return text.empty() ? "it has said nothing" : std::string(text.substr(text.rfind('\n') + 1));
}

void tell_lost(const Error &error) {
    kLog.error("{}; what this device proxy writes to its log is lost", error.message());
}

} // namespace

std::vector<std::string> device_environment(const Libraries &libraries, std::uint32_t devices) {
    std::string sockets;
    for (std::uint32_t device = 0; device < devices; ++device)
        sockets +=
            fmt::format("{}/run/singularity/devices/{}", device == 0 ? "" : ":", node::device_socket(device));
    return {fmt::format("{}={}", kSocketsVariable, sockets),
            fmt::format("{}={}", kAuditVariable, libraries.redirect().native()),
            fmt::format("{}={}", kRedirectVariable, libraries.client().native())};
}

Expected<Proxies> Proxies::start(const ProxyPlan &plan) {
    Proxies out(plan.room, plan.spec.uid);
    auto go = make_pipe();
    auto null = open_file("/dev/null", O_RDWR);
    if (!go || !null)
        return go ? propagate(null) : propagate(go);
    auto rendezvous = plan.rendezvous ? Expected<Rendezvous>(*plan.rendezvous) : rendezvous_here();
    if (!rendezvous)
        return propagate(rendezvous);
    for (std::uint32_t number = 0; number < plan.share.count; ++number) {
        auto ready = make_pipe();
        if (!ready)
            return propagate(ready);
        const auto name = node::device_socket(number);
        const auto control = listen_in_node(plan.room.control(), name, kControlBacklog, {});
        const auto socket = listen_in_node(plan.room.devices(), name, kClientBacklog,
                                           {.uid = plan.spec.uid, .gid = plan.spec.gid});
        if (!control || !socket)
            return std::unexpected(control ? socket.error() : control.error());
        auto log = make_log_pipe(plan.room, number);
        if (!log)
            return propagate(log);
        const auto key = readable(rendezvous->key);
        if (!key)
            return std::unexpected(key.error());
        const Descriptors given{
            .go = go->reading.get(),
            .ready = ready->writing.get(),
            .control = control->get(),
            .key = key->get(),
            .socket = socket->get(),
            .rendezvous = number == 0 && rendezvous->socket ? rendezvous->socket->get() : null->get(),
            .neighbours = plan.share.neighbours != nullptr ? plan.share.neighbours->get() : null->get(),
            .log = log->get(),
            .null = null->get()};
        const pid_t pid = fork();
        if (pid < 0)
            return std::unexpected(errno_error("start a proxy for", plan.spec.name));
        if (pid == 0) {
            // Or our own copy of the other end would keep us waiting for an agent that has died.
            go->writing.reset();
            run_proxy(plan, number, given, *rendezvous);
        }
        One one;
        one.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
        auto identity = node::identity_of(pid);
        if (!one.pidfd || !identity)
            return one.pidfd ? propagate(identity) : std::unexpected(errno_error("hold", "a proxy"));
        one.identity = *identity;
        one.ready = std::move(ready->reading);
        out.all_.push_back(std::move(one));
        if (auto opened = out.open_log(number); !opened)
            tell_lost(opened.error());
    }
    out.go_ = std::move(go->writing);
    return out;
}

Expected<Proxies> Proxies::adopt(const node::Room &room, const node::Record &record) {
    Proxies out(room, record.spec.uid);
    for (std::uint32_t number = 0; number < record.proxies.size(); ++number) {
        One one{.identity = record.proxies[number], .pidfd = {}, .ready = {}, .log = {}, .told = false};
        auto pidfd = node::hold(one.identity);
        const bool lives = pidfd.has_value();
        if (!lives && verdict_of(pidfd.error()) != Verdict::gone)
            return propagate(pidfd);
        if (lives)
            one.pidfd = std::move(*pidfd);
        out.all_.push_back(std::move(one));
        if (!lives)
            continue;
        if (auto opened = out.open_log(number); !opened) {
            if (is_shortage(opened.error().code))
                return propagate(opened);
            tell_lost(opened.error());
        }
    }
    return out;
}

Expected<void> Proxies::open_log(std::uint32_t number) {
    auto pipe = open_file(room_.proxy_pipe(number), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    auto log =
        pipe ? TaskLog::open(room_.proxy_log(number), std::move(*pipe), TaskLog::Keep::newest_of_proxy, uid_)
             : Expected<TaskLog>(propagate(pipe));
    if (!log)
        return propagate(log);
    all_[number].log = std::move(*log);
    return {};
}

void Proxies::take_output() {
    for (std::uint32_t number = 0; number < all_.size(); ++number)
        if (auto &log = all_[number].log)
            if (auto drained = log->drain(); !drained) {
                kLog.error("{}; the rest of {} is lost", drained.error().message(),
                           room_.proxy_log(number).native());
                log.reset();
            }
}

std::vector<node::Identity> Proxies::identities() const {
    std::vector<node::Identity> out;
    out.reserve(all_.size());
    for (const auto &one : all_)
        out.push_back(one.identity);
    return out;
}

Expected<void> Proxies::allow() {
    const std::string bytes(all_.size(), 'g');
    const auto written = write(go_.get(), bytes.data(), bytes.size());
    if (written != static_cast<ssize_t>(bytes.size()))
        return std::unexpected(errno_error("go on with", "the device proxies"));
    go_.reset();
    return {};
}

void Proxies::watch(std::vector<int> &fds) const {
    for (const auto &one : all_) {
        if (one.ready)
            fds.push_back(one.ready.get());
        if (one.log && one.log->fd() >= 0)
            fds.push_back(one.log->fd());
        if (one.pidfd && !one.told)
            fds.push_back(one.pidfd.get());
    }
}

Expected<bool> Proxies::step() {
    bool all = true;
    for (std::uint32_t number = 0; number < all_.size(); ++number) {
        auto &one = all_[number];
        if (!one.ready)
            continue;
        pollfd readable{.fd = one.ready.get(), .events = POLLIN, .revents = 0};
        if (poll(&readable, 1, 0) != 1) {
            all = false;
            continue;
        }
        std::array<char, 1024> line{};
        const ssize_t got = read(one.ready.get(), line.data(), line.size());
        one.ready.reset();
        if (got > 0 && line[0] != kTrouble)
            continue;
        return failure("start", fmt::format("the device proxy {}", number),
                       got > 0 ? std::string(line.data() + 1, static_cast<std::size_t>(got) - 1)
                               : last_words(number), // it has ended, and has said why
                       ECHILD);
    }
    return all;
}

std::string Proxies::last_words(std::uint32_t number) {
    constexpr std::string_view kChannel = "proxyd: "; // behind the time, which the reader's log has itself
    take_output();
    auto line = last_line(room_.proxy_log(number));
    if (const auto at = line.find(kChannel); at != std::string::npos)
        line.erase(0, at + kChannel.size());
    return line;
}

std::vector<std::uint32_t> Proxies::newly_ended() {
    std::vector<std::uint32_t> out;
    for (std::uint32_t number = 0; number < all_.size(); ++number) {
        auto &one = all_[number];
        if (!one.told && (!one.pidfd || node::has_ended(one.pidfd))) {
            one.told = true;
            out.push_back(number);
        }
    }
    return out;
}

void Proxies::end() {
    if (kill_at_)
        return;
    kill_at_ = Deadline::after(kProxyEndPatience);
    go_.reset(); // who still waits for it ends
    for (const auto &one : all_)
        if (one.pidfd)
            syscall(SYS_pidfd_send_signal, one.pidfd.get(), SIGTERM, nullptr, 0);
}

void Proxies::look_at_deadline() {
    if (!kill_at_ || !kill_at_->expired())
        return;
    kill_at_.reset();
    for (const auto &one : all_)
        if (one.pidfd && !node::has_ended(one.pidfd)) {
            kLog.warning("a device proxy (pid {}) does not end: it is killed", one.identity.pid);
            if (auto killed = node::kill_process(one.pidfd, "a device proxy"); !killed)
                kLog.error("{}", killed.error().message());
        }
}

bool Proxies::ended() const {
    return std::ranges::all_of(all_,
                               [](const auto &one) { return !one.pidfd || node::has_ended(one.pidfd); });
}

} // namespace singularity::agent
