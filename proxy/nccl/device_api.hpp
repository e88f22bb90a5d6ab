// SPDX-License-Identifier: GPL-2.0-or-later
// The host side of NCCL's device API: teams and properties are told, whatever needs the memory of other ranks
// is refused. Functions are NCCL's.
#pragma once

#include "communicator.hpp"
#include "proxy/nccl/device_abi.hpp"

#include <cstddef>

namespace singularity::nccl {

// Kernels cannot load from and store to the memory of another rank, so each rank is an LSA team of its own,
// and the rail (the ranks that have the same place in their LSA teams) is the world.
[[nodiscard]] Result world_team(Library &library, CommunicatorHandle handle, Team *out);
[[nodiscard]] Result lsa_team(Library &library, CommunicatorHandle handle, Team *out);
[[nodiscard]] Result rail_team(Library &library, CommunicatorHandle handle, Team *out);
// A rank of a team that the caller belongs to, as a rank of the world or of the LSA team; not checked, as in
// NCCL.
[[nodiscard]] Result rank_in_world(Library &library, CommunicatorHandle handle, Team team, int rank,
                                   int *out);
[[nodiscard]] Result rank_in_lsa(Library &library, CommunicatorHandle handle, Team team, int rank, int *out);

// properties: as the program gave them, of any version since 2.29; not more than they hold is written.
[[nodiscard]] Result query_properties(Library &library, CommunicatorHandle handle, Properties *properties);

[[nodiscard]] Result create_device_communicator(Library &library, CommunicatorHandle handle,
                                                const DeviceCommunicatorRequirements *requirements,
                                                const DeviceCommunicator *out);
[[nodiscard]] Result destroy_device_communicator(Library &library, CommunicatorHandle handle,
                                                 const DeviceCommunicator *one);
// ncclLLA2ACalcSlots: slots of 8 bytes.
[[nodiscard]] int slots(int elements, int element_size);
// nccl*CreateRequirement: resources that a device communicator would be asked for.
[[nodiscard]] Result create_requirement(const char *call, const ResourceHandle *handle,
                                        const ResourceRequirements *out);

// ncclPutSignal, ncclSignal, ncclWaitSignal; call: the name without "nccl".
[[nodiscard]] Result one_sided(Library &library, const char *call, CommunicatorHandle handle);

// ncclGet*DevicePointer. No program has a window (buffers.hpp).
[[nodiscard]] Result window_pointer(const char *call, WindowHandle window, void *const *out);
// As where NCCL has no symmetric memory: the call succeeds, and there is no pointer.
[[nodiscard]] Result window_memory(Library &library, CommunicatorHandle handle, void **out);

} // namespace singularity::nccl
