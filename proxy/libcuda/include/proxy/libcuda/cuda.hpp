// SPDX-License-Identifier: GPL-2.0-or-later
// cuda.h as a library that implements it needs it: every version and per-thread variant of a function
// declared side by side under its symbol's name, and visible outside of the library (definitions take the
// visibility of the declaration; everything else is hidden).
#pragma once

#if defined(CUDA_VERSION) && !defined(__CUDA_API_VERSION_INTERNAL)
#error "cuda.h was included before proxy/libcuda/cuda.hpp: its macros have renamed the functions"
#endif
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop
