// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_mark.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/store/hash.hpp"
#include "node/as_user.hpp"
#include "node/image.hpp"
#include "node/image_search.hpp"
#include "node/packet.hpp"
#include "node/process.hpp"
#include "node/seqpacket.hpp"
#include "node/spec.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

constexpr std::size_t kDeepest = 5; // usr/lib/python3/dist-packages/NAME
constexpr std::size_t kMostEntries = 32768;
struct DirectoryEnd {
    void operator()(DIR *directory) const { closedir(directory); }
};

// Nothing below leads out of the image.
UniqueFd open_below(const UniqueFd &image, const std::string &path) {
    open_how how{};
    how.flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
    return UniqueFd(static_cast<int>(
        syscall(SYS_openat2, image.get(), path.empty() ? "." : path.c_str(), &how, sizeof(how))));
}

// What is refused to the user, or has gone. Any other error may pass, and says nothing of the image.
bool is_not_seen(int code) {
    return code == EACCES || code == EPERM || code == ENOENT || code == EXDEV || code == ELOOP ||
           code == ENOTDIR;
}

// Sorted; one more than may be seen is too many anyway. Nothing: it cannot be read now.
std::optional<std::vector<std::string>> names_in(const UniqueFd &directory) {
    std::vector<std::string> out;
    UniqueFd copy(openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const std::unique_ptr<DIR, DirectoryEnd> entries(copy ? fdopendir(copy.get()) : nullptr);
    if (!entries)
        return std::nullopt;
    static_cast<void>(copy.release()); // it is the stream's
    errno = 0;
    while (const dirent *entry = readdir(entries.get())) // NOLINT(concurrency-mt-unsafe): its own stream
        if (std::string_view name(entry->d_name); name != "." && name != "..") {
            out.emplace_back(name);
            if (out.size() > kMostEntries)
                break;
        }
    if (errno != 0 && out.size() <= kMostEntries)
        return std::nullopt;
    std::ranges::sort(out);
    return out;
}

std::string described(const UniqueFd &directory, const std::string &name, const struct stat &about) {
    const auto kind = about.st_mode & S_IFMT;
    if (kind == S_IFLNK) {
        std::array<char, PATH_MAX> target{};
        const ssize_t size = readlinkat(directory.get(), name.c_str(), target.data(), target.size());
        return fmt::format(
            "link {}", std::string_view(target.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))));
    }
    if (kind == S_IFREG)
        return fmt::format("file {:o} {} {}", about.st_mode, about.st_size, about.st_mtim.tv_sec);
    return fmt::format("{:o}", kind);
}

