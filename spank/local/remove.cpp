// SPDX-License-Identifier: GPL-2.0-or-later
#include "remove.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "tree.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::local {

namespace {

constexpr mode_t kRemovable = 0700;

struct CloseDirectory {
    void operator()(DIR *directory) const { closedir(directory); }
};

Expected<std::vector<std::string>> names_in(const UniqueFd &directory) {
    const int copy = openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, CloseDirectory> stream(copy < 0 ? nullptr : fdopendir(copy));
    if (!stream)
        return std::unexpected(errno_error("look into", "a job's local directories"));
    std::vector<std::string> out;
    errno = 0;
    while (const dirent *const entry = readdir(stream.get())) { // NOLINT(concurrency-mt-unsafe): one thread
        const std::string name = entry->d_name;
        if (name != "." && name != "..")
            out.push_back(name);
        errno = 0;
    }
    if (errno != 0)
        return std::unexpected(errno_error("look into", "a job's local directories"));
    return out;
}

std::string below(std::string_view top, std::string_view name) { return fmt::format("{}/{}", top, name); }

UniqueFd opened(const UniqueFd &above, const std::string &name) {
    return UniqueFd(openat(above.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Directories that their owner may not enter or change, then everything. find(1) follows no link and goes
// through descriptors of directories, however deep they lie.
constexpr const char *kEmpty = "find . -xdev -type d ! -perm -0700 -exec chmod u+rwx {} ';' && "
                               "exec find . -xdev -mindepth 1 -delete";

[[noreturn]] void empty_as_user(const UniqueFd &directory, const struct stat &owner) {
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null || fchdir(directory.get()) != 0 || dup2(null.get(), STDIN_FILENO) < 0 ||
        dup2(null.get(), STDOUT_FILENO) < 0 || setgroups(0, nullptr) != 0 ||
        setresgid(owner.st_gid, owner.st_gid, owner.st_gid) != 0 ||
        setresuid(owner.st_uid, owner.st_uid, owner.st_uid) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) // a change of ids takes it back
        _exit(EXIT_FAILURE);
    std::array<char *, 4> arguments{const_cast<char *>("sh"), const_cast<char *>("-c"),
                                    const_cast<char *>(kEmpty), nullptr}; // execve does not write
    std::array<char *, 3> environment{const_cast<char *>("PATH=/usr/bin:/bin"),
                                      const_cast<char *>("LC_ALL=C"), nullptr};
    execve("/bin/sh", arguments.data(), environment.data());
    _exit(EXIT_FAILURE);
}

Expected<void> empty(const UniqueFd &directory, const std::string &shown) {
    struct stat about{};
    if (fchmod(directory.get(), kRemovable) != 0 || fstat(directory.get(), &about) != 0)
        return std::unexpected(errno_error("empty", shown));
    const pid_t child = fork();
    if (child < 0)
        return std::unexpected(errno_error("start a process that empties", shown));
    if (child == 0)
        empty_as_user(directory, about);
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return std::unexpected(errno_error("wait for a process that empties", shown));
    if (status != 0)
        return failure("empty", shown, fmt::format("find(1) ended with status {:#x}", status));
    return {};
}

Expected<void> remove_slot(const UniqueFd &slot, const std::string &shown) {
    auto names = names_in(slot);
    if (!names)
        return propagate(names);
    for (const auto &name : *names) {
        const auto directory = opened(slot, name);
        if (directory)
            if (auto emptied = empty(directory, below(shown, name)); !emptied)
                return emptied;
        if (unlinkat(slot.get(), name.c_str(), directory ? AT_REMOVEDIR : 0) != 0)
            return std::unexpected(errno_error("remove", below(shown, name)));
    }
    return {};
}

Expected<void> remove_tree(const UniqueFd &base, const std::string &tree) {
    const auto above = opened(base, tree);
    if (!above)
        return std::unexpected(errno_error("open", tree));
    auto names = names_in(above);
    if (!names)
        return propagate(names);
    for (const auto &name : *names) {
        const auto slot = opened(above, name);
        if (slot)
            if (auto removed = remove_slot(slot, below(tree, name)); !removed)
                return removed;
        if (unlinkat(above.get(), name.c_str(), slot ? AT_REMOVEDIR : 0) != 0)
            return std::unexpected(errno_error("remove", below(tree, name)));
    }
    if (unlinkat(base.get(), tree.c_str(), AT_REMOVEDIR) != 0)
        return std::unexpected(errno_error("remove", tree));
    return {};
}

} // namespace

std::vector<Error> remove_set_aside(const std::filesystem::path &base) {
    std::vector<Error> out;
    auto above = open_base(base);
    if (!above)
        return {above.error()};
    auto names = names_in(*above);
    if (!names)
        return {names.error()};
    for (const auto &name : *names)
        if (name.starts_with(kAside))
            if (auto removed = remove_tree(*above, name); !removed)
                out.push_back(removed.error());
    return out;
}

Expected<Found> look_into(const std::filesystem::path &base) {
    if (access(base.c_str(), F_OK) != 0)
        return Found();
    auto above = open_base(base);
    if (!above)
        return propagate(above);
    auto names = names_in(*above);
    if (!names)
        return propagate(names);
    Found out;
    for (const auto &name : *names) {
        out.aside = out.aside || name.starts_with(kAside);
        if (name.starts_with(kTree))
            out.trees.push_back(name.substr(kTree.size()));
    }
    return out;
}

} // namespace singularity::local
