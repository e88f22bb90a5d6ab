// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_keeper.hpp"

#include "agent/limits/budget.hpp"
#include "agent/limits/program_memory.hpp"
#include "agent/log.hpp"
#include "agent/node/adoption.hpp"
#include "common/text.hpp"
#include "job_files.hpp"
#include "job_plan.hpp"
#include "network/firewall.hpp"
#include "network/plan.hpp"

#include <algorithm>
#include <ctime>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr std::ptrdiff_t kMembersLimit = 1024;

} // namespace

JobKeeper::JobKeeper(const JobKeeperOptions &options, NodeKeeper &nodes)
    : nodes_(&nodes), job_setting_{.jobs = options.place / "jobs",
                                   .libraries = options.libraries,
                                   .patience = options.agents.patience,
                                   .check_after = options.check_after,
                                   .tell_slurm = options.tell_slurm},
      member_setting_{.libraries = options.libraries,
                      .members = options.place / "members",
                      .host = options.host,
                      .vxlan_port = static_cast<std::uint16_t>(options.agents.vxlan_port),
                      .way_out = {.outside = parse_outside(options.network.outside).value_or(Outside{}),
                                  .agents = static_cast<std::uint16_t>(options.agents.port)},
                      .publish = parse_port_range(options.network.publish).value_or(PortRange{}),
                      .patience = options.agents.patience,
                      .run_without_slurm = options.agents.run_without_slurm,
                      .networks =
                          std::make_shared<SharedNetworks>(options.place / "networks", options.libraries)},
      own_questions_(options.host) {}

Expected<std::unique_ptr<JobKeeper>> JobKeeper::open(const JobKeeperOptions &options, NodeKeeper &nodes) {
    std::unique_ptr<JobKeeper> out(new JobKeeper(options, nodes));
    // Before any job of another host relies on it.
    if (!options.agents.address.empty())
        if (auto closed = network::close_port(static_cast<std::uint16_t>(options.agents.vxlan_port)); !closed)
            return propagate(closed);
    // Jobs can do without.
    if (out->member_setting_.way_out.outside.open() || out->member_setting_.publish.any())
        if (auto forwards = network::forward_for_jobs(); !forwards)
            kLog.error("{}: jobs reach nothing outside of this host, and are not reached",
                       forwards.error().message());
    if (out->member_setting_.way_out.outside.open_to_ipv6())
        if (auto forwards = network::forward_ipv6_for_jobs(); !forwards)
            kLog.error("{}: jobs reach nothing over IPv6", forwards.error().message());
    auto opened =
        peers::Peers::open({.host = options.host,
                            .bind = options.agents.address,
                            .port = static_cast<std::uint16_t>(options.agents.port),
                            .munge = options.agents.munge_socket},
                           [keeper = out.get()](const peers::Peers::Caller &caller, wire::Envelope request,
                                                const peers::Peers::Answer &answer) {
                               if (request.has_prepare_job())
                                   request.mutable_prepare_job()->clear_cgroups();
                               keeper->serve(caller.host, std::move(request), answer);
                           });
    if (!opened)
        return propagate(opened);
    out->peers_ = std::move(*opened);
    return out;
}

Expected<void> JobKeeper::look_for_earlier() {
    for (const auto &[place, names] : {std::pair(&member_setting_.members, &waiting_members_),
                                       std::pair(&job_setting_.jobs, &waiting_jobs_)}) {
        auto found = job_directories(*place);
        if (!found)
            return propagate(found);
        *names = std::move(*found);
    }
    return {};
}

