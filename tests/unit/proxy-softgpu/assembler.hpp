// SPDX-License-Identifier: GPL-2.0-or-later
// NVIDIA's assembler, as a judge of what the tests write.
#pragma once

#include "engine_fixture.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

namespace singularity::softgpu::test {

// What the tests write is PTX: NVIDIA's assembler, where there is one, takes it.
inline void assemble(const std::string &ptx, const char *target = "sm_90") {
    if (*SINGULARITY_PTXAS == '\0')
        return;
    const std::string file = fmt::format("/tmp/singularity-test-{}.ptx", getpid());
    std::ofstream(file) << ptx;
    const int status = std::system(
        fmt::format("{} -arch={} -o /dev/null {} 2>{}.log", SINGULARITY_PTXAS, target, file, file).c_str());
    std::ifstream log(file + ".log");
    const std::string said(std::istreambuf_iterator<char>(log), {});
    std::remove(file.c_str());
    std::remove((file + ".log").c_str());
    if (status != 0)
        fail("ptxas: " + said.substr(0, 2000));
}

} // namespace singularity::softgpu::test
