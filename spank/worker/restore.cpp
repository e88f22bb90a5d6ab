// SPDX-License-Identifier: GPL-2.0-or-later
// A restore. The agent makes the node's files and proxies; the devices' images go to these, the processes
// come back through CRIU, and their clients find the proxies by themselves.
#include "common/text.hpp"
#include "criu-hooks/host/staging.hpp"
#include "criu-hooks/host/transfer.hpp"
#include "devices.hpp"
#include "files.hpp"
#include "host_node.hpp"
#include "image_mark.hpp"
#include "job_output.hpp"
#include "jobs.hpp"
#include "local_files.hpp"
#include "log.hpp"
#include "node/cgroups.hpp"
#include "node/user_process.hpp"
#include "restored_network.hpp"
#include "task_places.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;
using Clock = Deadline::Clock;

constexpr auto kAgentPatience = 120s; // for proxies to start
constexpr auto kLoadPatience = 1800s;
constexpr auto kOthersPatience = 4 * kLoadPatience; // several nodes of the job, one after the other
constexpr auto kRestorePatience = 600s;
constexpr auto kImagePatience = 120s; // for a file system that is slow
constexpr auto kHoldPatience = 1h;    // for the job's other nodes; its coordinator waits less

struct Choice {
    uid_t uid = 0;
    std::string id;
};

Expected<Choice> choose(const store::Store &opened, const agent::WorkRestore &job) {
    std::vector<uid_t> users{job.uid};
    if (job.uid == 0) {
        auto all = opened.users();
        if (!all)
            return propagate(all);
        users = std::move(*all);
    }
    std::optional<Choice> newest;
    std::int64_t time = 0;
    for (const uid_t uid : users) {
        auto listing = opened.list(uid);
        if (!listing)
            return propagate(listing);
        for (const auto &one : listing->checkpoints) { // newest first
            if (one.id == job.what)
                return Choice{.uid = uid, .id = one.id};
            if (one.job == job.what && (!newest || one.time > time)) {
                newest = {.uid = uid, .id = one.id};
                time = one.time;
            }
        }
    }
    if (!newest)
        return failure("find a checkpoint of", quote(job.what),
                       "the store has none of that id or virtual node that you may restore", ENOENT);
    return *newest;
}

const std::string *attribute(const store::Attributes &attributes, std::string_view wanted) {
    const auto found = std::ranges::find(attributes, wanted, [](const auto &one) { return one.first; });
    return found == attributes.end() ? nullptr : &found->second;
}

// name: of a node of a job; empty: the only one.
Expected<const store::VirtualNode *> node_in(const store::Manifest &manifest, const std::string &name) {
    if (name.empty() && manifest.nodes.size() != 1)
        return failure("restore", manifest.id, "it has not exactly one virtual node", EPROTO);
    const auto found = std::ranges::find_if(
        manifest.nodes, [&](const auto &one) { return name.empty() || one.name == name; });
    if (found == manifest.nodes.end())
        return failure("restore", manifest.id, fmt::format("it has no virtual node {}", quote(name)), ENOENT);
    return &*found;
}

Expected<node::Record> record_of(const store::Manifest &manifest, const store::VirtualNode &saved) {
    const auto refuse = [&](const char *why) { return failure("restore", manifest.id, why, EPROTO); };
    const auto *const text = attribute(saved.attributes, kRecord);
    if (text == nullptr)
        return refuse("it has no record of its virtual node");
    auto record = node::decoded(*text);
    if (!record)
        return refuse("its record of the virtual node is of another release");
    if (record->spec.name != saved.name || record->spec.uid != manifest.uid ||
        record->spec.gid != manifest.gid)
        return refuse("its record is of another virtual node or user");
    return std::move(*record);
}

bool is_periodic(const store::Manifest &manifest) {
    return attribute(manifest.attributes, kPeriodic) != nullptr;
}

std::unexpected<Error> other_words() {
    return failure("understand", "the agent", "it says something else", EPROTO);
}

template <class Body>
Expected<Body> await(AgentLink &agent, std::chrono::seconds patience = kAgentPatience) {
    auto packet = agent.receive(Deadline::after(patience));
    if (!packet)
        return propagate(packet);
    auto body = node::decode<Body>(packet->bytes);
    return body ? Expected<Body>(std::move(*body)) : other_words();
}

// By CRIU's names of what they are instead of.
using Streams = std::map<std::string, UniqueFd>;

