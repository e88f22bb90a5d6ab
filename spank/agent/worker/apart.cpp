// SPDX-License-Identifier: GPL-2.0-or-later
#include "apart.hpp"

#include "agent/limits/share.hpp"
#include "agent/log.hpp"
#include "common/deadline.hpp"
#include "common/proc.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kAnswerPatience = 5s;      // nothing that it does before it answers waits for a user
constexpr unsigned kClosingPatience = 30; // s
constexpr int kFirstNumber = STDERR_FILENO + 1;

// ---- processes

// Twice as many as may receive may close what was left in sockets. Above that the agent does so itself.
bool may_close_apart(uid_t uid) {
    forget_ended_processes();
    return Share::of(Budget::closing, uid) / 2 < budgets().limit(Budget::closing, uid);
}

// Of the agent's descriptors it has these alone.
void keep_only(std::vector<int> numbers) {
    std::ranges::sort(numbers);
    int next = kFirstNumber;
    for (const int number : numbers) {
        if (number > next)
            close_range(static_cast<unsigned>(next), static_cast<unsigned>(number) - 1, 0);
        next = std::max(next, number + 1);
    }
    close_range(static_cast<unsigned>(next), ~0U, 0);
}

// 0, or errno.
template <class Act>
int in_a_process(uid_t uid, std::vector<int> kept, const Act &act) {
    const pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        // Who waits longer in close(2) is ended, as far as that can be: not while a file system has the
        // question.
        std::signal(SIGALRM, SIG_DFL); // NOLINT(bugprone-signal-handler)
        alarm(kClosingPatience);
        keep_only(std::move(kept));
        act();
        _exit(EXIT_SUCCESS);
    }
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (pidfd)
        hold_until_ended(Share(Budget::closing, uid), std::move(pidfd));
    return 0;
}

struct Pair {
    UniqueFd ours;
    UniqueFd theirs;
};

std::optional<Pair> make_pair() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return std::nullopt;
    return Pair{.ours = UniqueFd(ends[0]), .theirs = UniqueFd(ends[1])};
}

// What one says comes at once, if it lives.
node::Received wait_for_packet(const UniqueFd &channel, node::Packet &into) {
    const auto until = Deadline::after(kAnswerPatience);
    for (;;) {
        const auto received = node::receive_packet(channel.get(), into);
        if (received != node::Received::nothing || until.expired())
            return received;
        pollfd readable{.fd = channel.get(), .events = POLLIN, .revents = 0};
        poll(&readable, 1, until.poll_timeout());
    }
}

// ---- what they are

constexpr std::array<std::string_view, 9> kOwnFileSystems{"ext2",  "ext3",     "ext4", "xfs", "btrfs",
                                                          "tmpfs", "devtmpfs", "zfs",  "f2fs"};

std::string link_of(int fd) {
    std::array<char, 64> name{};
    const auto length = readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), name.data(), name.size());
    return {name.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

// The name of a file begins with a slash, or with a parenthesis.
bool is_nameless_pipe(int fd) { return link_of(fd).starts_with("pipe:["); }

struct Kind {
    mode_t type = 0;
    unsigned major = 0;
    unsigned minor = 0;
    std::uint64_t inode = 0;
    std::optional<std::uint64_t> mount;
};

// What the kernel remembers: fstat(2) would ask a FUSE file system, and wait.
std::optional<Kind> kind_of(int fd) {
    struct statx about{};
    if (const int flags = fcntl(fd, F_GETFL); flags < 0 || (flags & O_PATH) != 0)
        return std::nullopt;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO | STATX_MNT_ID, &about) != 0)
        return std::nullopt;
    Kind out{.type = static_cast<mode_t>(about.stx_mode & S_IFMT),
             .major = about.stx_rdev_major,
             .minor = about.stx_rdev_minor,
             .inode = about.stx_ino,
             .mount = {}};
    if ((about.stx_mask & STATX_MNT_ID) != 0)
        out.mount = about.stx_mnt_id;
    return out;
}

