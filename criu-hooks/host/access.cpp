// SPDX-License-Identifier: GPL-2.0-or-later
#include "access.hpp"

#include "aio.hpp"
#include "common/proc.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"
#include "maps.hpp"
#include "proc.hpp"
#include "user_ids.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// Descriptors on their way in sockets that are themselves on their way.
constexpr int kDeepest = 3;

using Inode = std::pair<dev_t, ino_t>;
Inode inode_of(const struct stat &about) { return {about.st_dev, about.st_ino}; }

// Of an inode that some process has: R_OK, W_OK; X_OK means that executing is as good as reading.
struct Use {
    Inode inode;
    int access = 0;
    bool executed = false;
    auto operator<=>(const Use &) const = default;
};

// The calling thread sees the node's files, and is root or the user in turns.
class Visitor {
  public:
    explicit Visitor(const Context &context) : context_(context) {}

    Expected<void> enter(pid_t init) {
        auto proc = open_file("/proc", O_PATH | O_DIRECTORY);
        if (!proc)
            return propagate(proc);
        proc_ = std::move(*proc);
        auto ids = UserIds::take(context_, fmt::format("/proc/{}/root", init));
        if (!ids)
            return propagate(ids);
        ids_ = *ids;
        return {};
    }

    // What a link in /proc leads to, without opening it.
    [[nodiscard]] UniqueFd at(const std::string &link) const {
        return UniqueFd(openat(proc_.get(), link.c_str(), O_PATH | O_CLOEXEC));
    }
    [[nodiscard]] bool opens(const std::string &link, int flags) const {
        return static_cast<bool>(
            UniqueFd(openat(proc_.get(), link.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)));
    }
    // Its name as the node sees it.
    [[nodiscard]] std::string name_of(const std::string &link) const {
        std::array<char, PATH_MAX> text{};
        const ssize_t size = readlinkat(proc_.get(), link.c_str(), text.data(), text.size());
        return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
    }
    struct Verdict {
        bool reached = false; // the user gets at something by that name, so it is no secret
        bool good = false;
    };
    // Whether the user may; by its name, if it has one.
    [[nodiscard]] Expected<Verdict> may(int fd, const struct stat &about, const std::string &name,
                                        const Use &use) const {
        const auto &ids = ids_;
        if (!ids)
            return failure("look into", "the virtual node", "it has not been entered");
        if (auto changed = ids->become_user(); !changed)
            return propagate(changed);
        const auto verdict =
            about.st_nlink == 0 ? Verdict{.reached = true, .good = allows(fd, use)} : reach(name, about, use);
        if (auto changed = UserIds::become_root(); !changed)
            return propagate(changed);
        return verdict;
    }

  private:
    static bool allows(int fd, const Use &use) {
        const auto access = [fd](int mode) {
            return syscall(SYS_faccessat2, fd, "", mode, AT_EMPTY_PATH | AT_EACCESS) == 0;
        };
        return access(use.access) || (use.executed && access(X_OK));
    }
    static Verdict reach(const std::string &name, const struct stat &about, const Use &use) {
        const UniqueFd found(open(name.c_str(), O_PATH | O_CLOEXEC));
        struct stat there{};
        if (!found || fstat(found.get(), &there) != 0)
            return {};
        return {.reached = true, .good = inode_of(there) == inode_of(about) && allows(found.get(), use)};
    }

    const Context &context_;
    std::optional<UserIds> ids_;
    UniqueFd proc_;
};

// All descriptors in a socket's queue, which stay there.
Expected<void> peek(int socket, std::vector<UniqueFd> &found) {
    constexpr std::size_t kMost = 253; // SCM_MAX_FD
    int offset = -1;
    socklen_t size = sizeof(offset);
    const int begin = 0;
    if (getsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &offset, &size) != 0 ||
        setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &begin, sizeof(begin)) != 0)
        return std::unexpected(errno_error("look into", "a socket's queue"));
    std::vector<std::byte> data(std::size_t{256} << 10U);
    for (;;) {
        iovec part{.iov_base = data.data(), .iov_len = data.size()};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMost) + CMSG_SPACE(sizeof(ucred))>
            control{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        // An end, nothing more, a socket that listens: whoever counts what was found sees what is missing.
        if (recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
            break;
        for (cmsghdr *head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
            if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
                continue;
            for (std::size_t at = 0; at < head->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(head) + at, sizeof(fd));
                found.emplace_back(fd);
            }
        }
    }
    if (setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)) != 0)
        return std::unexpected(errno_error("let go of", "a socket's queue"));
    return {};
}

class Inspection {
  public:
    Inspection(const Context &context, const std::vector<OutsideDescriptor> &descriptors, Node node)
        : context_(context), visitor_(context), node_(node) {
        for (const auto &given : descriptors) {
            struct stat about{};
            if (const int flags = fcntl(given.fd, F_GETFL); flags >= 0 && fstat(given.fd, &about) == 0)
                given_[inode_of(about)] |= access_of(flags) | X_OK;
        }
    }

