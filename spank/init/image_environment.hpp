// SPDX-License-Identifier: GPL-2.0-or-later
// What the image of a node says of its programs' environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace singularity::init {

// Adds what is in /etc/environment, where enroot puts what a container's image says: lines NAME=VALUE, also
// with `export` before them and with quotes around the value, as pam_env(8) has them; others are passed over.
// Of the program's own variables with these names the image's values take the place, but for those that tell
// of the job, of its user and of what it was given.
void add_environment_of_image(std::vector<std::string> &environment, std::string_view text);

// /etc/environment, of which only so much is read. Empty: there is none, or nobody may read it.
inline constexpr std::size_t kImageEnvironmentLimit = std::size_t{64} << 10;
[[nodiscard]] std::string environment_of_image();

// An Apptainer image has scripts for it, which its shell reads with the program's environment; what that is
// then, is the program's, but for what tells of the job. Nothing changes in other images, or where there is
// no shell or no `env`. It takes half a minute at most.
void add_scripts_of_image(std::vector<std::string> &environment);

} // namespace singularity::init