// What is not mounted here is of an unknown one.
bool is_of_own_file_system(const Kind &kind) {
    if (!kind.mount)
        return false;
    const auto text = proc::read("/proc/self/mountinfo");
    if (!text)
        return false;
    const auto all = proc::mounts(*text);
    const auto found = std::ranges::find(all, *kind.mount, &proc::Mount::id);
    return found != all.end() && std::ranges::find(kOwnFileSystems, found->type) != kOwnFileSystems.end();
}

constexpr unsigned kMemoryDevices = 1; // devices.txt of Linux
constexpr unsigned kNull = 3;
constexpr unsigned kTerminalDevices = 5;
constexpr unsigned kTerminalMaker = 2;
constexpr unsigned kFirstTerminals = 136; // of devpts
constexpr unsigned kLastTerminals = 143;

bool is_terminal(const Kind &kind) {
    return kind.type == S_IFCHR && ((kind.major == kTerminalDevices && kind.minor == kTerminalMaker) ||
                                    (kind.major >= kFirstTerminals && kind.major <= kLastTerminals));
}

// What a process has taken. Its packet follows, if it was one.
struct Taken {
    static constexpr std::uint16_t kType = 1;
    std::uint8_t received = 0;
    std::int32_t code = 0; // errno
    std::string refusal;
    std::vector<std::string> keys;
    std::string trouble;
    bool may_wait = false;
    static void fields(auto &self, auto &visit) {
        visit(self.received, self.code, self.refusal, self.keys, self.trouble, self.may_wait);
    }
};

// What a task may be given as a standard stream: what a checkpoint can cut. The key is CRIU's name of a pipe.
void look_at_stream(int fd, Taken &taken) {
    const auto kind = kind_of(fd);
    auto &key = taken.keys.emplace_back();
    if (kind && kind->type == S_IFIFO) {
        key = fmt::format("pipe:[{}]", kind->inode);
        taken.may_wait = taken.may_wait || !is_nameless_pipe(fd);
    } else if (kind && kind->type == S_IFREG) {
        taken.may_wait = taken.may_wait || !is_of_own_file_system(*kind);
    } else if (!kind || kind->type != S_IFCHR || kind->major != kMemoryDevices || kind->minor != kNull) {
        taken.trouble = "it is no pipe, regular file or /dev/null, and could not be checkpointed";
    }
}

enum class Wanted : std::uint8_t { streams, lent };

void take(int socket, int channel, int queue, const node::Allowed &allowed, Wanted wanted) {
    node::Packet packet;
    const auto received = node::receive_packet(socket, packet, allowed);
    Taken taken{.received = static_cast<std::uint8_t>(received),
                .code = errno,
                .refusal = packet.refusal,
                .keys = {},
                .trouble = {},
                .may_wait = false};
    const auto fds = packet.descriptors.all();
    if (received == node::Received::packet && wanted == Wanted::streams) {
        for (const int fd : fds)
            look_at_stream(fd, taken);
        if (taken.trouble.empty() && !fds.empty() && node::send_datagram(queue, "s", fds) != 0)
            taken.trouble = "it cannot be passed on";
    } else if (received == node::Received::packet) {
        for (const int fd : fds)
            if (const auto kind = kind_of(fd); !is_nameless_pipe(fd) && (!kind || !is_terminal(*kind))) {
                taken.received = static_cast<std::uint8_t>(node::Received::failed);
                taken.refusal = "a descriptor that came with it is no pipe and no terminal";
            }
    }
    const bool is_packet = taken.received == static_cast<std::uint8_t>(node::Received::packet);
    const auto lent = is_packet && wanted == Wanted::lent ? fds : std::span<const int>();
    // Before any of them is closed. The agent reads whatever comes.
    if (node::send_packet(channel, node::encode(taken), lent) == 0 && is_packet)
        static_cast<void>(node::send_in_memory(channel, packet.bytes, {}) == 0);
    shutdown(channel, SHUT_RDWR);
}

