// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_server.hpp"

#include "common/deadline.hpp"
#include "common/proc.hpp"
#include "common/replace_file.hpp"
#include "common/text.hpp"
#include "packet.hpp"
#include "seqpacket.hpp"
#include "user_process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::node {

namespace {

// Apptainer brings its own; where a distribution's is built with libfuse 2, it takes no descriptor of ours.
constexpr std::array kPrograms{"/usr/libexec/apptainer/bin/squashfuse_ll", "/usr/bin/squashfuse_ll",
                               "/usr/local/bin/squashfuse_ll"};
constexpr std::chrono::minutes kServePatience{5}; // longer than a node or a restore waits for an image
constexpr std::size_t kComplaintLimit = 512;
constexpr const char *kConnection = "connection"; // in Room::image()

enum class ServeMessage : std::uint16_t { serve = 1 }; // NOLINT(performance-enum-size): as sent

struct ServeRequest {
    static constexpr auto kType = ServeMessage::serve;
    std::uint64_t offset = 0;
    bool owns = false;
    static void fields(auto &self, auto &visit) { visit(self.offset, self.owns); }
};

// ---- in the process that becomes squashfuse

constexpr int kSocket = 3;
constexpr int kImageFile = 3; // from when the other end has been heard
constexpr int kFuseDevice = 4;

[[noreturn]] void complain(int to, std::string_view text) {
    static_cast<void>(send(to, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    _exit(EXIT_FAILURE);
}

Packet await_request() {
    const auto deadline = Deadline::after(kServePatience);
    for (;;) {
        Packet packet;
        const auto received = receive_packet(kSocket, packet);
        if (received == Received::packet)
            return packet;
        pollfd watched{.fd = kSocket, .events = POLLIN, .revents = 0};
        if (received != Received::nothing || deadline.expired() ||
            (poll(&watched, 1, deadline.poll_timeout()) < 0 && errno != EINTR))
            _exit(EXIT_FAILURE);
    }
}

// Slurm tells all processes of a step to end a while before it kills them, and tasks have use for their image
// until then.
void ignore_what_ends_tasks() {
    for (int number = 1; number < NSIG; ++number)
        static_cast<void>(std::signal(number, SIG_DFL)); // SIGKILL and SIGSTOP refuse, which is right
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));    // nobody hears complaints any more
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP, SIGCHLD, SIGCONT})
        sigdelset(&blocked, number);
    sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

[[noreturn]] void become_squashfuse(const Spec &spec) {
    ignore_what_ends_tasks();
    if (prctl(PR_SET_NAME, "image-server") != 0 || setsid() < 0 || chdir("/") != 0)
        complain(kSocket, errno_error("become", "the server of an image").message());
    auto packet = await_request();
    const auto request = decode<ServeRequest>(packet.bytes);
    if (!request || packet.descriptors.size() != 2)
        complain(kSocket, "it was asked for something else");
    if (auto become = become_user(spec); !become)
        complain(kSocket, become.error().message());
    // Above all that are given away below.
    const UniqueFd image(fcntl(packet.descriptors.all()[0], F_DUPFD_CLOEXEC, 16));
    const UniqueFd fuse(fcntl(packet.descriptors.all()[1], F_DUPFD_CLOEXEC, 16));
    const UniqueFd voice(fcntl(kSocket, F_DUPFD_CLOEXEC, 16));
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!image || !fuse || !voice || !null || dup2(null.get(), STDIN_FILENO) < 0 ||
        dup2(voice.get(), STDOUT_FILENO) < 0 || dup2(voice.get(), STDERR_FILENO) < 0 ||
        dup2(image.get(), kImageFile) < 0 || dup2(fuse.get(), kFuseDevice) < 0)
        complain(voice ? voice.get() : kSocket, errno_error("arrange", "descriptors").message());
    auto options = fmt::format("offset={}", request->offset);
    if (request->owns)
        options += fmt::format(",uid={},gid={}", spec.uid, spec.gid);
    const auto file = fmt::format("/proc/self/fd/{}", kImageFile);
    const auto mount = fmt::format("/dev/fd/{}", kFuseDevice);
    for (const auto *const program : kPrograms) {
        std::array arguments{const_cast<char *>("squashfuse_ll"), // execve does not write
                             const_cast<char *>("-f"),
                             const_cast<char *>("-o"),
                             const_cast<char *>(options.c_str()),
                             const_cast<char *>(file.c_str()),
                             const_cast<char *>(mount.c_str()),
                             static_cast<char *>(nullptr)};
        std::array environment{const_cast<char *>("PATH=/usr/bin:/bin"), static_cast<char *>(nullptr)};
        execve(program, arguments.data(), environment.data());
        if (errno != ENOENT)
            complain(voice.get(), errno_error("run", program).message());
    }
    complain(voice.get(), "this host has no squashfuse_ll: install the package squashfuse");
}

