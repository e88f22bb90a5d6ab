// SPDX-License-Identifier: GPL-2.0-or-later
#include "spank_plugin.hpp"

#include "common/config.hpp"
#include "common/log.hpp"
#include "elastic_range.hpp"

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace singularity::spank {

namespace {

constexpr log::Channel kLog("spank");

// Of the one job or step that this process handles. Trivial to destroy: Slurm's threads may outlive main().
std::optional<ElasticRange> requested;

void to_slurm_log(log::Level level, std::string_view line) {
    const int length = static_cast<int>(line.size());
    // NOLINTBEGIN(bugprone-suspicious-stringview-data-usage): the length goes with it
    switch (level) {
    case log::Level::kError:
    case log::Level::kWarning:
        slurm_error("%.*s", length, line.data());
        break;
    case log::Level::kInfo:
        slurm_info("%.*s", length, line.data());
        break;
    case log::Level::kDebug:
        slurm_debug("%.*s", length, line.data());
        break;
    }
    // NOLINTEND(bugprone-suspicious-stringview-data-usage)
}

// Nothing may cross the C edge: what does get here ends as an error of the command or the step.
template <class Function>
int guarded(const Function &function) noexcept {
    try {
        return function();
    } catch (const std::exception &error) {
        kLog.error("unexpected error: {}", error.what());
    } catch (...) {
        kLog.error("unexpected error of unknown type");
    }
    return ESPANK_ERROR;
}

// An option without an argument reaches the node, and sruns inside sbatch, as these words: Slurm (22.05
// to 26.05) prints the null pointer into the environment variable that carries it.
constexpr std::string_view kNoArgument = "(null)";

// Called only when the option is used: a broken singularity.yaml must not keep other jobs from running. The
// node checks again what the submitting command accepted, because the user can forge what travels between the
// two.
int on_elastic(int, const char *argument, int) {
    return guarded([&]() -> int {
        auto settings = config::load_or_default(config::default_path());
        if (!settings) {
            kLog.error("{}", settings.error().message());
            return ESPANK_ERROR;
        }
        // The configuration's own range is within 32 bits.
        const ElasticLimits limits{settings->elastic.enabled,
                                   static_cast<std::uint32_t>(settings->elastic.min_gpus),
                                   static_cast<std::uint32_t>(settings->elastic.max_gpus)};
        const std::string_view text = argument == nullptr || argument == kNoArgument ? "" : argument;
        auto range = parse_elastic_range(text, limits);
        if (!range) {
            kLog.error("{}", range.error().message());
            return ESPANK_ERROR;
        }
        requested = *range;
        return ESPANK_SUCCESS;
    });
}

std::string step_name(std::uint32_t step) {
    switch (step) {
    case SLURM_BATCH_SCRIPT:
        return "batch script";
    case SLURM_EXTERN_CONT:
        return "external step";
    case SLURM_INTERACTIVE_STEP:
        return "interactive step";
    default:
        return "step " + std::to_string(step);
    }
}

} // namespace

int init(spank_t spank, int argc, char **argv) noexcept {
    return guarded([&]() -> int {
        log::set_sink(to_slurm_log);
        if (argc != 0) {
            kLog.error("plugstack.conf gives the argument '{}', but this plugin takes none: remove it; "
                       "settings are in {}",
                       argv[0], config::default_path().string());
            return ESPANK_BAD_ARG;
        }
        // spank.h wants these writable; Slurm copies them.
        static char name[] = "singularity-elastic";
        static char value[] = "MIN-MAX";
        static char usage[] =
            "[singularity] let the job run on MIN to MAX GPUs (of the whole job), checkpointed and moved "
            "as the cluster needs; without a value: 1 to as many as requested";
        static struct spank_option option = {name, value, usage, 2, 0, on_elastic};
        const spank_err_t registered = spank_option_register(spank, &option);
        if (registered != ESPANK_SUCCESS) {
            kLog.error("cannot register --{}: {}", name, spank_strerror(registered));
            return registered;
        }
        return ESPANK_SUCCESS;
    });
}

int init_post_opt(spank_t spank) noexcept {
    return guarded([&]() -> int {
        if (!requested || spank_remote(spank) != 1)
            return ESPANK_SUCCESS;
        std::uint32_t job = 0;
        std::uint32_t step = 0;
        if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
            spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
            return ESPANK_SUCCESS; // slurmd itself, which has no job
        kLog.for_job(job).info("elastic, {} GPUs, {}", to_string(*requested), step_name(step));
        return ESPANK_SUCCESS;
    });
}

int task_init(spank_t spank) noexcept {
    return guarded([&]() -> int {
        if (!requested)
            return ESPANK_SUCCESS;
        const spank_err_t set = spank_setenv(spank, "SINGULARITY_ELASTIC", to_string(*requested).c_str(), 1);
        if (set != ESPANK_SUCCESS)
            kLog.error("cannot set SINGULARITY_ELASTIC for a task: {}", spank_strerror(set));
        return set;
    });
}

} // namespace singularity::spank
