// SPDX-License-Identifier: GPL-2.0-or-later
#include "member.hpp"

#include "agent/log.hpp"
#include "agent/node/adoption.hpp"
#include "agent/node/neighbour_file.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "agent/slurm/slurm_commands.hpp"
#include "common/text.hpp"
#include "job_files.hpp"
#include "job_plan.hpp"
#include "peers/faults.hpp"
#include "responder_for.hpp"
#include "store_here.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

namespace wire = peers::wire;

const std::string &hostname_of(const wire::JobNode &one) {
    return one.hostname().empty() ? one.name() : one.hostname();
}

// Null: it is none of Slurm's.
Expected<std::shared_ptr<Step>> step_of(NodeKeeper &nodes, const wire::PrepareJob &request) {
    if (request.step().empty())
        return nullptr;
    auto step = nodes.find_step({.uid = request.user().uid(), .step = request.step()});
    if (!step)
        return failure("prepare the step", quote(request.step()), "its tasks are not here", ENOENT);
    return step;
}

StepFinish finish_of(const wire::EndJob &request) {
    StepFinish out{.saved = request.saved(), .lost = request.lost(), .ends = {}};
    for (const auto &end : request.ends())
        out.ends[end.rank()] = end.status();
    return out;
}

// Its tasks become the job's.
Expected<void> become(Step *step, const wire::PrepareJob &request) {
    const auto &user = request.user();
    if (step == nullptr)
        return {};
    return step->become(
        request.job(),
        {.uid = user.uid(), .gid = user.gid(), .groups = {user.groups().begin(), user.groups().end()}});
}

// A rank that has ended needs no signal. With any other failure it runs on as if nobody had told it.
void complain_unless_ended(const Expected<Done> &sent) {
    if (!sent && sent.error().code != ESRCH && sent.error().code != ENOENT && sent.error().code != ECHILD)
        kLog.error("{}", sent.error().message());
}

} // namespace

wire::Envelope fault(const Error &error) {
    wire::Envelope out;
    *out.mutable_fault() = peers::fault_of(error);
    return out;
}

wire::Envelope done(const Expected<void> &outcome) {
    if (!outcome)
        return fault(outcome.error());
    wire::Envelope out;
    out.mutable_done();
    return out;
}

Expected<void> outcome_of(const Expected<wire::Envelope> &reply) {
    if (!reply)
        return std::unexpected(reply.error());
    if (reply->has_fault())
        return std::unexpected(peers::error_of(reply->fault()));
    return {};
}

std::function<void(Expected<void>)> when_all(std::size_t count, std::function<void(Expected<void>)> then) {
    struct Open {
        std::size_t left;
        Expected<void> outcome;
        std::function<void(Expected<void>)> then;
    };
    if (count == 0) {
        then({});
        return [](const Expected<void> & /*outcome*/) {};
    }
    auto open = std::make_shared<Open>(Open{.left = count, .outcome = {}, .then = std::move(then)});
    return [open](Expected<void> outcome) {
        if (!outcome && open->outcome)
            open->outcome = std::move(outcome);
        if (--open->left == 0)
            open->then(open->outcome);
    };
}

Expected<std::shared_ptr<Member>> Member::prepare(NodeKeeper &nodes, const MemberSetting &setting,
                                                  const std::string &coordinator,
                                                  const wire::PrepareJob &request, Answer answer) {
    if (auto checked = check_job_name(request.job(), request.user().uid()); !checked)
        return propagate(checked);
    auto step = step_of(nodes, request);
    if (!step)
        return propagate(step);
    // Who has asked this host's own agent has been looked at.
    if (!*step && request.user().uid() != 0 && coordinator != setting.host && !setting.run_without_slurm)
        return failure("run", "a program of another host",
                       "here users do so by Slurm only (agents.run_without_slurm in singularity.yaml)",
                       EPERM);
    const auto directory = setting.members / request.job();
    if (auto made = make_job_directory(directory); !made)
        return propagate(made);
    auto network = take_network(setting, request);
    if (!network) {
        if (auto removed = remove_job_directory(directory); !removed)
            kLog.error("{}", removed.error().message());
        return propagate(network);
    }
    std::shared_ptr<Member> out(new Member(nodes, setting, std::move(*network)));
    out->record_.set_coordinator(coordinator);
    *out->record_.mutable_prepare() = request;
    out->record_.set_network(out->network_directory_);
    if (*step)
        out->record_.mutable_prepare()->set_cgroups((*step)->cgroups());
    out->step_ = std::move(*step);
    if (auto written = out->write(); !written) {
        out->give_up_network();
        return propagate(written);
    }
    std::uint16_t port = 0;
    if (request.rendezvous()) {
        auto point = make_meeting_point(request.local());
        if (!point) {
            out->give_up_network();
            return propagate(point);
        }
        port = point->port;
        out->rendezvous_ = std::make_shared<UniqueFd>(std::move(point->socket));
    }
    if (auto became = become(out->step_.get(), request); !became) {
        out->give_up_network();
        return propagate(became);
    }
    out->prepare_network(port, std::move(answer));
    return out;
}

