# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs under which processes, daemons and nodes die while Slurm ends and runs them: each ends with the right result, or
fails as any job of Slurm's does, with a word; none goes on from a wrong state, and nothing is left.

SINGULARITY_TEST_SEED: the same moments again, as far as the machine lets them be. SINGULARITY_TEST_FAULTS=N: so many of each kind
of processes and daemons. SINGULARITY_TEST_REQUEUES=N: so often one job is requeued."""

import os
import random
import re

import pytest
from conftest import elastic_up
from elastic import assert_clean
from faults import EVERY, Counting, Job, agent_log, kill_daemon, kill_process, stop_worker
from together import Until, pause, run_together
from virtualcluster.cluster import CHECKOUT

SEED = int(os.environ.get("SINGULARITY_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
FAULTS = int(os.environ.get("SINGULARITY_TEST_FAULTS") or 1)
NODES = 32  # two for each job of those at the same time, and some to go on on
# A run that ends on its way to a node that is just coming up waits two minutes, as any job of Slurm's: none of us has seen it.
# So does one on whose node slurmd is gone when it ends.
LONG = 300  # seconds
OFTEN = "elastic:\n  checkpoint_every_least: 1s\n"
TWO_NODES = ["-N2", "--ntasks-per-node=2", "--exclusive"]
FAILS_WITH_ANY = "--kill-on-bad-exit=1"
BUILD = os.path.abspath(os.environ.get("CTEST_BINARY_DIR", os.path.join(CHECKOUT, "build", "release")))


@pytest.fixture(scope="module")
def cluster(release):
    print("seed", SEED)
    # Many are saved at the same time, on few processors: what is not saved in time is no fault, but for one test.
    with elastic_up(release, OFTEN, nodes=NODES, conf={"SlurmdTimeout": "20", "KillWait": "60"}) as made:
        yield made
        # What a node that was given up still runs Slurm ends when that registers again: within 20 pings, one each third of SlurmdTimeout.
        assert_clean(made, 240)


# -- processes and daemons ------------------------------------------------------------------------------------------

# When it may come: as soon as the job is there, and so many seconds later.
PHASES = {
    "runs": (None, 1.0),
    "is saved": (lambda job: Until(lambda: True, "nothing"), 0.5),
    "waits": (lambda job: job.until("PENDING", restarts=1), 2.0),
    "is restored": (lambda job: job.until("RUNNING", restarts=1), 1.0),
}
VICTIMS = ["wrapper", "script", "slurmd of the batch host", "slurmd of another", "agent of the batch host", "agent of another"]
PROCESSES = ("wrapper", "script", "proxy")  # whose death is that of a task


def inject(cluster, chance, victim, hosts):
    """(what was hit, or nothing, what brings it back)"""
    program, _, where = victim.partition(" of ")
    if program in PROCESSES:
        for host in chance.sample(hosts, len(hosts)):
            if pid := kill_process(cluster, chance, host, program):
                return f"{program} {pid} on {host}", lambda: None
        return None, lambda: None
    host = hosts[1 if where == "another" else 0]
    daemon = {"agent": "singularityd"}.get(program, program)
    return f"{daemon} of {host}", kill_daemon(cluster, host, daemon)


def disturbed(cluster, victim, phase, chance):
    job = Counting(cluster, *TWO_NODES, *chance.choice(([], [EVERY])), srun=FAILS_WITH_ANY)
    yield job.until_counted(20)
    hosts = job.hosts()
    after, span = PHASES[phase]
    if after:
        job.requeue()
        yield after(job)
        hosts = job.hosts() or hosts
    yield pause(chance.uniform(0, span))
    hit, undo = inject(cluster, chance, victim, hosts)
    yield pause(chance.uniform(0, 2))
    undo()
    if phase == "runs" and victim not in PROCESSES:
        yield job.until_counted(job.most() + 5)
        job.requeue()
    about = yield job.until_over(LONG)
    failed = about["JobState"] != "COMPLETED"
    if failed:
        assert hit and victim in PROCESSES, job.story()
        shown = job.output()
        assert "Killed" in shown or "signal 9" in shown or about["ExitCode"].endswith(":9"), job.story()
        restarts = int(about["Restarts"])
        job.requeue()
        yield job.until("COMPLETED", restarts=restarts + 1)
    job.assert_sound(gaps=victim == "script")
    return f"{hit or 'nothing'} while job {job.number} {phase}{': failed, and was run again' if failed else ''}", bool(hit)


def cases_of(request, argument):
    """Those of which a test was chosen."""
    return {item.callspec.params[argument] for item in request.session.items
            if argument in getattr(getattr(item, "callspec", None), "params", {})}


@pytest.fixture(scope="module")
def processes(cluster, request):
    done = {}
    for number in range(FAULTS):
        generators = {}
        for victim in sorted(cases_of(request, "victim")):
            chance = random.Random(f"{SEED} {victim} {number}")
            phases = [phase for phase in PHASES if victim not in PROCESSES or phase != "waits"]
            generators[victim] = disturbed(cluster, victim, chance.choice(phases), chance)
        for victim, case in run_together(generators).items():
            done.setdefault(victim, []).append(case)
    return done


@pytest.mark.parametrize("victim", VICTIMS)
def test_kill_9(processes, victim):
    results = [case.result() for case in processes[victim]]
    for hit, _ in results:
        print(hit)
    print(f"seed {SEED}: {victim}: {sum(one for _, one in results)} faults injected, {len(results)} tries survived")


# -- slurmctld ------------------------------------------------------------------------------------------------------


def controller_dies(cluster, chance):
    """While one job runs, one is saved, one waits and one is restored, more or less."""
    runs, is_saved, waits, is_restored = jobs = [Counting(cluster, *TWO_NODES, *chance.choice(([], [EVERY])), srun=FAILS_WITH_ANY) for _ in range(4)]
    for job in jobs:
        yield job.until_counted(20)
    for job, least, most in ((is_restored, 3, 6), (waits, 1, 2.5), (is_saved, 0, 0.5)):
        job.requeue()
        yield pause(chance.uniform(least, most))
    states = [job.about()["JobState"] for job in jobs]
    undo = kill_daemon(cluster, "ctl", "slurmctld")
    yield pause(chance.uniform(0, 3))
    undo()
    cluster.wait_controller()
    yield runs.until_counted(runs.most() + 5)
    runs.requeue()
    for job in jobs:
        # One whose script ended while it was dead has failed, as far as it remembers.
        about = yield job.until("COMPLETED", restarts=1, may_fail=True)
        # A run that slurmctld has forgotten writes beside the next one until its nodes hear of it.
        forgotten = len(re.findall("^begun$", job.output(), re.MULTILINE)) > int(about["Restarts"]) + 1
        job.assert_sound(gaps=forgotten)
    return f"slurmctld while jobs were {' '.join(states)}"


def test_kill_9_of_the_controller(cluster):
    for number in range(FAULTS):
        print(run_together({"slurmctld": controller_dies(cluster, random.Random(f"{SEED} slurmctld {number}"))})["slurmctld"].result())
    print(f"seed {SEED}: slurmctld: {FAULTS} faults injected, {FAULTS} survived")


# -- nodes ----------------------------------------------------------------------------------------------------------


def saved_once(cluster, *options, **more):
    job = Counting(cluster, *TWO_NODES, EVERY, *options, srun=FAILS_WITH_ANY, **more)
    yield job.until_counted(20)
    yield Until(lambda: any(f"-s{job.number}-0" in line for line in in_store(cluster)), f"a checkpoint of job {job.number}")
    return job


def in_store(cluster):
    return cluster.host(f"n{NODES}").run(["singularityctl", "store", "ls"], check=False).stdout.splitlines()


def loses_power(cluster, chance, number, saves):
    """number: of the job's hosts"""
    job = yield from saved_once(cluster, numbers=600)
    host = job.hosts()[number]
    if saves:
        job.requeue()
    yield pause(chance.uniform(0, 0.5 if saves else 2))
    cluster.kill(host)
    yield job.until("PENDING", "RUNNING", restarts=1)
    cluster.boot(host)
    cluster.start_agents(host)
    yield job.until("COMPLETED", restarts=1, seconds=LONG)
    job.assert_sound(gaps=True)  # what was on its way to srun
    assert "begins anew" not in job.output(), job.story()
    return f"power of {host}, job {job.number}"


