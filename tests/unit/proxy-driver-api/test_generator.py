# SPDX-License-Identifier: GPL-2.0-or-later
"""The generator against the toolkit it reads: names, versions, annotation errors, and what one more line gives."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DRIVER_API = ROOT / "proxy/driver-api"
sys.path.insert(0, str(DRIVER_API / "generator"))

import annotations  # noqa: E402
import cheader  # noqa: E402
import versions  # noqa: E402

CUDA = Path(os.environ.get("SINGULARITY_CUDA_INCLUDE", "/usr/local/cuda/include"))
GENERATED = Path(os.environ["SINGULARITY_GENERATED"])
CXX = os.environ.get("SINGULARITY_CXX", "c++")
ANNOTATIONS = DRIVER_API / "driver_api.annotations"
HEADER = cheader.read([CXX], CUDA)
KINDS = "\n".join(line for line in ANNOTATIONS.read_text().splitlines() if line.startswith("handle "))
KIND_LINES = KINDS.count("\n") + 1


def errors_of(*lines):
    """What the generator says to these lines, which come after those that name the handles."""
    try:
        annotations.read(HEADER, "file", KINDS + "\n" + "\n".join(lines))
    except annotations.AnnotationError as error:
        return str(error).splitlines()
    return []


def rows(name):
    """{...} rows of an array in the generated tables.cpp, as tuples of text."""
    text = (GENERATED / "tables.cpp").read_text()
    body = re.search(name + r"\[\] = \{\n(.*?)\n\};", text, re.S)[1]
    return [tuple(part.strip(' "') for part in line.strip(" {},").split(",")) for line in body.splitlines()]


class Names(unittest.TestCase):
    def test_every_name_of_the_driver_library(self):
        stub = CUDA.parent / "lib64/stubs/libcuda.so"
        if not stub.exists():
            self.skipTest(f"{stub} is not installed")
        listed = subprocess.run(["nm", "-D", "--defined-only", stub], capture_output=True, text=True, check=True)
        names = {line.split()[2] for line in listed.stdout.splitlines() if line.split()[2].startswith("cu")}
        self.assertGreater(len(names), 600)
        exported = set((GENERATED / "libcuda.symbols").read_text().split())
        self.assertEqual(names - exported, set())
        # What the stub lacks and a driver has: interoperability with graphics.
        others = {name for name in exported - names if not re.search("GL|VDPAU|Egl", name)}
        self.assertEqual(others, set())

    def test_every_declaration_of_cuda_h_is_read(self):
        """Another way to find the names: whatever looks like a declaration in the file itself."""
        text = re.sub(r"/\*.*?\*/", " ", (CUDA / "cuda.h").read_text(errors="replace"), flags=re.S)
        declared = set(re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", text))
        self.assertGreater(len(declared), 500)
        known = {versions.split_symbol(symbol)[0] for symbol in HEADER.functions} | set(HEADER.functions)
        self.assertEqual(declared - known, set())

    def test_version_script_links_and_hides_the_rest(self):
        symbols = (GENERATED / "libcuda.symbols").read_text().split()
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch, "all.c")
            source.write_text("".join(f"int {s}(void) {{ return 0; }}\n" for s in symbols) + "int hidden;\n")
            library = Path(scratch, "libcuda.so.1")
            subprocess.run([CXX, "-x", "c", "-shared", "-fPIC", "-nostdlib", "-Wl,--no-undefined-version",
                            f"-Wl,--version-script={GENERATED / 'libcuda.map'}", "-o", library, source], check=True)
            listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
            self.assertEqual([line.split()[2] for line in listed.stdout.splitlines()], symbols)


class Versions(unittest.TestCase):
    def test_every_typedef_is_in_the_table(self):
        """Each PFN_<name>_v<version>[_ptds|_ptsz] of the file itself is one row, and there are no others."""
        typedefs = set()
        for name in cheader.TYPEDEF_HEADERS:
            text = (CUDA / name).read_text()
            for found in re.findall(r"\*PFN_(\w+)\)", text):
                match = re.fullmatch(r"(\w+?)_v(\d+)(_pt[ds][sz])?", found)
                typedefs.add((match[1], match[2], str(bool(match[3])).lower()))
        typedefs.discard(("cuWGLGetDevice", "2020", "false"))  # Windows
        self.assertGreater(len(typedefs), 600)
        table = rows("kVersions")
        self.assertEqual({row[:3] for row in table}, typedefs)
        self.assertEqual(len(table), len(typedefs))

    def test_each_symbol_has_its_typedefs_type(self):
        """The compiler compares the type of every symbol with the typedef of the version it is said to come with."""
        symbols = {f"ApiId::k{camel}": symbol for symbol, camel in self.ids()}
        lines = ["#define __CUDA_API_VERSION_INTERNAL", "#include <cudaTypedefs.h>", "#include <cudaProfilerTypedefs.h>",
                 "#include <type_traits>"]
        count = 0
        for name, version, per_thread, api_id in rows("kVersions"):
            symbol = symbols[api_id]
            if HEADER.functions[symbol].header not in ("cuda.h", "cudaProfiler.h"):
                continue  # these need the headers of OpenGL, EGL and VDPAU
            suffix = symbol[-5:] if per_thread == "true" else ""
            lines.append(f"static_assert(std::is_same_v<PFN_{name}_v{version}{suffix}, decltype(&{symbol})>);")
            count += 1
        self.assertGreater(count, 600)
        run = subprocess.run([CXX, "-std=c++17", "-fsyntax-only", "-w", "-x", "c++", "-I", str(CUDA), "-"],
                             input="\n".join(lines), capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr[:4000])

    @staticmethod
    def ids():
        from names import camel
        return [(symbol, camel(symbol)) for symbol in HEADER.functions]


class Annotations(unittest.TestCase):
    def refused(self, line, what, fix):
        found = errors_of(line)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"file:{KIND_LINES + 1}: "), found[0])
        self.assertIn(what, found[0])
        self.assertIn(fix, found[0])

    def test_the_file_itself(self):
        api = annotations.read(HEADER, str(ANNOTATIONS), ANNOTATIONS.read_text())
        self.assertGreater(len(api.functions), 300)

    def test_refused(self):
        for line, what, fix in [
            ("cuNoSuch sync", "unknown function 'cuNoSuch'", "cuda.h"),
            ("cuMemcpyHtoD_v9 sync", "unknown function", "cuMemcpyHtoD, cuMemcpyHtoD_v2"),
            ("cuEventRecord_ptsz async", "unknown function", "annotate cuEventRecord"),
            ("cuEventQuery later", "unknown class 'later'", "local, async"),
            ("cuEventQuery", "unknown class ''", "local, async"),
            ("cuEventQuery sync hStream=handle(stream)", "unknown parameter 'hStream'", "hEvent"),
            ("cuEventQuery sync handle(stream)", "'handle(stream)'", "PARAMETER=ROLE"),
            ("cuEventQuery local hEvent=handle(event)", "has no message", "remove the parameters"),
            ("cuEventQuery unsupported nobody_said", "'nobody_said' is no reason", "write a line before it: refused KEY WHY"),
            ("refused key", "'refused key'", "write: refused KEY WHY..."),
            ("cuEventQuery sync hEvent=handle(stream)", "not a handle of kind 'stream'", "its kind is 'event'"),
            ("cuCtxSetFlags sync flags=handle(stream)", "not a handle of kind", "no handle type"),
            ("cuEventQuery sync hEvent=in[1]", "passed by value", "handle(KIND)"),
            ("cuEventQuery sync hEvent=handle(event) hEvent=handle(event)", "given twice", "keep one"),
            ("cuCtxGetLimit sync", "pointer without a length", "pvalue=in[N], out[N]"),
            ("cuMemcpyDtoH_v2 sync dstHost=out[Bytes]", "unknown parameter 'Bytes'", "ByteCount"),
            ("cuMemcpyDtoH_v2 sync dstHost=out[]", "unknown role", "out[N]"),
            ("cuMemcpyDtoH_v2 sync dstHost=out[ByteCount/2]", "cannot read the length", "joined by * + -"),
            ("cuMemcpyDtoH_v2 sync dstHost=out[ByteCount*]", "cannot read the length", "joined by * + -"),
            ("cuMemcpyDtoH_v2 sync dstHost=outlines[3]", "unknown role", "in[N]"),
            ("cuMemcpyDtoH_v2 sync dstHost=string", "is not a string", "in[N]"),
            ("cuMemcpyHtoD_v2 sync srcHost=out[ByteCount]", "is const", "in[N]"),
            ("cuMemcpyDtoH_v2 async dstHost=out[ByteCount]", "is async, but returns dstHost", "sync"),
            ("cuEventRecord async hStream=in[*hEvent]", "passed by value", "handle(KIND)"),
            ("cuGraphGetNodes sync nodes=out[*numNodes]? numNodes=out[1]", "not known when the call is sent", "inout[1]"),
            ("cuGraphGetNodes sync nodes=out[numNodes]? numNodes=inout[1]", "is not an integer", "by value"),
            ("cuGraphGetNodes sync nodes=out[*hGraph]? numNodes=inout[1]", "not known when", "must be in[1]"),
            ("cuStreamCreate create phStream=new(event)", "does not receive a handle of kind 'event'", "'stream'"),
            ("cuStreamCreate sync phStream=new(stream)", "phStream is new", "class create"),
            ("cuStreamCreate create phStream=out[1]", "no parameter is new(KIND)", "which one"),
            ("cuStreamDestroy_v2 destroy", "no parameter is old(KIND)", "which one"),
            ("cuStreamDestroy_v2 sync hStream=old(stream)", "hStream is old", "class destroy"),
            ("cuStreamDestroy_v2 destroy hStream=old(event)", "not a handle of kind 'event'", "'stream'"),
            ("cuLaunchHostFunc async userData=address", "is a callback", "manual"),
            ("cuModuleLoadDataEx create module=new(module) image=in[1] options=in[numOptions] optionValues=in[numOptions]",
             "points to pointers", "manual"),
            ("cuMemcpy2D_v2 sync pCopy=in[1]", "holds handles (srcArray, dstArray)", "manual"),
            ("cuMemCreate create handle=new(allocation) prop=in[1]", "holds pointers without a length (win32HandleMetaData)",
             ",nulls"),
            ("cuMemSetAccess sync desc=in[count],nulls", "holds no pointer", "remove"),
            ("cuGreenCtxRecordEvent async", "handle of no kind", "handle KIND CUgreenCtx"),
            ("handle stream CUstream", "defined twice", "keep one"),
            ("handle thing CUthing", "no type 'CUthing'", "CUstream"),
            ("handle thing", "'handle thing'", "handle KIND CTYPE"),
        ]:
            with self.subTest(line):
                self.refused(line, what, fix)

    def test_twice(self):
        self.assertIn("given twice", errors_of("refused key one", "refused key two")[0])
        found = errors_of("cuEventQuery sync", "cuEventQuery sync")
        self.assertEqual(found, [f"file:{KIND_LINES + 2}: cuEventQuery is annotated twice, first in line {KIND_LINES + 1}; "
                                 "keep one of the lines"])

    def test_all_errors_are_reported_at_once(self):
        self.assertEqual(len(errors_of("cuNoSuch sync", "", "# comment", "cuEventQuery never")), 2)

    def test_lengths(self):
        for text, expected in [("4", [[4]]), ("n", [["n"]]), ("*n", [["*n"]]), ("a*b", [["a", "b"]]), ("a**b", [["a", "*b"]]),
                               ("a*2+3", [["a", 2], [3]]), ("rank-1", [["rank"], [1]])]:
            with self.subTest(text):
                self.assertEqual([term.factors for term in annotations.parse_length(text)], expected)
        for text in ["", "a*", "a+", "+a", "a//b", "a b", "(a)", "***a"]:
            with self.subTest(text):
                self.assertIsNone(annotations.parse_length(text))


class OneLine(unittest.TestCase):
    """Adding a function is one line: shown on a copy of the annotations."""

    def generate(self, text):
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, "copy.annotations")
            copy.write_text(text)
            run = subprocess.run([sys.executable, DRIVER_API / "generator", "--cuda-include", CUDA, "--annotations", copy,
                                  "--compiler", CXX, "--out", Path(scratch, "out")], capture_output=True, text=True)
            files = {path.name: path.read_text() for path in Path(scratch, "out").rglob("*") if path.is_file()}
            if "messages.hpp" in files:
                source = Path(scratch, "out/check.cpp")
                source.write_text('#include "driver_api/calls.hpp"\n')
                compiled = subprocess.run(
                    [CXX, "-std=c++23", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-I",
                     Path(scratch, "out"), "-I", DRIVER_API / "include", "-I", DRIVER_API.parent / "libcuda/include", "-I", ROOT / "common/include", "-isystem", CUDA,
                     source], capture_output=True, text=True)
                self.assertEqual(compiled.returncode, 0, compiled.stderr[:4000])
            return run, files

    def with_line(self, text, line):
        """The annotations with another line for a function."""
        changed, count = re.subn(rf"^{line.split()[0]} .*$", line, text, flags=re.M)
        self.assertEqual(count, 1)
        return changed

    def test_one_more_line(self):
        before = ANNOTATIONS.read_text()
        run, files = self.generate(self.with_line(before, "cuMulticastGetGranularity sync granularity=out[1] prop=in[1]"))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("struct MulticastGetGranularityRequest {", files["messages.hpp"])
        self.assertIn("struct MulticastGetGranularityCall {", files["calls.hpp"])
        self.assertIn("X(MulticastGetGranularity)", files["messages.hpp"])
        self.assertRegex(files["driver-api.md"], r"\| cuMulticastGetGranularity \| 12\.\d \| sync \|")
        self.assertIn('{"cuMulticastGetGranularity", "cuMulticastGetGranularity", ApiClass::sync', files["tables.cpp"])
        # Ids hang on the names alone.
        self.assertEqual(files["api_id.hpp"], (GENERATED / "driver_api/api_id.hpp").read_text())

    def test_one_wrong_line(self):
        before = ANNOTATIONS.read_text()
        text = self.with_line(before, "cuMulticastGetGranularity sync granularity=out[1]")
        run, files = self.generate(text)
        self.assertEqual(run.returncode, 1)
        line = text.splitlines().index("cuMulticastGetGranularity sync granularity=out[1]") + 1
        self.assertRegex(run.stderr, rf"copy\.annotations:{line}: cuMulticastGetGranularity: prop .* "
                                     r"pointer without a length; say prop=in\[N\]")
        self.assertEqual(files.keys() - {"copy.annotations"}, set())

    def test_the_same_input_gives_the_same_files(self):
        _, files = self.generate(ANNOTATIONS.read_text())
        for name in ("messages.hpp", "calls.hpp"):
            self.assertEqual(files[name], (GENERATED / "driver_api" / name).read_text())
        for name in ("tables.cpp", "messages0.cpp", "libcuda.map", "driver-api.md"):
            self.assertEqual(files[name], (GENERATED / name).read_text())


class Page(unittest.TestCase):
    def test_every_function_has_its_class(self):
        text = (GENERATED / "driver-api.md").read_text()
        listed = dict(re.findall(r"^\| (cu\w+) \| [\d.]+ \| (\w+) \|", text, re.M))
        self.assertEqual(set(listed), {s for s in HEADER.functions if versions.legacy_symbol(s) == s})
        self.assertEqual(listed["cuLaunchKernel"], "manual")
        self.assertEqual(listed["cuMemcpyHtoD_v2"], "async")
        self.assertEqual(listed["cuGLInit"], "unsupported")

    def test_every_function_is_supported_or_has_a_reason(self):
        api = annotations.read(HEADER, "file", ANNOTATIONS.read_text())
        self.assertEqual({s for s in HEADER.functions if versions.legacy_symbol(s) not in api.functions}, set(), "functions without a line")
        refused = {s: function.reason for s, function in api.functions.items() if function.api_class == "unsupported"}
        self.assertEqual({s for s, reason in refused.items() if not reason}, set(), "refused without a reason")
        self.assertEqual(set(api.reasons), set(refused.values()), "reasons that no function has")
        text = (GENERATED / "driver-api.md").read_text()
        shown = dict(re.findall(r"^\| (cu\w+) \| [\d.]+ \| unsupported \| \w* \| (.+) \|$", text, re.M))
        self.assertEqual(shown, {s: api.reasons[reason] for s, reason in refused.items()})


if __name__ == "__main__":
    unittest.main()