Expected<std::shared_ptr<Member>> Member::adopt(NodeKeeper &nodes, const MemberSetting &setting,
                                                const std::string &job) {
    wire::MemberRecord record;
    if (auto read = read_record(setting.members / job, record); !read)
        return propagate(read);
    if (record.prepare().job() != job)
        return failure("find", quote(job), "its record is another's", EBADMSG);
    for (const auto &one : record.connect().nodes())
        if (nodes.node_waits(one.name()))
            return failure("find", quote(job), "its virtual nodes could not be looked at yet", EAGAIN);
    auto network = adopt_network(setting, record);
    if (!network)
        return propagate(network);
    std::shared_ptr<Member> out(new Member(nodes, setting, std::move(*network)));
    out->record_ = std::move(record);
    const auto &prepare = out->record_.prepare();
    out->memory_ = ProgramMemory::count(prepare.user().uid(), memory_of(out->record_.start().program()));
    if (out->record_.published_size() != 0)
        out->published_.emplace_back(Budget::ports, prepare.user().uid(),
                                     static_cast<std::uint64_t>(out->record_.published_size()));
    if (!prepare.step().empty())
        out->step_ = nodes.adopt_step({.uid = prepare.user().uid(), .step = prepare.step()}, job);
    for (const auto &task : out->record_.tasks())
        for (const auto *const one : out->own_nodes())
            if (one->number() == task.node())
                out->ranks_[task.rank()] = {.node = one->name(), .task = task.task(), .status = {}};
    for (const auto &end : out->record_.ends())
        if (const auto found = out->ranks_.find(end.rank()); found != out->ranks_.end())
            found->second.status = end.status();
    for (const auto &task : out->record_.tasks())
        out->task_of_rank_[task.rank()] = task.slurm_task();
    if (out->step_)
        out->step_->bind(out->task_of_rank_);
    if (out->step_)
        for (const auto &[rank, about] : out->ranks_) {
            out->step_->started(rank, {.node = about.node, .task = about.task});
            if (about.status)
                out->step_->ended(rank, *about.status);
        }
    for (const auto &[rank, about] : out->ranks_)
        if (!about.status)
            out->watch_rank(rank);
    return out;
}

Expected<void> Member::write() const { return write_record(directory(), record_); }

std::vector<const wire::JobNode *> Member::own_nodes() const {
    std::vector<const wire::JobNode *> out;
    for (const auto &one : record_.connect().nodes())
        if (one.host() == setting_->host)
            out.push_back(&one);
    return out;
}

node::Spec Member::spec_of(const wire::JobNode &one) const {
    const auto &user = record_.prepare().user();
    node::Spec spec;
    spec.name = one.name();
    spec.hostname = hostname_of(one);
    spec.address = one.address();
    spec.uid = user.uid();
    spec.gid = user.gid();
    spec.groups.assign(user.groups().begin(), user.groups().end());
    spec.devices = one.devices();
    spec.backend = record_.connect().backend();
    spec.job = job();
    spec.run = record_.prepare().restarts();
    if (step_) {
        spec.commands = slurm_commands();
        spec.stand_in = setting_->libraries.stand_in();
        spec.image = step_->plan().image;
    }
    for (const auto &other : record_.connect().nodes())
        if (other.number() != one.number())
            spec.neighbours.push_back({.name = hostname_of(other),
                                       .address = other.address().substr(0, other.address().find('/'))});
    return spec;
}

