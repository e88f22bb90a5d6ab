// SPDX-License-Identifier: GPL-2.0-or-later
#include "submission.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace singularity::submission {

namespace {

// How options of SPANK plugins reach slurmctld, from sbatch, salloc and srun, in 22.05 to 26.05: in
// spank_job_env, with what is no letter or digit in an option's name as '_'.
constexpr std::string_view kElasticVariable = "_SLURM_SPANK_OPTION_singularity_singularity_elastic=";
constexpr std::string_view kOffVariable = "_SLURM_SPANK_OPTION_singularity_singularity_off=";
// More than all plugins of a cluster set; a longer list would cost slurmctld time.
constexpr std::uint32_t kMostVariables = 4096;
// Longer texts are not read to their end.
constexpr std::size_t kLongest = 1024;

std::string_view bounded(const char *text) {
    return text == nullptr ? std::string_view() : std::string_view(text, strnlen(text, kLongest));
}

std::optional<std::string_view> variable(const job_desc_msg_t &description, std::string_view name) {
    if (description.spank_job_env == nullptr)
        return std::nullopt;
    const auto count = std::min(description.spank_job_env_size, kMostVariables);
    std::optional<std::string_view> found;
    for (std::uint32_t i = 0; i < count; ++i)
        if (const auto entry = bounded(description.spank_job_env[i]); entry.starts_with(name))
            found = entry.substr(name.size()); // the last one counts, as in slurmstepd
    return found;
}

std::optional<std::uint32_t> number(std::string_view text) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Unset is NO_VAL, or 0 where a client has left it so.
bool is_set(std::uint32_t value) { return value != NO_VAL && value != INFINITE && value != 0; }
bool is_set(std::uint16_t value) { return value != NO_VAL16 && value != INFINITE16 && value != 0; }

// CPUs for each GPU in cpus_per_tres: "gres:gpu:2" (22.05), "gres/gpu:2" or "gres/gpu=2", perhaps with a type
// before the number, perhaps among others.
std::optional<std::uint32_t> cpus_per_gpu(std::string_view list) {
    constexpr std::array<std::string_view, 2> kPrefixes{"gres/", "gres:"};
    constexpr std::string_view kGpu = "gpu";
    constexpr std::string_view kSeparators = ":=";
    while (!list.empty()) {
        auto entry = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), entry.size() + 1));
        for (const auto prefix : kPrefixes)
            if (entry.starts_with(prefix))
                entry.remove_prefix(prefix.size());
        const auto last = entry.find_last_of(kSeparators);
        if (last != std::string_view::npos && entry.substr(0, entry.find_first_of(kSeparators)) == kGpu)
            return number(entry.substr(last + 1));
    }
    return std::nullopt;
}

bool is_batch(const job_desc_msg_t &description) { return description.script != nullptr; }

void say(Answer &answer, std::string_view words) {
    answer.words += fmt::format("{}singularity: {}", answer.words.empty() ? "" : "\n", words);
}

void refuse(Answer &answer, std::string_view words) {
    answer.accepted = false;
    say(answer, words);
}

// Whether Slurm may run it again.
bool see_to_requeue(job_desc_msg_t &description, Answer &answer) {
    if (description.requeue == 0) {
        say(answer,
            "with --no-requeue a job is saved only by `singularityctl checkpoint`: it cannot be moved or "
            "made smaller, and ends when Slurm preempts it or its time is over");
        return false;
    }
    description.requeue = 1;
    return true;
}

void see_to_output(job_desc_msg_t &description, Answer &answer) {
    if (description.open_mode == OPEN_MODE_TRUNCATE)
        say(answer,
            "with --open-mode=truncate what an elastic job has written is lost each time it is requeued: "
            "leave it out");
    else if (description.open_mode == 0) {
        description.open_mode = OPEN_MODE_APPEND;
        answer.new_output = true;
    }
}

// Whether all tasks have CPUs when the job has MIN GPUs, where CPUs come with GPUs. Refused and not raised:
// more CPUs at full size are more than the user has asked for, and perhaps than a node has.
void see_to_cpus(const job_desc_msg_t &description, const Elastic &elastic, Answer &answer) {
    const auto per_gpu = cpus_per_gpu(bounded(description.cpus_per_tres));
    const bool shared = description.overcommit != NO_VAL8 && description.overcommit != 0;
    if (!per_gpu || !is_set(*per_gpu) || !is_set(description.num_tasks) || shared)
        return;
    const std::uint64_t per_task = is_set(description.cpus_per_task) ? description.cpus_per_task : 1;
    const std::uint64_t needed = description.num_tasks * per_task;
    const std::uint64_t gpus_needed = (needed + *per_gpu - 1) / *per_gpu;
    if (!elastic.min_gpus) {
        if (gpus_needed > 1)
            say(answer,
                fmt::format("on fewer than {} GPUs the {} tasks of this job would lack CPUs (it has {} for "
                            "each GPU, and "
                            "they need {}): it is not made smaller; it can be with a larger --cpus-per-gpu",
                            gpus_needed, description.num_tasks, *per_gpu, needed));
        return;
    }
    const std::uint64_t given = std::uint64_t{*per_gpu} * *elastic.min_gpus;
    if (given >= needed)
        return;
    refuse(answer, fmt::format("on MIN {} GPUs the {} tasks of this job would have {} CPUs and need {}: give "
                               "--cpus-per-gpu={}, or --singularity-elastic with a MIN of {}",
                               *elastic.min_gpus, description.num_tasks, given, needed,
                               (needed + *elastic.min_gpus - 1) / *elastic.min_gpus, gpus_needed));
}

} // namespace

std::optional<Elastic> elastic_of(const job_desc_msg_t &description) {
    const auto text = variable(description, kElasticVariable);
    if (!text || variable(description, kOffVariable))
        return std::nullopt;
    Elastic elastic;
    // Without a value the SPANK plugin's option is null, which Slurm prints.
    if (text->empty() || *text == "(null)")
        return elastic;
    elastic.min_gpus = number(text->substr(0, text->find('-')));
    const auto hyphen = text->find('-');
    if (!elastic.min_gpus || *elastic.min_gpus == 0 || hyphen == std::string_view::npos)
        return std::nullopt;
    elastic.max_gpus = number(text->substr(hyphen + 1));
    if (!elastic.max_gpus || *elastic.max_gpus < *elastic.min_gpus)
        return std::nullopt;
    return elastic;
}

Answer examine(job_desc_msg_t &description) {
    Answer answer;
    const auto elastic = elastic_of(description);
    if (!elastic)
        return answer;
    if (description.het_job_offset != NO_VAL) {
        // Each has a job of Slurm's own, and what runs across them cannot be saved at one moment.
        refuse(answer, "the components of a heterogeneous job cannot be saved together: submit it with "
                       "--singularity-off, or as one job");
        return answer;
    }
    const bool runs_again = is_batch(description) && see_to_requeue(description, answer);
    if (runs_again)
        see_to_output(description, answer);
    if (runs_again || !is_batch(description)) // a job that is never requeued is never made smaller
        see_to_cpus(description, *elastic, answer);
    answer.has_script = description.script != nullptr;
    // One that is not requeued has the size that its client knows of.
    if (runs_again && elastic->min_gpus && elastic->max_gpus && bounded(description.admin_comment).empty())
        answer.note = fmt::format("singularity: elastic={}-{}", *elastic->min_gpus, *elastic->max_gpus);
    return answer;
}

} // namespace singularity::submission
