// SPDX-License-Identifier: GPL-2.0-or-later
#include "cgroups.hpp"

#include "common/proc.hpp"
#include "common/unique_fd.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::node {

namespace {

// controllers ("" for the unified hierarchy) -> path
std::map<std::string, std::string> memberships(std::string_view text) {
    std::map<std::string, std::string> out;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (first != std::string::npos && second != std::string::npos)
            out[line.substr(first + 1, second - first - 1)] = line.substr(second + 1);
    }
    return out;
}

struct Hierarchy {
    std::string root; // what of it is mounted
    std::string point;
};

// The mount on which a hierarchy can be reached; controllers as /proc/PID/cgroup has them.
std::optional<Hierarchy> find_hierarchy(std::string_view mountinfo, const std::string &controllers) {
    for (auto &mount : proc::mounts(mountinfo)) {
        const bool matches =
            controllers.empty()
                ? mount.type == "cgroup2"
                : mount.type == "cgroup" &&
                      fmt::format(",{},", mount.options).contains(fmt::format(",{},", controllers));
        if (matches)
            return Hierarchy{.root = std::move(mount.root), .point = std::move(mount.point)};
    }
    return std::nullopt;
}

// A cgroup's directory, if it can be seen from here. proc(5): a path that begins with /.. lies outside of the
// cgroup namespace.
std::optional<std::string> below(const Hierarchy &hierarchy, std::string_view path) {
    const auto &root = hierarchy.root;
    if (path.starts_with("/..") || (root != "/" && !path.starts_with(root + "/") && path != root))
        return std::nullopt;
    return std::string(root == "/" ? path : path.substr(root.size()));
}

// How much of the path, "/a/b/c", below the directory root has decided: see the header.
std::size_t decided_by_root(const std::string &directory, std::string_view path) {
    UniqueFd above(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    for (std::size_t at = 0; at < path.size();) {
        struct stat about{};
        constexpr mode_t kOthers = S_IWGRP | S_IWOTH;
        if (!above || fstat(above.get(), &about) != 0 || about.st_uid != 0 || (about.st_mode & kOthers) != 0)
            return at;
        const auto end = std::min(path.find('/', at + 1), path.size());
        const std::string name(path.substr(at + 1, end - at - 1));
        above = UniqueFd(openat(above.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!above) // gone, with the process
            return at;
        at = end;
    }
    return path.size();
}

} // namespace

std::string made_by_root(std::string_view theirs, std::string_view mountinfo) {
    std::string out;
    std::istringstream lines{std::string(theirs)};
    for (std::string line; std::getline(lines, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos)
            continue;
        const auto hierarchy = find_hierarchy(mountinfo, line.substr(first + 1, second - first - 1));
        const auto path = line.substr(second + 1);
        const auto inside = hierarchy ? below(*hierarchy, path) : std::nullopt;
        if (!inside)
            continue;
        const auto hidden = path.size() - inside->size(); // the part above the mount
        line.resize(second + 1 + hidden + decided_by_root(hierarchy->point, *inside));
        out += line + "\n";
    }
    return out;
}

Expected<std::string> made_by_root(std::string_view theirs) {
    auto mountinfo = proc::read("/proc/self/mountinfo");
    if (!mountinfo)
        return propagate(mountinfo);
    return made_by_root(theirs, *mountinfo);
}

Expected<std::vector<std::string>> cgroup_files(std::string_view theirs, std::string_view ours,
                                                std::string_view mountinfo) {
    std::vector<std::string> out;
    const auto own = memberships(ours);
    for (const auto &[controllers, path] : memberships(theirs)) {
        const auto same = own.find(controllers);
        if (same != own.end() && same->second == path)
            continue;
        const auto refuse = [&](std::string why) {
            return failure("join the cgroup", fmt::format("{}:{}", controllers, path), std::move(why), EPERM);
        };
        const auto hierarchy = find_hierarchy(mountinfo, controllers);
        if (!hierarchy)
            return refuse("its hierarchy is not mounted where the agent runs");
        const auto inside = below(*hierarchy, path);
        if (!inside)
            return refuse("it lies outside of what is mounted where the agent runs");
        out.push_back(fmt::format("{}{}/cgroup.procs", hierarchy->point, *inside));
    }
    return out;
}

namespace {

// From where one process is, as /proc/PID/cgroup of it says, to where another is.
Expected<std::vector<std::string>> files_between(const std::string &cgroups_of, const std::string &theirs) {
    auto there = proc::read(cgroups_of);
    if (!there)
        return propagate(there);
    auto mountinfo = proc::read("/proc/self/mountinfo");
    if (!mountinfo)
        return propagate(mountinfo);
    return cgroup_files(theirs, *there, *mountinfo);
}

Expected<void> write_process(const std::vector<std::string> &files, pid_t pid) {
    const auto number = std::to_string(pid);
    for (const auto &path : files) {
        auto file = open_file(path, O_WRONLY);
        if (!file)
            return propagate(file);
        if (!std::cmp_equal(::write(file->get(), number.data(), number.size()), number.size()))
            return std::unexpected(errno_error("enter the cgroup of", path));
    }
    return {};
}

} // namespace

Expected<void> join_cgroups(const std::string &theirs) {
    auto files = files_between("/proc/self/cgroup", theirs);
    return files ? write_process(*files, 0) : propagate(files); // 0: the process that writes
}

Expected<void> move_to_cgroups(pid_t pid, const std::string &theirs) {
    auto files = files_between(fmt::format("/proc/{}/cgroup", pid), theirs);
    return files ? write_process(*files, pid) : propagate(files);
}

Expected<std::vector<UniqueFd>> open_cgroups(const std::string &theirs) {
    auto files = files_between("/proc/self/cgroup", theirs);
    if (!files)
        return propagate(files);
    std::vector<UniqueFd> out;
    for (const auto &path : *files) {
        auto file = open_file(path, O_WRONLY);
        if (!file)
            return propagate(file);
        out.push_back(std::move(*file));
    }
    return out;
}

} // namespace singularity::node