def is_cut_off(cluster, chance, number, seconds):
    """seconds: None until Slurm has given it up"""
    job = yield from saved_once(cluster, numbers=600)
    host = job.hosts()[number]
    yield pause(chance.uniform(0, 2))
    cluster.partition(host)
    if seconds:
        yield pause(seconds)
    else:
        yield job.until("PENDING", "RUNNING", restarts=1)
        yield pause(chance.uniform(0, 5))
    cluster.heal(host)
    yield job.until("COMPLETED", seconds=LONG)
    job.assert_sound(gaps=True)  # what was on its way to srun
    assert "begins anew" not in job.output(), job.story()
    return f"way of {host}, job {job.number}"


LOST = {
    "power of the batch host": (loses_power, 0, False),
    "power of another": (loses_power, 1, False),
    "power of the batch host in a save": (loses_power, 0, True),
    "power of another in a save": (loses_power, 1, True),
    "way of another, for a moment": (is_cut_off, 1, 5),
    "way of the batch host, for a while": (is_cut_off, 0, 14),  # longer than agents wait, and shorter than Slurm
    "way of another, for a while": (is_cut_off, 1, 14),
    "way of the batch host, for long": (is_cut_off, 0, None),
    "way of another, for long": (is_cut_off, 1, None),
}


# -- time, and what jobs are made of ----------------------------------------------------------------------------------

