#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs programs on a real GPU: directly, through a device proxy, and through proxies that die and are replaced.

    tests/gpu/run.py [--directory PREFIX] [--only NAME...] [--json FILE]

The workloads of tests/workloads are compiled for this GPU; the programs of tests/gpu/programs need PyTorch. A program
passes if it ends with status 0 and the same bytes on stdout as directly. `operators:TYPE` passes if the operators of
PyTorch's database that say the same in two direct runs say it through the proxy. The last line counts them; the status
is 0 if all have passed.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = HERE.parent / "workloads"
PATIENCE = 180  # seconds for one run of one program
STARTED = 60  # seconds until a training says that it has started
OPERATORS_PATIENCE = 400  # seconds for a part of the operators
# name -> (arguments, moves between proxies)
PROGRAMS = {"gpt": (["300"], 2), "resnet": (["250"], 2), "jax_training": (["3000"], 2), "ddp": (["200"], 0),
            **{name: ([], 0) for name in ("linear_algebra", "compiled", "triton_kernels", "cupy_kernels", "huggingface",
                                          "lightning_digits")}}
RANKS = {"ddp": 2}  # of one device; of the others 1
LAUNCH = HERE.parent / "ranks" / "collectives" / "launch.py"
OPERATORS = {f"operators:{kind}": kind for kind in ("float32", "float16", "bfloat16", "float64", "int64", "bool", "complex64")}
PARTS = 5  # processes for the operators of one type
# They look at the memory that is free on the device, or at times: nothing else may run.
ALONE = {"allocations", "error_behaviour", "gpt", "resnet", "jax_training"}
# They need more than one file, more than one device, or a driver that still answers when a program has ended.
NOT_HERE = {"two_runtimes", "multi_device", "peer_copies", "late_calls"}


class Installation:
    """Where the proxy's parts are, and how they are started."""

    def __init__(self, prefix):
        prefix = pathlib.Path(prefix).resolve()
        libraries = sorted(prefix.glob("lib/**/singularity"))
        if not libraries:
            sys.exit(f"run.py: there is no lib/singularity in {prefix}; --directory names another place")
        self.ctl = prefix / "bin" / "singularityctl"
        self.libraries = libraries[0]
        self.proxyd = self.libraries / "singularity-proxyd"
        self.client = self.libraries / "client"

    def through_proxy(self):
        return [str(self.ctl), "proxy", "run", "--"]


def run(command, environment=None, timeout=PATIENCE):
    start = time.monotonic()
    try:
        done = subprocess.run(command, env=dict(os.environ, **(environment or {})), stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=timeout, check=False)
        return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"), time.monotonic() - start
    except subprocess.TimeoutExpired as late:
        return -1, late.stdout or b"", f"not done after {timeout} s", time.monotonic() - start


def table_of_workloads():
    """name -> (cudart, options), as tests/workloads/CMakeLists.txt has them."""
    text = (WORKLOADS / "CMakeLists.txt").read_text(encoding="utf-8")
    rows = re.findall(r'^    "(\w+) *\| *(static|shared) *\| *\d+ *\| ?([^"]*)"$', text, re.MULTILINE)
    return {name: (runtime, options.split()) for name, runtime, options in rows if name not in NOT_HERE}


