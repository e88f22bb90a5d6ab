#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""ask.py LIBRARY < questions > answers: what a libcuda.so.1 answers where there is no device.

The questions are those of questions.py; the answers are {question: answer}, both in words, as JSON. A process of its own asks each group of
questions: a library may crash over one, hang, or answer the next one differently.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time

LIMIT_S = 20  # for a group of questions, of which most take a millisecond
BUFFER = 65536  # more than any structure of the driver API
UNTOUCHED = 0x5151  # what an output holds before the call; nobody answers this
RESULTS = {0: "success", 1: "invalid value", 3: "not initialized", 100: "no device", 201: "invalid context", 301: "file not found",
           400: "invalid handle", 500: "not found", 801: "not supported", 914: "invalid resource type"}
SLOT = 8  # bytes, of an export table


class Library:
    """All arguments travel as words of 8 bytes, which is what integers, handles, pointers and small structures are on x86-64."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def call(self, name, *arguments):
        words = (ctypes.c_uint64(argument % (1 << 64)) if isinstance(argument, int) else argument for argument in arguments)
        return getattr(self.library, name)(*words)

    def has(self, name):
        return hasattr(self.library, name)


def said(result):
    return RESULTS.get(result, f"error {result}")


def in_child(ask):
    """What ask() yields, in a process of its own; at last, in words, how that ended, unless all went well."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)  # what libraries log about such questions
            for answer in ask():
                os.write(write, (json.dumps(answer) + "\n").encode())
        except BaseException as error:
            os.write(write, (json.dumps(f"asking failed: {error!r}") + "\n").encode())
        os._exit(0)
    os.close(write)
    text, late, deadline = b"", False, time.monotonic() + LIMIT_S
    while True:
        if not late and not select.select([read], [], [], max(0, deadline - time.monotonic()))[0]:
            late = True
            os.kill(child, signal.SIGKILL)
        part = os.read(read, 1 << 20)
        if not part:
            break
        text += part
    os.close(read)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answers = [json.loads(line) for line in text.decode().splitlines()]
    if late:
        answers.append("no answer in time")
    elif status != 0:
        answers.append("crashes" if status < 0 else f"ends the process with {status}")
    return answers


def call_of(library, name, pointers, kind, when):
    """One call, with all arguments 0, or with a buffer of zeros for each pointer."""
    if when == "after":
        library.call("cuInit", 0)
    buffers = [ctypes.create_string_buffer(BUFFER) if pointer and kind == "buffers" else None for pointer in pointers]
    return said(library.call(name, *(ctypes.addressof(buffer) if buffer else 0 for buffer in buffers)))


def ask_calls(library, functions):
    """Each function before cuInit, and after it has found no device; what follows a crash is asked of another process.

    What a function answers to all of that alike is said once.
    """
    for name, pointers in functions.items():
        if not library.has(name):
            continue
        left = [(when, kind) for when in ("before", "after") for kind in ("zeros", "buffers") if kind == "zeros" or any(pointers)]
        found = {}
        while left:
            for answer in in_child(lambda: (call_of(library, name, pointers, kind, when) for when, kind in left))[:len(left)]:
                when, kind = left.pop(0)
                found.setdefault(kind, {})[when] = answer
        texts = {kind: whens["before"] + (f", after cuInit {whens['after']}" if whens["after"] != whens["before"] else "")
                 for kind, whens in found.items()}
        alike = len(set(texts.values())) == 1
        yield f"call {name}", texts["zeros"] if alike else f"zeros: {texts['zeros']}; buffers: {texts['buffers']}"


def ask_starting(library):
    """cuInit, with which flags, and again; the version of the driver."""
    for flags in ([0], [1], [0, 0], [1, 0], [0, 1], [0xffffffff]):
        yield f"cuInit {' then '.join(map(str, flags))}", in_child(lambda: (said(library.call("cuInit", flag)) for flag in flags))[-1]
    version = ctypes.c_int(UNTOUCHED)
    yield "cuDriverGetVersion", f"{said(library.call('cuDriverGetVersion', ctypes.byref(version)))}: {version.value}"


