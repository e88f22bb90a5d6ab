// SPDX-License-Identifier: GPL-2.0-or-later
#include "renamed_sockets.hpp"

#include "common/unique_fd.hpp"
#include "file.hpp"
#include "held_sockets.hpp"
#include "saved_sockets.hpp"
#include "unix_sockets.hpp"
#include "user_ids.hpp"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/un.h>
#include <stdio.h> // NOLINT(modernize-deprecated-headers): renameat
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::string_view kGone = " (deleted)"; // behind a name in /proc
constexpr std::size_t kMostNames = 4096;         // of a directory that is searched

// Where a socket was bound, and what it is there.
struct BoundThere {
    std::uint64_t inode = 0; // of the socket
    std::string path;        // as the node sees it now, or saw it before that name went
    bool gone = false;
    struct stat about{};
};

// Nothing if it has the name under which it was bound, or none at all any more.
std::optional<BoundThere> bound_elsewhere(std::uint64_t inode, const HeldSocket &held,
                                          const std::string &bound) {
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, held.pid, 0)));
    const UniqueFd socket(pidfd ? static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), held.number, 0))
                                : -1);
    const UniqueFd there(socket ? ioctl(socket.get(), SIOCUNIXFILE) : -1);
    BoundThere out{.inode = inode, .path = {}, .gone = false, .about = {}};
    if (!there || fstat(there.get(), &out.about) != 0 || out.about.st_nlink == 0)
        return std::nullopt;
    auto path = read_link(fmt::format("/proc/thread-self/fd/{}", there.get()));
    if (!path || !path->starts_with('/'))
        return std::nullopt;
    out.gone = path->ends_with(kGone);
    if (out.gone)
        path->resize(path->size() - kGone.size());
    const std::string_view name(bound.data(), std::min(bound.find('\0'), bound.size()));
    const bool same = name.starts_with('/') ? *path == name : path->ends_with("/" + std::string(name));
    if (same && !out.gone)
        return std::nullopt;
    out.path = std::move(*path);
    return out;
}

// Beside the name that has gone. The thread has the node's root, and the user's ids.
std::optional<std::string> other_name(const BoundThere &socket) {
    const auto parent = std::filesystem::path(socket.path).parent_path();
    const UniqueFd directory(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory)
        return std::nullopt;
    auto names = names_in(directory.get(), kMostNames);
    if (!names)
        return std::nullopt;
    for (const std::string &name : names->value_or(std::vector<std::string>())) {
        struct stat about{};
        if (fstatat(directory.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            about.st_dev == socket.about.st_dev && about.st_ino == socket.about.st_ino)
            return (parent / name).native();
    }
    return std::nullopt;
}

std::string renamed(Bytes socket, const std::string &name) {
    std::string out(reinterpret_cast<const char *>(socket.data()), socket.size());
    // Those that it has; the last one counts, and CRIU's messages have each once.
    for (const std::uint32_t number :
         {saved_socket::kDirectory, saved_socket::kDeleted, saved_socket::kName}) {
        const Bytes bytes = std::as_bytes(std::span(out));
        const auto fields = fields_of(bytes);
        if (const Field *const field = fields ? find(*fields, number) : nullptr; field != nullptr)
            out = without(bytes, *field);
    }
    return out + encoded_field(saved_socket::kName, std::string_view(name.c_str(), name.size() + 1));
}

} // namespace

Expected<SocketNames> renamed_sockets(const Context &context, pid_t init) {
    auto sockets = unix_sockets(init);
    if (!sockets)
        return propagate(sockets);
    std::erase_if(*sockets, [](const auto &entry) {
        return entry.second.name.empty() || entry.second.name.front() == '\0';
    });
    SocketNames names;
    if (sockets->empty())
        return names;
    auto held = held_sockets(init);
    if (!held)
        return propagate(held);
    std::vector<BoundThere> elsewhere;
    for (const auto &[inode, socket] : *sockets)
        if (const auto by = held->find(inode); by != held->end())
            if (auto one = bound_elsewhere(inode, by->second, socket.name); one)
                elsewhere.push_back(std::move(*one));
    if (elsewhere.empty())
        return names;
    auto ids = UserIds::take(context, fmt::format("/proc/{}/root", init));
    if (!ids)
        return propagate(ids);
    if (auto user = ids->become_user(); !user)
        return propagate(user);
    for (const BoundThere &one : elsewhere) {
        const auto name = one.gone ? other_name(one) : std::optional(one.path);
        if (name && name->size() < UNIX_PATH_MAX)
            names.emplace(one.inode, *name);
    }
    return names;
}

Expected<void> rename_in_image(int images, const SocketNames &names) {
    constexpr const char *kFiles = "files.img";
    constexpr const char *kBeside = "files.new";
    if (names.empty())
        return {};
    std::vector<std::string> entries;
    auto read = for_each_record(images, kFiles, Magic::kFiles, [&](Bytes message) -> Expected<void> {
        entries.emplace_back(reinterpret_cast<const char *>(message.data()), message.size());
        auto outer = fields_of(message);
        if (!outer)
            return propagate(outer);
        const Field *const body = find(*outer, saved_socket::kUnixSocket);
        if (body == nullptr)
            return {};
        auto fields = fields_of(body->bytes);
        if (!fields)
            return propagate(fields);
        const Field *const inode = find(*fields, saved_socket::kInode);
        const auto name = inode == nullptr ? names.end() : names.find(inode->value);
        if (name != names.end())
            entries.back() = with_bytes(message, *body, renamed(body->bytes, name->second));
        return {};
    });
    if (!read)
        return read;
    if (auto written = write_file_at(images, kBeside, framed(Magic::kFiles, entries)); !written)
        return written;
    if (renameat(images, kBeside, images, kFiles) != 0)
        return std::unexpected(errno_error("replace", kFiles));
    return {};
}

} // namespace singularity::host