def compile_workloads(names, directory, architecture):
    """name -> program. The first that cannot be compiled ends it all: what was not run has not passed."""
    table = table_of_workloads()
    compiling = {}
    for name in names:
        runtime, options = table[name]
        output = directory / name
        command = ["nvcc", "-std=c++20", "-O2", f"-arch={architecture}", "-cudart", runtime, f'-DWORKLOADS_DATA="{WORKLOADS / "data"}"', *options,
                   "-o", str(output), str(WORKLOADS / f"{name}.cu")]
        compiling[name] = (output, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    compiled = {}
    for name, (output, process) in compiling.items():
        complaint = process.communicate(timeout=PATIENCE)[1]
        if process.returncode != 0:
            sys.exit(f"run.py: {name} cannot be compiled; correct that, or name the others with --only\n{complaint}")
        compiled[name] = output
    return compiled


class Moved:
    """A program whose proxy is saved, killed and replaced while it runs."""

    def __init__(self, installation, images):
        self.installation, self.images = installation, images
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="singularity-gpu-"))
        self.proxy = None
        self.saved = []

    def start(self):
        ready, writing = os.pipe()
        with open(self.directory / "proxyd.log", "a", encoding="utf-8") as log:
            self.proxy = subprocess.Popen([str(self.installation.proxyd), "--socket", str(self.directory / "socket"), "--control",
                                           str(self.directory / "control"), "--ready-fd", str(writing), "--die-with-parent"],
                                          pass_fds=[writing], stdout=log, stderr=log)
        os.close(writing)
        with os.fdopen(ready) as line:
            if not line.readline():
                raise RuntimeError("the proxy has not started: " + self.log())

    def log(self):
        return (self.directory / "proxyd.log").read_text(encoding="utf-8")[-800:]

    def image(self, *words):
        done = subprocess.run([str(self.images), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        fields = done.stdout.split()
        return dict(zip(fields[::2], map(int, fields[1::2])))

    def move(self):
        file = self.directory / "image"
        saved = self.image("save", self.directory / "control", file, "--detach")
        self.proxy.kill()
        self.proxy.wait()
        self.start()
        start = time.monotonic()
        self.image("restore", self.directory / "control", file)
        self.image("await", self.directory / "control", "/proc")
        file.unlink()
        self.saved.append({"mib": saved["bytes"] >> 20, "pause_ms": saved["pause_us"] // 1000,
                           "restore_ms": round((time.monotonic() - start) * 1000)})

    def run(self, command, moves):
        self.start()
        environment = dict(os.environ, SINGULARITY_PROXY_SOCKETS=str(self.directory / "socket"),
                           SINGULARITY_PROXY_ATTACH_TIMEOUT=str(PATIENCE),
                           LD_LIBRARY_PATH=f"{self.installation.client}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        out, err = self.directory / "out", self.directory / "err"
        try:
            with open(out, "wb") as stdout, open(err, "wb") as stderr, \
                    subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr) as program:
                try:
                    deadline = time.monotonic() + STARTED
                    while b"started" not in err.read_bytes():
                        if program.poll() is not None or time.monotonic() > deadline:
                            raise RuntimeError("the program has not started: " + err.read_text(encoding="utf-8")[-400:])
                        time.sleep(0.1)
                    for _ in range(moves):
                        time.sleep(1)
                        if program.poll() is not None:
                            raise RuntimeError(f"it has ended before move {len(self.saved) + 1}")
                        self.move()
                    status = program.wait(PATIENCE)
                finally:
                    program.kill()
            return status, out.read_bytes(), err.read_text(encoding="utf-8")
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            return -1, out.read_bytes() if out.exists() else b"", f"{error}\n{self.log()}"
        finally:
            self.proxy.kill()
            self.proxy.wait()
            shutil.rmtree(self.directory, ignore_errors=True)


def step_ms(text):
    found = re.search(r"step_ms ([0-9.]+)", text)
    return float(found.group(1)) if found else None


def try_program(installation, images, name, command, moves):
    direct = run(command)
    through = run(installation.through_proxy() + command)
    same = direct[0] == through[0] == 0 and direct[1] == through[1]
    result = {"name": name, "passed": same, "direct_s": round(direct[3], 1), "proxied_s": round(through[3], 1)}
    if step_ms(direct[2]) and step_ms(through[2]):
        result |= {"direct_step_ms": step_ms(direct[2]), "proxied_step_ms": step_ms(through[2])}
    why = "" if same else f"direct {direct[0]}: {direct[2][-300:]}\nproxied {through[0]}: {through[1][-200:]!r} {through[2][-600:]}"
    if moves and images is not None:
        moved = Moved(installation, images)
        status, out, err = moved.run(command, moves)
        result |= {"moves": moved.saved, "passed": same and status == 0 and out == direct[1]}
        if status != 0 or out != direct[1]:
            why += f"\nmoved {status}: {out[-200:]!r} {err[-900:]}"
    return result, why


def lines_of_operators(outputs):
    return dict(line.split(" ", 1) for status, out, *_ in outputs for line in out.decode("utf-8", "replace").splitlines())


def try_operators(installation, kind):
    """Two direct runs, which may differ where an operator is not repeatable, and one through a proxy for each part."""
    program = [sys.executable, str(HERE / "programs" / "operators.py"), kind]
    commands = [prefix + program + [f"{part}/{PARTS}"]
                for prefix in ([], [], installation.through_proxy()) for part in range(PARTS)]
    with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
        outputs = list(pool.map(lambda command: run(command, timeout=OPERATORS_PATIENCE), commands))
    first, second, through = (lines_of_operators(outputs[start:start + PARTS]) for start in range(0, len(outputs), PARTS))
    repeatable = {name: line for name, line in first.items() if second.get(name) == line}
    different = {name: (line, through.get(name, "not run")) for name, line in repeatable.items() if through.get(name) != line}
    statuses = [output[0] for output in outputs]
    result = {"name": f"operators:{kind}", "passed": bool(repeatable) and not different and not any(statuses), "operators": len(first),
              "repeatable": len(repeatable), "same": len(repeatable) - len(different),
              "refused_directly": sum(line.startswith("error") for line in first.values())}
    why = "" if not any(statuses) else f"statuses {statuses}: " + " ".join(output[2][-300:] for output in outputs if output[0] != 0)
    return result, why + "".join(f"\n  {name}: {was}, through the proxy {now}" for name, (was, now) in different.items())


def tell(ends):
    results = []
    for result, why in ends:
        print(("ok   " if result["passed"] else "FAIL ") + json.dumps(result), flush=True)
        if why:
            print(why, flush=True)
        results.append(result)
    return results


def launched(name):
    return [sys.executable, str(LAUNCH), str(RANKS[name])] if name in RANKS else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default="/usr", help="prefix of the installation (/usr)")
    parser.add_argument("--images", help="the program singularity-images of a build: trainings are moved with it")
    parser.add_argument("--only", nargs="*", default=[], help="names of programs")
    parser.add_argument("--arch", default="native", help="nvcc's -arch for the workloads (native)")
    parser.add_argument("--jobs", type=int, default=1, help="so many workloads at a time (1)")
    parser.add_argument("--json", help="file for the results")
    options = parser.parse_args()
    installation = Installation(options.directory)
    wanted = set(options.only) or set(table_of_workloads()) | set(PROGRAMS) | set(OPERATORS)
    if options.images is None and any(PROGRAMS[name][1] for name in wanted & set(PROGRAMS)):
        print("trainings are not moved: --images names the program that does it")
    with tempfile.TemporaryDirectory(prefix="singularity-gpu-") as scratch:
        commands = {name: ([str(path)], 0)
                    for name, path in compile_workloads(sorted(wanted - set(PROGRAMS) - set(OPERATORS)), pathlib.Path(scratch), options.arch).items()}
        commands |= {name: ([*launched(name), sys.executable, str(HERE / "programs" / f"{name}.py"), *arguments], moves)
                     for name, (arguments, moves) in PROGRAMS.items() if name in wanted}
        one = functools.partial(try_program, installation, options.images)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            ends = pool.map(lambda name: one(name, *commands[name]), [name for name in commands if name not in ALONE])
            told = itertools.chain(ends, (one(name, *commands[name]) for name in commands if name in ALONE),
                                   (try_operators(installation, kind) for name, kind in OPERATORS.items() if name in wanted))
            results = tell(told)
    passed = sum(result["passed"] for result in results)
    print(f"{passed} of {len(results)} programs")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
