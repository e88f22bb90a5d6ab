// SPDX-License-Identifier: GPL-2.0-or-later
// The plugin behind: select/cons_tres, priority/multifactor.
#pragma once

#include "common/error.hpp"
#include "host.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace singularity {

// Invariant: loaded() means that every operation was found.
class Backing {
  public:
    // Loads the plugin by its type, which runs its init(), and finds every operation in it. The error names
    // what is missing.
    [[nodiscard]] Expected<void> load(const host::PluginLoader &loader, const char *type,
                                      std::span<const char *const> operations);
    // Runs the plugin's fini().
    void unload() noexcept;

    [[nodiscard]] bool loaded() const noexcept { return handle_ != nullptr; }
    [[nodiscard]] void *operation(std::size_t index) const noexcept { return operations_[index]; }

  private:
    host::PluginLoader loader_;
    void *handle_ = nullptr;
    std::vector<void *> operations_;
};

} // namespace singularity
