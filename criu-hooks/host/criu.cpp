// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu.hpp"

#include "criu-hooks/host/as_user.hpp"
#include "file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>

#include <criu/rpc.pb-c.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr int kSocketThere = 3;    // its number in criu
constexpr int kFirstInherited = 4; // and those of the descriptors for the restored processes
constexpr std::size_t kLargestMessage = std::size_t{1} << 20U;
constexpr std::chrono::seconds kToLoad{60};
constexpr int kLogLevel = 4; // an error is understood from what was done before it

// What follows runs between fork and exec of a program with many threads: system calls only.
[[noreturn]] void become_criu(const Criu::Start &how, const char *const *arguments,
                              const char *const *environment, int *descriptors, std::size_t count) {
    constexpr int kFailed = 127;
    // What it makes that nobody else knows of is found again by this.
    if (setpgid(0, 0) != 0)
        _exit(kFailed);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int number = 1; number < NSIG; ++number)
        std::signal(number, SIG_DFL); // refused for some, which cannot be changed
    // descriptors[i] becomes i: first all out of the way, so that none is overwritten before its turn.
    for (std::size_t i = 0; i < count; ++i) {
        descriptors[i] = fcntl(descriptors[i], F_DUPFD, static_cast<int>(count));
        if (descriptors[i] < 0)
            _exit(kFailed);
    }
    for (std::size_t i = 0; i < count; ++i)
        if (dup2(descriptors[i], static_cast<int>(i)) < 0)
            _exit(kFailed);
    if (syscall(SYS_close_range, static_cast<unsigned>(count), ~0U, 0U) != 0)
        _exit(kFailed);
    // The system calls, not the C library's functions, which would change the ids of other threads as well.
    if (how.user && syscall(SYS_setgroups, how.user->groups.size(), how.user->groups.data()) != 0)
        _exit(kFailed);
    if (syscall(SYS_setresgid, 0, 0, 0) != 0 || syscall(SYS_setresuid, 0, 0, 0) != 0)
        _exit(kFailed);
    execve(arguments[0], const_cast<char *const *>(arguments), const_cast<char *const *>(environment));
    _exit(kFailed);
}

// The table by which each process finds its cgroups. Their files become criu's, behind what it has already.
Expected<UniqueFd> table_of(const std::vector<Placed> &placed, std::vector<int> &descriptors) {
    std::map<int, std::int32_t> numbers;
    std::vector<as_user::Placed> table;
    table.reserve(placed.size());
    for (const Placed &each : placed) {
        const auto [number, is_new] =
            numbers.try_emplace(each.cgroup_procs, static_cast<std::int32_t>(descriptors.size()));
        if (is_new)
            descriptors.push_back(each.cgroup_procs);
        table.push_back({.pid = each.pid, .cgroup_procs = number->second});
    }
    UniqueFd out(memfd_create("criu-cgroups", MFD_CLOEXEC));
    if (!out)
        return std::unexpected(errno_error("make", "a table for criu"));
    if (auto written = write_all(out.get(), std::as_bytes(std::span(table))); !written)
        return propagate(written);
    return out;
}

char *text(const std::string &value) { return const_cast<char *>(value.c_str()); } // protobuf-c has no const

// A library that cannot be loaded is only a warning to the loader.
Expected<void> wait_until_loaded(const Criu::User &user, int said) {
    pollfd waiting{.fd = said, .events = POLLIN, .revents = 0};
    const auto deadline = Deadline::after(kToLoad);
    int ready = 0;
    do
        ready = poll(&waiting, 1, deadline.poll_timeout());
    while (ready < 0 && errno == EINTR);
    char answer = 0;
    if (ready > 0 && read(said, &answer, 1) == 1 && answer == as_user::kLoaded)
        return {};
    return failure("start", "criu",
                   fmt::format("{} was not loaded into it within {}: is the package complete, and is criu a "
                               "dynamically linked program without file capabilities?",
                               user.library.native(), kToLoad));
}

} // namespace

