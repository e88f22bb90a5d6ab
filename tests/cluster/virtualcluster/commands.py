# SPDX-License-Identifier: GPL-2.0-or-later
"""Slurm's commands, for whoever has hosts: self.host(name) and self.controller have run() (host.py)."""

import re

from . import slurmconf
from .errors import ClusterError, wait_for


class SlurmCommands:
    def slurm(self, *argv, user="root", check=True, host=slurmconf.CONTROLLER, timeout=60):
        """Standard output of a Slurm command run on the controller."""
        return self.host(host).run(list(argv), user=user, check=check, timeout=timeout).stdout.strip()

    def submit(self, *options, script=None, user="alice", env=None):
        """sbatch with the options (and the script's text); the job's id. ClusterError with sbatch's words if refused."""
        argv = ["sbatch", "--parsable", *options]
        result = self.controller.run(argv, user=user, stdin=script, directory="/shared", env=env)
        return int(result.stdout.strip().partition(";")[0])

    def job(self, number):
        """{key: value} of `scontrol show job`; of a job array or heterogeneous job, its first record."""
        text = self.slurm("scontrol", "-o", "show", "job", str(number)).partition("\n")[0]
        return dict(re.findall(r"(\S+?)=(.*?)(?=\s+\S+?=|$)", text))

    def wait_job(self, number, states=("COMPLETED",), seconds=60):
        """Waits until the job is in one of the states; ClusterError at once if it ended in another."""
        ended = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "PREEMPTED"}
        seen = {}

        def there():
            seen.update(self.job(number))
            state = seen["JobState"]
            if state in states:
                return True
            if state in ended:
                raise ClusterError(f"job {number} is {state}, not {'/'.join(states)}: {seen}")
            return False

        wait_for(there, seconds, f"job {number} to be {'/'.join(states)}")
        return seen