REQUEUES = int(os.environ.get("SINGULARITY_TEST_REQUEUES") or 8)
STEPS = 250
TRAINING = f"""export MASTER_PORT=29500 MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun -l bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python3 {CHECKOUT}/tests/ranks/train_gloo.py {STEPS}'"""


def is_requeued(cluster, chance):
    """At any moment of its runs, also when it is just being restored."""
    job = Counting(cluster, *TWO_NODES, numbers=250 * REQUEUES, pause=0.02, srun=FAILS_WITH_ANY)
    done = 0
    for number in range(REQUEUES):
        about = yield job.until("RUNNING", "COMPLETED", restarts=number)
        yield pause(chance.uniform(0, 1.5))
        about = job.about()
        if about["JobState"] == "COMPLETED":
            break
        job.requeue()
        done += 1
    yield job.until("COMPLETED", restarts=done)
    job.assert_whole()
    assert done >= REQUEUES / 2, f"requeued {done} times only"
    return f"{done} requeues"


def losses(output):
    """{rank: its losses and the hash of its parameters}"""
    out = {}
    for rank, value in re.findall(r"^(\d+): (-?0x\S+|[0-9a-f]{64})$", output, re.MULTILINE):
        out.setdefault(int(rank), []).append(value)
    return out


def is_trained(cluster, chance):
    """PyTorch, preempted by a job of another partition, and moved to other nodes."""
    undisturbed, job = (Job(cluster, TRAINING, *TWO_NODES, "--mem=4000") for _ in range(2))
    for restarts, what in enumerate(("preempted", "moved")):
        steps = 4 * chance.randrange(20, 80) * (restarts + 1)
        yield Until(lambda least=steps: sum(map(len, losses(job.output()).values())) >= least, lambda: f"{len(losses(job.output()))} losses\n{job.story()}")
        hosts = job.hosts()
        if what == "preempted":
            high = cluster.submit("-N2", "--exclusive", "-p", "high", "-w", ",".join(hosts), "--wrap=true")
            yield Until(lambda number=high: cluster.job(number)["JobState"] == "COMPLETED", "the job that preempts it to end")
        else:
            cluster.slurm("scontrol", "requeuehold", str(job.number))
            yield job.until("PENDING", restarts=2)
            cluster.slurm("scontrol", "update", f"JobId={job.number}", f"ExcNodeList={','.join(hosts)}")
            cluster.slurm("scontrol", "release", str(job.number))
        yield job.until("RUNNING", restarts=restarts + 1)
    assert not set(hosts) & set(job.hosts())
    for one in (job, undisturbed):
        yield one.until("COMPLETED")
    wanted = losses(undisturbed.output())
    assert [len(one) for one in wanted.values()] == [STEPS + 1] * 4, undisturbed.output()[-2000:]
    found = losses(job.output())
    assert {rank: len(one) for rank, one in found.items()} == {rank: STEPS + 1 for rank in range(4)}, f"steps were done twice or lost\n{job.story()}"
    assert found == wanted, f"different from step {[next(at for at, (one, other) in enumerate(zip(found[rank], wanted[rank])) if one != other) for rank in range(4) if found[rank] != wanted[rank]]}"
    return f"preempted and moved, {STEPS} steps"


