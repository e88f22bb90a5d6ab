// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that is allocated or registered through NCCL, and windows on it. Functions are NCCL's.
#pragma once

#include "communicator.hpp"

#include <cstddef>

namespace singularity::nccl {

[[nodiscard]] Result allocate(Library &library, void **out, std::size_t size);
[[nodiscard]] Result release(Library &library, void *memory);

[[nodiscard]] Result enroll(Library &library, CommunicatorHandle handle, void *memory, std::size_t size,
                            void **out);
[[nodiscard]] Result withdraw(Library &library, CommunicatorHandle handle, void *registration);

// As where NCCL has no symmetric memory: the call succeeds, and there is no window.
[[nodiscard]] Result open_window(Library &library, CommunicatorHandle handle, void *memory, std::size_t size,
                                 WindowHandle *out, int flags);
[[nodiscard]] Result close_window(Library &library, CommunicatorHandle handle, WindowHandle window);

} // namespace singularity::nccl
