# SPDX-License-Identifier: GPL-2.0-or-later
"""What is seen while a job runs: its progress, where it runs, and what happens to it."""

import dataclasses
import re
import shutil
import sys

from training import STEPS
from virtualcluster import ClusterError
from virtualcluster.errors import wait_for

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
BAR = 30  # at most: the rest of the line needs 74 columns
REST = 74
QUIET = 5  # seconds between lines where no terminal shows the same line again and again
INTERVAL = 0.4


def say(line=""):
    print(line, flush=True)


@dataclasses.dataclass
class Sample:
    seconds: float
    state: str
    gpus: int


@dataclasses.dataclass
class Event:
    seconds: float
    text: str
    short: str  # for the picture


def gpus_of(tres):
    found = re.search(r"gres/gpu=(\d+)", tres)
    return int(found[1]) if found else 0


class Timeline:
    """Follows one job. gpus: of each node."""

    def __init__(self, cluster, job, training, gpus):
        self.cluster, self.job, self.training, self.gpus = cluster, job, training, gpus
        self.samples, self.events = [], []
        self.record, self.nodes = {}, ""
        self.shown = -QUIET
        self.live = sys.stdout.isatty()

    def tick(self):
        """Looks at everything once, and shows it."""
        self.training.read()
        self.record = self.cluster.job(self.job)
        self.nodes = self._nodes()
        running = self.record["JobState"] == "RUNNING"
        self.samples.append(Sample(self.training.now(), self.record["JobState"],
                                   gpus_of(self.record["AllocTRES"]) if running else 0))
        if self.live or self.training.now() - self.shown >= QUIET:
            self._show()

    def until(self, condition, seconds, what):
        """seconds: without a further step of the training."""

        def reached():
            self.tick()
            if self.record["JobState"] in ENDED and self.record["JobState"] != "COMPLETED":
                raise ClusterError(f"job {self.job} is {self.record['JobState']}: {self.tail()}")
            return condition()

        wait_for(reached, seconds, what, interval=INTERVAL, progress=lambda: self.training.last)

    def event(self, text, short=""):
        self.tick()
        self.events.append(Event(self.training.now(), text, short))
        self._line(f"{self.training.now():6.1f} s  * {text}")
        self._show()

    def tail(self):
        with open(self.training.path, encoding="utf-8", errors="replace") as file:
            return "\n".join(file.read().splitlines()[-10:])

    def close(self):
        self._show()
        if self.live:
            say()

    # Each node's GPUs: of how many there are in use, and by whom.
    def _nodes(self):
        jobs = self.cluster.slurm("squeue", "-h", "-t", "RUNNING", "-O", "JobID:12,tres-alloc:90,NodeList:30").splitlines()
        states = dict(line.split()[:2] for line in self.cluster.slurm("sinfo", "-h", "-N", "-o", "%N %T").splitlines())
        out = []
        for name, state in sorted(states.items()):
            marks = ""
            for line in jobs:
                number, tres, nodes = line.split()
                hosts = expanded(nodes)
                if name in hosts:
                    marks += ("#" if number == str(self.job) else "P") * (gpus_of(tres) // len(hosts))
            idle = "x" if state.startswith("down") else "." if not state.startswith("dra") else "-"
            out.append(f"{name} [{marks[:self.gpus]:{idle}<{self.gpus}}]")
        return " ".join(out)

    def _show(self):
        self.shown = self.training.now()
        done = self.training.step() + 1
        columns = shutil.get_terminal_size().columns - 1 if self.live else REST + BAR
        width = min(BAR, max(columns - REST, 1))
        filled = width * done // STEPS
        loss = self.training.loss()
        line = (f"{self.training.now():6.1f} s  [{'=' * filled}{' ' * (width - filled)}] step {done:4}/{STEPS}"
                f"  loss {'-' if loss is None else f'{loss:.4f}':6}  {self.nodes}  {self.record.get('JobState', '')}")
        if self.live:
            print(f"\r\x1b[K{line[:columns]}", end="", flush=True)
        else:
            say(line)

    def _line(self, text):
        say(f"\r\x1b[K{text}" if self.live else text)


def expanded(nodes):
    """n[1-2] as its hosts; the demo has no others than n1 to n9."""
    found = re.fullmatch(r"n\[(\d)[-,](\d)\]", nodes)
    return [f"n{number}" for number in range(int(found[1]), int(found[2]) + 1)] if found else [nodes]