// A packet with descriptors is the next to be received; of what there is nothing is taken.
bool brings_descriptors(int socket) {
    for (;;) {
        msghdr none{};
        const ssize_t got = recvmsg(socket, &none, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
        if (got >= 0)
            return (none.msg_flags & MSG_CTRUNC) != 0;
        if (errno != EINTR && errno != ECONNRESET)
            return false;
    }
}

// Of the next packet, which stays where it is. Descriptors that came with it are not touched.
std::string first_bytes(int socket, std::size_t most) {
    std::string out(most, '\0');
    ssize_t got = 0;
    do
        got = recv(socket, out.data(), out.size(), MSG_PEEK | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    out.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return out;
}

node::Received receive_by_another(int socket, uid_t uid, node::Packet &into, Streams &streams,
                                  const node::Allowed &allowed, Wanted wanted) {
    into = {};
    streams = {};
    if (!brings_descriptors(socket))
        return node::receive_packet(socket, into, allowed);
    const auto refuse = [&](std::string why) {
        into = {};
        into.refusal = std::move(why);
        errno = EBADMSG;
        return node::Received::failed;
    };
    if (auto why = no_room_for(Budget::closing, uid)) {
        auto failed = refuse(fmt::format("it brings descriptors, and {}", *why));
        into.bytes = first_bytes(socket, sizeof(node::Header));
        errno = EDQUOT;
        return failed;
    }
    auto channel = make_pair();
    auto queue = make_pair();
    if (!channel || !queue)
        return refuse(errno_error("make", "a socket").message());
    node::widen(channel->theirs.get());
    if (const int code =
            in_a_process(uid, {socket, channel->theirs.get(), queue->theirs.get()},
                         [&] { take(socket, channel->theirs.get(), queue->theirs.get(), allowed, wanted); });
        code != 0)
        return refuse(errno_error("start", "a process that receives descriptors", code).message());
    channel->theirs.reset();
    queue->theirs.reset();
    node::Packet said;
    auto taken = wait_for_packet(channel->ours, said) == node::Received::packet
                     ? node::decode<Taken>(said.bytes)
                     : std::nullopt;
    constexpr auto kDied = "the process that receives its descriptors has died, or has not answered in time";
    if (!taken)
        return refuse(kDied);
    const auto received = static_cast<node::Received>(taken->received);
    if (received == node::Received::failed) {
        into.refusal = std::move(taken->refusal);
        errno = taken->code;
    }
    if (received != node::Received::packet)
        return received;
    if (wait_for_packet(channel->ours, into) != node::Received::packet)
        return refuse(kDied);
    if (wanted == Wanted::lent)
        into.descriptors = std::move(said.descriptors);
    else if (!taken->trouble.empty())
        streams = Streams::refused(taken->keys.size(), std::move(taken->trouble));
    else if (!taken->keys.empty())
        streams = Streams(std::move(queue->ours), uid, std::move(taken->keys), taken->may_wait);
    return received;
}

// The last to close it is another process. fd is closed here first.
void close_apart(UniqueFd fd, uid_t uid) {
    auto pair = make_pair();
    if (!pair || !may_close_apart(uid))
        return;
    const int code = in_a_process(uid, {fd.get(), pair->theirs.get()}, [&] {
        char nothing = 0;
        static_cast<void>(read(pair->theirs.get(), &nothing, 1) == 0); // until the agent has no longer got it
    });
    if (code != 0)
        kLog.error("{}", errno_error("start", "a process that closes descriptors", code).message());
    fd.reset();
}

// ---- sending

// Of each queue all that is in it, where it stays as well.
struct Copies {
    std::vector<node::Descriptors> kept;
    std::vector<int> numbers; // of those that are wanted
};

// Nothing is closed before the copies go.
int copy_from_queues(const std::vector<Stream> &streams, Copies &into) {
    for (const auto &one : streams) {
        char byte = 0;
        iovec part{.iov_base = &byte, .iov_len = 1};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * node::kDescriptorLimit)> control{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        ssize_t got = 0;
        do
            got = recvmsg(one.of->queue().get(), &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        auto &all = into.kept.emplace_back();
        const cmsghdr *const head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
        if (head != nullptr && head->cmsg_type == SCM_RIGHTS)
            for (std::size_t at = 0; at < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++at) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(head) + (at * sizeof(int)), sizeof(fd));
                all.add(fd);
            }
        if (one.number >= all.size()) // EMFILE tells by there being fewer
            return got < 0 ? errno : EMFILE;
        into.numbers.push_back(all.all()[one.number]);
    }
    return 0;
}

int send_copies(int socket, std::string_view bytes, const std::vector<Stream> &streams, node::Lent *lent) {
    Copies copies;
    if (const int code = copy_from_queues(streams, copies); code != 0)
        return code;
    return lent != nullptr ? node::send_in_memory(socket, bytes, copies.numbers, lent)
                           : node::send_datagram(socket, bytes, copies.numbers);
}

struct Sent {
    static constexpr std::uint16_t kType = 2;
    std::int32_t code = 0;
    static void fields(auto &self, auto &visit) { visit(self.code); }
};

// Answers before it closes its copies. The memory is the agent's to take back.
void send_and_tell(int socket, std::string_view bytes, const std::vector<Stream> &streams, bool in_memory,
                   int channel) {
    Copies copies;
    int code = copy_from_queues(streams, copies);
    node::Lent lent;
    if (code == 0)
        code = in_memory ? node::send_in_memory(socket, bytes, copies.numbers, &lent)
                         : node::send_datagram(socket, bytes, copies.numbers);
    const int memory = lent.release();
    static_cast<void>(node::send_packet(channel, node::encode(Sent{.code = code}),
                                        std::span(&memory, memory < 0 ? 0 : 1)) == 0);
    shutdown(channel, SHUT_RDWR);
}

} // namespace

