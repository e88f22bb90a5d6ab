# SPDX-License-Identifier: GPL-2.0-or-later
"""The annotation file: its grammar, and the checks of each line against the header. driver_api.annotations explains it."""

import re
from dataclasses import dataclass, field

from cheader import BUILTIN
from versions import legacy_symbol

CLASSES = ["local", "async", "sync", "create", "destroy", "manual", "unsupported"]
WIRE_CLASSES = ["async", "sync", "create", "destroy"]


class AnnotationError(Exception):
    """All problems of a file, each as 'file:line: what; fix'."""


@dataclass
class Term:
    factors: list  # integers, parameter names, '*parameter' (the value pointed to)
    minus: bool = False


@dataclass
class Use:
    """How one parameter travels."""
    parameter: object
    role: str  # scalar value struct handle new old in out inout outlives string address null
    length: list = field(default_factory=list)  # [Term], from left to right added or taken away: the number of elements
    nullable: bool = False
    nulls: bool = False  # the pointers inside the struct must be NULL
    kind: str = ""  # of a handle
    element: int = 0  # bytes; 0 = sizeof(the struct)


@dataclass
class Annotation:
    symbol: str
    api_class: str
    uses: list
    line: int
    reason: str = ""  # key of Api.reasons: why it is refused


@dataclass
class Api:
    kinds: dict  # handle kind -> C type
    functions: dict  # legacy symbol -> Annotation
    reasons: dict = field(default_factory=dict)  # key -> text, of functions that are refused


def parse_length(text):
    terms = []
    for sign, term in re.findall(r"(^|[+-])([^+-]*)", text):
        factors = []
        # '*' both multiplies and dereferences: as in C, the first of two operands' stars multiplies.
        for factor in re.findall(r"(?:^|\*)(\*?\w+)", term):
            factors.append(int(factor) if factor.isdigit() else factor)
        rebuilt = "*".join(str(factor) for factor in factors)
        if not factors or rebuilt != term:
            return None
        terms.append(Term(factors, sign == "-"))
    return terms