def is_not_saved_in_time(cluster, chance):
    """The store is slow: KillWait is over before. It goes on from the checkpoint before, and it is said what is lost."""
    job = yield from saved_once(cluster, numbers=2000)  # it has work for longer than Slurm waits
    yield pause(chance.uniform(0, 2))
    hosts = job.hosts()
    before = job.most()
    job.requeue()
    go_on = stop_worker(cluster, hosts[0])
    yield job.until("PENDING", restarts=1)
    go_on()
    yield job.until("COMPLETED", restarts=1, seconds=LONG)
    assert re.search(rf"-s{job.number}-.* what it has done since \S+ is lost", agent_log(cluster, hosts[0])), job.story()
    job.assert_sound()
    again = [numbers[at] for numbers in job.counted().values() for at in range(1, len(numbers)) if numbers[at] <= numbers[at - 1]]
    assert len(again) == 4 and all(0 < one <= before + 1 for one in again), again
    return f"job {job.number} went on at {again}"


GPU_TRAINING = f"""export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun {FAILS_WITH_ANY} {BUILD}/workloads/train_data 200"""


def results(output):
    """Of each step, and of the whole; in a second run steps may come again."""
    return set(re.findall(r"^(?:step \d+ loss|parameters|losses|all|PASSED).*$", output, re.MULTILINE))


def loses_a_proxy(cluster, chance):
    """It goes on from its last checkpoint by itself, with a word, and comes to the same result."""
    options = ["-N2", "--ntasks-per-node=4", "--gpus-per-node=4", "--exclusive"]
    job, undisturbed = Job(cluster, GPU_TRAINING, *options, EVERY), Job(cluster, GPU_TRAINING, *options)
    yield Until(lambda: len(results(job.output())) > 20 and "saved" in job.about(), lambda: f"the first steps, and a checkpoint\n{job.story()}")
    yield pause(chance.uniform(0, 2))
    pid = kill_process(cluster, chance, chance.choice(job.hosts()), "proxy")
    assert pid, job.story()
    for one, restarts in ((job, 1), (undisturbed, 0)):
        yield one.until("COMPLETED", restarts=restarts)
    assert re.search("the proxy of device . of .* has ended", job.output()), job.story()
    assert "PASSED" in undisturbed.output(), undisturbed.story()
    assert results(job.output()) == results(undisturbed.output()), job.story()
    return f"proxy {pid} of job {job.number}"


OTHERS = {"proxy": loses_a_proxy, "requeues": is_requeued, "training": is_trained, "slow store": is_not_saved_in_time}


# Both wait most of their time.
@pytest.fixture(scope="module")
def at_once(cluster, request):
    chosen = {name: make(cluster, random.Random(f"{SEED} {name}"), *how) for name, (make, *how) in LOST.items() if name in cases_of(request, "lost")}
    chosen |= {name: make(cluster, random.Random(f"{SEED} {name}")) for name, make in OTHERS.items() if name in cases_of(request, "other")}
    return run_together(chosen)


@pytest.mark.parametrize("lost", LOST)
def test_nodes_are_lost(at_once, lost):
    print(at_once[lost].result())
    print(f"seed {SEED}: {lost}: 1 fault injected, 1 survived")


@pytest.mark.parametrize("other", OTHERS)
def test_more(at_once, other):
    print(f"seed {SEED}: {at_once[other].result()}: survived")
