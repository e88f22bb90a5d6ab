// SPDX-License-Identifier: GPL-2.0-or-later
#include "let_go.hpp"

#include "agent/log.hpp"
#include "member.hpp"

#include <utility>

namespace singularity::agent {

namespace {

namespace wire = peers::wire;

} // namespace

std::shared_ptr<LetGo> LetGo::start(HostAsker &responder, const std::string &job,
                                    const std::vector<std::string> &hosts, std::function<void()> then,
                                    Patience patience) {
    std::shared_ptr<LetGo> out(new LetGo(responder, job, std::move(then), patience));
    out->left_.insert(hosts.begin(), hosts.end());
    for (const auto &host : hosts)
        out->tell(host);
    return out;
}

void LetGo::tell(const std::string &host) {
    wire::Envelope request;
    request.mutable_save_job()->set_job(job_);
    request.mutable_save_job()->set_step(wire::SaveJob::LET_GO);
    asker_->ask(host, std::move(request), patience_.answer,
                [self = shared_from_this(), host](const Expected<wire::Envelope> &reply) {
                    self->hear(host, reply);
                });
}

// A host that has answered has heard it, whatever becomes of its nodes.
void LetGo::hear(const std::string &host, const Expected<wire::Envelope> &reply) {
    if (!left_.contains(host))
        return;
    if (const auto outcome = outcome_of(reply); !outcome)
        kLog.error("{}: {}", job_, outcome.error().message());
    if (!reply && !until_.expired()) {
        silent_.insert(host);
        again_ = Deadline::after(patience_.pause);
        return;
    }
    left_.erase(host);
    if (left_.empty())
        std::exchange(then_, {})();
}

void LetGo::handle() {
    if (!again_ || !again_->expired())
        return;
    again_.reset();
    for (const auto &host : std::exchange(silent_, {}))
        if (left_.contains(host))
            tell(host);
}

} // namespace singularity::agent
