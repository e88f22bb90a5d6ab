// SPDX-License-Identifier: GPL-2.0-or-later
#include "bound.hpp"

#include "common/text.hpp"
#include "places.hpp"
#include "saved_sockets.hpp"

#include <algorithm>
#include <filesystem>
#include <future>
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
};

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
        if (*place)
            found.push_back({.name = whole, .place = std::move(**place)});
        return {};
    };
    if (auto read = for_each_saved_socket(request.images, look); !read)
        return propagate(read);
    return found;
}

// On a thread whose ids are the user's: whether he could remove what is there and make a new one.
bool may_replace(const Context &context, const std::filesystem::path &path) {
    const auto directory = path.parent_path();
    struct stat above{};
    if (faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0 ||
        stat(directory.c_str(), &above) != 0)
        return false;
    struct stat there{};
    return (above.st_mode & S_ISVTX) == 0 || above.st_uid == context.uid ||
           lstat(path.c_str(), &there) != 0 || there.st_uid == context.uid;
}

Expected<void> check(const Context &context, const std::vector<Bound> &sockets) {
    const std::vector<gid_t> &groups = context.groups;
    // The system calls: the C library's functions would change the ids of other threads as well.
    if (syscall(SYS_setgroups, groups.size(), groups.data()) != 0 ||
        syscall(SYS_setresgid, context.gid, context.gid, context.gid) != 0 ||
        syscall(SYS_setresuid, context.uid, context.uid, context.uid) != 0)
        return std::unexpected(errno_error("become", fmt::format("user {}", context.uid)));
    for (const auto &one : sockets)
        if (!may_replace(context, one.place))
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
        return std::ranges::find(request.mounts, one.place.parent_path(), &OutsideMount::path) !=
               request.mounts.end();
    });
    if (sockets->empty())
        return {};
    return std::async(std::launch::async, [&] { return check(context, *sockets); }).get();
}

} // namespace singularity::host
