// SPDX-License-Identifier: GPL-2.0-or-later
#include "host.hpp"

#include "common/log.hpp"

#include <string>
#include <string_view>

#include <dlfcn.h>

namespace singularity::host {

namespace {

using SlurmLog = void (*)(const char *format, ...);

struct SlurmLogs {
    SlurmLog error = nullptr;
    SlurmLog info = nullptr;
    SlurmLog debug = nullptr;
};

// Filled by log_to_slurm() before the sink that reads it is set.
constinit SlurmLogs slurm_logs;

void write_to_slurm(log::Level level, std::string_view line) {
    const std::string text(line);
    switch (level) {
    case log::Level::kError:
    case log::Level::kWarning:
        slurm_logs.error("%s", text.c_str());
        break;
    case log::Level::kInfo:
        slurm_logs.info("%s", text.c_str());
        break;
    case log::Level::kDebug:
        slurm_logs.debug("%s", text.c_str());
        break;
    }
}

std::unexpected<Error> missing(const char *name) {
    return failure("find", name,
                   "the program that loaded this plugin does not have it: not the Slurm it was built for");
}

} // namespace

void *find_symbol(const char *name) noexcept { return dlsym(RTLD_DEFAULT, name); }

void log_to_slurm() noexcept {
    SlurmLogs found;
    if (!find("slurm_error", found.error) || !find("slurm_info", found.info) ||
        !find("slurm_debug", found.debug))
        return;
    slurm_logs = found;
    log::set_sink(write_to_slurm);
}

// The names with slurm_ in front are those that Slurm gives its own plugins (common/slurm_xlator.h).
Expected<PluginLoader> find_plugin_loader() {
    PluginLoader loader;
    if (!find("slurm_plugin_load_and_link", loader.load_and_link))
        return missing("slurm_plugin_load_and_link");
    if (!find("slurm_plugin_unload", loader.unload))
        return missing("slurm_plugin_unload");
    return loader;
}

Expected<Lists> find_lists() {
    Lists lists;
    if (!find("slurm_list_create", lists.create))
        return missing("slurm_list_create");
    if (!find("slurm_list_destroy", lists.destroy))
        return missing("slurm_list_destroy");
    if (!find("slurm_list_append", lists.append))
        return missing("slurm_list_append");
    if (!find("slurm_list_count", lists.count))
        return missing("slurm_list_count");
    if (!find("slurm_list_for_each", lists.for_each))
        return missing("slurm_list_for_each");
    return lists;
}

Expected<std::optional<Slurmctld>> find_slurmctld() {
    Slurmctld slurmctld;
    if (!find("lock_slurmctld", slurmctld.lock) || !find("job_list", slurmctld.job_list))
        return std::nullopt;
    if (!find("unlock_slurmctld", slurmctld.unlock))
        return missing("unlock_slurmctld");
    if (!find("node_record_table_ptr", slurmctld.node_table))
        return missing("node_record_table_ptr");
    if (!find("node_record_count", slurmctld.node_count))
        return missing("node_record_count");
    if (!find("slurm_list_for_each", slurmctld.list_for_each))
        return missing("slurm_list_for_each");
    (void)find("test_config", slurmctld.test_config);
    return slurmctld;
}

} // namespace singularity::host
