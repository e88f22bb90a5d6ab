// SPDX-License-Identifier: GPL-2.0-or-later
// A restore. The agent makes the node's files and proxies; the devices' images go to these, the processes
// come back through CRIU, and their clients find the proxies by themselves.
#include "common/text.hpp"
#include "criu-hooks/host/staging.hpp"
#include "criu-hooks/host/transfer.hpp"
#include "devices.hpp"
#include "host_node.hpp"
#include "jobs.hpp"
#include "node/cgroups.hpp"
#include "node/network.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>

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
constexpr auto kDevicesPatience = 1800s;
constexpr auto kRestorePatience = 600s;

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

Expected<node::Record> record_of(const store::Manifest &manifest) {
    const auto refuse = [&](const char *why) { return failure("restore", manifest.id, why, EPROTO); };
    if (manifest.nodes.size() != 1)
        return refuse("it has not exactly one virtual node");
    for (const auto &[name, value] : manifest.nodes.front().attributes)
        if (name == "record") {
            auto record = node::decoded(value);
            if (!record)
                return refuse("its record of the virtual node is of another release");
            if (record->spec.name != manifest.nodes.front().name || record->spec.uid != manifest.uid ||
                record->spec.gid != manifest.gid)
                return refuse("its record is of another virtual node or user");
            return std::move(*record);
        }
    return refuse("it has no record of its virtual node");
}

bool is_periodic(const store::Manifest &manifest) {
    return std::ranges::any_of(manifest.attributes, [](const auto &one) { return one.first == kPeriodic; });
}

template <class Body>
Expected<Body> await(AgentLink &agent, std::vector<UniqueFd> *descriptors) {
    auto packet = agent.receive(Deadline::after(kAgentPatience));
    if (!packet)
        return propagate(packet);
    auto body = node::decode<Body>(packet->bytes);
    if (!body)
        return failure("understand", "the agent", "it says something else", EPROTO);
    for (std::size_t i = 0; descriptors != nullptr && i < packet->descriptors.size(); ++i)
        descriptors->emplace_back(packet->descriptors.take(i));
    return std::move(*body);
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

Expected<agent::ImageReport> work(const agent::WorkRestore &job, AgentLink &agent) {
    const auto begin = Clock::now();
    auto opened = open_store(false);
    if (!opened)
        return propagate(opened);
    agent.progress("looking for the checkpoint");
    auto choice = choose(*opened, job);
    if (!choice)
        return propagate(choice);
    auto checkpoint = opened->read(choice->uid, choice->id);
    if (!checkpoint)
        return propagate(checkpoint);
    auto saved = record_of(checkpoint->manifest());
    if (!saved)
        return propagate(saved);
    if (auto told = agent.tell(agent::WorkFound{
            .record = *saved, .checkpoint = choice->id, .periodic = is_periodic(checkpoint->manifest())});
        !told)
        return propagate(told);
    std::vector<UniqueFd> given;
    auto go = await<agent::WorkGo>(agent, &given);
    if (!go)
        return propagate(go);
    const auto &record = go->record;
    const node::Room room(go->place.state, record.spec.name);
    agent::ImageReport report;
    report.node = record.spec.name;
    report.checkpoint = choice->id;

    // The node's processes are made by ours, and are where we are.
    if (auto joined = node::join_cgroups(job.cgroups); !joined)
        return propagate(joined);
    auto staging = host::Staging::make(go->place.staging);
    if (!staging)
        return propagate(staging);
    const Devices devices(record, room);
    if (devices.any()) {
        if (auto linked = devices.link(); !linked)
            return propagate(linked);
        auto loaded = devices.load(*checkpoint, agent, Deadline::after(kDevicesPatience));
        if (!loaded)
            return propagate(loaded);
        report.devices_bytes = *loaded;
    }
    agent.progress("loading processes");
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 45U;
    if (auto loaded = host::load(*checkpoint, record.spec.name, staging->directory(), kLargest); !loaded)
        return propagate(loaded);
    if (auto copied = copy_logs(staging->path(), room.path()); !copied)
        return propagate(copied);
    auto network = node::make_network_namespace(record.spec.address);
    if (!network)
        return propagate(network);
    std::vector<host::OutsideDescriptor> descriptors;
    for (std::size_t at = 0; at < std::min(given.size(), go->keys.size()); ++at)
        descriptors.push_back({.key = go->keys[at], .fd = given[at].get()});
    const auto context = context_of(record.spec, agent, "restoring processes");
    const auto stopped = Clock::now();
    auto init = host::restore(context,
                              {.images = staging->directory(),
                               .network = network->get(),
                               .root = "/",
                               .descriptors = std::move(descriptors),
                               .mounts = mounts_from(record, room)},
                              Deadline::after(kRestorePatience));
    if (!init)
        return propagate(init);
    NewNode made(*init);
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, *init, 0)));
    if (!pidfd)
        return std::unexpected(errno_error("hold", "the init of the restored node"));
    const int number = pidfd.get();
    if (auto told = agent.tell(agent::WorkBorn{.pid = *init}, {&number, 1}); !told)
        return propagate(told);
    if (auto kept = await<agent::WorkKeep>(agent, nullptr); !kept)
        return propagate(kept);
    made.keep();
    if (auto attached = devices.await_clients(*init, agent); !attached)
        return propagate(attached);
    for (const auto &image : checkpoint->manifest().nodes.front().images)
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