std::vector<std::shared_ptr<Job>> JobKeeper::adopt_waiting() {
    const auto each = [](std::set<std::string> &waiting, const std::filesystem::path &place,
                         const auto &adopt) {
        std::erase_if(waiting, [&](const std::string &name) {
            const auto adopted = adopt(name);
            if (adopted)
                return true;
            if (verdict_of(adopted.error()) == Verdict::waits) {
                kLog.error("{}; its files are kept, and looked at again", adopted.error().message());
                return false;
            }
            kLog.error("{}; its files are removed", adopted.error().message());
            if (auto removed = remove_job_directory(place / name); !removed)
                kLog.error("{}", removed.error().message());
            return true;
        });
    };
    each(waiting_members_, member_setting_.members, [this](const std::string &name) -> Expected<void> {
        auto member = Member::adopt(*nodes_, member_setting_, name);
        if (!member)
            return propagate(member);
        members_.emplace(name, std::move(*member));
        return {};
    });
    if (waiting_members_.empty())
        member_setting_.networks->end_others();
    std::vector<std::shared_ptr<Job>> out;
    each(waiting_jobs_, job_setting_.jobs, [this, &out](const std::string &name) -> Expected<void> {
        if (waiting_members_.contains(name)) // it would hear that there is none of it here
            return failure("find", quote(name), "this host's part of it could not be looked at yet", EAGAIN);
        auto job = Job::adopt(*this, job_setting_, name);
        if (!job)
            return propagate(job);
        kLog.info("{}: found again, {}", name, to_string((*job)->record().state()));
        jobs_.emplace(name, *job);
        out.push_back(std::move(*job));
        return {};
    });
    for (const auto &job : out)
        job->begin();
    return out;
}

std::uint32_t JobKeeper::free_number() const {
    for (;;) {
        const auto bytes = peers::random_bytes(sizeof(std::uint32_t));
        if (!bytes)
            return 0;
        std::uint32_t number = 0;
        bytes->copy(reinterpret_cast<char *>(&number), sizeof(number));
        number %= network::kVniLimit;
        if (number != 0 && std::ranges::none_of(jobs_, [&](const auto &entry) {
                return entry.second->record().vni() == number;
            }))
            return number;
    }
}

std::uint32_t JobKeeper::free_number_of(const JobRequest &asked) const {
    std::set<std::uint32_t> used;
    for (const auto &[name, job] : jobs_)
        used.insert(job->record().vni());
    const auto number = network_of_step(asked.step, asked.restarts, used);
    return number != 0 ? number : free_number();
}

Expected<void> JobKeeper::room_for_one_more(std::uint32_t uid) const {
    const auto of_same = std::ranges::count_if(
        jobs_, [&](const auto &entry) { return entry.second->record().user().uid() == uid; });
    if (auto why = budgets().refusal(Budget::jobs, uid, static_cast<std::uint64_t>(of_same)))
        return failure("make", "a job", *why, EDQUOT);
    return {};
}

Expected<void> JobKeeper::room_for_ranks(const wire::JobRecord &record) {
    if (auto why = no_room_for(Budget::ranks, record.user().uid(), record.ranks()))
        return failure("make the job", record.name(), *std::move(why), EDQUOT);
    return {};
}

