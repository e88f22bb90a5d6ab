// SPDX-License-Identifier: GPL-2.0-or-later
#include "node_checks.hpp"

#include "common/config.hpp"
#include "common/proc.hpp"
#include "common/program_output.hpp"
#include "peers/credential.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

constexpr std::pair<int, int> kOldestCriu{4, 2};
constexpr auto kProgramDeadline = std::chrono::seconds(10);

Expected<std::string> check_root() {
    if (geteuid() != 0)
        return failure("act as node agent", fmt::format("uid {}", geteuid()),
                       "CRIU and namespaces need root: run it as root");
    return "root";
}

Expected<std::string> check_configuration() {
    const auto path = config::default_path();
    auto settings = config::load_or_default(path);
    if (!settings)
        return propagate(settings);
    return path.string();
}

Expected<std::string> check_cgroup() {
    auto mountinfo = proc::read("/proc/self/mountinfo");
    if (!mountinfo)
        return propagate(mountinfo);
    return judge_cgroup_mounts(cgroup_mounts(*mountinfo));
}

Expected<std::string> check_munge() {
    auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return propagate(settings);
    const auto &socket = settings->agents.munge_socket;
    if (auto tried = peers::try_munge(socket); !tried) {
        tried.error().on = fmt::format("a credential of munged at {}", socket.native());
        tried.error().why += ": restart munge.service";
        return propagate(tried);
    }
    return socket.native();
}

Expected<std::string> check_criu() { return installed_criu(Deadline::after(kProgramDeadline)); }

constexpr std::array kChecks{
    NodeCheck{"root", check_root},     NodeCheck{"configuration", check_configuration},
    NodeCheck{"cgroup", check_cgroup}, NodeCheck{"munge", check_munge},
    NodeCheck{"criu", check_criu},
};

} // namespace

std::span<const NodeCheck> node_checks() { return kChecks; }

Expected<std::string> installed_criu(const Deadline &deadline) {
    auto output = answer_of({"criu", "--version"}, deadline);
    if (output)
        return judge_criu_version(*output);
    if (output.error().code == ENOENT)
        output.error().why = "it is not installed: install CRIU 4.2 or newer";
    return propagate(output);
}

Expected<std::string> judge_criu_version(std::string_view output) {
    constexpr std::string_view kKey = "Version: ";
    const auto refuse = [&](const std::string &why) {
        return failure("use CRIU", std::string(output.substr(0, output.find('\n'))), why);
    };
    const auto at = output.find(kKey);
    if (at == std::string_view::npos)
        return refuse("`criu --version` prints no line 'Version: MAJOR.MINOR'");
    const char *const begin = output.data() + at + kKey.size();
    const char *const end = output.data() + output.size();
    std::pair<int, int> found{};
    const auto major = std::from_chars(begin, end, found.first);
    if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.')
        return refuse("`criu --version` prints no line 'Version: MAJOR.MINOR'");
    const auto minor = std::from_chars(major.ptr + 1, end, found.second);
    if (minor.ec != std::errc{})
        return refuse("`criu --version` prints no line 'Version: MAJOR.MINOR'");
    if (found < kOldestCriu)
        return refuse(
            fmt::format("releases before {}.{} fail on TCP sockets from Linux 6.16 on: install a newer one",
                        kOldestCriu.first, kOldestCriu.second));
    return fmt::format("{}.{}", found.first, found.second);
}

CgroupMounts cgroup_mounts(std::string_view mountinfo) {
    CgroupMounts found;
    for (const auto &mount : proc::mounts(mountinfo)) {
        if (mount.type == "cgroup2" && mount.point == "/sys/fs/cgroup")
            found.unified = true;
        if (mount.type != "cgroup")
            continue;
        const auto list = fmt::format(",{},", mount.options);
        found.freezer |= list.contains(",freezer,");
        found.devices |= list.contains(",devices,");
    }
    return found;
}

Expected<std::string> judge_cgroup_mounts(const CgroupMounts &mounts) {
    if (mounts.unified)
        return "unified hierarchy";
    if (mounts.v1())
        return "v1 hierarchies";
    return failure(
        "contain jobs in cgroups", "",
        fmt::format(
            "no unified hierarchy at /sys/fs/cgroup and no v1 hierarchy of the controller '{}': mount one",
            mounts.freezer ? "devices" : "freezer"));
}

} // namespace singularity::spank