Expected<Criu> Criu::start(const Start &how) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return std::unexpected(errno_error("make", "a socket pair for criu"));
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    auto nothing = open_file("/dev/null", O_RDWR);
    if (!nothing)
        return propagate(nothing);

    std::vector<int> descriptors{nothing->get(), nothing->get(), how.complaints, theirs.get()};
    for (const auto &[resource, fd] : how.inherited)
        descriptors.push_back(fd);
    std::array<int, 2> loaded{-1, -1};
    if (how.user && pipe2(loaded.data(), O_CLOEXEC) != 0)
        return std::unexpected(errno_error("make", "a pipe for criu"));
    const UniqueFd said(loaded[0]);
    UniqueFd says(loaded[1]);
    std::string preload;
    std::string user;
    UniqueFd table;
    if (how.user) {
        if (how.user->library.native().find_first_of(" :") != std::string::npos)
            return failure("load", how.user->library.native(),
                           "the loader takes no path with a space or a colon: install the package elsewhere");
        if (access(how.user->library.c_str(), R_OK) != 0)
            return std::unexpected(errno_error("find", how.user->library.native()));
        preload = "LD_PRELOAD=" + how.user->library.native();
        const bool restores = !how.user->root.empty();
        struct stat root{};
        if (restores && stat(how.user->root.c_str(), &root) != 0)
            return std::unexpected(errno_error("look at", how.user->root.native()));
        auto made = table_of(how.user->placed, descriptors);
        if (!made)
            return propagate(made);
        table = std::move(*made);
        user = fmt::format("{}={}:{}:{}:{}:{}:{}:{}", as_user::kVariable,
                           restores ? as_user::kRestore : as_user::kDump, how.user->uid, how.user->gid,
                           root.st_dev, root.st_ino, descriptors.size(), descriptors.size() + 1);
        descriptors.push_back(says.get());
        descriptors.push_back(table.get());
    }
    const std::string program = how.binary.string();
    const std::string socket_number = std::to_string(kSocketThere);
    const std::array<const char *, 4> arguments{program.c_str(), "swrk", socket_number.c_str(), nullptr};
    // criu runs tar, and would read ~/.criu/default.conf.
    const std::array<const char *, 5> environment{
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
        how.user ? preload.c_str() : nullptr, user.c_str(), nullptr};
    const pid_t pid = fork();
    if (pid < 0)
        return std::unexpected(errno_error("fork for", program));
    if (pid == 0)
        become_criu(how, arguments.data(), environment.data(), descriptors.data(), descriptors.size());
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    Criu criu(pid, std::move(pidfd), std::move(ours));
    if (!criu.pidfd_)
        return std::unexpected(errno_error("open a pidfd of", program));
    says.reset();
    if (how.user)
        if (auto there = wait_until_loaded(*how.user, said.get()); !there)
            return propagate(there);
    return criu;
}

Criu::~Criu() { kill_and_reap(); }

void Criu::kill_and_reap() {
    if (pid_ < 0)
        return;
    kill(pid_, SIGKILL);
    // One that was killed, or has failed, leaves processes: those on which it tries out the kernel sleep for
    // ever. Its number is its group's until it is reaped. After success the restored may be in its group.
    siginfo_t how{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOWAIT) == 0 &&
        (how.si_code != CLD_EXITED || how.si_status != EXIT_SUCCESS))
        kill(-pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
}

Expected<void> Criu::signal(int number) const {
    if (kill(pid_, number) != 0)
        return std::unexpected(errno_error("signal", "criu"));
    return {};
}

// It has hung up, or ended: how, for who has to find out why.
Error Criu::ended_without_answer() const {
    constexpr int kToBeReaped = 1000; // milliseconds
    pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    siginfo_t how{};
    std::string why = "it ended without one";
    if (poll(&ended, 1, kToBeReaped) == 1 &&
        waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOWAIT | WNOHANG) == 0 && how.si_pid == pid_)
        why += how.si_code == CLD_EXITED ? fmt::format(" (exit status {})", how.si_status)
                                         : fmt::format(" (signal {})", how.si_status);
    return {"read the answer of", "criu", std::move(why), EPIPE};
}

