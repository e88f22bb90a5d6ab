# SPDX-License-Identifier: GPL-2.0-or-later
"""What is done to hosts, daemons and processes under a running elastic job, and a job that shows what became of it."""

import re
import shlex

from elastic import ELASTIC
from together import Until

# Whoever counts twice, or not at all, is seen; that it was one and the same process all the time, by its total.
COUNT = """
import os, time
rank, total = os.environ["SLURM_PROCID"], 0
for number in range({numbers}):
    total = (total * 31 + number) % 1000003
    print("rank", rank, number, flush=True)
    time.sleep({pause})
print("rank", rank, "total", total, flush=True)
"""
EVERY = "--singularity-checkpoint-every=0:02"
PROCESSES = {
    "wrapper": "for p in $(grep -l '^singularity-tas' /proc/[0-9]*/comm | cut -d/ -f3); do grep -q /step_batch /proc/$p/cgroup || echo $p; done",
    "script": "for p in $(grep -l '^singularity-tas' /proc/[0-9]*/comm | cut -d/ -f3); do grep -q /step_batch /proc/$p/cgroup && echo $p; done",
    "proxy": "grep -l '^singularity-pro' /proc/[0-9]*/comm | cut -d/ -f3",
    "worker": "grep -l '^singularity-wor' /proc/[0-9]*/comm | cut -d/ -f3",
}


def total_of(numbers):
    total = 0
    for number in range(numbers):
        total = (total * 31 + number) % 1000003
    return total


class Job:
    """An elastic batch job of one step, whose exit status is that of the step."""

    def __init__(self, cluster, command, *options):
        self.cluster = cluster
        script = f"#!/bin/bash\necho begun\n{command}\ncode=$?\necho end $code\nexit $code\n"
        self.number = cluster.submit(ELASTIC, "--open-mode=append", "--requeue", *options, script=script)

    def output(self):
        try:
            with open(f"{self.cluster.directory}/shared/slurm-{self.number}.out", encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def about(self):
        return self.cluster.job(self.number)

    def is_in(self, *states, restarts=0):
        about = self.about()
        return about["JobState"] in states and int(about["Restarts"]) >= restarts and about

    def hosts(self):
        names = self.about()["NodeList"]
        return self.cluster.slurm("scontrol", "show", "hostnames", names).split() if names not in ("", "(null)") else []

    def requeue(self):
        self.cluster.slurm("scontrol", "requeue", str(self.number))

    def until(self, *states, restarts=0, seconds=120, may_fail=False):
        """may_fail: for a moment, until an agent tells slurmctld what it has forgotten."""
        def there():
            about = self.about()
            if about["JobState"] in states and int(about["Restarts"]) >= restarts:
                return about
            if not may_fail and about["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"):
                raise AssertionError(f"it is {about['JobState']}\n{self.story()}")
            return None

        return Until(there, lambda: f"{'/'.join(states)} with {restarts} restarts\n{self.story()}", seconds)

    def story(self):
        """What Slurm, the job and the agents have to say of it."""
        about, out = self.about(), re.sub(r"(?m)^rank \d+ \d+\n", "", self.output())
        lines = [f"{line[11:23]} {host.name} {line[29:]}" for host in self.cluster.nodes for line in agent_log(self.cluster, host.name).splitlines()
                 if re.search(rf"-s{self.number}-|(step|job) {self.number}\b", line)]
        keys = ("JobState", "Reason", "Restarts", "ExitCode", "NodeList", "StartTime")
        return "\n".join([f"job {self.number}: {({key: about[key] for key in keys})}", out[-2500:], *sorted(lines)])

    def until_over(self, seconds=120):
        """However it has ended."""
        return Until(lambda: self.is_in("COMPLETED", "FAILED", "NODE_FAIL"), lambda: f"its end\n{self.story()}", seconds)


class Counting(Job):
    def __init__(self, cluster, *options, numbers=300, pause=0.05, srun="", ranks=4):
        self.numbers, self.ranks = numbers, ranks
        program = shlex.quote(COUNT.format(numbers=numbers, pause=pause))
        super().__init__(cluster, f"srun {srun} /usr/bin/python3 -c {program}", *options)

    def counted(self):
        """{rank: what it has counted}"""
        out = {}
        for rank, number in re.findall(r"^rank (\d+) (\d+)$", self.output(), re.MULTILINE):
            out.setdefault(int(rank), []).append(int(number))
        return out

    def most(self):
        return max((max(one) for one in self.counted().values()), default=-1)

    def until_counted(self, number):
        """By all ranks, in this run or an earlier one."""
        def reached():
            shown = self.counted()
            return len(shown) == self.ranks and all(max(one) >= number for one in shown.values())

        return Until(reached, lambda: f"{self.ranks} ranks to count to {number}\n{self.story()}")

    def assert_sound(self, gaps=False):
        """Each rank has counted all, and after nothing lost. gaps: where srun, or the way to it, is lost, what it had yet to write is not shown."""
        counted, shown = self.counted(), self.output()
        assert set(counted) == set(range(self.ranks)), self.story()
        for rank, numbers in counted.items():
            jumps = [(number, following) for number, following in zip(numbers, numbers[1:]) if following > number + 1]
            assert gaps or not jumps, f"rank {rank}: {jumps}\n{self.story()}"
            assert gaps or set(numbers) == set(range(self.numbers)), f"rank {rank}: {numbers}\n{self.story()}"
        totals = re.findall(r"^rank (\d+) total (\d+)$", shown, re.MULTILINE)
        assert {int(rank) for rank, _ in totals} == set(range(self.ranks)), self.story()
        assert {int(total) for _, total in totals} == {total_of(self.numbers)}, totals

    def assert_whole(self):
        """... and nothing twice."""
        self.assert_sound()
        for rank, numbers in self.counted().items():
            again = [(number, following) for number, following in zip(numbers, numbers[1:]) if following <= number]
            assert not again, f"rank {rank}: {again}\n{self.story()}"


def kill_process(cluster, chance, host, program):
    """One of that kind on a host, if there is one. Its id."""
    pids = cluster.host(host).run(PROCESSES[program], check=False).stdout.split()
    if not pids:
        return None
    pid = chance.choice(pids)
    cluster.host(host).run(["kill", "-KILL", pid], check=False)
    return pid


def kill_daemon(cluster, host, name):
    """kill -9. What brings it back."""
    cluster.stop_daemon(host, name, "KILL")
    return (lambda: cluster.start_agents(host)) if name == "singularityd" else (lambda: cluster.start_daemon(host, name))


def agent_log(cluster, host):
    with open(cluster.host(host).upper + "/var/log/singularityd.log", encoding="utf-8", errors="replace") as file:
        return file.read()


def stop_worker(cluster, host):
    """The next worker that begins there stands still, as if its store did. What lets it go on."""
    script = f"for i in $(seq 2000); do pids=$({PROCESSES['worker']}); [ -n \"$pids\" ] && kill -STOP $pids && echo $pids && exit; done; exit 1"
    pids = cluster.host(host).run(["bash", "-c", script]).stdout.split()
    return lambda: cluster.host(host).run(["kill", "-CONT", *pids], check=False)
