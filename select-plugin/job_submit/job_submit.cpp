// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_submit.hpp"

#include "common/log.hpp"
#include "host.hpp"
#include "submission.hpp"

#include <exception>
#include <string>

#include <slurm/slurm_errno.h>

namespace singularity::submission {

namespace {

constexpr log::Channel kLog("job_submit");

// slurmctld frees what it is given with its own allocator. The names are those that Slurm gives its own
// plugins.
struct Memory {
    char *(*duplicate)(const char *text) = nullptr;
    void (*free)(void **memory) = nullptr;
};
constinit Memory slurms;

void hand_over(const std::string &text, char **words) {
    if (words == nullptr || text.empty())
        return;
    const std::string all = *words == nullptr ? text : std::string(*words) + '\n' + text;
    if (*words != nullptr)
        slurms.free(reinterpret_cast<void **>(words));
    *words = slurms.duplicate(all.c_str());
}

} // namespace

int init() noexcept {
    host::log_to_slurm();
    if (host::find("slurm_xstrdup", slurms.duplicate) && host::find("slurm_xfree", slurms.free))
        return SLURM_SUCCESS;
    kLog.error(
        "slurmctld lacks slurm_xstrdup or slurm_xfree: it is not the Slurm for which this plugin was built; "
        "take singularity out of JobSubmitPlugins");
    return SLURM_ERROR;
}

int submit(job_desc_msg_t *description, char **words) noexcept {
    try {
        if (description == nullptr)
            return SLURM_SUCCESS;
        const Answer answer = examine(*description);
        hand_over(answer.words, words);
        if (answer.accepted && !answer.note.empty()) {
            slurms.free(reinterpret_cast<void **>(&description->admin_comment));
            description->admin_comment = slurms.duplicate(answer.note.c_str());
        }
        return answer.accepted ? SLURM_SUCCESS : ESLURM_NOT_SUPPORTED;
    } catch (const std::exception &error) {
        kLog.error("a job was let through without being looked at: {}", error.what());
    } catch (...) {
        kLog.error("a job was let through without being looked at: error of unknown type");
    }
    return SLURM_SUCCESS;
}

} // namespace singularity::submission