Expected<std::shared_ptr<Job>> JobKeeper::run(JobRequest asked) {
    if (auto room = room_for_one_more(asked.uid); !room)
        return propagate(room);
    auto &request = asked.request;
    wire::JobRecord record;
    record.set_vni(asked.step.empty() ? free_number() : free_number_of(asked));
    record.set_name(asked.step.empty() ? job_name(asked.uid, record.vni()) : asked.name);
    if (auto replaced = replace_ended(record.name()); !replaced)
        return propagate(replaced);
    if (request.hosts.empty())
        request.hosts.push_back(own_host());
    auto nodes = plan_nodes(record.name(), record.vni(), request.hosts, asked.places);
    if (!nodes)
        return propagate(nodes);
    if (request.program.arguments.empty() && asked.step.empty())
        return failure("make the job", record.name(), "no program was named", EINVAL);
    if (auto checked = check_size(request.program); !checked)
        return propagate(checked);
    // The job takes it when it is there.
    if (auto memory = ProgramMemory::take(asked.uid, memory_of(request.program)); !memory)
        return propagate(memory);
    for (auto &node : *nodes) {
        // By which Slurm tells its tasks of each other.
        if (!asked.step.empty())
            node.set_hostname(node.host());
        node.set_devices(request.devices);
        *record.add_nodes() = std::move(node);
    }
    record.set_step(asked.step);
    record.set_cluster(asked.cluster);
    record.set_restarts(asked.restarts);
    record.set_identity(asked.identity);
    record.set_of_script(asked.of_script);
    record.set_until_srun(asked.until_srun);
    record.set_one_host(asked.one_host);
    record.set_elastic(asked.elastic);
    record.set_gpus(asked.gpus);
    record.set_store(asked.store);
    record.set_ranks(asked.ranks);
    // Those of a step of Slurm's are where its tasks are.
    if (asked.step.empty()) {
        if (auto spread = spread_ranks(*record.mutable_nodes(), request.ranks_per_node, record.name());
            !spread)
            return propagate(spread);
        record.set_ranks(rank_count(record.nodes()));
    }
    record.mutable_user()->set_uid(asked.uid);
    record.mutable_user()->set_gid(asked.gid);
    for (const auto group : asked.groups)
        record.mutable_user()->add_groups(group);
    record.set_backend(request.backend);
    *record.mutable_program() = message_of(request.program);
    record.set_tied(request.tied);
    record.set_made(std::time(nullptr));
    record.set_cgroups(asked.cgroups);
    record.set_every(request.every);
    for (const auto port : request.publish)
        record.add_publish(port);
    if (auto room = room_for_ranks(record); !room)
        return propagate(room);
    if (auto made = make_job_directory(job_setting_.jobs / record.name()); !made)
        return propagate(made);
    return begin(std::move(record));
}

// Its directory is there; it goes if the job does not come to be.
Expected<std::shared_ptr<Job>> JobKeeper::begin(wire::JobRecord record) {
    const auto name = record.name();
    auto job = Job::make(*this, job_setting_, std::move(record));
    if (!job) {
        give_up(name);
        return propagate(job);
    }
    jobs_.emplace(name, *job);
    later_.emplace_back([one = *job] { one->begin(); });
    return job;
}

std::shared_ptr<Job> JobKeeper::find(const std::string &name) const {
    const auto found = jobs_.find(name);
    return found == jobs_.end() ? nullptr : found->second;
}

void JobKeeper::ask(const std::string &host, wire::Envelope request, std::chrono::milliseconds patience,
                    peers::Peers::OnReply on_reply) {
    if (host != own_host())
        return peers_->ask(host, std::move(request), patience, std::move(on_reply));
    // As from another host: never before the caller has returned.
    const auto own = own_questions_.ask(patience, std::move(on_reply));
    later_.emplace_back([this, own, request = std::move(request)]() mutable {
        serve(own_host(), std::move(request), [this, own](wire::Envelope reply) {
            later_.emplace_back([this, own, reply = std::move(reply)]() mutable {
                own_questions_.answer(own, std::move(reply));
            });
        });
    });
}

std::optional<peers::Peers::Addresses> JobKeeper::addresses(const std::string &host) const {
    return host == own_host() ? std::nullopt : peers_->addresses(host);
}

