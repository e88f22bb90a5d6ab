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

// "u1000-s4711": of a job of Slurm's.
[[nodiscard]] std::string tree_name(uid_t uid, std::uint32_t job);
// Whether a name is one of these.
struct SlurmTree {
    uid_t uid = 0;
    std::uint32_t job = 0;
};
[[nodiscard]] bool read_tree_name(std::string_view name, SlurmTree &out);

// A name of a tree or a slot: no slash, no dot in front.
[[nodiscard]] bool is_name(std::string_view name);

// BASE itself, which must be root's alone, with mode 0700; made if it is not there.
[[nodiscard]] Expected<UniqueFd> open_base(const std::filesystem::path &base);

// The tree's directory, made if it is not there. That of an earlier run is moved aside: what was in it is in
// a checkpoint, or lost with that run.
[[nodiscard]] Expected<UniqueFd> open_tree(const std::filesystem::path &base, const std::string &tree,
                                           std::uint32_t run);
// The same for who begins a run and does not know its number: whatever there is is of an earlier one.
[[nodiscard]] Expected<UniqueFd> begin_tree(const std::filesystem::path &base, const std::string &tree);
// The run of a tree, as far as it is known.
[[nodiscard]] Expected<std::optional<std::uint32_t>> run_of(const UniqueFd &tree);

// Moves it aside at once: a new one of that name may be made. False: there is none.
[[nodiscard]] Expected<bool> set_aside(const std::filesystem::path &base, const std::string &tree);
// The same for who has the tree open, which may have been moved aside by another since.
[[nodiscard]] Expected<bool> set_aside(const std::filesystem::path &base, const std::string &tree,
                                       const UniqueFd &only);

// Where it lies. Nothing in BASE that has another kind of name is touched.
[[nodiscard]] std::filesystem::path place_of(const std::filesystem::path &base, const std::string &tree);
inline constexpr std::string_view kTree = "job.";
inline constexpr std::string_view kAside = ".gone."; // and a number, and the name that it had

// Makes the user's directory of a slot that is seen as that path, if it is not there. where: the tree's name
// on the host. Where the directory lies.
struct Owner {
    uid_t uid = 0;
    gid_t gid = 0;
};
[[nodiscard]] Expected<std::filesystem::path> make_directory(const UniqueFd &tree,
                                                             const std::filesystem::path &where,
                                                             const std::string &slot, Owner owner,
                                                             const std::filesystem::path &path);
// Its name: "var_tmp" of "/var/tmp", and no other path's.
[[nodiscard]] std::string directory_name(const std::filesystem::path &path);

} // namespace singularity::local
