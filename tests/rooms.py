# SPDX-License-Identifier: GPL-2.0-or-later
"""The house's walls: which room includes which, circles of units, READMEs, and the length of files.

Usage: rooms.py [--print]. A room is a directory of a component with a README.md. Checked are:

* what a room includes of another: as tests/rooms.table says, which has no line too many; public headers (.../include/...) are the
  business of common/cmake/Components.cmake. --print writes the table as the sources have it.
* README.md of a room: its table of files names every unit (X.hpp and X.cpp) or the folder in which it is, and nothing that is not
  there; its "May use" names every room of the table but those that the room is in.
* what the project's README.md says of where a change goes is there.
* no circle of units that include each other, but for those of tests/circles.later, whose lines are circles still.
* no file of the components has more than 700 lines, but for those of tests/long.later.
"""

import collections
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
COMPONENTS = ("common", "proxy", "criu-hooks", "select-plugin", "spank")
LINES = 700


def sources():
    found = []
    for component in COMPONENTS:
        for end in ("hpp", "cpp", "c", "h"):
            found += glob.glob(f"{component}/**/*.{end}", recursive=True)
    return sorted(found)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def lines_of(name):
    """Of a list in tests/, without comments."""
    return [line.strip() for line in read(os.path.join(HERE, name)).splitlines() if line.strip() and not line.startswith("#")]


def files_by_end(files):
    """{how an include may name a file: the files that it may mean}"""
    by_end = collections.defaultdict(set)
    for file in files:
        parts = file.split("/")
        for at in range(len(parts)):
            by_end["/".join(parts[at:])].add(file)
    return by_end


def resolved(file, name, by_end):
    """The header that the file means: beside it, or the one nearest to it that ends so. None: it is not the project's."""
    beside = os.path.normpath(os.path.join(os.path.dirname(file), name))
    found = by_end.get(name, set())
    if beside in found:
        return beside
    return max(found, key=lambda one: (len(os.path.commonpath([one, file])), one), default=None)


def unit_of(file):
    """Without its ending; a public header is of the room whose name it is included by."""
    return re.sub(r"^(.+)/include/\1/", r"\1/", os.path.splitext(file)[0])


def room_of(file, rooms):
    place = os.path.dirname(unit_of(file))
    while place and place not in rooms:
        place = os.path.dirname(place)
    return place


def circles(graph):
    """The strongly connected components of more than one unit (Tarjan)."""
    index, low, stack, out = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in graph[unit]:
            if other not in index:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], index[other])
        if low[unit] == index[unit]:
            at = stack.index(unit)
            if len(stack) - at > 1:
                out.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for unit in sorted(graph):
        if unit not in index:
            visit(unit)
    return sorted(out)


def named_in(readme):
    """What the first cells of its tables of files name."""
    names, inside = [], False
    for line in readme.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(("| file", "| folder")):
            inside = True
        elif inside:
            names += re.findall(r"`([^`]+)`", line.split("|")[1])
    return names


def check_readme(room, units, table):
    text = read(f"{room}/README.md")
    names = named_in(text)
    stems = {os.path.splitext(name.rstrip("/"))[0] for name in names}
    for unit in sorted(units):
        path = os.path.relpath(unit, room)
        if not {path, *path.split("/")} & stems and names:
            yield f"{room}/README.md: '{os.path.basename(unit)}' has no line in the table of files: say what it owns"
    for name in names:
        places = [f"{room}/**/", f"{room.split('/')[0]}/include/{room}/"]
        if not any(glob.glob(f"{place}{name}{end}", recursive=True) for place in places for end in ("", ".*")):
            yield f"{room}/README.md: '{name}' is in the table of files, and not in the room: take it out"
    may_use = " ".join(re.findall(r"^May use.*(?:\n(?!\n).*)*", text, re.MULTILINE))
    for other in table.get(room, []):
        if not f"{room}/".startswith(f"{other}/") and os.path.basename(other) not in may_use:
            yield f"{room}/README.md: 'May use' does not name {other}, which tests/rooms.table allows"


def check_ways():
    """What README.md says of where a change goes is there."""
    for line in read("README.md").partition("Where a change goes:")[2].splitlines():
        for name in re.findall(r"`((?:%s)/[^`]+)`" % "|".join(COMPONENTS), line.rpartition("|")[0].rpartition("|")[2]):
            if not glob.glob(name) and not glob.glob(f"{name}.*") and not glob.glob(re.sub(r"^common/", "common/include/common/", name) + ".*"):
                yield f"README.md: a change goes to '{name}', which is not there"


def main():
    os.chdir(TOP)
    files = sources()
    by_end = files_by_end(files)
    rooms = {os.path.dirname(file) for component in COMPONENTS for file in glob.glob(f"{component}/**/README.md", recursive=True)}
    graph, uses, units = collections.defaultdict(set), collections.defaultdict(set), collections.defaultdict(set)
    for file in files:
        room = room_of(file, rooms)
        units[room].add(unit_of(file))
        for name in re.findall(r'^#include "([^"]+)"', read(file), re.MULTILINE):
            found = resolved(file, name, by_end)
            if found is None:
                continue
            if unit_of(found) != unit_of(file):
                graph[unit_of(file)].add(unit_of(found))
            if "/include/" not in found and room_of(found, rooms) != room:
                uses[room].add(room_of(found, rooms))
    if sys.argv[1:] == ["--print"]:
        for room in sorted(uses):
            print(f"{room}: {' '.join(sorted(uses[room]))}")
        return
    wrong = []
    table = {room: used.split() for room, _, used in (line.partition(": ") for line in lines_of("rooms.table"))}
    for room in sorted(set(table) | set(uses)):
        for other in sorted(uses[room] - set(table.get(room, []))):
            wrong.append(f"{room} includes what is {other}'s, which tests/rooms.table does not allow")
        for other in sorted(set(table.get(room, [])) - uses[room]):
            wrong.append(f"tests/rooms.table: {room} does not use {other}: take it out")
    for room in sorted(units):
        if room in rooms:
            wrong += check_readme(room, units[room], table)
    wrong += check_ways()
    known = lines_of("circles.later")
    found = [" ".join(circle) for circle in circles(graph)]
    wrong += [f"units include each other in a circle: {circle}" for circle in found if circle not in known]
    wrong += [f"tests/circles.later: no circle any more, or another one: {circle}" for circle in known if circle not in found]
    long, known = [file for file in files if read(file).count("\n") > LINES], lines_of("long.later")
    wrong += [f"{file} has more than {LINES} lines: split it" for file in long if file not in known]
    wrong += [f"tests/long.later: {file} is not there, or not too long any more: take it out" for file in known if file not in long]
    print("\n".join(wrong) or f"{len(files)} files in {len(units)} rooms")
    sys.exit(bool(wrong))


main()
