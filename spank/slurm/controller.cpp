// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller.hpp"

#include "gres.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

// Since 26.05 macros choose between two functions each; the functions themselves are meant here.
#undef slurm_load_job
#undef slurm_requeue

namespace singularity::slurm {

namespace {

// Without SHOW_LOCAL a federation would be asked.
constexpr std::uint16_t kShow = SHOW_ALL | SHOW_DETAIL | SHOW_LOCAL;

// What a refusal of slurmctld calls for.
struct Remedy {
    int code;
    std::string_view words;
};
constexpr std::string_view kAnyRemedy = "'scontrol show job' shows what Slurm says of it";
constexpr std::array kRemedies{
    Remedy{ESLURM_DISABLED, "submit it with --requeue, or set JobRequeue=1 in slurm.conf"},
    Remedy{ESLURM_BATCH_ONLY, "only jobs of sbatch can be requeued: submit it with sbatch"},
    Remedy{ESLURM_ALREADY_DONE, "submit it again"},
    Remedy{ESLURM_ACCESS_DENIED, "run this as root or as the job's user"},
};

// Up to 25.11 a job is named by its number, since 26.05 by a step id. The function's address is taken by the
// caller.
template <class Id>
Id job_name(std::uint32_t id) {
    if constexpr (std::is_integral_v<Id>) {
        return id;
    } else {
        Id name{};
        name.job_id = id;
        name.step_het_comp = NO_VAL;
        name.step_id = NO_VAL;
        return name;
    }
}

template <class Id>
int load(int (*function)(job_info_msg_t **, Id, std::uint16_t), job_info_msg_t **message, std::uint32_t id) {
    return function(message, job_name<Id>(id), kShow);
}

template <class Id>
int requeue(int (*function)(Id, std::uint32_t), std::uint32_t id, std::uint32_t flags) {
    return function(job_name<Id>(id), flags);
}

template <class Description>
void set_job_id(Description &description, std::uint32_t id) {
    if constexpr (requires { description.job_id; })
        description.job_id = id;
    else
        description.step_id.job_id = id;
}

// A node refuses a job that begins in the very second in which its last run was ended there: it tells the two
// apart by whole seconds, of clocks that may differ a little.
constexpr std::time_t kAfterRevocation = 3;

// Some functions of the API return the error itself, some return -1 and set errno.
int error_code(int returned) { return returned > 0 ? returned : errno; }

std::string text_or_empty(const char *text) { return text == nullptr ? std::string() : std::string(text); }

} // namespace

Library::Library() { slurm_init(nullptr); }
Library::~Library() { slurm_fini(); }

Expected<std::string> cluster_name() {
    slurm_conf_t *loaded = nullptr;
    if (const int returned = slurm_load_ctl_conf(0, &loaded); returned != 0) {
        const int code = error_code(returned);
        return failure("ask slurmctld for", "its configuration", slurm_strerror(code), code);
    }
    // Not freed: 26.05 has no function for it, and the process is short.
    return text_or_empty(loaded->cluster_name);
}

Expected<Job> load_job(std::uint32_t id) {
    job_info_msg_t *loaded = nullptr;
    if (const int returned = load(slurm_load_job, &loaded, id); returned != 0) {
        const int code = error_code(returned);
        if (code == ESLURM_INVALID_JOB_ID)
            return Job{};
        return failure("ask slurmctld for job", std::to_string(id), slurm_strerror(code), code);
    }
    const std::unique_ptr<job_info_msg_t, decltype(&slurm_free_job_info_msg)> message(
        loaded, slurm_free_job_info_msg);
    // Of a heterogeneous job or an array there are more records.
    const std::span records(message->job_array, message->record_count);
    const auto found =
        std::ranges::find_if(records, [&](const slurm_job_info_t &record) { return record.job_id == id; });
    if (found == records.end())
        return failure("ask slurmctld for job", std::to_string(id),
                       fmt::format("it answers with {} other jobs", records.size()), EPROTO);
    return Job{.known = true,
               .fate = fate_of(found->job_state, found->preempt_time),
               .completing = (found->job_state & JOB_COMPLETING) != 0,
               .uid = found->user_id,
               .batch = found->batch_flag != 0,
               .may_requeue = found->requeue != 0,
               .restarts = found->restart_cnt,
               .gpus = (found->job_state & JOB_STATE_BASE) == JOB_RUNNING
                           ? gpus_of(text_or_empty(found->gres_total))
                           : std::nullopt,
               .batch_host = text_or_empty(found->batch_host)};
}

Expected<void> requeue_job(std::uint32_t id) {
    const auto refused = [&](const std::string &why, int code) {
        const auto *const remedy =
            std::ranges::find_if(kRemedies, [&](const Remedy &candidate) { return candidate.code == code; });
        return failure("requeue job", std::to_string(id),
                       fmt::format("{}; {}", why, remedy == kRemedies.end() ? kAnyRemedy : remedy->words),
                       code);
    };
    auto before = load_job(id);
    if (!before)
        return propagate(before);
    // Else also one that has ended would be.
    const std::uint32_t flags = before->fate == Fate::kTimeout ? 0 : JOB_RUNNING;
    if (const int returned = requeue(slurm_requeue, id, flags); returned != 0) {
        const int code = error_code(returned);
        return refused(slurm_strerror(code), code);
    }
    // That the job does not run is no error to slurmctld.
    auto after = load_job(id);
    if (!after)
        return propagate(after);
    const bool again = after->known && after->restarts != before->restarts;
    if (again || after->fate == Fate::kRequeued)
        return {};
    return refused(
        "it has ended: only a job that runs, is suspended or has come to its time limit can be requeued",
        ESLURM_ALREADY_DONE);
}

Expected<void> begin_job_now(std::uint32_t id) {
    job_desc_msg_t wish;
    slurm_init_job_desc_msg(&wish);
    set_job_id(wish, id);
    wish.begin_time = std::time(nullptr) + kAfterRevocation;
    if (const int returned = slurm_update_job(&wish); returned != 0) {
        const int code = error_code(returned);
        return failure("let begin job", std::to_string(id), slurm_strerror(code), code);
    }
    return {};
}

} // namespace singularity::slurm