void Member::serve(const wire::Envelope &request, const Answer &answer) {
    heard_ = Deadline::after(setting_->patience);
    if (request.has_end_job())
        return end(request.end_job().trouble(), answer, finish_of(request.end_job()));
    if (ending_)
        return answer(fault({"use", job(), "it is ending", ECHILD}));
    if (request.has_connect_job())
        connect(request.connect_job(), answer);
    else if (request.has_start_job())
        start(request.start_job(), answer);
    else if (request.has_signal_job())
        signal(request.signal_job(), answer);
    else if (request.has_cut_job())
        set_cut(!request.cut_job().open(), [answer](const Expected<void> &cut) { answer(done(cut)); });
    else if (request.has_keep_job())
        answer(done());
    else if (request.has_save_job())
        save(request.save_job(), answer);
    else if (request.has_check_job())
        check(answer);
    else if (request.has_tell_user()) {
        if (step_)
            step_->say(request.tell_user().words());
        answer(done());
    } else if (request.has_follow_job()) {
        if (following_) // by one who does not wait for it any longer
            following_->answer(fault({"follow", job(), "another does", ECANCELED}));
        // It goes on following, and not to end the job.
        if (lost_device_ && lost_device_->told && request.follow_job().patience_ms() != 0)
            tell_failed();
        const auto span = std::chrono::milliseconds(request.follow_job().patience_ms());
        following_ = Following{.request = request.follow_job(),
                               .answer = answer,
                               .until = Deadline::after(std::min(span, setting_->patience)),
                               .knows = told_to_end_};
        look_at_following();
    } else {
        answer(fault({"serve", "a request", "it is not known here", EPROTO}));
    }
}

// The coordinator knows what its own tasks have said.
Expected<void> Member::check_store(const std::string &store) const {
    auto here = store_here(store);
    if (!here)
        return propagate(here);
    // A step that an earlier agent has found has no plan.
    if (step_ && !step_->plan().hosts.empty() && step_->plan().store != *here)
        return failure("connect", job(),
                       fmt::format("its tasks on {} say that it is saved in {}, and others in {}",
                                   setting_->host, quote(step_->plan().store), quote(*here)),
                       EINVAL);
    return {};
}

void Member::connect(const wire::ConnectJob &request, const Answer &answer) {
    if (record_.has_connect())
        return answer(fault({"connect", job(), "it is connected already", EALREADY}));
    if (auto checked = check_nodes(request, job(), record_.prepare().vni()); !checked)
        return answer(fault(checked.error()));
    if (auto checked = check_store(request.store()); !checked)
        return answer(fault(checked.error()));
    *record_.mutable_connect() = request;
    if (auto written = write(); !written)
        return answer(fault(written.error()));
    network::Connect plan{.mtu = request.mtu(), .remotes = {}};
    for (const auto &one : request.nodes())
        if (one.host() != setting_->host)
            plan.remotes.push_back({.node = place_of(one), .host = one.host_address()});
    network_->ask<network::Done>(
        network::ConnectRequest{.plan = std::move(plan)},
        [self = shared_from_this(), answer](const Expected<network::Done> &connected) {
            if (!connected)
                return answer(fault(connected.error()));
            self->find_homes([self, answer](const Expected<Homes> &homes) {
                return homes ? self->make_nodes(answer, *homes) : answer(fault(homes.error()));
            });
        });
}

void Member::make_nodes(const Answer &answer, const Homes &homes) {
    if (ending_)
        return answer(fault({"make the nodes of", job(), "it is ending", ECHILD}));
    const auto own = own_nodes();
    bind_tasks();
    if (std::ranges::count_if(own, [](const auto *one) { return one->devices() != 0; }) > 1) {
        auto file = make_neighbour_file();
        if (!file)
            return answer(fault(file.error()));
        neighbours_ = std::make_shared<const UniqueFd>(std::move(*file));
    }
    auto all = when_all(own.size(), [self = shared_from_this(), answer](const Expected<void> &outcome) {
        self->connected(answer, outcome);
    });
    for (const auto *const one : own) {
        const auto found = homes.find(one->name());
        const auto home = found == homes.end() ? nullptr : found->second;
        if (record_.connect().checkpoint().empty())
            nodes_->make_node(
                spec_of(*one), record_.prepare().cgroups(), share_of(*one), rendezvous_of(*one), home,
                responder_for<Created>([self = shared_from_this(), one, all](Expected<Created> created) {
                    if (!created)
                        return all(propagate(created));
                    LiveNode *const node = self->nodes_->find_node(one->name());
                    auto ends = node != nullptr
                                    ? node->ends()
                                    : failure("connect", quote(one->name()), "there is no such node", ENOENT);
                    if (!ends)
                        return all(propagate(ends));
                    self->attach(*one, *ends, all);
                }));
        else
            restore(*one, home, all);
    }
    rendezvous_.reset(); // its proxies have it
    neighbours_.reset();
}

