// SPDX-License-Identifier: GPL-2.0-or-later
// The program that loads a plugin: the test program, in slurmctld's place.
#pragma once

namespace singularity::test {

// Which operation of the fake backing plugin was called last, and the sum of its arguments. Defined in the
// test program.
__attribute__((visibility("default"))) void note(const char *operation, long arguments);

} // namespace singularity::test