// network: one in which others are; it stays empty where there is none.
Expected<agent::WorkGo> await_go(AgentLink &agent, Streams &streams, UniqueFd &network) {
    for (;;) {
        auto packet = agent.receive(Deadline::after(kAgentPatience));
        if (!packet)
            return propagate(packet);
        if (auto go = node::decode<agent::WorkGo>(packet->bytes))
            return std::move(*go);
        if (node::decode<agent::WorkNetwork>(packet->bytes) && packet->descriptors.size() == 1) {
            network = UniqueFd(packet->descriptors.take(0));
            continue;
        }
        const auto given = node::decode<agent::WorkGiven>(packet->bytes);
        if (!given || given->keys.size() != packet->descriptors.size())
            return other_words();
        for (std::size_t at = 0; at < given->keys.size(); ++at)
            streams[given->keys[at]] = UniqueFd(packet->descriptors.take(at));
    }
}

// What a process that is not ours to reap cannot be mistaken for a later one by.
Expected<UniqueFd> hold_process(pid_t init) {
    UniqueFd out(static_cast<int>(syscall(SYS_pidfd_open, init, 0)));
    if (!out)
        return std::unexpected(errno_error("hold", "the init of the restored node"));
    return out;
}

// Until all of its job's nodes are restored, and connected: none of them does anything if one cannot be.
Expected<void> hold(AgentLink &agent, const UniqueFd &network, pid_t init) {
    agent.progress("waiting for the job's other nodes");
    auto pidfd = hold_process(init);
    if (!pidfd)
        return propagate(pidfd);
    if (auto told = agent.tell(agent::WorkHeld{}, std::array{network.get(), pidfd->get()}); !told)
        return told;
    auto step = await<agent::WorkStep>(agent, kHoldPatience);
    if (!step)
        return propagate(step);
    return step->step == agent::PartStep::resume ? Expected<void>() : other_words();
}

// Only what the agent does not know yet is ours to end.
class NewNode {
  public:
    explicit NewNode(pid_t init) : init_(init) {}
    NewNode(const NewNode &) = delete;
    NewNode &operator=(const NewNode &) = delete;
    NewNode(NewNode &&) = delete;
    NewNode &operator=(NewNode &&) = delete;
    ~NewNode() {
        if (init_ <= 0)
            return;
        kill(init_, SIGKILL);
        waitpid(init_, nullptr, 0);
    }
    void keep() { init_ = -1; }

  private:
    pid_t init_;
};

// Its nodes are for others: what the coordinator needs.
Expected<agent::ImageReport> restore_job(const store::Checkpoint &checkpoint, const std::string &record,
                                         AgentLink &agent) {
    const auto &manifest = checkpoint.manifest();
    if (auto told = agent.tell(agent::WorkFoundJob{.record = {record.begin(), record.end()},
                                                   .checkpoint = manifest.id,
                                                   .periodic = is_periodic(manifest)});
        !told)
        return propagate(told);
    auto outputs = await<agent::WorkOutputs>(agent);
    if (!outputs)
        return propagate(outputs);
    if (auto loaded = load_outputs(checkpoint, outputs->directory); !loaded)
        return propagate(loaded);
    agent::ImageReport report;
    report.node = manifest.job;
    report.checkpoint = manifest.id;
    return report;
}

