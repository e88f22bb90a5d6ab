# SPDX-License-Identifier: GPL-2.0-or-later
"""The numbered steps of the worker of an agent under test: stepper.cpp runs it and asks here before each."""

import collections
import os
import shutil
import socket
import tempfile
import threading

import alike
import saved_nodes
import virtualnode
from saved_nodes import built

# One system call with an effect; kind: change (of files), read (of files below the plan's directories), act.
Call = collections.namedtuple("Call", "pid program kind name path to")


def text_of(call):
    return f"{call.program}: {call.name} {call.path}{' -> ' + call.to if call.to else ''}"


class Plan:
    """What is to happen at one step of a worker."""

    def __init__(self, counts, chosen=lambda call, mark: False, act=None, code=0):
        self.counts = counts  # of a call: whether it is a step
        self.chosen = chosen  # of a step and its mark (alike.py): whether it is the one; of several the first
        self.act = act  # what is done before that step, or
        self.code = code  # an errno value for it and those that follow on the same file system
        self.steps = []  # (call, mark)
        self.marks = alike.Marks()
        self.known = set()
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.reached = None
        self.failure = None

    def answer(self, call, place):
        if not self.counts(call):
            return b"go"
        if self.reached:
            return b"fail %d" % self.code if place(call) == place(self.reached) else b"go"
        # Of calls that write or read one file again and again the first is a step.
        if call.kind != "act" and call in self.known:
            return b"go"
        self.known.add(call)
        mark = self.marks.of(call)
        self.steps.append((call, mark))
        if not self.chosen(call, mark):
            return b"go"
        self.reached = call
        if not self.act:
            return b"fail %d" % self.code
        self.act(call)
        return b"free"


class Steps:
    """Listens to steppers. Each of the next workers follows one of the plans that are armed, all others run freely."""

    def __init__(self, path, directories):
        self.directories = directories
        self.plans = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(path)
        self.socket.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            plan = self.plans.pop(0) if self.plans else None
            threading.Thread(target=self.serve, args=(connection, plan), daemon=True).start()

    def serve(self, connection, plan):
        with connection:
            if not plan:
                connection.send(b"free")
                return
            plan.begun.set()
            try:
                connection.send(b"\0".join([b"tell", *map(os.fsencode, self.directories)]))
                while words := connection.recv(65536):
                    pid, *others = os.fsdecode(words).split("\0")
                    connection.send(plan.answer(Call(int(pid), *others), self.place))
            except Exception as failure:  # noqa: BLE001: whose thread it is looks at it
                plan.failure = failure
            plan.ended.set()

    def place(self, call):
        """Which of the directories it is about, if any."""
        return next((one for one in self.directories if call.path.startswith((one, os.path.join(one, "")))), None)

    def arm(self, *plans):
        self.plans = list(plans)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Agent(saved_nodes.Agent):
    """Its workers are run by steppers."""

    def __init__(self):
        self.libraries = tempfile.mkdtemp(prefix="singularity-links-", dir="/tmp")
        os.chmod(self.libraries, 0o755)
        for name in os.listdir(virtualnode.BUILD):
            os.symlink(built(name), os.path.join(self.libraries, name))
        os.unlink(os.path.join(self.libraries, "singularity-worker"))
        os.symlink(built("checkpoint", "worker-stepper"), os.path.join(self.libraries, "singularity-worker"))
        path = os.path.join(self.libraries, "steps.sock")
        super().__init__(SINGULARITY_LIBDIR=self.libraries, STEPPER_SOCKET=path, STEPPER_PROGRAM=built("singularity-worker"))
        self.steps = Steps(path, [self.staging, self.store])

    def close(self):
        try:
            super().close()
        finally:
            self.steps.close()
            shutil.rmtree(self.libraries)