Expected<std::vector<std::uint8_t>> Criu::receive(const Deadline &deadline, const Doubt &doubt) {
    constexpr int kBetweenDoubts = 200; // milliseconds
    // The end of criu itself is watched as well: what it has started may outlive it with the socket open.
    std::array<pollfd, 2> waiting{{{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                                   {.fd = pidfd_.get(), .events = POLLIN, .revents = 0}}};
    for (;;) {
        const int ready =
            poll(waiting.data(), waiting.size(), std::min(deadline.poll_timeout(), kBetweenDoubts));
        if (ready > 0)
            break;
        if (ready < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "criu"));
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "criu"));
        if (doubt)
            if (auto hopeful = doubt(); !hopeful)
                return propagate(hopeful);
    }
    if (waiting[0].revents == 0)
        return std::unexpected(ended_without_answer());
    const ssize_t size = recv(socket_.get(), nullptr, 0, MSG_PEEK | MSG_TRUNC);
    if (size < 0)
        return std::unexpected(errno_error("read the answer of", "criu"));
    if (size == 0)
        return std::unexpected(ended_without_answer());
    if (static_cast<std::size_t>(size) > kLargestMessage)
        return failure("read the answer of", "criu",
                       fmt::format("it has {} bytes, at most {} expected", size, kLargestMessage));
    std::vector<std::uint8_t> message(static_cast<std::size_t>(size));
    if (recv(socket_.get(), message.data(), message.size(), 0) != size)
        return std::unexpected(errno_error("read the answer of", "criu"));
    return message;
}

Expected<void> Criu::send(const std::vector<std::uint8_t> &message) {
    if (::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(message.size()))
        return std::unexpected(errno == EPIPE ? Error{"talk to", "criu", "it has ended", EPIPE}
                                              : errno_error("talk to", "criu"));
    return {};
}

namespace {

std::vector<std::uint8_t> packed(const CriuReq &request) {
    std::vector<std::uint8_t> message(criu_req__get_packed_size(&request));
    criu_req__pack(&request, message.data());
    return message;
}

// The options that hold for every virtual node; README.md says why each.
void set_fixed(CriuOpts &options) {
    options.has_log_level = 1;
    options.log_level = kLogLevel;
    options.has_ext_unix_sk = options.ext_unix_sk = 1;
    options.has_tcp_established = options.tcp_established = 1;
    options.has_file_locks = options.file_locks = 1;
    options.has_network_lock = 1;
    options.network_lock = CRIU_NETWORK_LOCK_METHOD__SKIP;
    options.has_manage_cgroups_mode = 1;
    options.manage_cgroups_mode = CRIU_CG_MODE__IGNORE;
    options.has_auto_ext_mnt = options.auto_ext_mnt = 1;
    options.has_ext_sharing = options.ext_sharing = 1;
    options.has_ext_masters = options.ext_masters = 1;
    options.has_notify_scripts = options.notify_scripts = 1;
}

std::vector<std::uint8_t> packed(const CriuRequest &request) {
    CriuOpts options = CRIU_OPTS__INIT;
    options.images_dir_fd = request.images;
    options.log_file = text(request.log);
    set_fixed(options);
    std::vector<char *> external;
    external.reserve(request.external.size());
    for (const std::string &each : request.external)
        external.push_back(text(each));
    options.external = external.data();
    options.n_external = external.size();
    std::vector<char *> watched;
    watched.reserve(request.watched.size());
    for (const std::string &each : request.watched)
        watched.push_back(text(each));
    options.irmap_scan_paths = watched.data();
    options.n_irmap_scan_paths = watched.size();
    std::vector<InheritFd> inherited;
    std::vector<InheritFd *> pointers;
    inherited.reserve(request.inherited.size());
    int number = kFirstInherited;
    for (const auto &[resource, fd] : request.inherited) {
        InheritFd &one = inherited.emplace_back();
        inherit_fd__init(&one);
        one.key = text(resource);
        one.fd = number++;
        pointers.push_back(&one);
    }
    options.inherit_fd = pointers.data();
    options.n_inherit_fd = pointers.size();

    CriuReq message = CRIU_REQ__INIT;
    CriuFeatures features = CRIU_FEATURES__INIT;
    switch (request.kind) {
    case CriuRequest::Kind::kVersion:
        message.type = CRIU_REQ_TYPE__VERSION;
        return packed(message);
    case CriuRequest::Kind::kFeatures:
        message.type = CRIU_REQ_TYPE__FEATURE_CHECK;
        message.features = &features;
        return packed(message);
    case CriuRequest::Kind::kDump:
        message.type = CRIU_REQ_TYPE__DUMP;
        options.has_pid = 1;
        options.pid = request.tree;
        options.has_leave_running = 1;
        options.leave_running = request.leave_running ? 1 : 0;
        options.has_leave_stopped = 1;
        options.leave_stopped = request.leave_stopped ? 1 : 0;
        options.has_ghost_limit = 1;
        options.ghost_limit = request.ghost_limit;
        options.has_link_remap = options.link_remap = 1; // only where links.hpp says
        options.has_tcp_skip_in_flight = 1;
        options.tcp_skip_in_flight = request.leave_waiting ? 1 : 0;
        break;
    case CriuRequest::Kind::kRestore:
        message.type = CRIU_REQ_TYPE__RESTORE;
        options.root = text(request.root);
        options.has_rst_sibling = options.rst_sibling = 1;
        break;
    }
    message.opts = &options;
    return packed(message);
}

// criu's stage in which it takes what CriuRequest::external did not have yet.
constexpr std::string_view kAsksForMore = "query-ext-files";

std::vector<std::uint8_t> answer_to_stage(bool consent, const std::vector<std::string> &external) {
    CriuReq answer = CRIU_REQ__INIT;
    answer.type = CRIU_REQ_TYPE__NOTIFY;
    answer.has_notify_success = 1;
    answer.notify_success = consent ? 1 : 0;
    CriuOpts options = CRIU_OPTS__INIT;
    std::vector<char *> pointers;
    pointers.reserve(external.size());
    for (const std::string &each : external)
        pointers.push_back(text(each));
    options.external = pointers.data();
    options.n_external = pointers.size();
    if (!external.empty())
        answer.opts = &options;
    return packed(answer);
}

CriuReply reply_of(const CriuResp &response) {
    CriuReply reply;
    reply.success = response.success != 0;
    reply.code = response.has_cr_errno != 0 ? response.cr_errno : 0;
    reply.message = response.cr_errmsg != nullptr ? response.cr_errmsg : "";
    if (const CriuVersion *const version = response.version; version != nullptr)
        reply.version = version->major_number * 10000 + version->minor_number * 100 +
                        (version->has_sublevel != 0 ? version->sublevel : 0);
    reply.root = response.restore != nullptr ? response.restore->pid : 0;
    return reply;
}

} // namespace

