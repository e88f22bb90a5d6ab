# SPDX-License-Identifier: GPL-2.0-or-later
"""What the toolkit's headers declare: functions, types, and the function-pointer typedefs with their versions.

The compiler's preprocessor does the reading that a parser could get wrong (comments, #if, line splices); what it leaves
of these C headers is flat enough for a few regular expressions. A declaration that they do not understand is an error.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

# __CUDA_API_VERSION_INTERNAL makes cuda.h declare every version and every per-thread variant side by side.
DEFINES = ["-D__CUDA_API_VERSION_INTERNAL"]
HEADERS = ["cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"]
TYPEDEF_HEADERS = ["cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h",
                   "cudaVDPAUTypedefs.h"]
# What the interoperability headers include and no build machine needs to have: only their names are wanted here.
FOREIGN_HEADERS = ["GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h"]

BUILTIN = {  # C type -> (size in bytes on LP64, type on the wire)
    "char": (1, "std::int8_t"), "signed char": (1, "std::int8_t"), "unsigned char": (1, "std::uint8_t"),
    "short": (2, "std::int16_t"), "unsigned short": (2, "std::uint16_t"),
    "int": (4, "std::int32_t"), "unsigned int": (4, "std::uint32_t"), "unsigned": (4, "std::uint32_t"),
    "long long": (8, "std::int64_t"), "unsigned long long": (8, "std::uint64_t"),
    "size_t": (8, "std::uint64_t"), "float": (4, "float"), "double": (8, "double"),
    "uint32_t": (4, "std::uint32_t"), "uint64_t": (8, "std::uint64_t"),
    "int64_t": (8, "std::int64_t"), "int32_t": (4, "std::int32_t"), "GLuint": (4, "std::uint32_t"),
    "cuuint32_t": (4, "std::uint32_t"), "cuuint64_t": (8, "std::uint64_t"),
}


class HeaderError(Exception):
    pass


@dataclass
class Parameter:
    name: str
    type: str  # base type's name, without const
    pointers: int = 0
    const: bool = False  # of what the first pointer points to

    @property
    def spelling(self):
        return ("const " if self.const else "") + self.type + (" " + "*" * self.pointers if self.pointers else "")


@dataclass
class Function:
    symbol: str
    parameters: list
    header: str


@dataclass
class Member:
    path: str
    type: str
    pointers: int


@dataclass
class Header:
    functions: dict = field(default_factory=dict)  # symbol -> Function
    typedefs: dict = field(default_factory=dict)  # PFN name -> Function
    aliases: dict = field(default_factory=dict)  # type -> type
    enums: set = field(default_factory=set)
    structs: dict = field(default_factory=dict)  # name -> [Member]
    opaque: set = field(default_factory=set)  # pointers to undeclared structs: the API's handles
    callbacks: set = field(default_factory=set)
    version: int = 0

    def resolve(self, name):
        """The type behind a chain of typedefs; stops at the API's own names (enums, structs, handles)."""
        seen = set()
        while name in self.aliases and name not in self.opaque and name not in seen:
            seen.add(name)
            name = self.aliases[name]
        return name

    def signature(self, function):
        return tuple((self.resolve(p.type), p.pointers, p.const) for p in function.parameters)


