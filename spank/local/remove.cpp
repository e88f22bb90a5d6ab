// SPDX-License-Identifier: GPL-2.0-or-later
#include "remove.hpp"

#include "common/deadline.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::local {

namespace {

using namespace std::chrono_literals;

constexpr mode_t kTaken = 0700;
// For a tree's first try and for its second, which comes after the first of all others of its user's.
constexpr std::array kPatience{5s, 60s};
constexpr int kDeepest = 64; // directories in each other, where they cannot be moved

struct CloseDirectory {
    void operator()(DIR *directory) const { closedir(directory); }
};
using Stream = std::unique_ptr<DIR, CloseDirectory>;

Stream stream_of(const UniqueFd &directory) {
    const int copy = openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return Stream(copy < 0 ? nullptr : fdopendir(copy));
}

// Null: there are no more, and errno says whether that is an error.
const char *next_in(const Stream &stream) {
    for (;;) {
        errno = 0;
        const dirent *const entry = readdir(stream.get()); // NOLINT(concurrency-mt-unsafe): one thread
        if (entry == nullptr)
            return nullptr;
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..")
            return entry->d_name;
    }
}

Expected<std::vector<std::string>> names_in(const UniqueFd &directory) {
    const auto stream = stream_of(directory);
    if (!stream)
        return std::unexpected(errno_error("look into", "a job's local directories"));
    std::vector<std::string> out;
    while (const char *const name = next_in(stream))
        out.emplace_back(name);
    if (errno != 0)
        return std::unexpected(errno_error("look into", "a job's local directories"));
    return out;
}

// Neither through a link nor into what is mounted there, be it of the same file system.
UniqueFd opened(const UniqueFd &above, const char *name) {
    open_how how{.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                 .mode = 0,
                 .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    return UniqueFd(static_cast<int>(syscall(SYS_openat2, above.get(), name, &how, sizeof(how))));
}

// xfs(5), ext4(5): what has another project's id is not moved into a directory that gives its own to what is
// in it, and a user may choose the id of what he owns.
void take_all_projects(const UniqueFd &directory) {
    fsxattr about{};
    if (ioctl(directory.get(), FS_IOC_FSGETXATTR, &about) != 0 ||
        (about.fsx_xflags & FS_XFLAG_PROJINHERIT) == 0)
        return; // a file system without projects
    about.fsx_xflags &= ~static_cast<__u32>(FS_XFLAG_PROJINHERIT);
    ioctl(directory.get(), FS_IOC_FSSETXATTR, &about); // if it cannot be: the move fails and is told
}

// Removes a tree without going down in it: a directory in it is emptied by moving the directories that it has
// into the tree's own, where they come next. So there are three descriptors however deep it is, and no path.
// A directory becomes root's before anything in it is looked at: from then on nobody else changes it, whoever
// has it open.
class Emptying {
  public:
    Emptying(const UniqueFd &tree, std::string shown, const Deadline &deadline)
        : tree_(tree), shown_(std::move(shown)), deadline_(deadline) {}

    Expected<void> empty() {
        take_all_projects(tree_);
        return each_in(tree_, [this](const char *name) { return remove_from_tree(name); });
    }

  private:
    // Until there is nothing left. What cannot be removed does not hold up what comes after it.
    template <class Handle>
    Expected<void> each_in(const UniqueFd &directory, Handle handle) {
        const auto stream = stream_of(directory);
        if (!stream)
            return std::unexpected(errno_error("look into", shown_));
        for (;;) {
            std::optional<Error> trouble;
            bool some_went = false;
            while (const char *const name = next_in(stream)) {
                if (deadline_.expired())
                    return std::unexpected(timeout_error(deadline_, "the removal of " + shown_));
                auto handled = handle(name);
                some_went = some_went || handled;
                if (!handled && !trouble)
                    trouble = std::move(handled.error());
                errno = 0;
            }
            if (errno != 0)
                return std::unexpected(errno_error("look into", shown_));
            if (trouble && (!some_went || deadline_.expired()))
                return std::unexpected(std::move(*trouble));
            if (!some_went)
                return {};
            rewinddir(stream.get()); // names come and go while they are read
        }
    }

    Expected<void> remove_from_tree(const char *name) {
        if (unlinkat(tree_.get(), name, 0) == 0)
            return {};
        if (errno != EISDIR)
            return failed("remove", name);
        return remove_directory(tree_, name, 0);
    }

    // NOLINTBEGIN(misc-no-recursion): it has a limit
    Expected<void> remove_directory(const UniqueFd &above, const char *name, int depth) {
        const auto directory = opened(above, name);
        if (!directory)
            return failed("open", name);
        if (fchown(directory.get(), geteuid(), getegid()) != 0 || fchmod(directory.get(), kTaken) != 0)
            return failed("take", name);
        auto emptied =
            each_in(directory, [&](const char *inner) { return take_out(directory, inner, depth); });
        if (!emptied)
            return emptied;
        if (unlinkat(above.get(), name, AT_REMOVEDIR) != 0)
            return failed("remove", name);
        return {};
    }

    Expected<void> take_out(const UniqueFd &directory, const char *name, int depth) {
        if (unlinkat(directory.get(), name, 0) == 0)
            return {};
        if (errno != EISDIR)
            return failed("remove", name);
        for (;;) {
            const auto beside = fmt::format(".{}.{}", getpid(), ++moved_);
            if (renameat2(directory.get(), name, tree_.get(), beside.c_str(), RENAME_NOREPLACE) == 0)
                return {};
            // Of another project, encrypted with a key that is not here, or on a disk that is full.
            if ((errno == EXDEV || errno == ENOKEY || errno == ENOSPC) && depth < kDeepest)
                return remove_directory(directory, name, depth + 1);
            if (errno != EEXIST)
                return failed("move", name);
        }
    }
    // NOLINTEND(misc-no-recursion)

    [[nodiscard]] std::unexpected<Error> failed(const char *doing, const char *name) const {
        const int code = errno;
        return std::unexpected(errno_error(doing, fmt::format("{} in {}", quote(name), shown_), code));
    }

    const UniqueFd &tree_;
    std::string shown_;
    const Deadline &deadline_;
    std::uint64_t moved_ = 0;
};

Expected<void> remove_tree(const UniqueFd &base, const std::string &tree, const Deadline &deadline) {
    const auto above = opened(base, tree.c_str());
    if (!above)
        return std::unexpected(errno_error("open", tree));
    if (auto emptied = Emptying(above, tree, deadline).empty(); !emptied)
        return emptied;
    if (unlinkat(base.get(), tree.c_str(), AT_REMOVEDIR) != 0)
        return std::unexpected(errno_error("remove", tree));
    return {};
}

struct Trial {
    std::size_t count = 0;
    std::optional<Error> trouble;
};

// ".gone.0.job.u1000-s17": "u1000". What has another kind of name is nobody's.
std::string user_of(std::string_view name) {
    const auto at = name.find(kTree, kAside.size());
    const auto tree = at == std::string_view::npos ? std::string_view() : name.substr(at + kTree.size());
    return std::string(tree.substr(0, tree.find('-')));
}

// Of each user one, so that nobody's trees hold up another's for long: of those that were tried least.
std::map<std::string, std::string> turns_of(const std::vector<std::string> &names,
                                            const std::map<std::string, Trial> &trials) {
    std::map<std::string, std::string> out;
    const auto count = [&](const std::string &name) {
        const auto at = trials.find(name);
        return at == trials.end() ? 0 : at->second.count;
    };
    for (const auto &name : names) {
        if (!name.starts_with(kAside) || count(name) >= kPatience.size())
            continue;
        const auto [at, is_first] = out.emplace(user_of(name), name);
        if (!is_first && count(name) < count(at->second))
            at->second = name;
    }
    return out;
}

} // namespace

std::vector<Error> remove_set_aside(const std::filesystem::path &base) {
    auto above = open_base(base);
    if (!above)
        return {above.error()};
    std::map<std::string, Trial> trials;
    for (std::size_t rounds = 0, most = 1; rounds < most; ++rounds) {
        auto names = names_in(*above);
        if (!names)
            return {names.error()};
        const auto turns = turns_of(*names, trials);
        if (rounds == 0) // as many as those need that there are now
            most = kPatience.size() * names->size();
        if (turns.empty())
            break;
        for (const auto &[user, name] : turns) {
            auto &trial = trials[name];
            auto removed = remove_tree(*above, name, Deadline::after(kPatience.at(trial.count++)));
            trial.trouble = removed ? std::nullopt : std::optional(std::move(removed.error()));
        }
    }
    std::vector<Error> out;
    for (auto &[name, trial] : trials)
        if (trial.trouble)
            out.push_back(std::move(*trial.trouble));
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
        if (!name.starts_with(kTree))
            continue;
        const auto tree = opened(*above, name.c_str());
        if (!tree && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EXDEV))
            continue; // it has just gone, or is none of ours
        auto identity = tree ? identity_of(tree) : std::unexpected(errno_error("open", name));
        auto run = identity ? run_of(tree) : propagate(identity);
        if (!run)
            return propagate(run);
        out.trees.push_back({.name = name.substr(kTree.size()), .identity = *identity, .run = *run});
    }
    return out;
}

} // namespace singularity::local
