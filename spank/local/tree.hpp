// SPDX-License-Identifier: GPL-2.0-or-later
// A job's own directories on one host (README.md): their names, and how they are made.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace singularity::local {

// The slot of all virtual nodes of a job on a host, of its batch script and of its wrappers, unless a node
// has come with another tree.
inline constexpr const char *kMain = "main";
// In a tree: the origin of what is in `main`; the run of Slurm's job whose tree it is, once that is known.
inline constexpr const char *kOrigin = "origin";
inline constexpr const char *kRun = "run";
// In a slot: all of it has come out of a checkpoint.
inline constexpr const char *kLoaded = ".loaded";
// Which files the nodes had open for writing whose archives were unpacked there.
inline constexpr const char *kWritten = ".written";

// "u1000-s4711": of a job of Slurm's.
[[nodiscard]] std::string tree_name(uid_t uid, std::uint32_t job);
// Whether a name is one of these.
struct SlurmTree {
    uid_t uid = 0;
    std::uint32_t job = 0;
};
[[nodiscard]] bool read_tree_name(std::string_view name, SlurmTree &out);

// That of a virtual node, by what it is a node of: of a step of Slurm's the job's, so that all of its steps
// share it. job: empty, if the node is of none.
[[nodiscard]] std::string tree_of(uid_t uid, std::string_view job, const std::string &node);

// A name of a tree or a slot: no slash, no dot in front.
[[nodiscard]] bool is_name(std::string_view name);

// BASE itself, which must be root's alone, with mode 0700; made if it is not there.
[[nodiscard]] Expected<UniqueFd> open_base(const std::filesystem::path &base);

// Steps, nodes and the agent are at the same trees at the same time: what follows has a lock of BASE while it
// makes one or moves one aside, and waits for it with a deadline. All of it waits for the disk.

// The tree's directory, made if it is not there. Name and owner of a tree are Slurm's word, its run that of
// the job's own processes: one that lies loses what is its own, and none of anybody else's. That of an
// earlier run is moved aside: what was in it is in a checkpoint, or lost with that run. So is one of an
// unknown run that is as it was before the machine started, since the run that made it has lost this host.
// run: 0 is also said by who does not know it, an srun without its job's environment, and so it decides
// nothing: the tree is taken as it is. started: when the run did, in ns since 1970, if that is known: a tree
// that was made after that is its own, with whatever number.
[[nodiscard]] Expected<UniqueFd> open_tree(const std::filesystem::path &base, const std::string &tree,
                                           std::uint32_t run, std::int64_t started = 0);
// The same for who begins a run and does not know its number: whatever there is is of an earlier one.
[[nodiscard]] Expected<UniqueFd> begin_tree(const std::filesystem::path &base, const std::string &tree);
// A run has begun with the tree that there is: it is that run's, if nothing later is known, and is not moved.
// begun: ns since 1970; who comes late does not mean a tree that was made after that.
[[nodiscard]] Expected<void> confirm_run(const std::filesystem::path &base, const std::string &tree,
                                         std::uint32_t run, std::int64_t begun);
// The run of a tree. Nothing: it is not known; a loss of power leaves such trees.
[[nodiscard]] Expected<std::optional<std::uint32_t>> run_of(const UniqueFd &tree);
// The origin of what is in `main`. Empty: no restore has brought anything.
[[nodiscard]] Expected<std::string> origin_of(const UniqueFd &tree);

// A directory, and no later one that has its name or its inode.
struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::int64_t born = 0; // ns since 1970; 0: the file system does not say
    bool operator==(const Identity &) const = default;
};
[[nodiscard]] Expected<Identity> identity_of(const UniqueFd &directory);

// Moves it aside at once, if it is that one: a new one of that name may be made. False: it is not there.
[[nodiscard]] Expected<bool> set_aside(const std::filesystem::path &base, const std::string &tree,
                                       const Identity &only);

// Where it lies. Nothing in BASE that has another kind of name is touched.
[[nodiscard]] std::filesystem::path place_of(const std::filesystem::path &base, const std::string &tree);
inline constexpr std::string_view kTree = "job.";
inline constexpr std::string_view kAside = ".gone."; // and a number, and the name that it had

struct Owner {
    uid_t uid = 0;
    gid_t gid = 0;
};
// Makes the user's directory of a slot that is seen as that path, if it is not there. where: the tree's name
// on the host. Where the directory lies.
[[nodiscard]] Expected<std::filesystem::path> make_directory(const UniqueFd &tree,
                                                             const std::filesystem::path &where,
                                                             const std::string &slot, Owner owner,
                                                             const std::filesystem::path &path);
// A node's layer over its image: a slot of its own that is there for nobody else, with what is written
// (kUpper) and what overlayfs works in (kWork). Each has a new name.
inline constexpr std::string_view kLayer = "layer-";
inline constexpr const char *kUpper = "/upper";
inline constexpr const char *kWork = "/work";
[[nodiscard]] std::string new_layer(const std::string &node);
[[nodiscard]] Expected<std::filesystem::path>
make_layer(const UniqueFd &tree, const std::filesystem::path &where, const std::string &slot, Owner owner);
// Where it lies in a slot.
[[nodiscard]] std::filesystem::path place_in(const std::filesystem::path &base, const std::string &tree,
                                             const std::string &slot, const std::filesystem::path &path);
// The BASE of such a place.
[[nodiscard]] std::filesystem::path base_of(const std::filesystem::path &place);

// The slot of a node that is restored with the directories of that origin: `main` if they are the first that
// come to this tree, and of all nodes that had the same; else one of their own.
[[nodiscard]] Expected<std::string> slot_for(const std::filesystem::path &base, const std::string &tree,
                                             std::uint32_t run, const std::string &origin);
// Its name: "var_tmp" of "/var/tmp", and no other path's.
[[nodiscard]] std::string directory_name(const std::filesystem::path &path);

} // namespace singularity::local
