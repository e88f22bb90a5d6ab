# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts whose workers are run by steppers (tests/checkpoint/stepper.cpp): a checkpoint or a restore of a job is a row of numbered
steps, what the workers of all hosts and their criu do to files, processes and sockets, and things happen at one of them."""

import collections
import os
import sys
import threading

from rankhosts import BUILD, TOP, RankHosts

sys.path.append(os.path.join(TOP, "tests", "checkpoint"))
import steps  # noqa: E402

WORKER = "singularity-worker"
MOST_WORKERS = 8  # of one attempt: the coordinator's, and one for each node


class Hosts(RankHosts):
    def prepare(self):
        shared = os.path.join(self.cluster.directory, "shared")
        os.mkdir(os.path.join(shared, "libraries"), 0o755)
        for name in os.listdir(BUILD):
            if name != WORKER:
                os.symlink(os.path.join(BUILD, name), os.path.join(shared, "libraries", name))
        os.symlink(os.path.join(BUILD, "checkpoint", "worker-stepper"), os.path.join(shared, "libraries", WORKER))
        self.variables = {"SINGULARITY_LIBDIR": "/shared/libraries", "STEPPER_SOCKET": "/shared/steps.sock",
                          "STEPPER_PROGRAM": os.path.join(BUILD, WORKER)}
        self.steps = steps.Steps(os.path.join(shared, "steps.sock"), [])

    def follow(self, plan):
        """The workers of the next operation do; None: those of none."""
        self.steps.arm(*(Follower(plan, number) for number in range(MOST_WORKERS if plan else 0)))

    def close(self):
        try:
            super().close()
        finally:
            self.steps.close()


Point = collections.namedtuple("Point", "phase number")  # number: of the phase's steps, from 0


class Plan:
    """What is to happen at one point of an operation. Nobody takes a further step before it has happened."""

    def __init__(self, point=None, act=None):
        self.point, self.act = point, act
        self.taken = collections.Counter()  # by phase
        self.begun = 0  # workers
        self.reached = None
        self.lock = threading.Lock()

    def take(self, phase, call):
        point = Point(phase, self.taken[phase])
        self.taken[phase] += 1
        if point == self.point:
            self.reached = call
            self.act()


class Follower:
    """One worker's view of the plan. The first is the coordinator's: it begins, and commits what the others have done."""

    def __init__(self, plan, number):
        self.plan, self.number = plan, number
        self.begun, self.ended = threading.Event(), threading.Event()
        self.failure = None  # that its host was lost is none of ours
        self.criu = "before"
        self.known = set()

    def phase(self, call):
        if self.number == 0:
            return "begin" if self.plan.begun == 1 else "commit"
        if call.program == "criu":
            self.criu = "after"
            return "processes"
        return f"{self.criu} processes"

    def answer(self, call, _place):
        with self.plan.lock:
            self.plan.begun = max(self.plan.begun, self.number + 1)
            # Of calls that write one file again and again the first is a step.
            if call.kind == "act" or call.kind == "change" and call not in self.known:
                self.known.add(call)
                self.plan.take(self.phase(call), call)
            return b"free" if self.plan.reached else b"go"
