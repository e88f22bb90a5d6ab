# SPDX-License-Identifier: GPL-2.0-or-later
"""./dev bench NAME [--json FILE]: runs one bench and reports all of its figures, or fails.

A bench is a module in this directory with NEEDS, the targets whose products it uses, FIGURES, {key: what it is, with unit},
and run(say), which returns a number for each key. Machines are noisy: a bench reports medians, and ratios taken in one run.
"""

import argparse
import importlib
import json
import math
import os
import sys

NOT_BENCHES = ("bench.py", "proxied.py", "test_bench.py")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]


def benches():
    """The names of the modules beside this one."""
    return sorted(name[:-3] for name in os.listdir(HERE) if name.endswith(".py") and name not in NOT_BENCHES)


def check(name, declared, figures):
    """Every declared figure and no other, each a finite number."""
    for key in declared:
        if key not in figures:
            sys.exit(f"bench {name}: the figure '{key}' is missing")
        value = figures[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            sys.exit(f"bench {name}: the figure '{key}' is {value!r}, not a finite number")
    unknown = sorted(set(figures) - set(declared))
    if unknown:
        sys.exit(f"bench {name}: figures that FIGURES does not declare: {', '.join(unknown)}")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description="measures; figures are medians or ratios of one run")
    parser.add_argument("name", nargs="?", help=f"one of {', '.join(benches())}")
    parser.add_argument("--list", action="store_true", help="the benches and their figures")
    parser.add_argument("--needs", action="store_true", help="the targets that this bench uses, which ./dev builds first")
    parser.add_argument("--commit", default="unknown", help=argparse.SUPPRESS)
    parser.add_argument("--json-to-stdout", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list or not arguments.name:
        for name in benches():
            print(name)
            for key, text in importlib.import_module(name).FIGURES.items():
                print(f"    {key}: {text}")
        return
    if arguments.name not in benches():
        sys.exit(f"bench: no bench '{arguments.name}': one of {', '.join(benches())}")
    bench = importlib.import_module(arguments.name)
    if arguments.needs:
        print(*bench.NEEDS)
        return
    figures = bench.run(lambda line: print(f"==> {line}", file=sys.stderr, flush=True))
    check(arguments.name, bench.FIGURES, figures)
    if arguments.json_to_stdout:
        print(json.dumps({"name": arguments.name, "commit": arguments.commit, "figures": figures}, indent=1))
    else:
        for key, text in bench.FIGURES.items():
            print(f"{key:24} {figures[key]:12.4g}  {text}")


if __name__ == "__main__":
    main()
