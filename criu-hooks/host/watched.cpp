// SPDX-License-Identifier: GPL-2.0-or-later
#include "watched.hpp"

#include "check_files.hpp"
#include "common/deadline.hpp"
#include "common/proc.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"
#include "proc.hpp"
#include "user_ids.hpp"
#include "user_work.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::size_t kMostSeen = 20'000;  // names, over all that is looked through
constexpr std::size_t kMostBelow = 20'000; // of a watched directory, all of which CRIU looks through
constexpr int kDeepest = 6;

struct Inode {
    dev_t device = 0;
    ino_t number = 0;
    auto operator<=>(const Inode &) const = default;
};

// Of one process.
struct Watches {
    std::map<Inode, std::string> wanted; // and whose descriptor watches it
    std::set<std::string> places;        // to look in
};

// "inotify wd:1 ino:2a sdev:1c mask:fce ignored_mask:0 fhandle-bytes:..."; the device as the kernel has it.
std::optional<Inode> inode_in(std::string_view line) {
    constexpr unsigned kMinorBits = 20;
    const auto number = number_after(line, "ino:", 16);
    const auto device = number_after(line, "sdev:", 16);
    if (!number || !device)
        return std::nullopt;
    return Inode{.device = makedev(static_cast<unsigned>(*device >> kMinorBits),
                                   static_cast<unsigned>(*device & ((1U << kMinorBits) - 1))),
                 .number = *number};
}

std::set<dev_t> without_handles(pid_t init) {
    std::set<dev_t> out;
    auto text = proc::read(fmt::format("/proc/{}/mountinfo", init));
    if (!text)
        return out;
    for (const auto &mount : proc::mounts(*text)) {
        if (mount.type != "overlay") // others may ask a server, and all that are in use have handles
            continue;
        const UniqueFd there(
            open(fmt::format("/proc/{}/root{}", init, mount.point).c_str(), O_PATH | O_CLOEXEC));
        if (there && !opens_by_handle(there.get()))
            out.insert(mount.device);
    }
    return out;
}