Expected<agent::ImageReport> work(const agent::WorkRestore &job, AgentLink &agent) {
    const auto begin = Clock::now();
    auto opened = open_store(job.store, false);
    if (!opened)
        return propagate(opened);
    agent.progress("looking for the checkpoint");
    auto choice = choose(*opened, job);
    if (!choice)
        return propagate(choice);
    auto checkpoint = opened->read(choice->uid, choice->id);
    if (!checkpoint)
        return propagate(checkpoint);
    if (const auto *const record = attribute(checkpoint->manifest().attributes, kJob);
        record != nullptr && job.node.empty())
        return restore_job(*checkpoint, *record, agent);
    auto of_node = node_in(checkpoint->manifest(), job.node);
    if (!of_node)
        return propagate(of_node);
    auto saved = record_of(checkpoint->manifest(), **of_node);
    if (!saved)
        return propagate(saved);
    agent::WorkFound found{.record = *saved,
                           .checkpoint = choice->id,
                           .periodic = is_periodic(checkpoint->manifest()),
                           .ranks = {}};
    if (const auto *const ranks = attribute((*of_node)->attributes, kRanks))
        found.ranks.assign(ranks->begin(), ranks->end());
    if (auto told = agent.tell(found); !told)
        return propagate(told);
    Streams streams;
    UniqueFd shared;
    auto go = await_go(agent, streams, shared);
    if (!go)
        return propagate(go);
    auto &record = go->record;
    const node::Room room(go->place.state, record.spec.name);
    agent::ImageReport report;
    report.node = record.spec.name;
    report.checkpoint = choice->id;

    // The node's processes are made by ours, and are where we are.
    if (auto joined = node::join_cgroups(job.cgroups); !joined)
        return propagate(joined);
    if (auto left = node::leave_session_keyring(); !left)
        return propagate(left);
    auto staging = host::Staging::make(go->place.staging);
    if (!staging)
        return propagate(staging);
    const Devices devices(record, room);
    if (devices.any()) {
        if (auto linked = devices.link(); !linked)
            return propagate(linked);
        auto loaded = devices.load(*checkpoint, agent, Deadline::after(kLoadPatience));
        if (!loaded)
            return propagate(loaded);
        report.devices_bytes = *loaded;
    }
    agent.progress("loading processes");
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 45U;
    if (auto loaded = host::load(*checkpoint, record.spec.name, staging->directory(), kLargest); !loaded)
        return propagate(loaded);
    if (auto loaded = host::load_of_others(*checkpoint, record.spec.name, staging->directory()); !loaded)
        return propagate(loaded);
    if (auto copied = copy_logs(staging->path(), room.path()); !copied)
        return propagate(copied);
    if (auto taken = take_local(record.spec); !taken)
        return propagate(taken);
    const auto hear = [&report](std::string text) {
        kLog.info("{}: {}", report.node, text); // should the restore fail
        add_notice(report, std::move(text));
    };
    const Patience patience{.for_others = kOthersPatience, .for_own = kLoadPatience};
    if (auto loaded = load_local(record.spec, staging->directory(), agent, patience, hear); !loaded)
        return propagate(loaded);
    auto network =
        shared ? RestoredNetwork::join(record.spec, std::move(shared), *checkpoint, staging->directory())
               : RestoredNetwork::make(record.spec);
    if (!network)
        return propagate(network);
    std::vector<host::OutsideDescriptor> descriptors;
    for (const auto &[key, stream] : streams)
        descriptors.push_back({.key = key, .fd = stream.get()});
    const auto files = file_settings();
    if (!files)
        return std::unexpected(files.error());
    if (record.spec.image.any()) {
        const auto *const marked = attribute((*of_node)->attributes, kImage);
        const std::string mark = marked == nullptr ? "" : *marked;
        if (auto entered = enter_image(room, record.spec, mark, agent, Deadline::after(kImagePatience));
            !entered)
            return propagate(entered);
        if (mark.empty())
            hear(fmt::format(
                "the image {} could not be looked at when this was saved: nobody knows whether it "
                "is still the same",
                quote(record.spec.image.directory)));
    }
    const auto places = load_task_places(go->tasks, staging->directory());
    if (!places)
        return std::unexpected(places.error());
    const auto context = context_of(record.spec, agent, "restoring processes");
    const auto stopped = Clock::now();
    host::RestoreRequest request{.images = staging->directory(),
                                 .network = network->home().get(),
                                 .root = record.spec.image.any() ? room.image_root() : "/",
                                 .descriptors = std::move(descriptors),
                                 .mounts = mounts_from(record, room),
                                 .placed = places->placed,
                                 .owner = owner_of(record.spec),
                                 .keep_aside = files->keep_aside,
                                 .notice = hear};
    request.connected = [&network] { return network->end_lost_connections(); };
    if (!job.node.empty())
        request.hold = [&](pid_t there) {
            auto held = hold(agent, network->home(), there);
            network->before_they_send();
            return held;
        };
    auto init = host::restore(context, request, Deadline::after(kRestorePatience));
    if (!init)
        return propagate(init);
    NewNode made(*init);
    auto pidfd = hold_process(*init);
    if (!pidfd)
        return propagate(pidfd);
    const int number = pidfd->get();
    if (auto told = agent.tell(agent::WorkBorn{.pid = *init}, {&number, 1}); !told)
        return propagate(told);
    if (auto kept = await<agent::WorkKeep>(agent); !kept)
        return propagate(kept);
    made.keep();
    if (auto attached = devices.await_clients(*init, agent); !attached)
        return propagate(attached);
    for (const auto &image : (*of_node)->images)
        report.host_bytes += image.size();
    report.pause_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - stopped).count());
    report.total_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count());
    return report;
}

} // namespace

Outcome restore(const agent::WorkRestore &job, AgentLink &agent) {
    auto report = work(job, agent);
    const bool failed = !report.has_value();
    return {.report = std::move(report), .lost = failed};
}

} // namespace singularity::worker
