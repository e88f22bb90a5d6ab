// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_submit.hpp"

#include "common/identity.hpp"
#include "common/log.hpp"
#include "host.hpp"
#include "submission.hpp"

#include <array>
#include <cerrno>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <slurm/slurm_errno.h>
#include <sys/random.h>

namespace singularity::submission {

namespace {

constexpr log::Channel kLog("job_submit");

// slurmctld frees what it is given with its own allocator. The names are those that Slurm gives its own
// plugins.
struct Memory {
    char *(*duplicate)(const char *text) = nullptr;
    void (*free)(void **memory) = nullptr;
    // In an array that a null pointer ends, in place of one of the same name.
    int (*set_variable)(char ***environment, const char *name, const char *value) = nullptr;
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

void set_variable(job_desc_msg_t &description, const char *name, const char *value) {
    if (slurms.set_variable(&description.environment, name, value) == 0)
        throw std::runtime_error("slurm_env_array_overwrite failed");
}

// Whoever submits from within a job hands that one's variables on: both are always set.
void describe_in_environment(job_desc_msg_t &description, const Answer &answer) {
    std::array<unsigned char, kIdentityBytes> bytes{};
    if (getentropy(bytes.data(), bytes.size()) != 0)
        throw std::system_error(errno, std::generic_category(), "getentropy");
    set_variable(description, kIdentityVariable, fmt::format("{:02x}", fmt::join(bytes, "")).c_str());
    set_variable(description, kOutputVariable, answer.new_output ? kNewOutput : kKeptOutput);
    description.env_size = 0;
    while (description.environment[description.env_size] != nullptr)
        ++description.env_size;
}

} // namespace

int init() noexcept {
    host::log_to_slurm();
    if (host::find("slurm_xstrdup", slurms.duplicate) && host::find("slurm_xfree", slurms.free) &&
        host::find("slurm_env_array_overwrite", slurms.set_variable))
        return SLURM_SUCCESS;
    kLog.error("slurmctld lacks slurm_xstrdup, slurm_xfree or slurm_env_array_overwrite: it is not the Slurm "
               "for which this plugin was built; "
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
        if (answer.accepted && answer.has_script)
            describe_in_environment(*description, answer);
        return answer.accepted ? SLURM_SUCCESS : ESLURM_NOT_SUPPORTED;
    } catch (const std::exception &error) {
        kLog.error("a job was let through without being looked at: {}", error.what());
    } catch (...) {
        kLog.error("a job was let through without being looked at: error of unknown type");
    }
    return SLURM_SUCCESS;
}

} // namespace singularity::submission
