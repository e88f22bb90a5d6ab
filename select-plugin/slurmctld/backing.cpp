// SPDX-License-Identifier: GPL-2.0-or-later
#include "backing.hpp"

#include <string>

#include <dlfcn.h>
#include <fmt/core.h>

namespace singularity {

Expected<void> Backing::load(const host::PluginLoader &loader, const char *type,
                             std::span<const char *const> operations) {
    // No names are given: for a missing one slurm's loader would end the process (fatal()) without saying
    // which.
    void *const handle = loader.load_and_link(type, 0, nullptr, nullptr);
    if (handle == nullptr)
        return failure("load", type, "Slurm's loader refused it (its log says why); is it in PluginDir?");
    std::vector<void *> found;
    found.reserve(operations.size());
    std::string missing;
    for (const char *const name : operations) {
        found.push_back(dlsym(handle, name));
        if (found.back() == nullptr)
            missing.append(missing.empty() ? "" : ", ").append(name);
    }
    if (!missing.empty()) {
        loader.unload(handle);
        return failure("load", type,
                       fmt::format("it has no {}: not the Slurm that this plugin was built for", missing));
    }
    loader_ = loader;
    handle_ = handle;
    operations_ = std::move(found);
    return {};
}

void Backing::unload() noexcept {
    if (handle_ == nullptr)
        return;
    loader_.unload(handle_);
    handle_ = nullptr;
    operations_.clear();
}

} // namespace singularity
