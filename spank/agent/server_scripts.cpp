// SPDX-License-Identifier: GPL-2.0-or-later
// Batch scripts that Slurm has told to end. Those of jobs that run again are not to notice it: they are begun
// again from their first line.
#include "common/log.hpp"
#include "common/text.hpp"
#include "server.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr log::Channel kLog("agent");
constexpr auto kBetweenQuestions = 1s;
constexpr std::ptrdiff_t kScriptsOfOne = 64; // each may be a process of root's

} // namespace

void Server::hold_script(const std::shared_ptr<Client> &client, const Asker &asker) {
    const auto refuse = [&](std::string why, int code) {
        asker.refuse({"hold", "a batch script", std::move(why), code});
    };
    const auto cgroups = client->sender.cgroups();
    if (!cgroups)
        return asker.refuse(cgroups.error());
    const auto job = job_of_script(*cgroups);
    if (job == 0)
        return refuse("the process that asks is in the cgroup of none", EINVAL);
    const auto uid = client->sender.uid();
    if (std::ranges::any_of(scripts_, [&](const auto &one) { return one.client.lock() == client; }))
        return refuse("it is held already", EALREADY);
    if (std::ranges::count(scripts_, uid, &Script::uid) >= kScriptsOfOne)
        return refuse(fmt::format("uid {} has {} that are held", uid, kScriptsOfOne), EAGAIN);
    scripts_.push_back({.uid = uid,
                        .job = job,
                        .client = client,
                        .asker = asker,
                        .errand = {},
                        .ask_again = Deadline::after(0s),
                        .runs_again = false});
    look_at_scripts();
}

// Who decides that a job runs again may still be at it: that of a time limit is decided when its step is
// saved.
void Server::look_at_scripts() {
    const auto let_go = [](Script &script) {
        script.asker.tell(ScriptFate{.runs_again = false});
        script.client.reset();
    };
    for (auto &script : scripts_) {
        if (const auto client = script.client.lock(); !client || client->gone) {
            script.client.reset();
            continue;
        }
        if (script.ask_again && script.ask_again->expired()) {
            script.ask_again.reset();
            auto errand = SlurmErrand::about(options_.places.libraries, script.job);
            if (errand) {
                script.errand = std::move(*errand);
            } else {
                kLog.error("{}", errand.error().message());
                let_go(script);
            }
        }
        if (!script.errand)
            continue;
        auto answer = script.errand->take();
        if (answer && !*answer)
            continue;
        script.errand.reset();
        const auto about = answer ? parse_slurm_job(**answer) : propagate(answer);
        if (!about)
            kLog.error("{}", about.error().message());
        if (!about || !goes_on_later(*about)) {
            let_go(script);
        } else if (about->fate == SlurmJob::Fate::requeued) {
            script.runs_again = true;
            script.asker.tell(ScriptFate{.runs_again = true});
        } else {
            script.ask_again = Deadline::after(kBetweenQuestions);
        }
    }
    std::erase_if(scripts_, [](const auto &script) { return script.client.expired(); });
}

bool Server::script_rests(const StepKey &key) const {
    const auto job = job_of_step(key.step);
    return job && std::ranges::any_of(scripts_, [&](const auto &script) {
               return script.uid == key.uid && script.job == *job && script.runs_again;
           });
}

} // namespace singularity::agent
