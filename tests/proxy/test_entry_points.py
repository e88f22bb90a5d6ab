# SPDX-License-Identifier: GPL-2.0-or-later
"""The two libcuda.so.1 as files: what they export, and that what the documentation calls supported has code behind it."""

import functools
import glob
import os
import re
import sys

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import proxied  # noqa: E402

GENERATED = os.path.join(proxied.BUILD, "proxy", "driver-api", "generated")
LIBRARIES = {"client": proxied.program("client", "libcuda.so.1"), "softgpu": proxied.program("softgpu", "libcuda.so.1")}
STUB = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64", "stubs", "libcuda.so")

# Annotated, since the proxy carries them to a driver that has them; the software GPU has no arrays, textures, surfaces and conditional nodes,
# and each process has its own: what processes share they share in a proxy.
NOT_OF_SOFTGPU = re.compile(r"cu(Array|GraphConditional|Ipc|MipmappedArray|Tex|Surf|TensorMap|.*(AtoH|HtoA|AtoD|DtoA|AtoA))")


@functools.cache
def functions(path):
    """{exported name: name of the section that it is in}, and the soname."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        names = {}
        for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] == "STT_FUNC":
                names[symbol.name] = elf.get_section(symbol["st_shndx"]).name
        soname = next(tag.soname for section in elf.iter_sections() if isinstance(section, DynamicSection)
                      for tag in section.iter_tags() if tag.entry.d_tag == "DT_SONAME")
    return names, soname


@pytest.mark.parametrize("name", ["libcuda.so.1", "libnccl.so.2", "libnvidia-ml.so.1"])
def test_programs_may_bring_an_older_glibc(name):
    """None of them needs another library than glibc's, nor a function of it that 2.28 (Debian 10, RHEL 8) does not have."""
    with open(proxied.program("client", name), "rb") as file:
        elf = ELFFile(file)
        needed = {tag.needed for section in elf.iter_sections() if isinstance(section, DynamicSection)
                  for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
        versions = {version.name for _, names in elf.get_section_by_name(".gnu.version_r").iter_versions() for version in names}
    assert needed <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}
    numbers = [tuple(map(int, version.removeprefix("GLIBC_").split("."))) for version in versions]
    assert max(numbers) <= (2, 28), sorted(versions)


def classes():
    """{function: class} of the generated page."""
    with open(os.path.join(GENERATED, "driver-api.md"), encoding="utf-8") as page:
        rows = [line.strip("| \n").split(" | ") for line in page if line.startswith("| cu")]
    return {row[0]: row[2] for row in rows}


@pytest.mark.parametrize("library", LIBRARIES)
def test_exports_what_nvidias_stub_exports(library):
    names, soname = functions(LIBRARIES[library])
    assert soname == "libcuda.so.1"
    assert not set(functions(STUB)[0]) - set(names)
    assert all(name.startswith("cu") for name in names)


@pytest.mark.parametrize("library", LIBRARIES)
def test_supported_functions_have_code(library):
    names, _ = functions(LIBRARIES[library])
    left = [name for name, kind in classes().items() if kind != "unsupported" and names[name] == "singularity_unsupported"]
    if library == "softgpu":
        left = [name for name in left if not NOT_OF_SOFTGPU.match(name)]
    assert not left, "annotated as supported, and nobody has written them"


def test_unsupported_functions_have_none():
    names, _ = functions(LIBRARIES["client"])
    written = [name for name, kind in classes().items() if kind == "unsupported" and names[name] != "singularity_unsupported"]
    assert not written, "there is code for them, and the annotations (and so the documentation) say unsupported"


def test_the_daemon_places_the_drivers_mappings():
    """proxy/daemon/driver_mappings.hpp: libraries call what the program exports."""
    with open(os.path.join(proxied.BUILD, "singularity-proxyd"), "rb") as file:
        exported = {symbol.name for symbol in ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
                    if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"}
    assert exported >= {"mmap", "mmap64"}


def undefined(path):
    with open(path, "rb") as file:
        symbols = ELFFile(file).get_section_by_name(".symtab")
        return {symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"}


@pytest.mark.parametrize("room", ["barrier", "channel", "client", "driver-api", "protocol", "softgpu"])
def test_nothing_is_destroyed_while_the_program_ends(room):
    """Programs call the driver from exit handlers and from destructors of static variables, which come after the libraries' own."""
    objects = glob.glob(os.path.join(proxied.BUILD, "proxy", room, "**", "*.o"), recursive=True)
    assert objects
    found = {os.path.relpath(path, proxied.BUILD): names for path in objects
             if (names := undefined(path) & {"__cxa_atexit", "__cxa_thread_atexit"})}
    assert not found, "a static or thread_local variable with a destructor: never destroy the first, see common/thread_owned.hpp for the second"
