// SPDX-License-Identifier: GPL-2.0-or-later
// Whether a node could be saved as it is. Its worker only looks, so whatever becomes of that worker, nothing
// is to be undone, and nobody waits for it.
#include "live_node.hpp"

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kNodeCheckPatience = 30s;
// At a time, of all nodes that a user has on this host: what comes later is told to come again.
constexpr long kCheckPlaces = 4;

const std::shared_ptr<void> &check_places(uid_t uid) {
    static std::map<uid_t, std::shared_ptr<void>> all;
    auto &of_user = all[uid];
    if (!of_user)
        of_user = std::make_shared<char>();
    return of_user;
}

Counters::Check outcome_for_metrics(const Expected<std::string> &outcome) {
    if (!outcome)
        return Counters::Check::failed;
    return outcome->empty() ? Counters::Check::clear : Counters::Check::obstacle;
}

} // namespace

void LiveNode::check(OnCheck on_check) {
    const auto refuse = [&](std::string why) {
        on_check(failure("check", record_.spec.name, std::move(why), EAGAIN));
    };
    if (checking_)
        return refuse("it is being checked already");
    if (state_ != State::running || worker_)
        return refuse(fmt::format("it is {}", to_string(state_)));
    if (check_places(record_.spec.uid).use_count() > kCheckPlaces)
        return refuse(fmt::format("{} others of its user's on this host are", kCheckPlaces));
    if (auto room = Worker::room_for_one_more(record_.spec.uid, "check", record_.spec.name); !room)
        return on_check(propagate(room));
    auto record = record_;
    record.spec.environment.clear(); // which nobody looks at
    auto worker =
        Worker::start(surroundings_->libraries, record_.spec.uid, WorkCheck{.record = std::move(record)});
    if (!worker)
        return on_check(propagate(worker));
    checking_ = std::make_unique<Checking>(Checking{.worker = std::move(*worker),
                                                    .on_check = std::move(on_check),
                                                    .until = Deadline::after(kNodeCheckPatience),
                                                    .place = check_places(record_.spec.uid)});
}

void LiveNode::read_checker() {
    node::Packet packet;
    while (checking_->on_check) {
        const auto received = checking_->worker.receive(packet);
        if (received == node::Received::nothing && checking_->until.expired())
            return end_check(std::unexpected(
                timeout_error(checking_->until, fmt::format("the check of {}", record_.spec.name))));
        if (received == node::Received::nothing)
            return;
        const bool is_packet = received == node::Received::packet;
        const auto checked = is_packet ? node::decode<WorkChecked>(packet.bytes) : std::nullopt;
        const auto failed = is_packet ? node::decode<WorkFailed>(packet.bytes) : std::nullopt;
        if (checked)
            end_check(checked->obstacle);
        else if (failed)
            end_check(failure(failed->error.doing, failed->error.on, failed->error.why, failed->error.code));
        else
            end_check(failure("check", record_.spec.name, "the process that does it has died", ECHILD));
    }
    if (checking_->worker.ended())
        checking_.reset();
}

void LiveNode::end_check(const Expected<std::string> &outcome) {
    if (!checking_ || !checking_->on_check)
        return;
    checking_->worker.kill();
    checking_->worker.hang_up();
    if (outcome || outcome.error().code != ECANCELED)
        ++counters().checks[static_cast<std::size_t>(outcome_for_metrics(outcome))];
    std::exchange(checking_->on_check, {})(outcome);
}

} // namespace singularity::agent