class Reader:
    def __init__(self, header, path, text):
        self.header, self.path, self.text = header, path, text
        self.errors, self.line = [], 0
        self.api = Api({}, {})
        self.legacy = {s: f for s, f in header.functions.items() if legacy_symbol(s) == s}
        # Declared as a per-thread variant only: the default variant has the same parameters.
        for symbol, function in header.functions.items():
            self.legacy.setdefault(legacy_symbol(symbol), function)

    def error(self, what, fix):
        self.errors.append(f"{self.path}:{self.line}: {what}; {fix}")

    def read(self):
        for self.line, raw in enumerate(self.text.splitlines(), 1):
            words = raw.split("#", 1)[0].split()
            if not words:
                continue
            if words[0] == "handle":
                self.read_handle(words)
            elif words[0] == "refused":
                self.read_reason(words)
            else:
                self.read_function(words)
        if self.errors:
            raise AnnotationError("\n".join(self.errors))
        return self.api

    def read_handle(self, words):
        if len(words) != 3:
            self.error(f"'{' '.join(words)}'", "write: handle KIND CTYPE")
            return
        _, kind, ctype = words
        if ctype not in self.header.opaque and ctype not in self.header.aliases:
            self.error(f"the header has no type '{ctype}'", "name a handle type of cuda.h, such as CUstream")
        elif kind in self.api.kinds:
            self.error(f"handle kind '{kind}' is defined twice", "keep one of the lines")
        else:
            self.api.kinds[kind] = ctype

    def read_reason(self, words):
        if len(words) < 3:
            self.error(f"'{' '.join(words)}'", "write: refused KEY WHY...")
        elif words[1] in self.api.reasons:
            self.error(f"the reason '{words[1]}' is given twice", "keep one of the lines")
        else:
            self.api.reasons[words[1]] = " ".join(words[2:])

    def kind_of(self, ctype):
        return next((kind for kind, name in self.api.kinds.items() if name == ctype), "")

    def read_function(self, words):
        symbol, api_class, *rest = words + [""] * (2 - len(words))
        if symbol not in self.legacy:
            near = [name for name in self.legacy if name.split("_")[0] == symbol.split("_")[0]]
            if legacy_symbol(symbol) in self.legacy:
                fix = f"annotate {legacy_symbol(symbol)}, its per-thread variant follows"
            elif near:
                fix = "the header has " + ", ".join(sorted(near))
            else:
                fix = "take the symbol's name from cuda.h, with its _v<n>"
            self.error(f"unknown function '{symbol}'", fix)
            return
        if symbol in self.api.functions:
            self.error(f"{symbol} is annotated twice, first in line {self.api.functions[symbol].line}",
                       "keep one of the lines")
            return
        if api_class not in CLASSES:
            self.error(f"{symbol}: unknown class '{api_class}'", "use one of " + ", ".join(CLASSES))
            return
        if api_class == "unsupported" and rest:
            if len(rest) != 1 or rest[0] not in self.api.reasons:
                self.error(f"{symbol}: '{' '.join(rest)}' is no reason", "write a line before it: refused KEY WHY...; there are "
                           + (", ".join(self.api.reasons) or "none"))
                return
            self.api.functions[symbol] = Annotation(symbol, api_class, [], self.line, rest[0])
            return
        function = self.legacy[symbol]
        given, parameters = {}, {p.name: p for p in function.parameters}
        for word in rest:
            match = re.fullmatch(r"(\w+)=(.+)", word)
            if not match:
                self.error(f"{symbol}: '{word}'", "write PARAMETER=ROLE without spaces, e.g. name=string")
            elif match[1] not in parameters:
                self.error(f"{symbol}: unknown parameter '{match[1]}'",
                           "its parameters are " + (", ".join(parameters) or "none"))
            elif match[1] in given:
                self.error(f"{symbol}: '{match[1]}' is given twice", "keep one")
            else:
                given[match[1]] = match[2]
        on_wire = api_class in WIRE_CLASSES
        if not on_wire and rest:
            self.error(f"{symbol}: class {api_class} has no message", "remove the parameters, or choose one of "
                       + ", ".join(WIRE_CLASSES))
        before = len(self.errors)
        uses = []
        if on_wire:
            for parameter in function.parameters:
                use = self.read_use(symbol, parameter, given.get(parameter.name))
                if use:
                    uses.append(use)
            if len(self.errors) == before:
                self.check_lengths(symbol, uses)
                self.check_class(symbol, api_class, uses)
        self.api.functions[symbol] = Annotation(symbol, api_class, uses, self.line)

    def read_use(self, symbol, parameter, text):
        ctype, resolved = parameter.type, self.header.resolve(parameter.type)
        where = f"{symbol}: {parameter.name} ({parameter.spelling})"
        kind = self.kind_of(ctype)
        if ctype in self.header.callbacks:
            return self.error(f"{where} is a callback", "no message can carry one: use the class manual")
        if parameter.pointers == 0:
            return self.read_value(where, parameter, text, kind, resolved)
        if text is None:
            return self.error(f"{where} is a pointer without a length",
                              f"say {parameter.name}=in[N], out[N], inout[N], string, new(KIND), outlives[N], address or null")
        if text in ("address", "null"):
            return Use(parameter, text)
        if text in ("string", "string?"):
            if (resolved, parameter.pointers, parameter.const) != ("char", 1, True):
                return self.error(f"{where} is not a string", "only const char* is; use in[N]")
            return Use(parameter, "string", nullable=text.endswith("?"))
        if match := re.fullmatch(r"new\((\w+)\)", text):
            if parameter.pointers != 1 or parameter.const or kind != match[1]:
                return self.error(f"{where} does not receive a handle of kind '{match[1]}'",
                                  f"its kind is '{kind}'" if kind else "it is no handle type of a 'handle' line")
            return Use(parameter, "new", kind=kind)
        match = re.fullmatch(r"(in|out|inout|outlives)\[([^\]]+)\](\?)?(,nulls)?", text)
        if not match:
            return self.error(f"{where}: unknown role '{text}'",
                              "use in[N], out[N], inout[N], string, new(KIND), outlives[N], address or null")
        length = parse_length(match[2])
        if not length:
            return self.error(f"{where}: cannot read the length '{match[2]}'",
                              "use integers, parameters and *parameters joined by * + -")
        role = match[1]
        if role in ("out", "inout") and parameter.const:
            return self.error(f"{where} is const and cannot be written", "use in[N]")
        use = Use(parameter, role, length, bool(match[3]), bool(match[4]), kind)
        return use if self.set_element(where, use, resolved) else None

    def read_value(self, where, parameter, text, kind, resolved):
        if match := re.fullmatch(r"(handle|old)\((\w+)\)", text or ""):
            if kind != match[2]:
                return self.error(f"{where} is not a handle of kind '{match[2]}'",
                                  f"its kind is '{kind}'" if kind else "it is no handle type of a 'handle' line")
            return Use(parameter, match[1], kind=kind)
        if text is not None:
            return self.error(f"{where} is passed by value: '{text}'", "use handle(KIND), old(KIND) or nothing")
        if kind:
            return Use(parameter, "handle", kind=kind)
        if parameter.type in self.header.opaque:
            return self.error(f"{where} is a handle of no kind", f"add a line: handle KIND {parameter.type}")
        if resolved in self.header.structs:
            use = Use(parameter, "struct")
            return use if self.set_element(where, use, resolved) else None
        if resolved in BUILTIN or resolved in self.header.enums:
            return Use(parameter, "scalar")
        return self.error(f"{where}: unknown type", "use the class manual")

    def set_element(self, where, use, resolved):
        """Size of an element, and whether its bytes mean the same in another process."""
        parameter = use.parameter
        if parameter.pointers > 1:
            self.error(f"{where} points to pointers", "no message can carry them: use the class manual")
            return False
        if use.kind or parameter.type in self.header.opaque:
            if not use.kind:
                self.error(f"{where} points to handles of no kind", f"add a line: handle KIND {parameter.type}")
                return False
            use.element = 8
        elif resolved == "void":
            use.element = 1
        elif resolved in BUILTIN:
            use.element = BUILTIN[resolved][0]
        elif resolved in self.header.enums:
            use.element = 4
        elif resolved in self.header.structs:
            inner = self.inner(resolved)
            handles = [m.path for m in inner if m.pointers == 0]
            pointers = [m.path for m in inner if m.pointers]
            if handles:
                self.error(f"{where} holds handles ({', '.join(handles)})", "use the class manual")
                return False
            if pointers and not use.nulls:
                self.error(f"{where} holds pointers without a length ({', '.join(pointers)})",
                           "use the class manual, or add ',nulls' if they must be NULL")
                return False
            if use.nulls and not pointers:
                self.error(f"{where}: ',nulls', but the struct holds no pointer", "remove it")
                return False
        else:
            self.error(f"{where}: the header does not say what {parameter.type} is", "use the class manual")
            return False
        return True

    def inner(self, struct, prefix=""):
        """Members, at any depth, that are pointers or handles."""
        out = []
        for member in self.header.structs[struct]:
            resolved = self.header.resolve(member.type)
            path = prefix + member.path
            if member.pointers or member.type in self.header.callbacks:
                out.append(type(member)(path, member.type, 1))
            elif member.type in self.header.opaque or self.kind_of(member.type):
                out.append(type(member)(path, member.type, 0))
            elif resolved in self.header.structs:
                out += self.inner(resolved, path + ".")
        return out

    def check_lengths(self, symbol, uses):
        by_name = {use.parameter.name: use for use in uses}
        for use in uses:
            for factor in (f for term in use.length for f in term.factors if not isinstance(f, int)):
                name = factor.lstrip("*")
                where, target = f"{symbol}: length of {use.parameter.name}", by_name.get(name)
                if target is None:
                    self.error(f"{where}: unknown parameter '{name}'", "its parameters are " + ", ".join(by_name))
                elif factor.startswith("*"):
                    one = target.length and len(target.length) == 1 and target.length[0].factors == [1]
                    if target.role not in ("in", "inout") or not one or not self.integer(target):
                        self.error(f"{where}: '{factor}' is not known when the call is sent",
                                   f"{name} must be in[1] or inout[1] of an integer type")
                elif target.role != "scalar" or not self.integer(target):
                    self.error(f"{where}: '{name}' is not an integer", "use an integer parameter passed by value")

    def integer(self, use):
        resolved = self.header.resolve(use.parameter.type)
        return resolved in BUILTIN and resolved not in ("float", "double")

    def check_class(self, symbol, api_class, uses):
        outputs = [u.parameter.name for u in uses if u.role in ("out", "inout")]
        new = [u.parameter.name for u in uses if u.role == "new"]
        old = [u.parameter.name for u in uses if u.role == "old"]
        if api_class == "async" and outputs:
            self.error(f"{symbol} is async, but returns {', '.join(outputs)}", "use the class sync")
        if new and api_class != "create":
            self.error(f"{symbol} is {api_class}, but {', '.join(new)} is new", "use the class create")
        if old and api_class != "destroy":
            self.error(f"{symbol} is {api_class}, but {', '.join(old)} is old", "use the class destroy")
        if api_class == "create" and not new:
            self.error(f"{symbol} is create, but no parameter is new(KIND)", "say which one")
        if api_class == "destroy" and not old:
            self.error(f"{symbol} is destroy, but no parameter is old(KIND)", "say which one")


def read(header, path, text):
    return Reader(header, path, text).read()
