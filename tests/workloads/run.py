#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the workloads directly on a CUDA driver and through the proxy on it, and compares what they print.

    tests/workloads/run.py --programs build/release/workloads --softgpu build/release/softgpu \\
        --proxy-command 'build/release/spank/singularityctl proxy run --backend {backend} --devices {devices} --'

A workload passes if it ends with status 0 and the line PASSED both times, with the same bytes on stdout. Without
--softgpu the driver is the one that the system has; without --proxy-command there is the direct run only.
"""

import argparse
import concurrent.futures
import dataclasses
import difflib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import declared

HERE = pathlib.Path(__file__).resolve().parent
# What would let the two runs, or two machines, see different devices.
NOT_INHERITED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SINGULARITY_PROXY_SOCKETS", "SINGULARITY_PROXY_STATS")
LONGEST_DIFF = 60


@dataclasses.dataclass
class Run:
    """One run of one program."""

    status: int
    stdout: bytes
    stderr: bytes
    seconds: float
    late: bool = False

    def passed(self):
        return not self.late and self.status == 0 and self.stdout.endswith(b"PASSED\n")

    def verdict(self, deadline):
        if self.late:
            return f"not done after {deadline:g} s"
        if self.status < 0:
            return f"ended by {signal.Signals(-self.status).name}"
        return "passed" if self.passed() else f"failed, status {self.status}"


def run(command, environment, deadline):
    """Runs it in a process group of its own; nothing of the group is left when the deadline has passed."""
    start = time.monotonic()
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, start_new_session=True) as process:
        late = False
        try:
            stdout, stderr = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(process.pid, signal.SIGKILL)  # not reaped yet: the number is still this group's
            try:
                stdout, stderr = process.communicate(timeout=10)
            except subprocess.TimeoutExpired as left:  # something outside of the group has the pipes
                stdout, stderr = left.stdout or b"", left.stderr or b""
    return Run(process.returncode, stdout, stderr, time.monotonic() - start, late)


class Runner:
    """Knows the two ways to run a program."""

    def __init__(self, options):
        self.options = options

    def environment(self, devices):
        environment = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
        environment["WORKLOADS_DATA"] = str(HERE / "data")
        if self.options.softgpu:
            environment["SINGULARITY_SOFTGPU_DEVICES"] = str(devices)
        return environment

    def direct(self, command, devices):
        environment = self.environment(devices)
        if self.options.softgpu:
            before = environment.get("LD_LIBRARY_PATH")
            environment["LD_LIBRARY_PATH"] = str(self.options.softgpu) + (f":{before}" if before else "")
            environment["LD_AUDIT"] = str(self.options.softgpu.parent / "libsingularity-redirect.so")  # for NVRTC
        return run(command, environment, self.options.deadline)

    def proxied(self, command, devices):
        backend = self.options.softgpu / "libcuda.so.1" if self.options.softgpu else self.options.backend
        words = [word.format(backend=backend, devices=devices) for word in shlex.split(self.options.proxy_command)]
        return run(words + command, self.environment(devices), self.options.deadline)


@dataclasses.dataclass
class Result:
    name: str
    direct: Run
    proxied: "Run | None" = None

    def good(self):
        if not self.direct.passed():
            return False
        return self.proxied is None or (self.proxied.passed() and self.proxied.stdout == self.direct.stdout)


def try_program(runner, name, devices):
    command = [str(runner.options.programs / name), *runner.options.arguments]
    result = Result(name, runner.direct(command, devices))
    if runner.options.proxy_command:
        result.proxied = runner.proxied(command, devices)
    return result


def lines(data):
    return data.decode("utf-8", "backslashreplace").splitlines()


def explain(result, deadline):
    """What one has to see to begin with: the output that is wrong, or the difference."""
    out = []
    for way, one in (("direct", result.direct), ("proxied", result.proxied)):
        if one is None or one.passed():
            continue
        out.append(f"  {way}: {one.verdict(deadline)}")
        out += [f"    stdout: {line}" for line in lines(one.stdout)[-LONGEST_DIFF:]]
        out += [f"    stderr: {line}" for line in lines(one.stderr)[-LONGEST_DIFF:]]
    if result.proxied is not None and result.proxied.stdout != result.direct.stdout:
        out.append("  stdout differs:")
        diff = difflib.unified_diff(lines(result.direct.stdout), lines(result.proxied.stdout), "direct", "proxied",
                                    lineterm="", n=1)
        out += [f"    {line}" for line in list(diff)[:LONGEST_DIFF]]
    return out


def report(result, deadline):
    proxied = f"  proxied {result.proxied.seconds:7.2f} s" if result.proxied else ""
    print(f"{'ok    ' if result.good() else 'FAILED'} {result.name:<22} direct {result.direct.seconds:7.2f} s{proxied}",
          flush=True)
    if not result.good():
        print("\n".join(explain(result, deadline)), flush=True)


def declared_in(programs):
    try:
        return declared.workloads(programs)
    except OSError as error:
        sys.exit(f"run.py: cannot read {error.filename}: {error.strerror} (build the target 'workloads', or name --programs)")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/workloads",
                        help="where the workloads were built (%(default)s)")
    parser.add_argument("--softgpu", type=pathlib.Path, help="the directory of the software GPU's libcuda.so.1")
    parser.add_argument("--backend", default="/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                        help="what {backend} stands for without --softgpu (%(default)s)")
    parser.add_argument("--proxy-command", help="runs the program that follows it through the proxy; {backend} and "
                                                "{devices} are filled in")
    parser.add_argument("--only", action="append", metavar="NAME", help="this program; may be repeated")
    parser.add_argument("--devices", type=int, help="devices of the software GPU (as many as the program is declared with)")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time (%(default)s)")
    parser.add_argument("--deadline", type=float, default=60, help="seconds for each run (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the programs' names and do nothing else")
    parser.add_argument("arguments", nargs="*", help="after --, given to the programs")
    return parser.parse_args()


def main():
    options = parse()
    options.programs = options.programs.resolve()
    options.softgpu = options.softgpu.resolve() if options.softgpu else None
    known = declared_in(options.programs)
    if options.list:
        print("\n".join(known))
        return
    for name in options.only or ():
        if name not in known:
            sys.exit(f"run.py: no workload '{name}'; --list prints them")
    if options.softgpu and not (options.softgpu / "libcuda.so.1").exists():
        sys.exit(f"run.py: no libcuda.so.1 in '{options.softgpu}'")
    runner = Runner(options)
    start = time.monotonic()
    failed = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = [pool.submit(try_program, runner, name, options.devices or known[name]) for name in options.only or known]
        for future in concurrent.futures.as_completed(results):
            result = future.result()
            report(result, options.deadline)
            if not result.good():
                failed.append(result.name)
    print(f"{len(results) - len(failed)} of {len(results)} workloads passed in {time.monotonic() - start:.1f} s"
          + (f"; failed: {', '.join(sorted(failed))}" if failed else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
