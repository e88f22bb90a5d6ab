// SPDX-License-Identifier: GPL-2.0-or-later
// What a node and its cluster are like, as data: gathered in one place (gather.hpp), judged in another
// (checks.hpp).
#pragma once

#include "common/config.hpp"
#include "common/error.hpp"

#include <cstdint>
#include <expected>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

namespace singularity::doctor {

// Why a part has not been looked at.
enum class Unseen : std::uint8_t {
    kNeedsRoot,
    kElsewhere, // it does not apply here, or hangs on something that is wrong itself
    kFailed,
    kUnused, // the site has not turned it on: not a word of it
};
struct NotSeen {
    Unseen why = Unseen::kFailed;
    std::string words;
};
template <class T>
using Fact = std::expected<T, NotSeen>;

// Keys and values as Slurm has them, "(null)" left out.
using Settings = std::map<std::string, std::string, std::less<>>;

enum class FileKind : std::uint8_t { kMissing, kRegular, kDirectory, kLink, kOther };
struct FileFacts {
    std::filesystem::path path;
    FileKind kind = FileKind::kMissing;
    uid_t uid = 0;
    mode_t mode = 0; // permissions alone
};

// What slurmctld says of itself.
struct Slurm {
    std::filesystem::path file; // slurm.conf, as this host's commands name it
    Settings settings;          // `scontrol show config`
    std::vector<Settings> partitions;
    std::vector<std::string> nodes;
    std::string host;                  // short name of this one
    std::optional<std::uint64_t> gpus; // that Slurm gives to this host; none: it is no node
    std::string release;               // of this host's commands: "24.11.5"
    // Seconds that this host's clock is ahead of slurmctld's; 0: no more than one. None: scontrol writes
    // times otherwise.
    std::optional<std::int64_t> clock_ahead;
    FileFacts job_submit; // job_submit_singularity.so, where PluginDir has it on this host
};

struct Clock {
    std::string host;
    std::int64_t ahead = 0; // seconds, of slurmctld's
};

// cgroup.conf of this host, and what is mounted.
struct Cgroup {
    std::filesystem::path file;
    bool present = false;
    Settings settings; // keys in lower case
    bool unified = false;
    bool v1 = false;
};

// Nobody but root can put something else in its place. What root has put into a sticky directory stays there.
[[nodiscard]] inline bool is_roots(const FileFacts &file) {
    const bool writable = file.kind != FileKind::kLink && (file.mode & (S_IWGRP | S_IWOTH)) != 0;
    const bool sticky = file.kind == FileKind::kDirectory && (file.mode & S_ISVTX) != 0;
    return file.uid == 0 && (!writable || sticky);
}

// The line of plugstack.conf, or of a file that it includes, that names the SPANK plugin.
struct PlugstackLine {
    std::filesystem::path file;
    std::size_t number = 0;
    bool required = false;
    std::string plugin; // as written
};
struct Plugstack {
    std::filesystem::path file;
    bool present = false;
    std::optional<PlugstackLine> line;
    std::vector<FileFacts> way; // directories and symbolic links on the way to the plugin
    FileFacts plugin;           // that the line means: what links lead to
    std::uint32_t version = 0;  // Slurm's, that the plugin was built for: 0x180b05; 0: not known
    std::string load_error;     // why it cannot be loaded
};

// A directory for images, and what it lies on.
struct Place {
    FileFacts directory;
    std::vector<FileFacts> way; // the directories above, from the top
    std::string type;           // of the file system, of the nearest directory that exists
    std::string options;        // with which it is mounted
    std::uint64_t free = 0;     // bytes, for root
    std::uint64_t size = 0;
};

struct Agent {
    std::filesystem::path socket;
    std::string
        silence;   // why it does not answer; empty: it does, or it was not asked because it is not root's
    uid_t uid = 0; // of who listens
};
struct AgentProgram {
    std::string file;
    bool replaced = false; // the file is another, or none, by now
    std::string version;
    std::string ours;
};
struct Libraries {
    std::filesystem::path directory;
    std::vector<std::string> missing;
};

// NVIDIA's own, of agents.nccl.
struct Nccl {
    std::filesystem::path library; // empty: none is wanted
    std::string trouble;
};

struct Criu {
    Expected<std::string> version;
    bool run_is_memory = true; // /run is a tmpfs
};
struct CriuKernel {
    std::string trouble; // what `criu check` says is missing; empty: nothing
};

struct Driver {
    bool control = false;      // /dev/nvidiactl
    std::uint64_t devices = 0; // /dev/nvidia0, 1, ...
    std::string library_error; // of NVIDIA's libcuda.so.1
};

struct Munge {
    std::filesystem::path socket;
    std::string trouble; // of making a credential and reading it
};

struct HostName {
    std::string name;                  // short
    std::vector<std::string> resolved; // IPv4
    std::string trouble;
    std::vector<std::string> own; // addresses of this host's interfaces
};

struct NetworkPiece {
    std::string name;
    std::string trouble;
};
// Those that could not be made in a network namespace of their own.
struct KernelNetwork {
    std::vector<NetworkPiece> broken;
};

// What processes of one user may do to each other, as Yama has it: 0, all that ptrace(2) can.
struct PtraceScope {
    std::optional<std::uint64_t> value; // none: the kernel has no Yama
};

// What steps in images need.
struct ForImages {
    std::string overlay; // why there is no such file system; empty: there is
    std::string fuse;    // why /dev/fuse cannot be opened; empty: it can
    std::string server;  // squashfuse_ll; empty: it is not there
};

struct Facts {
    Fact<Slurm> slurm;
    Fact<Clock> clock;
    Fact<Cgroup> cgroup;
    Fact<Plugstack> plugstack;
    // A file that is wrong has been seen.
    std::filesystem::path configuration_file;
    Expected<Config> configuration;
    Fact<std::vector<FileFacts>> configuration_way; // directories and symbolic links that lead to it
    Fact<std::vector<FileFacts>> keys; // files of secrets, where Slurm and munge usually have them
    Fact<PtraceScope> ptrace_scope;
    Fact<std::vector<Place>> stores; // that of who has not chosen first
    Fact<Place> staging;
    Fact<Place> local; // the base of local directories, where the site has some
    Fact<Agent> agent;
    Fact<AgentProgram> agent_program;
    Fact<Libraries> libraries;
    Fact<Nccl> nccl;
    Fact<Criu> criu;
    Fact<CriuKernel> criu_kernel;
    Fact<Driver> driver;
    Fact<Munge> munge;
    Fact<HostName> host_name;
    Fact<KernelNetwork> kernel_network;
    Fact<ForImages> images;
};

} // namespace singularity::doctor
