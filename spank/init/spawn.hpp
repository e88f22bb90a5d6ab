// SPDX-License-Identifier: GPL-2.0-or-later
// A new process of the node, from fork to exec.
#pragma once

#include "fd.hpp"
#include "node/init_messages.hpp"

#include <array>

#include <sys/types.h>

namespace singularity::init {

// What a child could not do.
struct Failure {
    node::Step step = node::Step::remember;
    std::int32_t code = 0; // errno; 0: nothing failed
};

struct Streams {
    std::array<Fd, 3> inner; // the task's
    Fd outer;                // what init holds
};
// Streams of the two kinds that init makes itself.
[[nodiscard]] Failure make_streams(const node::Program &program, Streams &streams);

struct Spawned {
    pid_t pid = -1;
    Fd progress; // ends without a word when the program runs, or carries a Failure
};
// in_image: the node's root is an image, which may say something of the program's environment.
[[nodiscard]] Failure spawn(const node::Program &program, const Streams &streams, bool in_image,
                            Spawned &spawned);

} // namespace singularity::init
