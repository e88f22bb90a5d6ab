// SPDX-License-Identifier: GPL-2.0-or-later
// NVIDIA's run-time compiler, NVRTC, for programs whose device is the software GPU. Such a device has a
// compute capability that no NVRTC knows, and it runs PTX only; programs ask for code of their device's
// capability, and for machine code where they can. Here NVRTC is asked for PTX of the newest architecture
// that it knows instead, and that PTX is what the program gets as its machine code: every function of the
// driver that loads code takes either.
//
// With any other device, and before the process has initialised CUDA, the program's calls arrive as it makes
// them.
#pragma once

#include <link.h>

namespace singularity::redirect {

// An object has been mapped, and nothing of it has been looked up yet; it will be unmapped.
void object_mapped(const link_map &object);
void object_unmapped(const link_map &object);

} // namespace singularity::redirect
