// SPDX-License-Identifier: GPL-2.0-or-later
// The store that singularity.yaml describes.
#pragma once

#include "common/config.hpp"
#include "criu-hooks/store/store.hpp"

namespace singularity::store {

// Whoever writes checkpoints opens the store with these, with `create` where that is wanted: the quota is in
// them.
[[nodiscard]] Options configured(const Config::Store &settings);

} // namespace singularity::store