Streams &Streams::operator=(Streams &&other) noexcept {
    if (this != &other) {
        let_go();
        queue_ = std::move(other.queue_);
        uid_ = other.uid_;
        keys_ = std::move(other.keys_);
        trouble_ = std::move(other.trouble_);
        may_wait_ = other.may_wait_;
    }
    return *this;
}

Streams Streams::refused(std::size_t count, std::string why) {
    Streams out;
    out.keys_.resize(count);
    out.trouble_ = std::move(why);
    return out;
}

void Streams::let_go() {
    if (queue_ && may_wait_)
        close_apart(std::move(queue_), uid_);
}

Expected<Streams> Streams::copy() const {
    Streams out(UniqueFd(), uid_, keys_, may_wait_);
    out.trouble_ = trouble_;
    if (queue_) {
        out.queue_ = UniqueFd(fcntl(queue_.get(), F_DUPFD_CLOEXEC, 0));
        if (!out.queue_)
            return std::unexpected(errno_error("copy", "the streams of a task"));
    }
    return out;
}

node::Received receive_apart(int socket, uid_t uid, node::Packet &into, Streams &streams) {
    return receive_by_another(socket, uid, into, streams, {}, Wanted::streams);
}

node::Received receive_lent(int socket, uid_t uid, node::Packet &into, const node::Allowed &allowed) {
    Streams none;
    return receive_by_another(socket, uid, into, none, allowed, Wanted::lent);
}

int send_streams(int socket, std::string_view bytes, const std::vector<Stream> &streams, node::Lent *lent) {
    const auto waits = std::ranges::find_if(streams, [](const auto &one) { return one.of->may_wait(); });
    if (waits == streams.end())
        return send_copies(socket, bytes, streams, lent);
    auto channel = make_pair();
    if (!channel)
        return errno;
    std::vector<int> kept{socket, channel->theirs.get()};
    for (const auto &one : streams)
        kept.push_back(one.of->queue().get());
    if (const int code = in_a_process(
            waits->of->uid(), std::move(kept),
            [&] { send_and_tell(socket, bytes, streams, lent != nullptr, channel->theirs.get()); });
        code != 0)
        return code;
    channel->theirs.reset();
    node::Packet said;
    const auto sent = wait_for_packet(channel->ours, said) == node::Received::packet
                          ? node::decode<Sent>(said.bytes)
                          : std::nullopt;
    if (!sent)
        return ETIMEDOUT;
    if (lent != nullptr && said.descriptors.size() == 1)
        *lent = node::Lent(said.descriptors.take(0));
    return sent->code;
}

void hang_up(UniqueFd socket, uid_t uid) {
    if (!socket)
        return;
    shutdown(socket.get(), SHUT_RDWR); // nothing more comes
    char byte = 0;
    ssize_t got = 0;
    do
        got = recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    if (got > 0)
        close_apart(std::move(socket), uid);
}

} // namespace singularity::agent
