// SPDX-License-Identifier: GPL-2.0-or-later
#include "make.hpp"

#include "cgroups.hpp"
#include "common/deadline.hpp"
#include "common/unix_socket.hpp"
#include "hidden_calls.hpp"
#include "image_server.hpp"
#include "init_messages.hpp"
#include "mounts.hpp"
#include "network.hpp"
#include "packet.hpp"
#include "seqpacket.hpp"
#include "user_process.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::node {

namespace {

enum class MakeMessage : std::uint16_t { born = 1, allow, failed }; // NOLINT(performance-enum-size): as sent

struct BornMessage {
    static constexpr auto kType = MakeMessage::born;
    std::int32_t pid = 0;
    static void fields(auto &self, auto &visit) { visit(self.pid); }
};
struct AllowMessage {
    static constexpr auto kType = MakeMessage::allow;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct FailedMessage {
    static constexpr auto kType = MakeMessage::failed;
    std::string doing;
    std::string on;
    std::string why;
    std::int32_t code = 0;
    static void fields(auto &self, auto &visit) { visit(self.doing, self.on, self.why, self.code); }
};

// What the two processes have open: 0, 1 and 2 the agent's, then these.
constexpr int kChannel = 3;
constexpr int kNetwork = 4;
constexpr int kListener = 3; // init's, when it runs
constexpr int kBacklog = 8;
constexpr std::chrono::seconds kAllowPatience{60}; // as long as the agent has patience with us

[[noreturn]] void give_up(const Error &error) {
    const auto bytes =
        encode(FailedMessage{.doing = error.doing, .on = error.on, .why = error.why, .code = error.code});
    static_cast<void>(send_packet(kChannel, bytes));
    _exit(EXIT_FAILURE);
}

Expected<void> fail(std::string_view doing, std::string_view on) {
    return std::unexpected(errno_error(doing, on));
}

// The agent's own signals, limits of memory and so on end here.
Expected<void> reset_signals() {
    for (int number = 1; number < NSIG; ++number)
        static_cast<void>(std::signal(number, SIG_DFL)); // SIGKILL and SIGSTOP refuse, which is right
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, nullptr) != 0)
        return fail("unblock", "signals");
    return {};
}

// The agent's standard streams are not the node's, and descriptor 3 is all that init gets.
Expected<void> arrange_descriptors(UniqueFd listener, UniqueFd &channel) {
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null)
        return fail("open the node's", "/dev/null");
    channel = UniqueFd(fcntl(kChannel, F_DUPFD_CLOEXEC, 16));
    const UniqueFd high(fcntl(listener.get(), F_DUPFD_CLOEXEC, 16));
    if (!channel || !high)
        return fail("arrange", "descriptors");
    for (int stream = 0; stream <= STDERR_FILENO; ++stream)
        if (dup2(null.get(), stream) < 0)
            return fail("arrange", "descriptors");
    if (dup2(high.get(), kListener) < 0)
        return fail("arrange", "descriptors");
    return {};
}

// Until the agent has written down that we exist. Its death ends the wait, and us, as well.
Expected<void> await_allowance() {
    const auto deadline = Deadline::after(kAllowPatience);
    for (;;) {
        Packet packet;
        const auto received = receive_packet(kChannel, packet);
        if (received == Received::packet)
            return {};
        if (received != Received::nothing)
            _exit(EXIT_FAILURE);
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "the agent to write down the node"));
        pollfd channel{.fd = kChannel, .events = POLLIN, .revents = 0};
        if (poll(&channel, 1, deadline.poll_timeout()) < 0 && errno != EINTR)
            return fail("wait for", "the agent to write down the node");
    }
}

// The first process of the PID namespace.
Expected<void> become_init(const MakePlan &plan, const ImageServer *server) {
    if (auto allowed = await_allowance(); !allowed)
        return allowed;
    umask(0);
    if (setsid() < 0)
        return fail("make", "a session");
    if (setns(kNetwork, CLONE_NEWNET) != 0 || close(kNetwork) != 0 ||
        unshare(CLONE_NEWUTS | CLONE_NEWIPC) != 0)
        return fail("make", "namespaces");
    if (sethostname(plan.spec.hostname.data(), plan.spec.hostname.size()) != 0)
        return fail("set the hostname", plan.spec.hostname);
    if (plan.make_sources)
        if (auto made = plan.make_sources(); !made)
            return made;
    if (auto mounted = enter_own_mounts(plan.room, plan.spec, server); !mounted)
        return mounted;
    auto listener = listen_unix("/run/singularity/init.sock", 0600, kBacklog);
    if (!listener)
        return propagate(listener);
    UniqueFd channel;
    if (auto arranged = arrange_descriptors(std::move(*listener), channel); !arranged)
        return arranged;
    const auto fail_by = [&](const Error &error) {
        // Errors go through the copy from here on: 3 is the listener now.
        dup3(channel.get(), kChannel, O_CLOEXEC);
        give_up(error);
    };
    umask(022);
    if (auto reset = reset_signals(); !reset)
        fail_by(reset.error());
    if (auto become = become_user(plan.spec); !become)
        fail_by(become.error());
    if (plan.hide_unsavable)
        if (auto hidden = hide_unsavable_calls(); !hidden)
            fail_by(hidden.error());
    std::array<char *, 3> arguments{const_cast<char *>("singularity-init"), // execve does not write
                                    plan.spec.image.any() ? const_cast<char *>(kInitInImage) : nullptr,
                                    nullptr};
    std::array<char *, 1> environment{nullptr};
    execve(plan.init.c_str(), arguments.data(), environment.data());
    fail_by(errno_error("run", plan.init.native()));
    return {};
}