[[noreturn]] void run_image_server(int socket, const Spec &spec) {
    try {
        // The caller's other descriptors must not stay open through this one.
        if ((socket != kSocket && dup3(socket, kSocket, O_CLOEXEC) < 0) ||
            close_range(kSocket + 1, ~0U, 0) != 0)
            _exit(EXIT_FAILURE);
        become_squashfuse(spec);
    } catch (const std::exception &error) {
        complain(kSocket, error.what());
    }
}

} // namespace

Expected<ImageServer> ImageServer::begin(const Spec &spec) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return std::unexpected(errno_error("make a socket for", "the server of an image"));
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    const pid_t server = fork();
    if (server < 0)
        return std::unexpected(errno_error("start", "the server of an image"));
    if (server == 0)
        run_image_server(theirs.get(), spec);
    return ImageServer(std::move(ours), spec);
}

Expected<UniqueFd> ImageServer::serve(const UniqueFd &file, std::uint64_t offset) const {
    const auto failed = [&](std::string_view doing) {
        return std::unexpected(errno_error(doing, quote(image_)));
    };
    const UniqueFd fuse(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!fuse)
        return std::unexpected(
            errno_error("open /dev/fuse (modprobe fuse), which serves the image", quote(image_)));
    const UniqueFd system(fsopen("fuse", FSOPEN_CLOEXEC));
    if (!system)
        return failed("make a file system of FUSE for the image");
    // allow_other: root's processes look into it as well, the user's real id being theirs or not.
    for (const auto &[key, value] : {std::pair<const char *, std::string>("source", "squashfuse"),
                                     {"fd", std::to_string(fuse.get())},
                                     {"rootmode", "40000"},
                                     {"user_id", std::to_string(uid_)},
                                     {"group_id", std::to_string(gid_)}})
        if (fsconfig(system.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) != 0)
            return failed("prepare a file system of FUSE for the image");
    if (fsconfig(system.get(), FSCONFIG_SET_FLAG, "allow_other", nullptr, 0) != 0 ||
        fsconfig(system.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
        return failed("make a file system of FUSE for the image");
    UniqueFd out(
        fsmount(system.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    if (!out)
        return failed("mount the image");
    if (const int code = send_packet(socket_.get(), encode(ServeRequest{.offset = offset, .owns = owns_}),
                                     {file.get(), fuse.get()});
        code != 0)
        return not_served(errno_error("ask for", "its server", code));
    return out;
}

std::unexpected<Error> ImageServer::not_served(const Error &why) const {
    auto said = complaints();
    return failure("use the image", quote(image_), said.empty() ? why.message() : "its server says: " + said,
                   why.code);
}

std::string image_server_program() {
    const auto *const found = std::ranges::find_if(
        kPrograms, [](const char *program) { return faccessat(AT_FDCWD, program, X_OK, 0) == 0; });
    return found == kPrograms.end() ? "" : *found;
}

Expected<void> note_connection(const Room &room, const UniqueFd &top) {
    struct statx about{};
    // Without a question to the server.
    if (statx(top.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &about) != 0)
        return std::unexpected(errno_error("find the connection of", "an image's server"));
    return replace_file(room.image() / kConnection, std::to_string(about.stx_dev_minor), 0600, Durable::kNo);
}

Expected<void> end_serving(const Room &room) {
    auto number = proc::read(room.image() / kConnection);
    if (!number)
        return number.error().code == ENOENT ? Expected<void>() : Expected<void>(propagate(number));
    const UniqueFd system(fsopen("fusectl", FSOPEN_CLOEXEC));
    if (!system || fsconfig(system.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
        return std::unexpected(errno_error("make", "a file system of FUSE's connections"));
    const UniqueFd tree(
        fsmount(system.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
    if (!tree)
        return std::unexpected(errno_error("mount", "the file system of FUSE's connections"));
    const UniqueFd abort(openat(tree.get(), (*number + "/abort").c_str(), O_WRONLY | O_CLOEXEC));
    if (!abort && errno == ENOENT) // it has ended
        return {};
    if (!abort || write(abort.get(), "1", 1) != 1)
        return std::unexpected(errno_error("end the serving of", "an image"));
    return {};
}

std::string ImageServer::complaints() const {
    std::string out;
    std::array<char, kComplaintLimit> text{};
    while (out.size() < kComplaintLimit) {
        const ssize_t got = recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
        if (got <= 0)
            break;
        out.append(text.data(), static_cast<std::size_t>(got));
    }
    while (!out.empty() && (out.back() == '\n' || out.back() == ' '))
        out.pop_back();
    out.resize(std::min(out.size(), kComplaintLimit));
    return out.empty() ? out : quote(out);
}

} // namespace singularity::node