    Expected<void> run(pid_t init) {
        auto processes = processes_of(init); // before the node's own /proc is all there is
        if (!processes)
            return propagate(processes);
        if (auto listed = list(*processes); !listed)
            return listed;
        if (auto entered = visitor_.enter(init); !entered)
            return entered;
        for (const auto &[title, link, access] : links_)
            if (auto good = look(title, link, access); !good)
                return good;
        return {};
    }

  private:
    struct Link {
        std::string title; // of the process
        std::string path;  // below /proc
        int access = 0;
    };

    static int access_of(int flags) {
        constexpr std::array kAccess{R_OK, W_OK, R_OK | W_OK, R_OK | W_OK};
        return (flags & O_PATH) != 0 ? F_OK : kAccess.at(static_cast<std::size_t>(flags & O_ACCMODE));
    }
    static int access_of(std::string_view info) {
        constexpr int kOctal = 8;
        return access_of(static_cast<int>(number_after(info, "flags:", kOctal).value_or(O_RDWR)));
    }
    [[nodiscard]] bool is_given(const Use &use) const {
        const auto found = given_.find(use.inode);
        return found != given_.end() && (use.access & ~found->second) == 0;
    }
    // The link's own mode tells how the file was opened, and so what the mapping can be made to allow: one
    // that is read-only now is not for ever. Private ones have copies of what they write.
    static Expected<int> access_of(pid_t pid, const std::string &mapping, bool is_shared) {
        const auto link = fmt::format("/proc/{}/{}", pid, mapping);
        struct stat about{};
        if (lstat(link.c_str(), &about) != 0)
            return std::unexpected(errno_error("look at", link));
        return R_OK | (is_shared && (about.st_mode & S_IWUSR) != 0 ? W_OK : 0);
    }
    // Descriptors that were sent through a socket and that nobody has received.
    static std::uint64_t waiting_in(std::string_view info) {
        return number_after(info, "scm_fds:").value_or(0);
    }

