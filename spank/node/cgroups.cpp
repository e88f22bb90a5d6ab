// SPDX-License-Identifier: GPL-2.0-or-later
#include "cgroups.hpp"

#include "common/unique_fd.hpp"

#include <fstream>
#include <iterator>
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
    std::istringstream lines{std::string(mountinfo)};
    for (std::string line; std::getline(lines, line);) {
        const auto dash = line.find(" - ");
        if (dash == std::string::npos)
            continue;
        std::string field;
        Hierarchy found;
        std::istringstream front(line.substr(0, dash));
        front >> field >> field >> field >> found.root >> found.point;
        std::string type;
        std::string source;
        std::string options;
        std::istringstream(line.substr(dash + 3)) >> type >> source >> options;
        const bool matches =
            controllers.empty()
                ? type == "cgroup2"
                : type == "cgroup" && fmt::format(",{},", options).find(fmt::format(",{},", controllers)) !=
                                          std::string::npos;
        if (matches)
            return found;
    }
    return std::nullopt;
}

Expected<std::string> content(const std::string &path) {
    std::ifstream file(path);
    if (!file)
        return std::unexpected(errno_error("read", path));
    return std::string(std::istreambuf_iterator<char>(file), {});
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
    auto ours = content("/proc/self/cgroup");
    if (!ours)
        return propagate(ours);
    auto mountinfo = content("/proc/self/mountinfo");
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
