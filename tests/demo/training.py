# SPDX-License-Identifier: GPL-2.0-or-later
"""The elastic job: an unmodified program under srun, and what it has written."""

import dataclasses
import os
import re
import time

from virtualcluster import ClusterError
from virtualcluster.cluster import CHECKOUT

PROGRAM = os.path.join(CHECKOUT, "build/release/workloads/train_tested")
STEPS = 1600
RANKS = 8
CHECKPOINT_EVERY = "--singularity-checkpoint-every=0:08"

# What a user writes; the program knows nothing of this project.
SCRIPT = f"""#!/bin/bash
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --ntasks={RANKS} {PROGRAM} {STEPS}
"""
OPTIONS = ["--gpus=8", f"--ntasks={RANKS}", "--qos=standard", "--singularity-elastic=2-8", CHECKPOINT_EVERY]

STEP = re.compile(r"step (\d+) loss (\S+)")
ACCURACY = re.compile(r"accuracy (\d+) of (\d+)")


@dataclasses.dataclass
class Training:
    """What the job has said so far. Losses are kept as the program printed them: hexadecimal, with all bits."""

    path: str
    begin: float = dataclasses.field(default_factory=time.monotonic)
    losses: dict = dataclasses.field(default_factory=dict)  # step: text
    history: list = dataclasses.field(default_factory=list)  # (seconds since the beginning, step), as they were done
    again: int = 0  # steps that were done once more, behind a checkpoint
    parameters: list = dataclasses.field(default_factory=list)  # their checksum, of each rank
    accuracy: float = 0.0
    last: int = -1
    position: int = 0  # in the file, up to which it has been read,
    looked: float = 0.0  # and when

    def now(self):
        return time.monotonic() - self.begin

    def read(self):
        """Takes what is new in the job's output, whole lines only."""
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                file.seek(self.position)
                text = file.read()
        except FileNotFoundError:
            return
        text = text[:text.rfind("\n") + 1]
        self.position += len(text.encode())
        lines, since, self.looked = text.splitlines(), self.looked, self.now()
        # Spread over the time in which they have come, not all at its end.
        for number, line in enumerate(lines, start=1):
            self._take(line, since + (self.looked - since) * number / len(lines))

    def _take(self, line, seconds):
        if found := STEP.fullmatch(line):
            step, loss = int(found[1]), found[2]
            if self.losses.setdefault(step, loss) != loss:
                raise ClusterError(f"step {step} was done again with another loss: {self.losses[step]}, then {loss}")
            self.again += step <= self.last
            self.history.append((seconds, step))
            self.last = max(step, self.last)
        elif found := ACCURACY.fullmatch(line):
            self.accuracy = int(found[1]) / int(found[2])
        elif line.startswith("parameters "):
            self.parameters.append(line.split()[1])

    def step(self):
        """Where it is: behind what it has done, after it has gone back to a checkpoint."""
        return self.history[-1][1] if self.history else -1

    def loss(self):
        return float.fromhex(self.losses[self.step()]) if self.history else None

    def assert_whole(self):
        missing = [step for step in range(STEPS) if step not in self.losses]
        if missing or len(self.parameters) != RANKS:
            raise ClusterError(f"{len(missing)} of {STEPS} steps, and the parameters of {RANKS - len(self.parameters)} ranks, "
                               f"are missing in {self.path}")


def submit(cluster):
    if not os.path.exists(PROGRAM):
        raise ClusterError(f"no {PROGRAM}: its build needs nvcc and NCCL's header (nccl.h) in the CUDA Toolkit")
    job = cluster.submit(*OPTIONS, script=SCRIPT)
    return job, Training(os.path.join(cluster.directory, "shared", f"slurm-{job}.out"))


def compare(undisturbed, disturbed):
    """Lines that say it; ClusterError where anything differs."""
    for run in (undisturbed, disturbed):
        run.assert_whole()
    different = [step for step in range(STEPS) if undisturbed.losses[step] != disturbed.losses[step]]
    if different or undisturbed.parameters != disturbed.parameters:
        raise ClusterError(f"the losses of {len(different)} steps differ from the undisturbed run's, the first in step "
                           f"{different[0] if different else 'none'}; parameters: {undisturbed.parameters} {disturbed.parameters}")
    if disturbed.accuracy <= 0.95 or disturbed.accuracy != undisturbed.accuracy:
        raise ClusterError(f"test accuracy: {undisturbed.accuracy:.1%}, disturbed {disturbed.accuracy:.1%}; expected the same, above 95 %")
    last = STEPS - 1
    return [
        f"{'':24}{'undisturbed':>18}{'disturbed':>18}",
        f"{'loss of the last step':24}{undisturbed.losses[last]:>18}{disturbed.losses[last]:>18}",
        f"{'parameters (checksum)':24}{undisturbed.parameters[0]:>18}{disturbed.parameters[0]:>18}",
        f"{'test accuracy':24}{undisturbed.accuracy:>18.1%}{disturbed.accuracy:>18.1%}",
        f"{'time':24}{undisturbed.history[-1][0]:>16.0f} s{disturbed.history[-1][0]:>16.0f} s",
        f"all {STEPS} losses are equal to the bit; {disturbed.again} steps were done twice, because of the power loss",
    ]
