// SPDX-License-Identifier: GPL-2.0-or-later
// What a node has: cgroups, CRIU, a driver.
#include "common/proc.hpp"
#include "common/program_output.hpp"
#include "gather.hpp"
#include "node_checks.hpp"
#include "slurm_text.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <system_error>

#include <dlfcn.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::doctor {

namespace {

constexpr std::chrono::seconds kNodePatience{30}; // criu tries out a hundred things

} // namespace

Fact<Cgroup> look_at_cgroup(const std::filesystem::path &slurm_conf) {
    Cgroup out;
    out.file = slurm_conf.parent_path() / "cgroup.conf";
    auto text = proc::read(out.file.native());
    if (!text && text.error().code != ENOENT)
        return not_seen(text.error());
    out.present = text.has_value();
    if (text)
        out.settings = parse_conf(*text);
    auto mounts = proc::read("/proc/self/mountinfo");
    if (!mounts)
        return not_seen(mounts.error());
    const auto hierarchies = spank::cgroup_mounts(*mounts);
    out.unified = hierarchies.unified;
    out.v1 = hierarchies.v1();
    return out;
}

Fact<Criu> look_at_criu() {
    Criu out{.version = spank::installed_criu(Deadline::after(kNodePatience))};
    struct statfs run{};
    if (statfs("/run", &run) != 0)
        return not_seen(errno_error("examine", "/run"));
    out.run_is_memory = run.f_type == TMPFS_MAGIC;
    return out;
}

Fact<CriuKernel> look_at_criu_kernel() {
    if (geteuid() != 0)
        return not_seen(Unseen::kNeedsRoot, "`criu check` tries out the kernel");
    auto output = output_of({"criu", "check"}, Deadline::after(kNodePatience));
    if (!output)
        return not_seen(output.error());
    CriuKernel out;
    if (!WIFEXITED(output->status) || WEXITSTATUS(output->status) != 0) {
        std::string words = output->err + output->out;
        words.resize(words.find_last_not_of(" \n") + 1);
        std::ranges::replace(words, '\n', ' ');
        out.trouble = words.empty() ? "it says nothing" : words;
    }
    return out;
}

Fact<Driver> look_at_driver() {
    Driver out;
    out.control = access("/dev/nvidiactl", F_OK) == 0;
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator("/dev", error)) {
        constexpr std::string_view kPrefix = "nvidia";
        const std::string name = entry.path().filename();
        if (name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
            std::ranges::all_of(name.substr(kPrefix.size()),
                                [](unsigned char c) { return std::isdigit(c) != 0; }))
            ++out.devices;
    }
    if (error)
        return not_seen(errno_error("list", "/dev", error.value()));
    if (!out.control)
        return out;
    if (void *const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL); library != nullptr) {
        if (dlsym(library, "cuInit") == nullptr)
            out.library_error = "there is no cuInit in it";
        dlclose(library);
    } else {
        const char *const words = dlerror();
        out.library_error = words != nullptr ? words : "no reason is given";
    }
    return out;
}

} // namespace singularity::doctor
