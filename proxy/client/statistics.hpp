// SPDX-License-Identifier: GPL-2.0-or-later
// What the process has sent, appended at its end to the file that SINGULARITY_PROXY_STATS names.
#pragma once

namespace singularity::client {

// Reads the variable now, writes at exit.
void write_statistics_at_exit();

} // namespace singularity::client