void Member::attach(const wire::JobNode &one, const LiveNode::Ends &ends,
                    std::function<void(Expected<void>)> then) {
    const std::array descriptors{ends.network.get(), ends.init.get()};
    network_->ask<network::Done>(
        network::AttachRequest{.node = place_of(one), .owner = job()},
        [self = shared_from_this(), &one, then = std::move(then)](Expected<network::Done> attached) {
            if (!attached)
                return then(propagate(attached));
            self->publish(one, then);
        },
        descriptors);
}

void Member::start(const wire::StartJob &request, const Answer &answer) {
    if (!record_.has_connect() || record_.has_start())
        return answer(fault({"start", job(), "it is not connected, or started already", EALREADY}));
    if (auto checked = check_start(request); !checked)
        return answer(fault(checked.error()));
    auto memory = ProgramMemory::take(record_.prepare().user().uid(), memory_of(request.program()));
    if (!memory)
        return answer(fault(memory.error()));
    memory_ = std::move(*memory);
    *record_.mutable_start() = request;
    if (!record_.connect().checkpoint().empty())
        return go_on(answer);
    const auto own = own_nodes();
    std::size_t count = 0;
    for (const auto *const one : own)
        count += static_cast<std::size_t>(one->ranks_size());
    auto all = when_all(count, [self = shared_from_this(), answer](Expected<void> outcome) {
        if (outcome)
            outcome = self->write();
        answer(done(outcome));
    });
    for (const auto *const one : own) {
        LiveNode *const node = nodes_->find_node(one->name());
        for (std::uint32_t local = 0; std::cmp_less(local, one->ranks_size()); ++local) {
            if (node == nullptr) {
                all(failure("start a task in", quote(one->name()), "there is no such node", ENOENT));
                continue;
            }
            const auto rank = one->ranks(static_cast<int>(local));
            auto what = what_to_start(*one, local);
            if (!what) {
                all(propagate(what));
                continue;
            }
            node->start(std::move(what->program), std::move(what->descriptors),
                        responder_for<Started>(
                            [self = shared_from_this(), one, rank, all](Expected<Started> started) {
                                if (!started && self->step_)
                                    self->step_->failed(rank, started.error());
                                if (!started)
                                    return all(propagate(started));
                                self->started(*one, rank, started->task);
                                all({});
                            }),
                        step_ ? step_->cgroups_of(task_of_rank_.at(rank)) : std::string());
        }
    }
}

Expected<Step::Brought> Member::what_to_start(const wire::JobNode &one, std::uint32_t local) {
    if (step_) {
        auto brought = step_->take(one.ranks(static_cast<int>(local)));
        if (brought && one.proxies() != 0)
            tell_devices(brought->program.environment, one.devices(), local,
                         is_script(record_.prepare().step()));
        return brought;
    }
    return Step::Brought{.program = program_of(record_.start(), record_.connect(), one, local),
                         .descriptors = {},
                         .memory = {}};
}

void Member::started(const wire::JobNode &one, std::uint32_t rank, std::uint32_t task) {
    ranks_[rank] = {.node = one.name(), .task = task, .status = {}};
    auto *const about = record_.add_tasks();
    about->set_rank(rank);
    about->set_node(one.number());
    about->set_task(task);
    about->set_slurm_task(rank);
    if (step_)
        step_->started(rank, {.node = one.name(), .task = task});
    watch_rank(rank);
}