void JobKeeper::serve(const std::string &coordinator, wire::Envelope request,
                      const peers::Peers::Answer &answer) {
    const auto name_of = [](const wire::Envelope &one) -> std::string {
        switch (one.body_case()) {
        case wire::Envelope::kPrepareJob:
            return one.prepare_job().job();
        case wire::Envelope::kConnectJob:
            return one.connect_job().job();
        case wire::Envelope::kStartJob:
            return one.start_job().job();
        case wire::Envelope::kFollowJob:
            return one.follow_job().job();
        case wire::Envelope::kSignalJob:
            return one.signal_job().job();
        case wire::Envelope::kEndJob:
            return one.end_job().job();
        case wire::Envelope::kCutJob:
            return one.cut_job().job();
        case wire::Envelope::kKeepJob:
            return one.keep_job().job();
        case wire::Envelope::kSaveJob:
            return one.save_job().job();
        case wire::Envelope::kTellUser:
            return one.tell_user().job();
        case wire::Envelope::kCheckJob:
            return one.check_job().job();
        default:
            return {};
        }
    };
    if (request.has_ping()) { // of our own
        wire::Envelope reply;
        reply.mutable_pong()->set_host(own_host());
        return answer(std::move(reply));
    }
    if (request.has_script_rests()) {
        const auto &about = request.script_rests();
        return answer(done(nodes_->script_rests({.uid = about.uid(), .step = about.step()}, about.stop())
                               ? Expected<void>()
                               : failure("wait for", "the batch script", "it may still run", EAGAIN)));
    }
    if (request.has_save_steps())
        return save_steps(request.save_steps(), answer);
    const auto name = name_of(request);
    if (name.empty())
        return answer(fault(
            {"serve", "a request", "it is not known here: is the other agent of another release?", EPROTO}));
    // Of what could not be looked at yet nothing can be said: as if there was no agent.
    if (waiting_members_.contains(name))
        return;
    auto found = members_.find(name);
    if (found != members_.end() && found->second->gone()) { // since the last round
        members_.erase(found);
        found = members_.end();
    }
    if (request.has_prepare_job()) {
        const auto &step = request.prepare_job().step();
        // Slurm begins a step again when the one before has ended; its coordinator may be another.
        const bool again =
            !step.empty() && nodes_->find_step({.uid = request.prepare_job().user().uid(), .step = step});
        if (found != members_.end() && (again || found->second->coordinator() == coordinator))
            return replace(found->second, coordinator, std::move(request), answer);
        if (found != members_.end())
            return answer(
                fault({"prepare the job", quote(name),
                       fmt::format("there is one of that name, which {} coordinates; it ends by itself when "
                                   "nothing is heard of that",
                                   found->second->coordinator()),
                       EEXIST}));
        if (std::cmp_greater_equal(members_.size() + parked_.size(), kMembersLimit))
            return answer(fault({"prepare the job", quote(name), "there are too many", ENOSPC}));
        const auto &prepare = request.prepare_job();
        if (!prepare.step().empty() &&
            !nodes_->find_step({.uid = prepare.user().uid(), .step = prepare.step()})) {
            // Before who asks gives up.
            const auto until = Deadline::after(member_setting_.patience * 3 / 4);
            parked_.push_back({.coordinator = coordinator,
                               .request = std::move(request),
                               .answer = answer,
                               .until = until});
            return;
        }
        auto member = Member::prepare(*nodes_, member_setting_, coordinator, request.prepare_job(), answer);
        if (!member)
            return answer(fault(member.error()));
        members_.emplace(name, std::move(*member));
        return;
    }
    if (found == members_.end() || found->second->coordinator() != coordinator)
        return answer(fault(
            {"find the job", quote(name),
             fmt::format("{} has none of that name that {} coordinates", own_host(), coordinator), ENOENT}));
    found->second->serve(request, answer);
}

void JobKeeper::save_steps(const wire::SaveSteps &request, const peers::Peers::Answer &answer) const {
    auto reply = std::make_shared<wire::Envelope>();
    reply->mutable_saved_steps();
    auto all = when_all(static_cast<std::size_t>(request.numbers_size()),
                        [reply, answer](const Expected<void> &outcome) {
                            answer(outcome ? std::move(*reply) : fault(outcome.error()));
                        });
    const auto add = [reply](std::uint32_t number, const Job &job, const Job::Cut &cut) {
        auto *const saved = reply->mutable_saved_steps()->add_saved();
        saved->set_number(number);
        saved->set_checkpoint(cut.checkpoint);
        saved->set_before(cut.before);
        saved->set_here(job.is_here());
    };
    for (const auto number : request.numbers()) {
        const auto name = job_name_of_step(request.uid(), fmt::format("{}.{}", request.job(), number));
        if (waiting_jobs_.contains(name)) {
            all(failure("find the step", quote(name), "it could not be looked at yet", EAGAIN));
            continue;
        }
        const auto job = find(name);
        if (job && request.what() == wire::SaveSteps::SAVE) {
            job->save_with_script([add, number, job, all](const Expected<Job::Cut> &cut) {
                if (cut && !cut->checkpoint.empty())
                    add(number, *job, *cut);
                all(cut ? Expected<void>() : std::unexpected(cut.error()));
            });
            continue;
        }
        const auto ended =
            job && request.what() == wire::SaveSteps::END ? job->end_with_script() : std::string();
        if (!ended.empty() || (job && request.what() == wire::SaveSteps::LOOK && job->may_be_cut()))
            add(number, *job, {.checkpoint = ended, .before = {}});
        if (job && request.what() == wire::SaveSteps::GO_ON)
            job->go_on_with_script();
        all({});
    }
}