Expected<CriuReply> Criu::ask(const CriuRequest &request, const Notify &notify, const Deadline &deadline,
                              const Doubt &doubt, const External &external) {
    if (auto sent = send(packed(request)); !sent)
        return propagate(sent);
    Expected<void> consent;
    for (;;) {
        auto message = receive(deadline, doubt);
        if (!message)
            return propagate(message);
        const std::unique_ptr<CriuResp, void (*)(CriuResp *)> response(
            criu_resp__unpack(nullptr, message->size(), message->data()),
            [](CriuResp *unpacked) { criu_resp__free_unpacked(unpacked, nullptr); });
        if (!response)
            return failure("understand the answer of", "criu",
                           "it is not a message of criu's protocol; is this criu 4.2 or newer?");
        if (response->type != CRIU_REQ_TYPE__NOTIFY) {
            auto reply = reply_of(*response);
            if (!consent) {
                reply.success = false;
                reply.refused = consent.error();
            }
            return reply;
        }
        const std::string stage = response->notify != nullptr && response->notify->script != nullptr
                                      ? response->notify->script
                                      : "";
        if (consent)
            consent = notify(stage, response->notify != nullptr && response->notify->has_pid != 0
                                        ? response->notify->pid
                                        : 0);
        Expected<std::vector<std::string>> more;
        if (consent && stage == kAsksForMore && external)
            if (more = external(); !more)
                consent = propagate(more);
        if (auto sent = send(answer_to_stage(consent.has_value(), more ? *more : std::vector<std::string>()));
            !sent)
            return propagate(sent);
    }
}

Expected<void> Criu::finish(const Deadline &deadline) {
    pollfd waiting{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    int ready = 0;
    while ((ready = poll(&waiting, 1, deadline.poll_timeout())) < 0 && errno == EINTR) {
    }
    kill_and_reap(); // of a process that has ended it only reaps
    if (ready <= 0)
        return std::unexpected(timeout_error(deadline, "the end of criu"));
    return {};
}

} // namespace singularity::host