void Member::watch_rank(std::uint32_t rank) {
    const auto &about = ranks_.at(rank);
    const auto take = [self = shared_from_this(), rank](const Expected<Ended> &ended) {
        if (self->ranks_.at(rank).status || self->ending_)
            return;
        const bool abandoned = self->step_ && self->step_->is_abandoned(rank);
        const auto status = ended && !ended->node_ended && !abandoned ? ended->status : SIGKILL;
        if (status != 0)
            self->rank_has_failed(rank, status);
        else
            self->rank_has_ended(rank, status);
    };
    if (LiveNode *const node = nodes_->find_node(about.node); node != nullptr)
        node->wait({.node = about.node, .task = about.task, .forget = false}, responder_for<Ended>(take));
    else
        take(failure("wait for", quote(about.node), "there is no such node", ENOENT));
}

void Member::signal_held(const Answer &answer) {
    told_to_end_ = false;
    const auto places = step_ ? step_->take_told_to_end() : std::vector<Step::Place>();
    auto all = when_all(places.size(),
                        [answer](const Expected<void> & /*some have ended already*/) { answer(done()); });
    for (const auto &place : places) {
        if (LiveNode *const node = nodes_->find_node(place.node); node != nullptr)
            node->signal({.node = place.node, .task = place.task, .number = SIGTERM},
                         responder_for<Done>([all](Expected<Done> sent) {
                             complain_unless_ended(sent);
                             all(sent ? Expected<void>() : propagate(sent));
                         }),
                         true);
        else
            all({});
    }
}

void Member::signal(const wire::SignalJob &request, const Answer &answer) {
    if (request.held())
        return signal_held(answer);
    auto all = when_all(ranks_.size(),
                        [answer](const Expected<void> & /*some have ended already*/) { answer(done()); });
    for (const auto &[rank, about] : ranks_) {
        if (LiveNode *const node = nodes_->find_node(about.node); node != nullptr && !about.status)
            node->signal({.node = about.node, .task = about.task, .number = request.number()},
                         responder_for<Done>(
                             [all](Expected<Done> sent) { all(sent ? Expected<void>() : propagate(sent)); }));
        else
            all({});
    }
}

void Member::set_cut(bool cut, std::function<void(Expected<void>)> done) {
    const auto then = [done = std::move(done)](Expected<network::Done> set) {
        done(set ? Expected<void>() : propagate(set));
    };
    if (cut)
        network_->ask<network::Done>(network::CutRequest{.owner = job()}, then);
    else
        network_->ask<network::Done>(network::OpenRequest{.owner = job()}, then);
}

wire::NewsOfJob Member::news(const wire::FollowJob &request) {
    wire::NewsOfJob out;
    std::map<std::uint32_t, std::uint64_t> read;
    for (const auto &one : request.read())
        read[one.rank()] = one.offset();
    const auto share = kNewsLimit / std::max<std::size_t>(ranks_.size(), 1);
    for (const auto &[rank, about] : ranks_) {
        if (!read.contains(rank)) // all of it has been told
            continue;
        LiveNode *const node = nodes_->look_at_node(about.node);
        TaskLog *const log = node != nullptr ? node->output(about.task) : nullptr;
        bool all = node == nullptr || node->output_is_lost(about.task);
        if (log != nullptr && log->spool() && !request.quiet()) {
            auto &spool = *log->spool();
            const auto from = read[rank];
            if (auto released = spool.release(from); !released)
                kLog.error("{}", released.error().message());
            auto piece = spool.read(from, share);
            if (!piece) {
                kLog.error("{}", piece.error().message());
                continue;
            }
            all = log->drained() && piece->offset + piece->text.size() == spool.end();
            if (!piece->text.empty()) {
                auto *const output = out.add_output();
                output->set_rank(rank);
                output->set_offset(piece->offset);
                output->set_text(std::move(piece->text));
            }
        }
        if (about.status && all) {
            auto *const end = out.add_ends();
            end->set_rank(rank);
            end->set_status(*about.status);
        }
    }
    return out;
}