def symbols_by_address(library, symbols):
    found = {}
    for name in filter(library.has, symbols):
        found.setdefault(ctypes.cast(getattr(library.library, name), ctypes.c_void_p).value, name)
    return found


def proc_address(library, known, function, name, version, flags, *, with_status):
    """What a version of cuGetProcAddress answers: the symbol, and what it says and writes where it gives none."""
    found, status = ctypes.c_void_p(UNTOUCHED), ctypes.c_int(UNTOUCHED)
    more = [ctypes.byref(status) if with_status else 0] if function == "cuGetProcAddress_v2" else []
    result = library.call(function, ctypes.c_char_p(name.encode()), ctypes.byref(found), version, flags, *more)
    if result != 0:
        given = "" if found.value == UNTOUCHED and status.value == UNTOUCHED else ", and writes an output"
        return said(result) + given
    if not found.value:
        return f"nothing, status {status.value}" if with_status else "nothing"
    return known.get(found.value, "a function that is not exported")


def ask_proc_addresses(library, symbols, names, versions, flags, later):
    """Of the versions up to the driver's own; and of later ones."""
    def runs(known, name, flag, asked):
        out = []
        for version in asked:
            answer = proc_address(library, known, "cuGetProcAddress_v2", name, version, flag, with_status=True)
            if not out or out[-1][1] != answer:
                out.append((version, answer))
        return ", ".join(f"from {version} {answer}" for version, answer in out)

    def ask():
        known = symbols_by_address(library, symbols)
        for name in names:
            for flag in flags:
                yield f"cuGetProcAddress {name} {flag}", runs(known, name, flag, versions)
                yield f"cuGetProcAddress later {name} {flag}", runs(known, name, flag, later)
    return in_child(ask)


def ask_odd_proc_addresses(library, odd):
    known = symbols_by_address(library, ["cuInit"])
    for name, version, flags in odd:
        for function, with_status in (("cuGetProcAddress_v2", True), ("cuGetProcAddress_v2", False), ("cuGetProcAddress", False)):
            question = f"{function}{' without status' * (function == 'cuGetProcAddress_v2' and not with_status)}: '{name}' {version} {flags}"
            def ask():
                yield proc_address(library, known, function, name, version, flags, with_status=with_status)
            yield question, in_child(ask)[-1]


def ask_errors(library, codes):
    def ask():
        for function in ("cuGetErrorName", "cuGetErrorString"):
            for code in codes:
                text = ctypes.c_char_p(b"untouched")
                result = library.call(function, code, ctypes.byref(text))
                yield f"{function} {code}", f"{said(result)}: {text.value.decode() if text.value is not None else None}"
    return in_child(ask)


def ask_tables(library, uuids):
    """How many slots each export table has. That of context-local storage has no size in front: there the first word is an address."""
    for uuid in uuids:
        def ask():
            table = ctypes.c_void_p(UNTOUCHED)
            result = library.call("cuGetExportTable", ctypes.byref(table), ctypes.c_char_p(bytes.fromhex(uuid.replace("-", ""))))
            if result != 0 or not table.value:
                yield said(result) + (", and writes an address" if table.value == UNTOUCHED else "")
                return
            size = ctypes.c_uint64.from_address(table.value).value
            yield f"{size // SLOT} slots" if size < 1 << 16 else "no size"
        yield f"export table {uuid}", in_child(ask)[-1]


def main():
    library, questions = Library(sys.argv[1]), json.load(sys.stdin)
    answers = {}
    for group in (ask_starting(library), ask_errors(library, questions["codes"]), ask_tables(library, questions["tables"]),
                  ask_proc_addresses(library, questions["symbols"], questions["names"], questions["versions"], questions["flags"], questions["later"]),
                  ask_odd_proc_addresses(library, questions["odd"]), ask_calls(library, questions["functions"])):
        answers.update(group)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
