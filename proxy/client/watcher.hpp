// SPDX-License-Identifier: GPL-2.0-or-later
// The threads of the client that receive daemons' own messages and run the program's host functions.
#pragma once

namespace singularity::client {

// Starts the thread that receives what daemons send: their deaths, callbacks, what devices print.
void start_watcher();

} // namespace singularity::client