void JobKeeper::ask_each(const std::vector<std::string> &hosts, const wire::Envelope &request,
                         std::chrono::milliseconds patience,
                         std::function<void(const std::vector<Expected<wire::Envelope>> &)> then) {
    struct Answers {
        std::vector<Expected<wire::Envelope>> of_hosts;
        std::size_t left = 0;
    };
    auto answers = std::make_shared<Answers>(
        Answers{.of_hosts = std::vector<Expected<wire::Envelope>>(hosts.size()), .left = hosts.size()});
    for (std::size_t at = 0; at < hosts.size(); ++at)
        ask(hosts[at], request, patience, [answers, at, then](Expected<wire::Envelope> reply) {
            answers->of_hosts[at] = std::move(reply);
            if (--answers->left == 0)
                then(answers->of_hosts);
        });
}

// Who coordinates a job knows that the one before has ended, whether we have heard of that or not.
void JobKeeper::replace(const std::shared_ptr<Member> &member, const std::string &coordinator,
                        wire::Envelope request, const peers::Peers::Answer &answer) {
    member->end("another takes its place", [this, coordinator, request = std::move(request),
                                            answer](const wire::Envelope &ended) {
        if (ended.has_fault())
            return answer(ended);
        later_.emplace_back([this, coordinator, request, answer] { serve(coordinator, request, answer); });
    });
}

void JobKeeper::serve_parked() {
    for (auto &one : std::exchange(parked_, {})) {
        const auto &prepare = one.request.prepare_job();
        if (nodes_->find_step({.uid = prepare.user().uid(), .step = prepare.step()}))
            serve(one.coordinator, std::move(one.request), one.answer);
        else if (!one.until.expired())
            parked_.push_back(std::move(one));
        else
            one.answer(fault(timeout_error(
                one.until, fmt::format("the tasks of step {} on {}", prepare.step(), own_host()))));
    }
}

void JobKeeper::watch(std::vector<pollfd> &fds) const {
    peers_->watch(fds);
    for (const auto &[name, member] : members_)
        member->watch(fds);
    for (const auto &[name, job] : jobs_)
        job->watch(fds);
}

std::optional<Deadline> JobKeeper::next_deadline() const {
    if (!later_.empty())
        return Deadline::after(0ms);
    auto out = peers_->next_deadline();
    const auto consider = [&](const std::optional<Deadline> &other) {
        if (other && (!out || other->when() < out->when()))
            out = other;
    };
    for (const auto &[name, member] : members_)
        consider(member->next_deadline());
    for (const auto &[name, job] : jobs_)
        consider(job->next_deadline());
    for (const auto &one : parked_)
        consider(one.until);
    consider(own_questions_.next_deadline());
    return out;
}

void JobKeeper::handle() {
    peers_->handle();
    serve_parked();
    own_questions_.handle();
    // What these ask again is for the next round, which comes at once.
    for (const auto &one : std::exchange(later_, {}))
        one();
    // Copies: what is called may ask again, and make or end jobs.
    for (const auto &[name, member] : std::map(members_))
        member->handle();
    for (const auto &[name, job] : std::map(jobs_))
        job->handle();
    std::erase_if(members_, [](const auto &entry) { return entry.second->gone(); });
    std::erase_if(jobs_, [](const auto &entry) { return entry.second->gone(); });
}

} // namespace singularity::agent