void add_places(pid_t pid, std::set<std::string> &places) {
    const auto add = [&](const Expected<std::string> &path) {
        if (path && path->starts_with('/'))
            places.insert(*path);
    };
    add(read_link(fmt::format("/proc/{}/cwd", pid)));
    if (auto directory = open(fmt::format("/proc/{}/fd", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        directory >= 0) {
        const UniqueFd held(directory);
        auto numbers = names_in(held.get());
        for (const auto &number : numbers.value_or(std::vector<std::string>()))
            if (auto path = read_link(fmt::format("/proc/{}/fd/{}", pid, number));
                path && path->starts_with('/'))
                places.insert(std::filesystem::path(*path).parent_path().native());
    }
    constexpr std::array<std::string_view, 6> kNames{"HOME",      "TMPDIR",          "PWD",
                                                     "GNUPGHOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"};
    auto environment = proc::read(fmt::format("/proc/{}/environ", pid));
    std::string_view rest = environment ? std::string_view(*environment) : std::string_view();
    while (!rest.empty()) {
        const auto end = std::min(rest.find('\0'), rest.size());
        const auto one = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        for (const std::string_view name : kNames)
            if (one.starts_with(name) && one.substr(name.size()).starts_with("=/"))
                places.emplace(one.substr(name.size() + 1));
    }
    for (const char *const each :
         {"/tmp", "/var/tmp", "/etc", "/usr/share/dbus-1", "/usr/local/share/dbus-1"})
        places.emplace(each);
}

Watches watches_of(const Process &process, const std::set<dev_t> &devices) {
    Watches out;
    const UniqueFd directory(
        open(fmt::format("/proc/{}/fdinfo", process.pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto numbers = directory ? names_in(directory.get()) : Expected<std::vector<std::string>>();
    for (const auto &number : numbers.value_or(std::vector<std::string>())) {
        auto info = proc::read(fmt::format("/proc/{}/fdinfo/{}", process.pid, number));
        if (!info)
            continue;
        const std::string_view text = *info;
        for (std::size_t at = text.find("inotify wd:"); at != std::string_view::npos;
             at = text.find("inotify wd:", at + 1))
            if (const auto inode = inode_in(text.substr(at, text.find('\n', at) - at));
                inode && devices.contains(inode->device))
                out.wanted.emplace(*inode, fmt::format("descriptor {} of {}, 'anon_inode:inotify'", number,
                                                       process.title()));
    }
    if (!out.wanted.empty())
        add_places(process.pid, out.places);
    return out;
}

// The thread has the node's root, and the user's ids.
class Search {
  public:
    Search(std::map<Inode, std::string> wanted, std::set<dev_t> devices)
        : wanted_(std::move(wanted)), devices_(std::move(devices)) {}

    void look_below(const std::string &place) {
        std::deque<std::pair<std::string, int>> left{{place, 0}};
        while (!left.empty() && !wanted_.empty() && seen_ < kMostSeen) {
            const auto [path, depth] = std::move(left.front());
            left.pop_front();
            if (!see(path) || depth == kDeepest)
                continue;
            for (const std::string &name : names_below(path))
                left.emplace_back((std::filesystem::path(path) / name).native(), depth + 1);
        }
    }

    // Of a directory that is watched, no more than CRIU can look through in an instant.
    [[nodiscard]] std::optional<std::string> too_large() const {
        std::size_t all = 0;
        for (const std::string &path : found_) {
            std::deque<std::string> left{path};
            while (!left.empty()) {
                const std::string one = std::move(left.front());
                left.pop_front();
                for (const std::string &name : names_below(one)) {
                    struct stat about{};
                    const std::string below = (std::filesystem::path(one) / name).native();
                    if (++all > kMostBelow)
                        return path;
                    if (lstat(below.c_str(), &about) == 0 && S_ISDIR(about.st_mode))
                        left.push_back(below);
                }
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] const std::map<Inode, std::string> &missing() const { return wanted_; }
    [[nodiscard]] std::vector<std::string> found() && { return std::move(found_); }

  private:
    // Whether there may be more below it.
    bool see(const std::string &path) {
        struct stat about{};
        ++seen_;
        if (lstat(path.c_str(), &about) != 0)
            return false;
        if (wanted_.erase({.device = about.st_dev, .number = about.st_ino}) != 0)
            found_.push_back(path);
        return S_ISDIR(about.st_mode) && devices_.contains(about.st_dev) &&
               visited_.insert({.device = about.st_dev, .number = about.st_ino}).second;
    }
    static std::vector<std::string> names_below(const std::string &path) {
        const UniqueFd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        auto names = directory ? names_in(directory.get(), kMostSeen)
                               : Expected<std::optional<std::vector<std::string>>>();
        return names ? names->value_or(std::vector<std::string>()) : std::vector<std::string>();
    }

    std::map<Inode, std::string> wanted_;
    std::set<dev_t> devices_;
    std::set<Inode> visited_;
    std::vector<std::string> found_;
    std::size_t seen_ = 0;
};

} // namespace

Expected<std::vector<std::string>> watched_names(const Context &context, pid_t init) {
    const auto devices = without_handles(init);
    if (devices.empty())
        return std::vector<std::string>();
    auto node = processes_of(init);
    if (!node)
        return propagate(node);
    Watches all;
    for (const Process &process : *node) {
        auto one = watches_of(process, devices);
        all.wanted.merge(one.wanted);
        all.places.merge(one.places);
    }
    if (all.wanted.empty())
        return std::vector<std::string>();
    auto ids = UserIds::take(context, fmt::format("/proc/{}/root", init));
    if (!ids)
        return propagate(ids);
    if (auto user = ids->become_user(); !user)
        return propagate(user);
    Search search(std::move(all.wanted), devices);
    for (const std::string &place : all.places)
        search.look_below(place);
    if (!search.missing().empty())
        return cannot_save(
            search.missing().begin()->second,
            "it watches a file or directory (inotify) that cannot be found on its file system, an "
            "overlay: it has been deleted, or is in none of the directories that its program has "
            "open. CRIU cannot restore the watch");
    if (const auto large = search.too_large())
        return cannot_save(
            "the virtual node",
            fmt::format("'{}' is watched (inotify) on an overlay, and has more than {} names below "
                        "it: CRIU cannot look through them",
                        *large, kMostBelow));
    return std::move(search).found();
}

Expected<std::vector<std::string>> watched_names_in_time(const Context &context, pid_t init) {
    constexpr std::chrono::seconds kPatience{10};
    Context own = context;
    own.progress = nullptr;
    auto looking =
        UserWork<std::vector<std::string>>::begin([own, init] { return watched_names(own, init); });
    if (!looking)
        return propagate(looking);
    const auto deadline = Deadline::after(kPatience);
    return looking->wait([&]() -> Expected<void> {
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "a look for what programs watch (inotify)"));
        return context.progress ? context.progress("check") : Expected<void>();
    });
}

} // namespace singularity::host
