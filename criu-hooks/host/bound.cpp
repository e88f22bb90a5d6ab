// SPDX-License-Identifier: GPL-2.0-or-later
#include "bound.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "places.hpp"
#include "saved_sockets.hpp"

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

struct Bound {
    std::filesystem::path name;  // as the node knows it
    std::filesystem::path place; // on this machine
    // Of a mount that the user does not reach by name: its directory, below which the place is.
    std::shared_ptr<UniqueFd> top;
};

Expected<Bound> below(const std::filesystem::path &top, Bound socket) {
    auto directory = open_file(top, O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!directory)
        return propagate(directory);
    socket.place = socket.place.lexically_relative(top);
    socket.top = std::make_shared<UniqueFd>(std::move(*directory));
    return socket;
}

Expected<std::vector<Bound>> bound_sockets(const RestoreRequest &request) {
    auto places = places_of(request);
    if (!places)
        return propagate(places);
    std::vector<Bound> found;
    const auto look = [&](const std::vector<Field> &fields) -> Expected<void> {
        const Field *const flags = find(fields, saved_socket::kFlags);
        if (flags != nullptr && (flags->value & saved_socket::kNotSaved) != 0)
            return {};
        auto name = text_of(fields, saved_socket::kName);
        if (name.empty() || name.front() == '\0') // of no file
            return {};
        name.resize(std::min(name.find('\0'), name.size()));
        const auto whole = std::filesystem::path("/") / text_of(fields, saved_socket::kDirectory) / name;
        const Field *const mount = find(fields, saved_socket::kMount);
        if (mount == nullptr)
            return failure("restore", "the socket " + quote(whole.native()),
                           "the image does not say on which mount it is", EPROTO);
        auto place = present_path(*places, mount->value >> 1U, whole.native());
        if (!place)
            return propagate(place);
        if (!*place)
            return {};
        Bound one{.name = whole, .place = std::move(**place), .top = nullptr};
        if (const auto &on = places->at(mount->value >> 1U); on.kept && on.outside) {
            auto there = below(*on.outside, std::move(one));
            if (!there)
                return propagate(there);
            one = std::move(*there);
        }
        found.push_back(std::move(one));
        return {};
    };
    if (auto read = for_each_saved_socket(request.images, look); !read)
        return propagate(read);
    return found;
}

// On a thread whose ids are the user's: whether he could remove what is there and make a new one.
bool may_replace(const Context &context, const Bound &socket) {
    const auto &path = socket.place;
    const int top = socket.top ? socket.top->get() : AT_FDCWD;
    const auto directory = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    struct stat above{};
    if (faccessat(top, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0 ||
        fstatat(top, directory.c_str(), &above, 0) != 0)
        return false;
    struct stat there{};
    return (above.st_mode & S_ISVTX) == 0 || above.st_uid == context.uid ||
           fstatat(top, path.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0 || there.st_uid == context.uid;
}

Expected<void> check(const Context &context, const std::vector<Bound> &sockets) {
    const std::vector<gid_t> &groups = context.groups;
    // The system calls: the C library's functions would change the ids of other threads as well.
    if (syscall(SYS_setgroups, groups.size(), groups.data()) != 0 ||
        syscall(SYS_setresgid, context.gid, context.gid, context.gid) != 0 ||
        syscall(SYS_setresuid, context.uid, context.uid, context.uid) != 0)
        return std::unexpected(errno_error("become", fmt::format("user {}", context.uid)));
    for (const auto &one : sockets)
        if (!may_replace(context, one))
            return failure(
                "restore", "the socket " + quote(one.name.native()),
                "its directory is now one in which its user may not make it: put back what was there",
                EACCES);
    return {};
}

} // namespace

Expected<void> verify_bound_sockets(const Context &context, const RestoreRequest &request) {
    auto sockets = bound_sockets(request);
    if (!sockets)
        return propagate(sockets);
    // Nobody but the caller decides what is in a directory that he has given.
    std::erase_if(*sockets, [&](const Bound &one) {
        return !one.top && std::ranges::find(request.mounts, one.place.parent_path(), &OutsideMount::path) !=
                               request.mounts.end();
    });
    if (sockets->empty())
        return {};
    return std::async(std::launch::async, [&] { return check(context, *sockets); }).get();
}

} // namespace singularity::host
