# SPDX-License-Identifier: GPL-2.0-or-later
"""clang-tidy over every source file of a build, once each, skipping what was clean before and has not changed.

Usage: tidy.py BUILD_DIRECTORY [--deep]. --deep: with the Clang Static Analyzer, outside of tests. Sources that the build
joins are checked together. Their state is the preprocessed text, the checks and clang-tidy's version; the states that
were clean are remembered in the cache beside the root directories. What tests/tidy.later matches is not checked: it was
never clean, and the list may only get shorter.
"""

import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

CACHE = os.path.join(os.environ.get("SINGULARITY_CACHE", "/var/cache/slurm-singularity"), "tidy")
HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
# clang-tidy's own, without run-time type information as it is itself.
COMPILE_PLUGIN = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fno-rtti", "-isystem", "/usr/lib/llvm-19/include",
                  "-isystem", "/usr/include/llvm-19", "-isystem", "/usr/include/llvm-c-19"]


def parts(entry):
    """The sources of what is compiled: itself, or those that a joined file includes."""
    if os.path.basename(os.path.dirname(entry["file"])) != "Unity":
        return [entry["file"]]
    with open(entry["file"], encoding="utf-8") as file:
        sources = re.findall(r'^#include "(/.*)"$', file.read(), re.MULTILINE)
    if not sources:
        sys.exit(f"tidy: no source found in '{entry['file']}': has CMake changed how it writes such files?")
    return sources


def compiles(entry, file):
    return {**entry, "file": file, "command": entry["command"].replace(entry["file"], file)}


def copied(build, entry, sources):
    """The entry of a copy of a joined file, where the configuration of its sources applies; None: they have several.

    Of sources that are joined for compiling anyway, the headers are parsed once: a fifth of the time.
    """
    configured = {configured_at(source) for source in sources}
    if len(configured) != 1:
        return None
    place = os.path.join(build, "tidy", os.path.relpath(configured.pop(), TOP))
    at = os.path.normpath(place)
    while at != os.path.join(build, "tidy"):  # the project's own is found above the build directory
        os.makedirs(at, exist_ok=True)
        original = os.path.join(TOP, os.path.relpath(at, os.path.join(build, "tidy")), ".clang-tidy")
        if os.path.exists(original):
            shutil.copyfile(original, os.path.join(at, ".clang-tidy"))
        at = os.path.dirname(at)
    with open(entry["file"], encoding="utf-8") as file:
        text = re.sub(r'^(#include "/.*")$', r"\1 // NOLINT(bugprone-suspicious-include)", file.read(), flags=re.M)
    path = os.path.join(place, os.path.relpath(entry["file"], build).replace("/", "-"))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return compiles(entry, path)


def configured_at(source):
    """The directory of the nearest .clang-tidy."""
    directory = os.path.dirname(source)
    while not os.path.exists(os.path.join(directory, ".clang-tidy")):
        directory = os.path.dirname(directory)
    return directory


def units(build, skipped):
    """What is checked at once, each an entry and its sources, and how many sources are skipped.

    Each source comes once: libraries that are made several times over have the same text.
    """
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found, seen, left = [], set(), set()
    for entry in entries:
        # Generated sources are their generators' matter.
        sources = [source for source in parts(entry) if not source.startswith(build)]
        left.update(skipped.intersection(sources))
        new = [source for source in sources if source not in seen and source not in skipped]
        seen.update(new)
        whole = copied(build, entry, new) if len(new) > 1 and new == parts(entry) else None
        if whole:
            found.append((whole, new))
        else:
            found += [(compiles(entry, source), [source]) for source in new]
    return found, len(left)


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


def check(database, entry, sources, version, plugin, deep):
    # A failed assertion of cmocka leaves by longjmp, which the analyzer does not know.
    more = ["--checks=clang-analyzer-*"] if deep and not sources[0].startswith(HERE) else []
    if len(sources) > 1 and sources[0].startswith(HERE):
        more = ["--checks=-misc-use-internal-linkage"]  # each test's main() is in a namespace
    checks = version + configuration(entry["file"]) + "".join([plugin, *more]).encode()
    stamp = os.path.join(CACHE, state_of(entry, checks))
    if os.path.exists(stamp):
        return sources, True, ""
    words = ["clang-tidy", f"--load={plugin}", "-quiet", "-p", database, *more, entry["file"]]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        with open(stamp, "w", encoding="utf-8"):
            pass
    return sources, result.returncode == 0, result.stdout + ("" if result.stdout else result.stderr)


def main():
    build, deep = os.path.abspath(sys.argv[1]), sys.argv[2:] == ["--deep"]
    os.makedirs(CACHE, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    plugin = scope_plugin(version)
    database = os.path.join(build, "tidy")  # of what is checked at once
    shutil.rmtree(database, ignore_errors=True)
    os.makedirs(database)
    found, left = units(build, later())
    with open(os.path.join(database, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump([entry for entry, _ in found], file)
    files = sum(len(sources) for _, sources in found)
    print(f"{files} files; {left} that tests/tidy.later matches are not checked")
    done, failed = 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [pool.submit(check, database, entry, sources, version, plugin, deep) for entry, sources in found]
        for task in concurrent.futures.as_completed(tasks):
            sources, clean, words = task.result()
            done += len(sources)
            names = " ".join(map(os.path.relpath, sources))
            print(f"[{done}/{files}] {names}{'' if clean else ': FAILED'}", flush=True)
            if not clean:
                failed += 1
                print(words, flush=True)
    if failed:
        sys.exit(f"tidy: {failed} of {len(found)} units are not clean")


main()