// The process in between, which alone is in the requester's cgroups and makes what needs a parent.
Expected<void> make(const MakePlan &plan) {
    if (auto joined = join_cgroups(plan.cgroups); !joined)
        return joined;
    if (!plan.network) {
        auto network = make_network_namespace(
            plan.spec.address, plan.spec.job.empty() ? DefaultRoute::no : DefaultRoute::by_gateway);
        if (!network)
            return propagate(network);
        if (network->get() != kNetwork) {
            if (dup3(network->get(), kNetwork, O_CLOEXEC) < 0)
                return fail("arrange", "descriptors");
            network->reset();
        } else {
            static_cast<void>(network->release());
        }
    }
    std::optional<ImageServer> server;
    if (plan.spec.image.any()) {
        auto begun = ImageServer::begin(plan.spec);
        if (!begun)
            return propagate(begun);
        server.emplace(std::move(*begun));
    }
    if (unshare(CLONE_NEWPID) != 0)
        return fail("make", "a PID namespace");
    const pid_t child = fork();
    if (child < 0)
        return fail("make", "the first process");
    if (child == 0) {
        try {
            if (auto become = become_init(plan, server ? &*server : nullptr); !become)
                give_up(become.error());
        } catch (const std::exception &error) {
            give_up({"make", "the node", error.what()});
        }
        _exit(EXIT_FAILURE);
    }
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    if (!pidfd)
        return fail("hold", "the first process");
    if (const int code = send_packet(kChannel, encode(BornMessage{.pid = child}), {pidfd.get()}); code != 0)
        return std::unexpected(errno_error("tell the agent of", "the first process", code));
    return {};
}

[[noreturn]] void run_maker(const MakePlan &plan, int channel) {
    try {
        // The agent's connections must not stay open through us; 3 is kept free for the channel.
        UniqueFd shared;
        if (plan.network) {
            shared = UniqueFd(fcntl(plan.network->get(), F_DUPFD_CLOEXEC, kNetwork + 1));
            if (!shared)
                _exit(EXIT_FAILURE);
        }
        if (dup3(channel, kChannel, O_CLOEXEC) < 0 && channel != kChannel)
            _exit(EXIT_FAILURE);
        if (shared && dup3(shared.release(), kNetwork, O_CLOEXEC) < 0)
            _exit(EXIT_FAILURE);
        close_range(plan.network ? kNetwork + 1 : kNetwork, ~0U, 0);
        if (auto made = make(plan); !made)
            give_up(made.error());
    } catch (const std::exception &error) {
        give_up({"make", "the node", error.what()});
    }
    _exit(EXIT_SUCCESS);
}

} // namespace

Expected<Making> Making::begin(const MakePlan &plan) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return std::unexpected(errno_error("make a socket for", plan.spec.name));
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    const pid_t maker = fork();
    if (maker < 0)
        return std::unexpected(errno_error("start a process for", plan.spec.name));
    if (maker == 0)
        run_maker(plan, theirs.get());
    return Making(std::move(ours));
}

Expected<bool> Making::step() {
    Packet packet;
    for (;;) {
        switch (receive_packet(channel_.get(), packet)) {
        case Received::nothing:
            return false;
        case Received::hung_up: // both processes have let go: one by exec
            return true;
        case Received::failed:
            return std::unexpected(errno_error("hear of", "a node that is being made"));
        case Received::packet:
            break;
        }
        if (const auto message = decode<BornMessage>(packet.bytes);
            message && packet.descriptors.size() == 1) {
            born_ = Born{.pid = message->pid, .pidfd = UniqueFd(packet.descriptors.take(0))};
            return false;
        }
        if (auto message = decode<FailedMessage>(packet.bytes))
            return std::unexpected(Error{std::move(message->doing), std::move(message->on),
                                         std::move(message->why), message->code});
        return failure("hear of", "a node that is being made", "an unknown message");
    }
}

Expected<void> Making::allow() const {
    if (const int code = send_packet(channel_.get(), encode(AllowMessage{})); code != 0)
        return std::unexpected(errno_error("go on with", "a node that is being made", code));
    return {};
}

} // namespace singularity::node
