// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/store/configured.hpp"

namespace singularity::store {

Options configured(const Config::Store &settings) {
    Options options;
    options.quota = static_cast<std::uint64_t>(settings.quota_gib) << 30U; // at most a pebibyte
    return options;
}

} // namespace singularity::store