def preprocess(compiler, cuda_include, header):
    """Text of the toolkit's own headers reached from `header`, macros expanded and comments gone."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in FOREIGN_HEADERS:
            path = Path(scratch, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text("")
        command = [*compiler, "-E", "-x", "c++", *DEFINES, "-I", str(cuda_include), "-idirafter", scratch,
                   "-include", "cuda.h", str(Path(cuda_include, header))]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise HeaderError(f"cannot preprocess {header}: {' '.join(command)}: {run.stderr.strip()}")
    kept, ours = [], False
    inside = str(Path(cuda_include).resolve())
    for line in run.stdout.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = str(Path(marker[1]).resolve()).startswith(inside)
        elif ours:
            kept.append(line)
    return "\n".join(kept)


def declarations(text):
    """Declarations at namespace level, one string each, white space normalised."""
    text = re.sub(r'extern "C"(\s*\{)?', " ", text)
    # Attributes: their arguments nest at most once in these headers, as in __attribute__((deprecated("..."))).
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    depth, start, out = 0, 0, []
    for at, char in enumerate(text):
        if char == "{":
            depth += 1
        elif char == "}":
            if depth == 0:  # closes extern "C"
                start = at + 1
            else:
                depth -= 1
        elif char == ";" and depth == 0:
            out.append(" ".join(text[start:at].split()))
            start = at + 1
    return [item for item in out if item]


def split_commas(text):
    depth, start, out = 0, 0, []
    for at, char in enumerate(text):
        depth += char in "([{"
        depth -= char in ")]}"
        if char == "," and depth == 0:
            out.append(text[start:at].strip())
            start = at + 1
    out.append(text[start:].strip())
    return out


def parse_parameter(text, where):
    text = re.sub(r"\b(struct|enum|union)\s+", "", text)
    array = re.search(r"\[[^\]]*\]\s*$", text)
    if array:
        text = text[:array.start()].strip()
    match = re.fullmatch(r"(?P<front>[\w\s]+?)\s*(?P<stars>[*\s]*(?:\bconst\b[*\s]*)*)\b(?P<name>\w+)", text)
    if not match:
        raise HeaderError(f"{where}: cannot read the parameter '{text}'")
    words = match["front"].split()
    const = "const" in words
    base = " ".join(word for word in words if word != "const")
    return Parameter(match["name"], base, match["stars"].count("*") + bool(array), const)


def parse_parameters(text, where):
    return [] if text.strip() in ("", "void") else [parse_parameter(item, where) for item in split_commas(text)]


def parse_members(body, prefix, out):
    """Flattens a struct's body; of a nested struct or union the members, each with its dotted path."""
    for item in declarations(body):
        nested = re.match(r"(?:struct|union)(?: \w+)? ?\{(.*)\} ?(\w*)(\[[^\]]*\])?$", item)
        if nested:
            parse_members(nested[1] + ";", prefix + (nested[2] + "." if nested[2] else ""), out)
            continue
        if re.match(r"enum\b.*\{", item):
            continue
        callback = re.search(r"\(\s*\*\s*(\w+)\)\s*\(", item)
        if callback:
            out.append(Member(prefix + callback[1], "function pointer", 1))
            continue
        first, *others = split_commas(item)
        first = re.sub(r":\s*\d+$", "", first)
        stars = first.count("*")
        first = first.replace("*", " ")
        while re.search(r"\[[^\]]*\]\s*$", first):
            first = re.sub(r"\[[^\]]*\]\s*$", "", first)
        words = [word for word in first.split() if word not in ("const", "struct", "union", "enum")]
        base = " ".join(words[:-1])
        out.append(Member(prefix + words[-1], base, stars))
        for other in others:
            out.append(Member(prefix + other.strip("* "), base, other.count("*")))


def absorb(model, text, header):
    for item in declarations(text):
        if match := re.fullmatch(r"CUresult (cu\w+) ?\((.*)\)", item):
            known = model.functions.get(match[1])
            function = Function(match[1], parse_parameters(match[2], f"{header}: {match[1]}"), header)
            if known and model.signature(known) != model.signature(function):
                raise HeaderError(f"{header}: {match[1]} is declared twice, with different parameters")
            model.functions.setdefault(match[1], function)
        elif match := re.fullmatch(r"typedef CUresult ?\( ?\*PFN_(\w+)\) ?\((.*)\)", item):
            model.typedefs[match[1]] = Function(match[1], parse_parameters(match[2], f"{header}: PFN_{match[1]}"),
                                                header)
        elif match := re.fullmatch(r"typedef enum (?:\w+ )?\{.*\} ?(\w+)", item):
            model.enums.add(match[1])
        elif match := re.fullmatch(r"typedef (?:struct|union) (\w+ )?(?:alignas\(\w+\) ?)?\{(.*)\} ?(\w+)", item):
            members = []
            parse_members(match[2], "", members)
            model.structs[match[3]] = members
            if match[1]:
                model.aliases.setdefault(match[1].strip(), match[3])
        elif match := re.fullmatch(r"(?:struct|union) (?:alignas\(\w+\) ?)?(\w+) \{(.*)\}", item):
            members = []
            parse_members(match[2], "", members)
            model.structs[match[1]] = members
        elif match := re.fullmatch(r"typedef struct (\w+) ?\* ?(\w+)", item):
            model.opaque.add(match[2])
        elif re.fullmatch(r"typedef [\w ]+\** ?\( ?\*(\w+)\) ?\(.*\)", item):
            model.callbacks.add(re.search(r"\( ?\*(\w+)\)", item)[1])
        elif match := re.fullmatch(r"typedef (?:const )?(?:struct |enum |union )?([\w ]+?) (\w+)", item):
            if match[1] != match[2]:
                model.aliases[match[2]] = match[1]


def read(compiler, cuda_include):
    """compiler: command as a list. cuda_include: the toolkit's include directory."""
    model = Header()
    for header in [*HEADERS, *TYPEDEF_HEADERS]:
        absorb(model, preprocess(compiler, cuda_include, header), header)
    text = Path(cuda_include, "cuda.h").read_text(encoding="utf-8", errors="replace")
    version = re.search(r"^#define CUDA_VERSION (\d+)", text, re.M)
    if not version:
        raise HeaderError("cuda.h: no CUDA_VERSION")
    model.version = int(version[1])
    # An alias of a handle is that handle (CUdevice_v1 = int stays an integer).
    for alias, target in list(model.aliases.items()):
        if target in model.opaque and alias.startswith("CU"):
            model.opaque.add(alias)
    return model