void Member::look_at_following() {
    // As long as they are there to be asked.
    for (const auto *const one : own_nodes())
        if (const LiveNode *const node = nodes_->look_at_node(one->name());
            node != nullptr && trouble_.empty())
            trouble_ = node->trouble();
    look_at_devices();
    if (!following_)
        return;
    // It ends with the last of its nodes, and what ended with them is told as the end of ranks.
    const bool runs = std::ranges::any_of(ranks_, [this](const auto &rank) {
        const LiveNode *const node = nodes_->look_at_node(rank.second.node);
        return !rank.second.status && node != nullptr && node->lives();
    });
    if (network_->lost() && runs) // whatever its ranks wait for does not come
        return std::exchange(following_, std::nullopt)
            ->answer(fault(trouble_.empty() ? Error{"use", "the network of " + job(),
                                                    "the process that holds it has ended", EPIPE}
                                            : Error{"go on with", job(), trouble_, EPIPE}));
    auto found = news(following_->request);
    const bool told = step_ && step_->is_told_to_end();
    if (found.output().empty() && found.ends().empty() && !following_->until.expired() &&
        (!told || following_->knows))
        return;
    told_to_end_ = told;
    found.set_told_to_end(told);
    const auto following = std::exchange(following_, std::nullopt);
    wire::Envelope reply;
    *reply.mutable_news_of_job() = std::move(found);
    following->answer(std::move(reply));
}

void Member::end(const std::string &trouble, Answer answer, const StepFinish &how) {
    if (answer)
        enders_.push_back(std::move(answer));
    if (ending_)
        return;
    if (!how.lost)
        tell_failed();
    ending_ = true;
    if (step_)
        for (const auto what : {Doors::For::save, Doors::For::check})
            step_->doors().let_go(what);
    ending_nodes_ = 1; // until they are counted
    if (following_)
        std::exchange(following_, std::nullopt)->answer(fault({"follow", job(), "it ends", ECHILD}));
    // While the nodes are there, which Slurm ends with the tasks of their step: nobody outside waits for what
    // has gone to another host. Without an answer they end all the same.
    leave_network();
    network_->ask<network::Done>(
        network::ReleaseRequest{.owner = job()},
        [self = shared_from_this(), trouble, how](const Expected<network::Done> &released) {
            if (!released && !self->network_->lost())
                kLog.error("{}", released.error().message());
            if (self->step_)
                self->step_->finish(trouble, how);
            self->destroy_nodes();
        });
}

void Member::destroy_nodes() {
    for (const auto *const one : own_nodes()) {
        LiveNode *const node = nodes_->find_node(one->name());
        if (node == nullptr)
            continue;
        ++ending_nodes_;
        node->destroy(responder_for<Done>([self = shared_from_this()](const Expected<Done> &destroyed) {
            if (!destroyed)
                kLog.error("{}", destroyed.error().message());
            --self->ending_nodes_;
            self->look_at_end();
        }));
    }
    --ending_nodes_;
    look_at_end();
}

void Member::look_at_end() {
    if (!ending_ || ending_nodes_ != 0 || std::exchange(ends_network_, true))
        return;
    end_network();
}

void Member::has_ended() {
    gone_ = true;
    const auto removed = remove_job_directory(directory());
    if (!removed)
        kLog.error("{}", removed.error().message());
    for (const auto &ender : std::exchange(enders_, {}))
        ender(done(removed));
}

std::optional<Deadline> Member::next_deadline() const {
    auto out = network_->next_deadline();
    const auto consider = [&](const Deadline &other) {
        if (!out || other.when() < out->when())
            out = other;
    };
    if (following_)
        consider(following_->until);
    if (const auto look = next_look_at_devices())
        consider(*look);
    if (!ending_)
        consider(heard_);
    return out;
}

void Member::handle() {
    network_->handle();
    look_at_saving();
    look_at_following();
    if (ending_ || !heard_.expired())
        return;
    kLog.error("{}: {}", job(),
               timeout_error(heard_, fmt::format("the job's coordinator, the agent of {}; the job ends here",
                                                 coordinator()))
                   .message());
    const auto &prepare = record_.prepare();
    if (prepare.of_script())
        nodes_->run_again({.key = {.uid = prepare.user().uid(), .step = prepare.step()},
                           .restarts = prepare.restarts(),
                           .hold = {}});
    end(fmt::format("nothing is heard of the agent of {}, which coordinates it", coordinator()), {},
        {.saved = false, .lost = prepare.of_script(), .ends = {}});
}

} // namespace singularity::agent
