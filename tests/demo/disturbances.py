# SPDX-License-Identifier: GPL-2.0-or-later
"""What happens to the elastic job: jobs that are more important, an operator who resizes it, a drained node, a power cut.

Slurm ends and starts the job; where it would wait for GPUs that it cannot have, the operator makes it smaller.
"""

from training import STEPS
from virtualcluster.errors import wait_for

PATIENCE = 90
# Ends when the demo says so, or by itself should the demo die.
PREMIUM = "for i in $(seq 3000); do [ -e /shared/end-$SLURM_JOB_ID ] && exit 0; sleep 0.2; done; exit 9"


class Operator:
    def __init__(self, cluster, timeline):
        self.cluster, self.timeline, self.job = cluster, timeline, timeline.job

    def at(self, share):
        """Waits until this share of all steps is done."""
        step = int(share * STEPS)
        self.timeline.until(lambda: self.timeline.training.step() >= step, 3 * PATIENCE, f"job {self.job} to reach step {step}")

    def scontrol(self, *words):
        self.cluster.slurm("scontrol", *words)

    def wait_pending(self):
        self.timeline.until(lambda: self.timeline.record["JobState"] == "PENDING", PATIENCE, f"job {self.job} to be requeued")

    def resize(self, gpus):
        """Whether it runs or waits."""
        self.cluster.slurm("singularityctl", "resize", str(self.job), f"--gpus={gpus}")

    def wait_going_on(self, gpus):
        done = len(self.timeline.training.history)

        def goes_on():
            record = self.timeline.record
            return (record["JobState"] == "RUNNING" and f"gres/gpu={gpus}" in record["AllocTRES"].split(",")
                    and len(self.timeline.training.history) > done)

        self.timeline.until(goes_on, PATIENCE, f"job {self.job} to go on with {gpus} GPUs")
        nodes = self.timeline.record["NodeList"]
        self.timeline.event(f"it goes on with {gpus} GPUs on {nodes}")

    def make(self, gpus):
        self.resize(gpus)
        self.wait_going_on(gpus)

    def submit_premium(self, gpus):
        return self.cluster.submit("--qos=premium", "-N1", f"--gpus={gpus}", "-o", "/dev/null", f"--wrap={PREMIUM}")

    def make_room(self, premium, gpus):
        """Slurm has preempted the job for the other; it may go on with what is left."""
        self.wait_pending()
        self.timeline.until(lambda: self.cluster.job(premium)["JobState"] == "RUNNING", PATIENCE, f"job {premium} to run")
        self.make(gpus)

    def end_premium(self, *jobs):
        for job in jobs:
            self.cluster.controller.run(["touch", f"/shared/end-{job}"])
        for job in jobs:
            self.cluster.wait_job(job)


def disturb(cluster, timeline):
    operator = Operator(cluster, timeline)
    operator.at(0.10)
    timeline.event("a premium job takes a whole node: Slurm preempts", "premium: 4 GPUs")
    first = operator.submit_premium(4)
    operator.make_room(first, 4)

    operator.at(0.28)
    timeline.event("another takes half of what is left", "premium: 2 more")
    second = operator.submit_premium(2)
    operator.make_room(second, 2)

    operator.at(0.45)
    operator.end_premium(first, second)
    timeline.event("both have ended: the operator gives it all 8 GPUs again", "both end")
    operator.make(8)

    operator.at(0.60)
    operator.scontrol("update", "NodeName=n2", "State=DRAIN", "Reason=repair")
    timeline.event("n2 is drained, for repair: the job leaves it", "n2 drained")
    operator.wait_pending()
    operator.make(4)

    operator.at(0.75)
    operator.scontrol("update", "NodeName=n2", "State=RESUME")
    timeline.event("n2 is back, and so are all 8 GPUs", "n2 back")
    operator.make(8)

    operator.at(0.88)
    timeline.event("n1 loses power: nothing of it answers any more", "n1 loses power")
    cluster.kill("n1")
    operator.wait_pending()
    timeline.event("Slurm has noticed, and requeued the job", "Slurm notices")
    operator.make(4)


def finish(cluster, timeline):
    timeline.until(lambda: timeline.record["JobState"] == "COMPLETED", 2 * PATIENCE, f"job {timeline.job} to end")
    # What it has written last may come behind its end.
    wait_for(lambda: timeline.training.read() or len(timeline.training.parameters) == 8, PATIENCE, "all of its output")
    timeline.close()
