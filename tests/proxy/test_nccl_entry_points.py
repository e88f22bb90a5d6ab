# SPDX-License-Identifier: GPL-2.0-or-later
"""libnccl.so.2 as a file: it has every function of NVIDIA's, or a program that is linked with a newer one does not even start."""

import os
import sys

import pytest
from elftools.elf.elffile import ELFFile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import proxied  # noqa: E402

OURS = proxied.program("client", "libnccl.so.2")
NVIDIAS = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64", "libnccl.so.2")

# What came with a version, as its libnccl.so.2 exports it; of these NVIDIA's library here has those of its own version at most.
LATER = {
    "2.29": """
        ncclCommGetUniqueId ncclCommGrow ncclCommMemStats ncclCommQueryProperties ncclCommResume ncclCommSuspend
        ncclGetLsaDevicePointer ncclGetLsaMultimemDevicePointer ncclGetMultimemDevicePointer ncclGetPeerDevicePointer
        ncclGinInboxA2ACreateRequirement ncclGinOutboxCreateRequirement
        ncclPutSignal ncclSignal ncclWaitSignal ncclWinGetUserPtr""",
    "2.30": """
        ncclParamBind ncclParamDumpAll ncclParamGet ncclParamGetAllParameterKeys ncclParamGetParameter ncclParamGetStr
        ncclParamGetI8 ncclParamGetI16 ncclParamGetI32 ncclParamGetI64
        ncclParamGetU8 ncclParamGetU16 ncclParamGetU32 ncclParamGetU64""",
}


def functions(path):
    """{exported name: (binding, address)}"""
    with open(path, "rb") as file:
        symbols = list(ELFFile(file).get_section_by_name(".dynsym").iter_symbols())
    return {symbol.name: (symbol["st_info"]["bind"], symbol["st_value"]) for symbol in symbols
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] == "STT_FUNC"}


@pytest.mark.skipif(not os.path.exists(NVIDIAS), reason=f"'{NVIDIAS}' is missing")
def test_exports_what_nvidias_library_exports():
    ours, nvidias = functions(OURS), functions(NVIDIAS)
    expected = {name: binding for name, (binding, _) in nvidias.items() if name.startswith(("nccl", "pnccl"))}
    assert len(expected) > 70
    assert sorted(set(expected) - set(ours)) == []
    assert expected == {name: ours[name][0] for name in expected}, "weak or strong"


@pytest.mark.parametrize("version", LATER)
def test_exports_what_later_versions_export(version):
    ours = functions(OURS)
    assert [name for one in LATER[version].split() for name in (one, "p" + one) if name not in ours] == []


def test_both_names_are_one_function():
    """The name without a "p" is the one that a profiler may take the place of."""
    ours = functions(OURS)
    assert all(name.startswith(("nccl", "pnccl")) for name in ours)
    single = {name for name in ours if name.startswith("nccl") and "p" + name not in ours}
    assert single == {"ncclResetDebugInitInternal"}, "as in NVIDIA's library"
    for name in set(ours) - single:
        if name.startswith("nccl"):
            assert (ours[name][0], ours["p" + name][0]) == ("STB_WEAK", "STB_GLOBAL"), name
            assert ours[name][1] == ours["p" + name][1], name
