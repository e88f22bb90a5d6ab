// SPDX-License-Identifier: GPL-2.0-or-later
// What slurmctld is asked about steps that run here: nodes that are drained are left, and comments of jobs
// heard.
#include "agent/job/job_plan.hpp"
#include "local/tree.hpp"
#include "server.hpp"

#include <algorithm>

namespace singularity::agent {

namespace {

// Its name has a number of the script's in place of Slurm's own.
bool is_saved_with_script(const peers::wire::JobRecord &record) {
    return record.name() != job_name_of_step(record.user().uid(), record.step());
}

} // namespace

void Server::look_at_slurm() {
    slurm_watch_.handle([this] { return here_of_slurm(); },
                        [this](std::uint32_t slurm_job) { checkpoint_for_comment(slurm_job); });
}

// A script whose steps are saved without it says only that there are none.
void Server::checkpoint_for_comment(std::uint32_t slurm_job) {
    std::shared_ptr<Job> script;
    bool are_any = false;
    for (const auto &[name, job] : jobs_->all()) {
        const auto of = job_of_step(job->record().step());
        if (!of || *of != slurm_job || !job->runs() || is_saved_with_script(job->record()))
            continue;
        if (job->record().apart()) {
            script = job;
            continue;
        }
        are_any = true;
        job->checkpoint_for_comment();
    }
    if (script && !are_any)
        script->checkpoint_for_comment();
}

SlurmWatch::Here Server::here_of_slurm() const {
    SlurmWatch::Here here{.node = options_.host, .jobs = {}, .coordinated = {}, .owners = {}};
    for (const auto &[key, step] : steps_) {
        const auto job = job_of_step(key.step);
        // What an earlier agent knew of a step is not here any more: that of a script can be requeued, and of
        // others Slurm says that they cannot.
        const auto &plan = step->plan();
        const bool adopted = plan.hosts.empty();
        if (!job || step->job().empty() || !(adopted || plan.of_script))
            continue;
        here.jobs.insert(*job);
        here.owners[*job] = key.uid;
        if (!adopted)
            here.node = plan.hosts.at(plan.node);
    }
    for (const auto &[name, job] : jobs_->all())
        if (const auto of = job_of_step(job->record().step());
            of && job->record().of_script() && job->runs()) {
            here.coordinated.insert(*of);
            here.owners[*of] = job->record().user().uid();
        }
    return here;
}

bool Server::is_used(const std::string &local_tree) const {
    if (waiting() != 0) // whose they are is not known
        return true;
    for (const auto &[name, held] : nodes_)
        if (LocalTrees::tree_of(held.node->record().spec) == local_tree)
            return true;
    return std::ranges::any_of(scripts_, [&](const Script &script) {
        return !script.left && local::tree_name(script.uid, script.job) == local_tree;
    });
}

} // namespace singularity::agent