struct LevelSeen {
    static constexpr std::uint16_t kType = 1;
    std::uint32_t level = 0;
    std::string hash; // of this level and those above
    static void fields(auto &self, auto &visit) { visit(self.level, self.hash); }
};
// There is no whole level below the last one that the image has, or that may be seen.
struct AllSeen {
    static constexpr std::uint16_t kType = 2;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
// The mounts of a node that is to be restored; with the namespace and what the agent sees as / in it.
struct Shown {
    static constexpr std::uint16_t kType = 3;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct Failed {
    static constexpr std::uint16_t kType = 4;
    std::string doing;
    std::string on;
    std::string why;
    std::int32_t code = 0;
    static void fields(auto &self, auto &visit) { visit(self.doing, self.on, self.why, self.code); }
};

// ---- in the process that looks

Expected<void> say(int to, const std::string &bytes, std::initializer_list<int> descriptors = {}) {
    if (const int code = node::send_packet(to, bytes, descriptors); code != 0)
        return std::unexpected(errno_error("say", "what has been seen of an image", code));
    return {};
}

// Level by level; nothing is said of one that is too large to be seen whole.
Expected<void> look(const node::Spec &spec, const UniqueFd &root, int to) {
    const auto ids = node::AsUser::begin(spec);
    if (!ids)
        return std::unexpected(ids.error());
    const auto points = node::mount_points(spec);
    store::Hasher hasher;
    std::size_t seen = 0;
    std::vector<std::string> places{""};
    for (std::uint32_t level = 1; level <= kDeepest && !places.empty(); ++level) {
        std::vector<std::string> next;
        for (const auto &place : places) {
            const UniqueFd directory = open_below(root, place);
            if (!directory && level == 1)
                return std::unexpected(errno_error("look at the image", quote(spec.image.directory)));
            if (!directory && is_not_seen(errno)) // the user does not see what is in it
                continue;
            const auto names = directory ? names_in(directory) : std::nullopt;
            if (!names || names->size() > kMostEntries)
                return say(to, node::encode(AllSeen{}));
            for (const auto &name : *names) {
                const auto whole = place.empty() ? name : fmt::format("{}/{}", place, name);
                struct stat about{};
                if (std::ranges::find(points, "/" + whole) != points.end())
                    continue;
                if (fstatat(directory.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) {
                    if (is_not_seen(errno))
                        continue;
                    return say(to, node::encode(AllSeen{}));
                }
                if (++seen > kMostEntries)
                    return say(to, node::encode(AllSeen{}));
                const auto line =
                    fmt::format("{}{}{}{}", whole, '\0', described(directory, name, about), '\0');
                hasher.update(std::as_bytes(std::span(line)));
                if (S_ISDIR(about.st_mode))
                    next.push_back(whole);
            }
        }
        auto until_here = hasher;
        if (auto said = say(to, node::encode(LevelSeen{.level = level, .hash = until_here.finish().hex()}));
            !said)
            return said;
        places = std::move(next);
    }
    return say(to, node::encode(AllSeen{}));
}

// What is mounted there. The way to it is of a root to which the node's programs write: no link is followed.
Expected<UniqueFd> open_in_node(const UniqueFd &root, std::string_view place) {
    UniqueFd out = node::open_by_name(root.get(), std::string(place.substr(1)), O_PATH | O_DIRECTORY,
                                      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    if (!out)
        return std::unexpected(errno_error("open in the node", place));
    return out;
}

Expected<void> look_at_running(const node::Record &record, int to) {
    auto process = node::hold(record.init);
    if (!process)
        return propagate(process);
    auto root = open_file(fmt::format("/proc/{}/root", record.init.pid), O_PATH | O_DIRECTORY);
    if (root && node::layer_of(record.spec) != nullptr)
        root = open_in_node(*root, node::Room::kBelowInNode);
    if (!root)
        return propagate(root);
    if (node::has_ended(*process)) // the number may be another's
        return failure("look at the image of", quote(record.spec.name), "its first process has ended", ESRCH);
    return look(record.spec, *root, to);
}

Expected<void> show_and_look(const node::Room &room, const node::Spec &spec, int to) {
    if (auto shown = node::show_image(room, spec); !shown)
        return shown;
    auto own = open_file("/proc/self/ns/mnt", O_RDONLY);
    if (!own)
        return propagate(own);
    auto top = open_file("/", O_PATH | O_DIRECTORY);
    if (!top)
        return propagate(top);
    if (auto said = say(to, node::encode(Shown{}), {own->get(), top->get()}); !said)
        return said;
    auto root = open_file(node::layer_of(spec) != nullptr ? room.image_below() : room.image_root(),
                          O_PATH | O_DIRECTORY);
    if (!root)
        return propagate(root);
    return look(spec, *root, to);
}

[[noreturn]] void run_looker(int out, const std::function<Expected<void>(int to)> &looks) {
    constexpr int kOut = 3;
    // One that hangs must not hold anything of its job's.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || (out != kOut && dup2(out, kOut) < 0) ||
        close_range(kOut + 1, ~0U, 0) != 0)
        _exit(EXIT_FAILURE);
    auto looked = looks(kOut);
    if (looked)
        _exit(EXIT_SUCCESS);
    auto &error = looked.error();
    static_cast<void>(say(kOut, node::encode(Failed{.doing = std::move(error.doing),
                                                    .on = std::move(error.on),
                                                    .why = std::move(error.why),
                                                    .code = error.code})));
    _exit(EXIT_FAILURE);
}

// ---- in the worker

// Its end is not waited for: one that hangs in a file system cannot even be killed.
class Looker {
  public:
    static Expected<Looker> begin(const std::function<Expected<void>(int to)> &looks) {
        std::array<int, 2> ends{};
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
            return std::unexpected(errno_error("make a socket for", "a look at the image"));
        UniqueFd ours(ends[0]);
        const UniqueFd theirs(ends[1]);
        const pid_t child = fork();
        if (child < 0)
            return std::unexpected(errno_error("start", "a look at the image"));
        if (child == 0)
            run_looker(theirs.get(), looks);
        return Looker(std::move(ours), child);
    }
    Looker(Looker &&other) noexcept
        : socket_(std::move(other.socket_)), child_(std::exchange(other.child_, -1)) {}
    Looker(const Looker &) = delete;
    Looker &operator=(const Looker &) = delete;
    Looker &operator=(Looker &&) = delete;
    ~Looker() {
        if (child_ < 0)
            return;
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, WNOHANG);
    }

    // What it says next. ETIMEDOUT: nothing until the deadline; ECANCELED: the agent is gone.
    Expected<node::Packet> next(const node::Spec &spec, AgentLink &agent, const Deadline &deadline) {
        constexpr int kPause = 200; // ms between two looks at the agent
        for (;;) {
            node::Packet packet;
            const auto received = node::receive_packet(socket_.get(), packet);
            if (received == node::Received::packet) {
                auto failed = node::decode<Failed>(packet.bytes);
                if (!failed)
                    return packet;
                return failure(std::move(failed->doing), std::move(failed->on), std::move(failed->why),
                               failed->code);
            }
            if (received != node::Received::nothing)
                return failure("look at the image", quote(spec.image.directory),
                               "the process that looks has died");
            agent.progress("looking at the image");
            if (auto wanted = agent.still_wanted(); !wanted) {
                auto error = std::move(wanted.error());
                error.code = ECANCELED;
                return std::unexpected(std::move(error));
            }
            if (deadline.expired())
                return std::unexpected(
                    timeout_error(deadline, "the file system of the image " + quote(spec.image.directory)));
            pollfd watched{.fd = socket_.get(), .events = POLLIN, .revents = 0};
            if (poll(&watched, 1, kPause) < 0 && errno != EINTR)
                return std::unexpected(errno_error("wait for", "a look at the image"));
        }
    }

  private:
    Looker(UniqueFd socket, pid_t child) : socket_(std::move(socket)), child_(child) {}
    UniqueFd socket_;
    pid_t child_;
};

std::string text_of(const LevelSeen &seen) { return fmt::format("{} {}", seen.level, seen.hash); }

// 0: of none.
std::uint32_t level_of(std::string_view mark) {
    std::uint32_t out = 0;
    std::from_chars(mark.data(), mark.data() + mark.size(), out);
    return out;
}

} // namespace

Expected<Marked> image_mark(const node::Record &record, AgentLink &agent, const Deadline &deadline) {
    Marked out;
    auto looker = Looker::begin([&](int to) { return look_at_running(record, to); });
    if (!looker)
        return propagate(looker);
    for (;;) {
        auto packet = looker->next(record.spec, agent, deadline);
        if (!packet && packet.error().code == ECANCELED)
            return propagate(packet);
        if (!packet) {
            out.why = packet.error().message();
            return out;
        }
        const auto seen = node::decode<LevelSeen>(packet->bytes);
        if (!seen) {
            out.why = fmt::format("it has more than {} names in one directory", kMostEntries);
            return out;
        }
        out.mark = text_of(*seen);
    }
}

Expected<void> enter_image(const node::Room &room, const node::Spec &spec, const std::string &before,
                           AgentLink &agent, const Deadline &deadline) {
    const auto refuse = [&](std::string why) {
        return failure("restore a node with the image", quote(spec.image.directory), std::move(why), EINVAL);
    };
    const auto wanted = level_of(before);
    auto looker = Looker::begin([&](int to) { return show_and_look(room, spec, to); });
    if (!looker)
        return propagate(looker);
    auto shown = looker->next(spec, agent, deadline);
    if (!shown)
        return propagate(shown);
    if (!node::decode<Shown>(shown->bytes) || shown->descriptors.size() != 2)
        return refuse("the process that looks says something else");
    const UniqueFd own(shown->descriptors.take(0));
    const UniqueFd top(shown->descriptors.take(1));
    std::string now;
    while (level_of(now) < wanted) {
        auto packet = looker->next(spec, agent, deadline);
        if (!packet)
            return propagate(packet);
        const auto seen = node::decode<LevelSeen>(packet->bytes);
        if (!seen)
            break;
        now = text_of(*seen);
    }
    if (now != before)
        return refuse("it is not as it was when the job was saved: put back what was there (names, sizes and "
                      "times of its files are compared), or let the job begin anew");
    // Of this thread alone, as setns(2) wants it.
    if (unshare(CLONE_FS) != 0 || setns(own.get(), CLONE_NEWNS) != 0 || fchdir(top.get()) != 0 ||
        chroot(".") != 0)
        return std::unexpected(errno_error("go to the mounts of the image", quote(spec.image.directory)));
    return {};
}

} // namespace singularity::worker
