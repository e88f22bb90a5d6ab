# SPDX-License-Identifier: GPL-2.0-or-later
# cmake -DPTX=file -DOUTPUT=file.cpp -DVARIABLE=kName -DHEADER=file.hpp -P embed_ptx.cmake: the PTX as what the header
# declares.
file(READ "${PTX}" hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE "${OUTPUT}" "#include \"${HEADER}\"
namespace {
constexpr char ${VARIABLE}Bytes[] = {${bytes}0};
}
const std::string_view singularity::proxyd::${VARIABLE}(${VARIABLE}Bytes, sizeof(${VARIABLE}Bytes) - 1);
")
