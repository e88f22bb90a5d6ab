// SPDX-License-Identifier: GPL-2.0-or-later
// What a job consists of, where, and what its ranks are told: the same on every host.
#pragma once

#include "common/error.hpp"
#include "node/init_messages.hpp"
#include "peers/peer_messages.pb.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity::agent {

inline constexpr std::uint32_t kRanksOfNodeLimit = 256;
inline constexpr std::uint32_t kRankLimit = 4096;
inline constexpr std::size_t kNewsLimit = std::size_t{256} << 10; // output in one message
// Of torch.distributed; in a network of its own every job has it.
inline constexpr std::uint16_t kMasterPort = 29500;

// "u1000-j12ab34": the user's, and the number of its network.
[[nodiscard]] std::string job_name(std::uint32_t uid, std::uint32_t vni);
// "u1000-s4711-0": of a step of Slurm's, the same whenever it runs. step: "4711.0".
[[nodiscard]] std::string job_name_of_step(std::uint32_t uid, std::string_view step);
// "u1000-s4711": of the network that the script of a job of Slurm's and its steps share. step: "4711.0".
[[nodiscard]] std::string network_name_of_step(std::uint32_t uid, std::string_view step);
[[nodiscard]] Expected<void> check_job_name(std::string_view name, std::uint32_t uid);

// Nodes 1, 2, ... on these hosts, in this order; a host may be there several times. Their hosts' addresses
// are not known yet, nor their ranks. places: their numbers in the network, as JoinStep has them; where there
// are none, or they are of no use, their own.
[[nodiscard]] Expected<std::vector<peers::wire::JobNode>>
plan_nodes(const std::string &job, std::uint32_t vni, const std::vector<std::string> &hosts,
           const std::vector<std::uint32_t> &places = {});
// The number of a node in its job's network.
[[nodiscard]] inline std::uint32_t place_of(const peers::wire::JobNode &node) {
    return node.place() != 0 ? node.place() : node.number();
}
// A number for the network of a step that none of `used` is: all steps of a job have the same addresses, so
// that one that was found out in a step is right in the next one. step: "4711.0"; restarts: of its job. 0:
// there is none.
[[nodiscard]] std::uint32_t network_of_step(std::string_view step, std::uint32_t restarts,
                                            const std::set<std::uint32_t> &used);
using JobNodes = google::protobuf::RepeatedPtrField<peers::wire::JobNode>;
// As many on each, in their order.
[[nodiscard]] Expected<void> spread_ranks(JobNodes &nodes, std::uint32_t ranks_per_node,
                                          std::string_view job);
[[nodiscard]] std::uint32_t rank_count(const JobNodes &nodes);
// What a host has for a step of Slurm's.
struct Offer {
    std::string host;
    std::uint32_t tasks = 0;
    std::uint32_t devices = 0;
};
// All of its ranks have.
[[nodiscard]] inline bool has_ended(const peers::wire::JobRecord &record) {
    return std::cmp_equal(record.ends_size(), record.ranks());
}
// Puts nodes on the hosts, in their order, as many ranks to each as it has tasks, as far as whole nodes can
// be; those of a host share its devices. The first node is always on the first host.
[[nodiscard]] Expected<void> place_nodes(JobNodes &nodes, const std::vector<Offer> &offers,
                                         std::string_view job);
// A job that has fewer GPUs than were requested, of which a step has all: its nodes have as many devices as
// they would have had, and fewer proxies. gpus: as JobRecord has it.
// script: it is no step of the job's tasks, and sees all of its node's.
void give_requested_devices(JobNodes &nodes, std::string_view gpus, bool script);
// What Slurm has told a task, the local-th of its node, of the node's GPUs becomes true of its devices.
void tell_devices(std::vector<std::string> &environment, std::uint32_t devices, std::uint32_t local,
                  bool script);
// Whether a step that is begun again runs the same program: but for names of hosts, which may be others now.
struct StepProgram {
    std::vector<std::string> arguments;
    std::vector<std::string> hosts;
};
[[nodiscard]] bool is_same_program(const StepProgram &one, const StepProgram &other);
// Of each rank the index of its node. An error: not each rank from 0 on is on one node.
[[nodiscard]] Expected<std::vector<int>> nodes_of_ranks(const JobNodes &nodes, std::string_view job);

// What a file says of a job is as it must be: every node and rank that something in it names is there.
[[nodiscard]] Expected<void> check_record(const peers::wire::JobRecord &record);
// What another agent says of a job is as it must be.
[[nodiscard]] Expected<void> check_nodes(const peers::wire::ConnectJob &request, std::string_view job,
                                         std::uint32_t vni);
[[nodiscard]] Expected<void> check_start(const peers::wire::StartJob &request);

// The program of the local-th rank of a node, with what it must know in its environment.
[[nodiscard]] node::Program program_of(const peers::wire::StartJob &start,
                                       const peers::wire::ConnectJob &connect,
                                       const peers::wire::JobNode &node, std::uint32_t local);

[[nodiscard]] peers::wire::Program message_of(const node::Program &program);

// As shells report it: 128 + N for a death by signal N.
[[nodiscard]] std::int32_t exit_status(std::int32_t wait_status);

} // namespace singularity::agent
