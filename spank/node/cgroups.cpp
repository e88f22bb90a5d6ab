// SPDX-License-Identifier: GPL-2.0-or-later
#include "cgroups.hpp"

#include "common/proc.hpp"
#include "common/unique_fd.hpp"

#include <map>
#include <optional>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
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

} // namespace

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
        const auto &root = hierarchy->root;
        // proc(5): a path that begins with /.. lies outside of the agent's cgroup namespace.
        if (path.starts_with("/..") || (root != "/" && !path.starts_with(root + "/") && path != root))
            return refuse("it lies outside of what is mounted where the agent runs");
        out.push_back(fmt::format("{}{}/cgroup.procs", hierarchy->point,
                                  root == "/" ? path : path.substr(root.size())));
    }
    return out;
}

Expected<void> join_cgroups(const std::string &theirs) {
    auto ours = proc::read("/proc/self/cgroup");
    if (!ours)
        return propagate(ours);
    auto mountinfo = proc::read("/proc/self/mountinfo");
    if (!mountinfo)
        return propagate(mountinfo);
    auto files = cgroup_files(theirs, *ours, *mountinfo);
    if (!files)
        return propagate(files);
    for (const auto &path : *files) {
        auto file = open_file(path, O_WRONLY);
        if (!file)
            return propagate(file);
        if (::write(file->get(), "0", 1) != 1) // the process that writes
            return std::unexpected(errno_error("enter the cgroup of", path));
    }
    return {};
}

} // namespace singularity::node
