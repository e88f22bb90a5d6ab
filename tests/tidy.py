# SPDX-License-Identifier: GPL-2.0-or-later
"""clang-tidy over every source file of a build, once each, skipping what was clean before and has not changed.

Usage: tidy.py BUILD_DIRECTORY [--deep]. --deep: with the Clang Static Analyzer, outside of tests. A file's state is its preprocessed text, the checks and clang-tidy's version; the states
that were clean are remembered in the cache beside the root directories. What tests/tidy.later matches is not checked:
it was never clean, and the list may only get shorter.
"""

import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys

CACHE = os.path.join(os.environ.get("SINGULARITY_CACHE", "/var/cache/slurm-singularity"), "tidy")
HERE = os.path.dirname(os.path.abspath(__file__))
# clang-tidy's own, without run-time type information as it is itself.
COMPILE_PLUGIN = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fno-rtti", "-isystem", "/usr/lib/llvm-19/include",
                  "-isystem", "/usr/include/llvm-19", "-isystem", "/usr/include/llvm-c-19"]


def parts(entry):
    """The entry; of a file that CMake made of several sources of a target, an entry for each of these."""
    if os.path.basename(os.path.dirname(entry["file"])) != "Unity":
        return [entry]
    with open(entry["file"], encoding="utf-8") as file:
        sources = re.findall(r'^#include "(/.*)"$', file.read(), re.MULTILINE)
    if not sources:
        sys.exit(f"tidy: no source found in '{entry['file']}': has CMake changed how it writes such files?")
    return [{**entry, "file": source, "command": entry["command"].replace(entry["file"], source)} for source in sources]


def commands(build):
    """{file: the first command that compiles it by itself}: libraries made several times over have the same text."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = {}
    for entry in (part for whole in entries for part in parts(whole)):
        if not entry["file"].startswith(os.path.abspath(build)):  # generated sources are their generators' matter
            found.setdefault(entry["file"], entry)
    return found


def state_of(entry, common):
    words = shlex.split(entry["command"])
    words = words[words[0].endswith("ccache"):]
    # Without the places of the lines, which would make another checkout another state; with the comments (NOLINT).
    words = words[: words.index("-o")] + ["-E", "-P", "-C", entry["file"]]
    result = subprocess.run(words, cwd=entry["directory"], capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"tidy: cannot preprocess {entry['file']}: {result.stderr.decode(errors='replace')}")
    return hashlib.sha256(common + result.stdout).hexdigest()


def later():
    """The files that the patterns of tests/tidy.later match; each must match something."""
    with open(os.path.join(HERE, "tidy.later"), encoding="utf-8") as file:
        patterns = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    paths = set()
    for pattern in patterns:
        found = glob.glob(os.path.join(os.path.dirname(HERE), pattern), recursive=True)
        if not found:
            sys.exit(f"tidy: '{pattern}' in tests/tidy.later matches nothing any more: remove the line")
        paths.update(found)
    return paths


def configuration(file):
    """The text of every .clang-tidy that applies to the file."""
    texts, directory = [], os.path.dirname(file)
    while directory != "/":
        path = os.path.join(directory, ".clang-tidy")
        if os.path.exists(path):
            with open(path, "rb") as handle:
                texts.append(handle.read())
        directory = os.path.dirname(directory)
    return b"".join(texts)


def scope_plugin(version):
    """The path of tests/tidy_scope.cpp, compiled: once for each text of it and version of clang-tidy."""
    source = os.path.join(HERE, "tidy_scope.cpp")
    with open(source, "rb") as file:
        name = hashlib.sha256(version + " ".join(COMPILE_PLUGIN).encode() + file.read()).hexdigest()
    path = os.path.join(CACHE, f"scope-{name}.so")
    if not os.path.exists(path):
        beside = f"{path}.{os.getpid()}"
        subprocess.run([*COMPILE_PLUGIN, source, "-o", beside], check=True)
        os.rename(beside, path)
    return path


def check(database, file, entry, version, plugin, deep):
    # A failed assertion of cmocka leaves by longjmp, which the analyzer does not know.
    more = ["--checks=clang-analyzer-*"] if deep and not file.startswith(HERE) else []
    stamp = os.path.join(CACHE, state_of(entry, version + configuration(file) + "".join([plugin, *more]).encode()))
    if os.path.exists(stamp):
        return file, True, ""
    words = ["clang-tidy", f"--load={plugin}", "-quiet", "-p", database, *more, file]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        with open(stamp, "w", encoding="utf-8"):
            pass
    return file, result.returncode == 0, result.stdout


def main():
    build, deep = sys.argv[1], sys.argv[2:] == ["--deep"]
    os.makedirs(CACHE, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    plugin = scope_plugin(version)
    skipped = later()
    every = commands(build)
    found = {file: entry for file, entry in every.items() if file not in skipped}
    database = os.path.join(build, "tidy")  # of the sources one by one
    os.makedirs(database, exist_ok=True)
    with open(os.path.join(database, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(list(every.values()), file)
    print(f"{len(found)} files; {len(every) - len(found)} that tests/tidy.later matches are not checked")
    failed = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [pool.submit(check, database, file, entry, version, plugin, deep) for file, entry in sorted(found.items())]
        for done, task in enumerate(concurrent.futures.as_completed(tasks), start=1):
            file, clean, words = task.result()
            print(f"[{done}/{len(tasks)}] {os.path.relpath(file)}{'' if clean else ': FAILED'}", flush=True)
            if not clean:
                failed.append(file)
                print(words, flush=True)
    if failed:
        sys.exit(f"tidy: {len(failed)} of {len(found)} files are not clean")


main()