    Expected<void> look_into(const Process &process, int number, std::uint64_t count) {
        const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
        const UniqueFd socket(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)));
        if (!socket)
            return std::unexpected(
                errno_error("look into", fmt::format("socket {} of {}", number, process.title())));
        return look_into(process.title(), socket.get(), count, 0);
    }
    // What waits is received without being taken; it stays open until all has been looked at.
    Expected<void> look_into(const std::string &title, int socket, std::uint64_t count, int depth) {
        const std::size_t before = waiting_.size();
        if (auto peeked = peek(socket, waiting_); !peeked)
            return peeked;
        if (waiting_.size() - before != count || depth == kDeepest)
            return failure(
                "look into", "the virtual node",
                fmt::format("a socket of {} holds {} descriptors on their way that cannot be looked at",
                            title, count),
                EACCES);
        for (std::size_t at = before; at < before + count; ++at) {
            const int fd = waiting_[at].get();
            auto info = proc::read(fmt::format("/proc/self/fdinfo/{}", fd));
            if (!info)
                return propagate(info);
            links_.push_back(
                {title + ", on its way through a socket", fmt::format("self/fd/{}", fd), access_of(*info)});
            if (const auto inside = waiting_in(*info); inside != 0)
                if (auto looked = look_into(title, fd, inside, depth + 1); !looked)
                    return looked;
        }
        return {};
    }

    Expected<void> list(const std::vector<Process> &processes) {
        for (const auto &process : processes)
            if (auto listed = list(process); !listed && node_ == Node::stands_still)
                return listed;
        return {};
    }
    Expected<void> list(const Process &process) {
        if (process.state == 'Z')
            return {};
        const auto add = [&](std::string_view what, int access) {
            links_.push_back({process.title(), fmt::format("{}/{}", process.pid, what), access});
        };
        for (const char *const what : {"cwd", "root"})
            add(what, X_OK);
        add("exe", R_OK);
        auto mappings = mappings_of(process.pid);
        if (!mappings)
            return propagate(mappings);
        for (const auto &mapping : *mappings) {
            if (!mapping.name.starts_with('/'))
                continue;
            if (is_aio_ring(process.pid, mapping.begin, mapping.end))
                continue; // the process's own, of no file
            const auto link = fmt::format("map_files/{:x}-{:x}", mapping.begin, mapping.end);
            auto access = access_of(process.pid, link, mapping.shared);
            if (access)
                add(link, *access);
            else if (node_ == Node::stands_still)
                return propagate(access);
        }
        auto directory = open_file(fmt::format("/proc/{}/fd", process.pid), O_RDONLY | O_DIRECTORY);
        if (!directory)
            return propagate(directory);
        auto names = names_in(directory->get());
        if (!names)
            return propagate(names);
        for (const auto &name : *names) {
            auto info = proc::read(fmt::format("/proc/{}/fdinfo/{}", process.pid, name));
            if (!info && node_ == Node::runs)
                continue;
            if (!info)
                return propagate(info);
            add("fd/" + name, access_of(*info));
            if (const auto count = waiting_in(*info); count != 0 && node_ == Node::stands_still)
                if (auto looked = look_into(process, std::stoi(name), count); !looked)
                    return looked;
        }
        return {};
    }

    Expected<void> look(const std::string &title, const std::string &link, int access) {
        const UniqueFd fd = visitor_.at(link);
        struct stat about{};
        if (!fd || fstat(fd.get(), &about) != 0) {
            if (errno == ENOENT) // nothing: a thread without a program of its own
                return {};
            return std::unexpected(errno_error("look at", "/proc/" + link));
        }
        const Use use{.inode = inode_of(about),
                      .access = access,
                      .executed = link.ends_with("/exe") || executed_.contains(inode_of(about))};
        if (link.ends_with("/exe"))
            executed_.insert(use.inode);
        auto wanted = use;
        if (S_ISFIFO(about.st_mode)) // CRIU opens it for both
            wanted.access |= R_OK | W_OK;
        const auto name = visitor_.name_of(link);
        if (about.st_uid == context_.uid && !can_be_opened_again(link, about, access))
            return failure("look into", "the virtual node",
                           fmt::format("{} ({}) of {} has no such rights for its owner, and its file system "
                                       "lets root do nothing: it could not be opened again; chmod u+rw it",
                                       link.substr(link.find('/') + 1), quote(name), title),
                           EACCES);
        // Pipes and sockets have no names; processes of the node are the user's own.
        if (!name.starts_with('/') || about.st_uid == context_.uid || is_given(use) || is_of_process(name) ||
            good_.contains(use))
            return {};
        if (S_ISREG(about.st_mode) && about.st_nlink == 0 && !can_be_made_again(name, about))
            return failure("look into", "the virtual node",
                           fmt::format("{} ({}) of {} has been deleted and was neither its user's own nor in "
                                       "a directory that only root changes: it could not be made again",
                                       link.substr(link.find('/') + 1), quote(name), title),
                           EACCES);
        auto may = visitor_.may(fd.get(), about, name, wanted);
        if (!may)
            return propagate(may);
        if (!may->good)
            return failure("look into", "the virtual node",
                           fmt::format("{} ({}) of {} is one that its user may not {}",
                                       link.substr(link.find('/') + 1),
                                       may->reached ? quote(name) : "a hidden file", title,
                                       (access & W_OK) != 0 ? "write to" : "read"),
                           EACCES);
        good_.insert(use);
        return {};
    }

    // A file of the user's own is opened by root where its mode has no rights for him.
    [[nodiscard]] bool can_be_opened_again(const std::string &link, const struct stat &about,
                                           int access) const {
        const bool may = ((access & R_OK) == 0 || (about.st_mode & S_IRUSR) != 0) &&
                         ((access & W_OK) == 0 || (about.st_mode & S_IWUSR) != 0);
        if (may || (!S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)))
            return true;
        return visitor_.opens(link, (access & W_OK) != 0 ? O_RDWR : O_RDONLY);
    }

    // Root makes it where no user can put something else in its way. What has no name in a file system is not
    // made by one.
    [[nodiscard]] static bool can_be_made_again(const std::string &name, const struct stat &about) {
        constexpr std::array<std::string_view, 4> kNameless{"/memfd:", "/dev/zero", "/SYSV",
                                                            "/anon_hugepage"};
        if (std::ranges::any_of(kNameless, [&](auto one) { return name.starts_with(one); }))
            return true;
        if (about.st_uid != 0)
            return false;
        struct stat above{};
        auto directory = std::filesystem::path(name).parent_path();
        while (lstat(directory.c_str(), &above) != 0 && errno == ENOENT && directory.has_relative_path())
            directory = directory.parent_path(); // CRIU takes the one above
        for (; lstat(directory.c_str(), &above) == 0; directory = directory.parent_path()) {
            if (!S_ISDIR(above.st_mode) || above.st_uid != 0 || (above.st_mode & (S_IWGRP | S_IWOTH)) != 0)
                return false;
            if (directory == directory.root_path())
                return true;
        }
        return false;
    }

    // "/proc/27/status"
    static bool is_of_process(std::string_view name) {
        constexpr std::string_view kProc = "/proc/";
        return name.starts_with(kProc) && name.size() > kProc.size() && name[kProc.size()] >= '0' &&
               name[kProc.size()] <= '9';
    }

    const Context &context_;
    Visitor visitor_;
    Node node_;
    std::map<Inode, int> given_; // with what access
    std::set<Inode> executed_;
    std::set<Use> good_;
    std::vector<Link> links_;
    std::vector<UniqueFd> waiting_;
};

} // namespace

Expected<void> verify_access(const Context &context, const std::vector<OutsideDescriptor> &given, pid_t init,
                             Node node) {
    // On a thread of its own, with which its ids and its root end.
    return std::async(std::launch::async, [&] { return Inspection(context, given, node).run(init); }).get();
}

} // namespace singularity::host
