// SPDX-License-Identifier: GPL-2.0-or-later
#include "store_here.hpp"

#include "common/config.hpp"

namespace singularity::agent {

Expected<std::string> store_here(std::string_view directory) {
    if (directory.empty())
        return std::string();
    auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return propagate(settings);
    auto chosen = config::chosen_store(settings->store, directory);
    if (!chosen)
        return propagate(chosen);
    return chosen->native();
}

} // namespace singularity::agent
