// SPDX-License-Identifier: GPL-2.0-or-later
// A collective, a send or a receive: from the program's arguments to an operation of a group.
#pragma once

#include "communicator.hpp"
#include "data_types.hpp"

#include <cstddef>

namespace singularity::nccl {

struct Call {
    Kind kind = Kind::end;
    const void *input = nullptr;
    void *output = nullptr;
    std::size_t count = 0;
    DataType type = DataType::int8;
    Reduction reduction = Reduction::sum;
    int peer = 0; // root, or the other side
    CommunicatorHandle communicator = nullptr;
    Stream stream = nullptr;
};

[[nodiscard]] Result perform(Library &library, const Call &call);

[[nodiscard]] Result create_premultiplied_sum(Library &library, Reduction *out, const void *scalar,
                                              DataType type, Residence residence, CommunicatorHandle handle);
[[nodiscard]] Result destroy_reduction(Library &library, Reduction reduction, CommunicatorHandle handle);

} // namespace singularity::nccl
