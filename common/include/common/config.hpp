// SPDX-License-Identifier: GPL-2.0-or-later
// The cluster's configuration, singularity.yaml. Every key is explained in slurm-conf/singularity.yaml. To
// add one: a member here, a line in the table of config.cpp, a line with its reason in that file.
#pragma once

#include "common/error.hpp"
#include "common/log.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace singularity {

struct Config {
    Config(); // the defaults of the table in config.cpp

    log::Level log_level{};

    struct Elastic {
        enum class SaveScripts : std::uint8_t { kNo, kUntilSrun, kYes };
        bool enabled{};
        std::int64_t min_gpus{}; // least MIN that a user may ask for; never above max_gpus
        std::int64_t max_gpus{}; // greatest MAX
        std::chrono::milliseconds checkpoint_every{}; // 0, or not below checkpoint_every_least
        std::chrono::milliseconds checkpoint_every_least{};
        std::chrono::milliseconds look_every{};  // at slurmctld; 0: never
        std::chrono::milliseconds check_after{}; // the start of a step's tasks; 0: never
        SaveScripts save_scripts{};              // of jobs that say nothing else
        bool save_running_steps{};               // with their script, while all of it runs on
        bool hide_unsavable{};                   // kernel interfaces that a checkpoint cannot hold
        // Of a rank that never waits, on a GPU whose memory does not hold all of its ranks.
        std::chrono::milliseconds gpu_turn{};
        bool operator==(const Elastic &) const = default;
    } elastic;

    // That a job has open for writing: what a checkpoint keeps of them, in MiB, and a restore puts back.
    struct Files {
        std::int64_t largest_copy_mib{}; // of one file; 0: nothing is copied
        std::int64_t all_copies_mib{};   // of a job's processes on one host
        bool keep_aside{};               // what a restore removes
        bool operator==(const Files &) const = default;
    } files;

    // Directories of a host that each job has for itself, and that travel with it.
    struct LocalDirectories {
        std::vector<std::filesystem::path> paths; // what they are instead of; none: jobs see the host's
        std::filesystem::path base;               // where they lie; root's alone
        std::int64_t quota_gib{};                 // of a job on one host; 0: no limit
        bool operator==(const LocalDirectories &) const = default;
    } local_directories;

    struct Slurmctld {
        bool decide{};
        std::chrono::milliseconds verify_interval{};
        std::int64_t verify_sample{}; // jobs and nodes per check
        bool operator==(const Slurmctld &) const = default;
    } slurmctld;

    // What a tier is promised and what it bears.
    struct Tier {
        std::int64_t guarantee_percent{}; // the GPU fraction; premium's not below standard's, standard's not
                                          // below basic's
        std::int64_t moves_per_hour{};    // interruptions of one job
        std::chrono::milliseconds least_run{};
        bool operator==(const Tier &) const = default;
    } premium, standard, basic;

    struct Planner {
        std::chrono::milliseconds every{}; // between two looks of singularity-planner
        std::filesystem::path metrics;     // a file that it writes; empty: none
        std::int64_t priority_weight{};    // of one tier, in Slurm's priorities; 0: they are left alone
        std::chrono::milliseconds horizon{};
        std::int64_t margin_percent{};
        std::chrono::milliseconds payback{};
        std::chrono::milliseconds service_quantum{};
        bool strict_tiers{}; // a higher tier's guarantee at the cost of a lower one's
        bool operator==(const Planner &) const = default;
    } planner;

    struct Store {
        std::filesystem::path directory;
        std::vector<std::filesystem::path> others; // that users may choose instead
        std::int64_t quota_gib{};                  // of one user, in each; 0: no limit
        bool operator==(const Store &) const = default;
    } store;

    // How the node agents speak to each other, and where they tell what they have done.
    struct Agents {
        std::string address;       // IPv4, to listen on; empty: nobody can call
        std::int64_t port{};       // TCP
        std::int64_t vxlan_port{}; // UDP; never that of another agent of the same machine
        std::chrono::milliseconds patience{};
        std::filesystem::path munge_socket;
        std::filesystem::path metrics; // a file that they write; empty: none
        std::filesystem::path nccl;    // NVIDIA's library, for device proxies; empty: none
        bool run_without_slurm{};      // users may run programs outside of Slurm's steps
        bool operator==(const Agents &) const = default;
    } agents;

    // The networks of jobs.
    struct Network {
        std::string outside; // as parse_outside() takes it
        std::string publish; // as parse_port_range() takes it
        bool operator==(const Network &) const = default;
    } network;

    // Steps whose root is a directory that their user names.
    struct Containers {
        // Whether programs write to the root, in a layer in local_directories.base.
        enum class Writable : std::uint8_t { kBesideLocal, kAlways, kNever };
        bool enabled{};
        std::vector<std::filesystem::path> mounts; // of the host, at the same places in every image
        Writable writable{};
        bool operator==(const Containers &) const = default;
    } containers;

    // How much of what root's agent holds for users one of them may have on a host.
    struct PerUser {
        std::int64_t connections{}; // to the agent
        std::int64_t nodes{};       // virtual nodes, those that have ended included
        std::int64_t jobs{};        // that this host coordinates, those that have ended included
        std::int64_t scripts{};     // batch scripts
        std::int64_t restores{};    // that were asked for by hand and have not begun to run
        std::int64_t workers{};     // processes of root's that save, restore or remove something of theirs
        std::int64_t questions{};   // about their jobs, that slurmctld has not answered
        std::int64_t notes{};       // about their jobs, that slurmctld has not been told
        std::int64_t closing{};     // processes of root's that close what they have sent
        std::int64_t ranks{};       // of the jobs that this host coordinates: a descriptor each
        std::int64_t tasks{};       // of their virtual nodes: two descriptors each
        std::int64_t ports{};       // of the host, at which ports of virtual nodes are reached
        std::int64_t program_mib{}; // arguments and environments that are kept
        std::int64_t output_mib{};  // of programs, in the agent's state directory
        bool operator==(const PerUser &) const = default;
    } per_user;

    bool operator==(const Config &) const = default;
};

namespace config {

// Errors name file, line, key, what was expected and what was found. `file_name` is for them alone.
[[nodiscard]] Expected<Config> parse(std::string_view text, std::string_view file_name);

// Root's daemons do what the file says, so it must be a regular file, owned by root or the effective user,
// and writable by nobody else.
[[nodiscard]] Expected<Config> load(const std::filesystem::path &path);

// The defaults where there is no such file. A link that leads nowhere is an error: a file was meant to be
// there.
[[nodiscard]] Expected<Config> load_or_default(const std::filesystem::path &path);

// /etc/slurm/singularity.yaml, or what SINGULARITY_CONF says unless the program has more rights than its user
// (secure_getenv(3)). A user's own programs obey the user's environment, so daemons must check again what
// they decide.
[[nodiscard]] std::filesystem::path default_path();

// Of the stores that there are the one of that directory; empty: the one of who has not chosen. An error, in
// the user's words: it is none of them.
[[nodiscard]] Expected<std::filesystem::path> chosen_store(const Config::Store &stores,
                                                           std::string_view directory);

// All of them, that of who has not chosen first.
[[nodiscard]] std::vector<std::filesystem::path> all_stores(const Config::Store &stores);

// The configuration in effect as the file that would set it.
[[nodiscard]] std::string to_yaml(const Config &config);

} // namespace config
} // namespace singularity
