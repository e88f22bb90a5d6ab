// SPDX-License-Identifier: GPL-2.0-or-later
// What the plugins use of the program that loads them. Everything is looked up at run time: the same file is
// loaded by slurmctld, slurmd, slurmstepd and every client (up to Slurm 24.11), and only slurmctld has
// slurmctld's symbols.
#pragma once

#include "common/error.hpp"
#include "select-plugin/hooks.hpp"

#include <optional>

namespace singularity::host {

// slurmctld_lock_t (slurmctld/locks.h) with room for members of later releases: 26.05 has one more
// than 24.11. Passed by value, in memory because of its size, so a callee that knows fewer members reads its
// own and sees none missing.
struct Locks {
    // NOLINTNEXTLINE(performance-enum-size): slurm's lock_level_t, a C enum
    enum Level : int { kNone = 0, kRead = 1 };
    Level conf = kNone;
    Level job = kNone;
    Level node = kNone;
    Level part = kNone;
    Level fed = kNone;
    Level later_members[11] = {};
};

// What every program that loads plugins has (libslurmfull.so or libslurm.so).
struct PluginLoader {
    void *(*load_and_link)(const char *type, int count, const char **names, void **pointers) = nullptr;
    void (*unload)(void *handle) = nullptr;
};
[[nodiscard]] Expected<PluginLoader> find_plugin_loader();

// What slurmctld alone has. The pointers to variables are addresses of slurmctld's own.
struct Slurmctld {
    void (*lock)(Locks locks) = nullptr;
    void (*unlock)(Locks locks) = nullptr;
    void **job_list = nullptr;       // List job_list
    void ***node_table = nullptr;    // node_record_t **node_record_table_ptr, with gaps since 23.02
    const int *node_count = nullptr; // int node_record_count
    int (*list_for_each)(void *list, int (*visit)(void *element, void *argument), void *argument) = nullptr;
    const bool *test_config = nullptr; // optional: this process only tests the configuration
};

// Nothing where the program is not slurmctld; an error where it is, but lacks something.
[[nodiscard]] Expected<std::optional<Slurmctld>> find_slurmctld();

// Slurm's lists, which every program that loads plugins has. A list without `destroy_element` only refers to
// what it holds.
struct Lists {
    hooks::List *(*create)(void (*destroy_element)(void *)) = nullptr;
    void (*destroy)(hooks::List *list) = nullptr;
    void (*append)(hooks::List *list, void *element) = nullptr;
    int (*count)(hooks::List *list) = nullptr;
    // visit: a negative value ends it
    int (*for_each)(hooks::List *list, int (*visit)(void *element, void *argument), void *argument) = nullptr;
};
[[nodiscard]] Expected<Lists> find_lists();

// A symbol of the program or the libraries it was linked with, or nullptr.
[[nodiscard]] void *find_symbol(const char *name) noexcept;

template <class Pointer>
[[nodiscard]] bool find(const char *name, Pointer &pointer) noexcept {
    pointer = reinterpret_cast<Pointer>(find_symbol(name));
    return pointer != nullptr;
}

// Sends the log of this shared object to slurm_error(), slurm_info() and slurm_debug() where the program has
// them.
void log_to_slurm() noexcept;

} // namespace singularity::host
