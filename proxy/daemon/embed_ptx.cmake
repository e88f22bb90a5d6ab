# SPDX-License-Identifier: GPL-2.0-or-later
# cmake -DPTX=file -DOUTPUT=file.cpp -P embed_ptx.cmake: the PTX as kReductionsPtx (reduction_kernels.hpp).
file(READ "${PTX}" hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE "${OUTPUT}" "#include \"reduction_kernels.hpp\"
namespace {
constexpr char kBytes[] = {${bytes}0};
}
const std::string_view singularity::proxyd::kReductionsPtx(kBytes, sizeof(kBytes) - 1);
")
