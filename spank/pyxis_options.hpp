// SPDX-License-Identifier: GPL-2.0-or-later
// The options of pyxis, for a cluster whose scripts have them: what they say is said by --singularity-image
// and its companions, or is refused with what to do instead.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace singularity::spank {

// value: what stands for the argument in --help, nullptr: it takes none.
struct PyxisOption {
    const char *name;
    const char *value;
    const char *usage;
    const char *refusal; // nullptr: it is understood
};
[[nodiscard]] std::span<const PyxisOption> pyxis_options();

// As --singularity-image, --singularity-mount, --singularity-workdir and --singularity-root would say it.
struct ImageWords {
    std::optional<std::string> image;
    std::optional<std::string> mounts;
    std::optional<std::string> workdir;
    std::optional<std::string> root;
};
// Adds what an option says; argument: of the option of that number, empty if it has none.
[[nodiscard]] Expected<void> add_pyxis_option(std::size_t number, std::string_view argument, ImageWords &out);

} // namespace singularity::spank
