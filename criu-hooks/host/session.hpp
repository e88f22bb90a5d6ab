// SPDX-License-Identifier: GPL-2.0-or-later
// What a dump and a restore have in common: starting criu, its log, its errors.
#pragma once

#include "criu-hooks/host/node.hpp"
#include "criu.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace singularity::host {

// For criu to go after its answer, for healing after its death, for its victims to end.
inline constexpr std::chrono::seconds kToEnd{10};

// What the node's network namespace is called in images.
inline constexpr std::string_view kNetwork = "node-network";

// Where the keys of outside descriptors and CRIU's names of what they lead to lie in the image directory.
inline constexpr const char *kDescriptorTable = "descriptors";

// criu as plain root, once: it finds out what the kernel can do and leaves that in /run for the runs with
// other ids, in which some of its probes fail. Refuses a criu that is too old.
[[nodiscard]] Expected<void> probe_kernel(const Context &context, const Deadline &deadline);

// criu's file for its log in the image directory, and for what it says outside of it.
inline constexpr const char *kLog = "criu.log";
inline constexpr const char *kComplaints = "criu-stderr.log";

[[nodiscard]] Expected<UniqueFd> open_complaints(int images);

// What criu's log says about why it failed, and where the log is from now on. `reply` may be empty.
[[nodiscard]] Error criu_error(const Context &context, std::string doing, int images,
                               const std::string &reply);

} // namespace singularity::host
