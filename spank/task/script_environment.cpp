// SPDX-License-Identifier: GPL-2.0-or-later
#include "script_environment.hpp"

#include "allocation.hpp"
#include "common/deadline.hpp"
#include "common/program_output.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <unistd.h>

namespace singularity::task {

namespace {

using namespace std::chrono_literals;

// slurmctld answers in milliseconds, or is busy; the script waits meanwhile.
constexpr auto kAnswerPatience = 30s;

// Of the job, on all its nodes: no variable of Slurm's says that.
Expected<std::uint32_t> gpus_of_job() {
    const char *const job = std::getenv("SLURM_JOB_ID");
    if (job == nullptr)
        return failure("find", "the job", "SLURM_JOB_ID is not set", EINVAL);
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error)
        return failure("find", "singularity-slurm", error.message(), error.value());
    const auto program = self.parent_path() / "singularity-slurm";
    auto told = answer_of({program.native(), "job", "--owner", std::to_string(getuid()), job},
                          Deadline::after(kAnswerPatience));
    if (!told)
        return propagate(told);
    const auto gpus = gpus_in(*told);
    if (!gpus)
        return failure("find the GPUs of job", job, "slurmctld does not say how many it has", EPROTO);
    return *gpus;
}

Expected<void> make(const Change &change) {
    if (!change.value)
        unsetenv(change.name.c_str());
    else if (setenv(change.name.c_str(), change.value->c_str(), 1) != 0)
        return std::unexpected(errno_error("set", change.name));
    return {};
}

} // namespace

Expected<std::uint32_t> fit_environment() {
    std::vector<std::string> environment;
    for (char **entry = environ; *entry != nullptr; ++entry)
        environment.emplace_back(*entry);
    std::uint32_t gpus = 0;
    const auto requested = requested_gpus(environment);
    if (auto changed = make(requested); !changed)
        return propagate(changed);
    set_value(environment, requested.name, requested.value);
    if (asks_for_gpus(environment)) {
        auto found = gpus_of_job();
        if (!found)
            return propagate(found);
        gpus = *found;
    }
    for (const auto &change : fit_to_allocation(environment, gpus))
        if (auto changed = make(change); !changed)
            return propagate(changed);
    return gpus;
}

} // namespace singularity::task
