# SPDX-License-Identifier: GPL-2.0-or-later
"""singularity-planner beside slurmctld: jobs shrink for others and grow again, and lose nothing by it, whoever dies."""

import collections
import contextlib
import os
import random
import re
import shlex
import time

import pytest
import scenarios
from conftest import elastic_up
from elastic import PATIENCE, TIME_TO_SAVE, WRAPPER, assert_clean
from faults import agent_log
from test_lifecycle import COUNT as COUNT_TO
from test_lifecycle import EVERY, HOLDS, counted, script
from test_lifecycle_moves import COUNT
from virtualcluster.cluster import CHECKOUT, USER_IDS
from virtualcluster.errors import wait_for

# Everything sooner than anybody would want it.
YAML = """elastic:
  checkpoint_every_least: 1s
premium:
  least_run: 1s
standard:
  least_run: 1s
  moves_per_hour: 30
basic:
  least_run: 1s
  moves_per_hour: 60
planner:
  every: 2s
  metrics: /run/singularity-planner/planner.prom
"""
# Who preempts whom is the planner's business here.
CONF = {**TIME_TO_SAVE, "PreemptType": "preempt/none", "PreemptMode": "OFF", "PriorityWeightQOS": "100000"}
PLANNER = "singularity-planner"
BUILD = os.path.abspath(os.environ.get("CTEST_BINARY_DIR", os.path.join(CHECKOUT, "build", "release")))
GPUS = 8
LOAD = 40  # jobs
ENDS = ("COMPLETED", "NODE_FAIL", "FAILED", "CANCELLED", "TIMEOUT")


@pytest.fixture(scope="module")
def cluster(release):
    few = "PartitionName=few Nodes=n2 PriorityTier=1 PriorityJobFactor=1 MaxTime=INFINITE State=UP"
    with elastic_up(release, YAML, nodes=2, accounting=True, conf=CONF, partitions=[*scenarios.PARTITIONS, few]) as made:
        yield made
        assert_clean(made)


@pytest.fixture(autouse=True)
def planner(cluster):
    cluster.start_daemon("ctl", PLANNER)
    yield
    if cluster.daemon_pid("ctl", PLANNER):
        cluster.stop_daemon("ctl", PLANNER)
    cluster.slurm("scancel", "-u", "alice")
    wait_for(lambda: cluster.slurm("squeue", "-h") == "", PATIENCE, "all jobs to be gone")


def submit(cluster, tier, gpus, elastic=None, number=None, nodes=None, step="", where=(), program=COUNT):
    """A job that counts until it is told to end, or to a number; its ranks are as many as its GPUs. step: more options of its step."""
    counting = program if number is None else COUNT_TO.format(numbers=number, pause=0.1)
    line = f"srun {step} --ntasks={gpus} /usr/bin/python3 -c {shlex.quote(counting)}"
    options = [f"--singularity-elastic={elastic}"] if elastic else ["--singularity-off", "--no-requeue"]
    options += [f"--nodes={nodes}"] if nodes else []
    options += where
    return cluster.submit(*options, f"--qos={tier}", f"--gpus={gpus}", f"--ntasks={gpus}", script=script(line))


@contextlib.contextmanager
def settings(cluster, **conf):
    """slurm.conf has them meanwhile; in slurmctld the select plugin has a say."""
    before = {key: cluster.spec.conf.get(key) for key in conf}

    def restart(changed):
        cluster.write_conf(**changed)
        cluster.stop_daemon("ctl", "slurmctld")
        cluster.start_daemon("ctl", "slurmctld")
        cluster.wait_controller()

    cluster.controller.run(["truncate", "-s", "0", "/var/log/slurm/slurmctld.log"])
    restart(conf)
    try:
        yield
    finally:
        restart(before)


def are_runs(numbers, end):
    """Whether they are those of a run from 0 to the end, and of others that began at 0 and did not come as far, in any order."""
    often = collections.Counter(numbers)
    return set(often) == set(range(end)) and all(often[number] <= often[number - 1] for number in range(1, end))


def breaks_of(numbers):
    """What does not come after its predecessor."""
    return [one for before, one in zip([-1, *numbers], numbers) if one != before + 1]


def said_of(cluster, job):
    """By the agents, slurmctld and the planner."""
    logs = [agent_log(cluster, host.name) for host in cluster.nodes]
    logs.append(cluster.controller.run(["cat", "/var/log/slurm/slurmctld.log", f"/var/log/{PLANNER}.log"]).stdout)
    about = re.compile(rf"\b(job |JobId=|s){job}\b|\b{job}\.\d")
    return [line for log in logs for line in log.splitlines() if about.search(line)]


def wait_goes_on(cluster, job, more=5):
    before = max((one[-1] for one in counted(cluster, job).values()), default=-1)
    wait_for(lambda: max((one[-1] for one in counted(cluster, job).values()), default=-1) >= before + more, PATIENCE, f"job {job} to count on")


def gpus_of(cluster, job):
    record = cluster.job(job)
    found = re.search(r"gres/gpu=(\d+)", record.get("AllocTRES", record.get("TRES", "")))  # TRES before 23.02
    return int(found.group(1)) if record["JobState"] == "RUNNING" and found else 0


def wait_gpus(cluster, job, gpus):
    wait_for(lambda: gpus_of(cluster, job) == gpus, PATIENCE, f"job {job} to have {gpus} GPUs: {plan(cluster)}")


def plan(cluster):
    return cluster.controller.run(["singularityctl", "status", "--plan"], check=False).stdout


def end(cluster, *jobs):
    """They are told to, and none has lost or repeated anything."""
    for job in jobs:
        cluster.controller.run(["touch", f"/shared/end-{job}"])
    for job in jobs:
        cluster.wait_job(job, seconds=PATIENCE)
        shown = counted(cluster, job)
        assert shown and all(one == list(range(len(one))) for one in shown.values()), (job, shown)


@pytest.mark.parametrize("tier", ["basic", "standard"])
def test_training_shrinks_for_others_and_grows_again(cluster, tier):
    """Nobody is preempted: a premium job finds room that one of a lower tier has given, even if that needs what it has for its own guarantee,
    as a standard job does that has just begun."""
    training = submit(cluster, tier, GPUS, "2-8")
    wait_gpus(cluster, training, GPUS)
    wait_goes_on(cluster, training)
    premium = submit(cluster, "premium", 4)
    wait_gpus(cluster, premium, 4)
    wait_gpus(cluster, training, 4)
    wait_goes_on(cluster, training)
    end(cluster, premium)
    wait_gpus(cluster, training, GPUS)
    wait_goes_on(cluster, training)
    assert cluster.job(training)["Restarts"] == "2"
    end(cluster, training)


@pytest.mark.parametrize("gpus", [4, GPUS])
def test_without_checkpoints_the_same_is_decided(cluster, release, gpus):
    """Where there is no CRIU a job that gives way is requeued as stock Slurm requeues it: it begins anew, on what it is given. Its script and
    its step go without GPUs there, since there are no device proxies either."""
    if release != "22.05":
        pytest.skip("its root has CRIU and device proxies")
    training = submit(cluster, "basic", GPUS, "2-8", step="--gres=none", where=["--singularity-no-save-script"])
    wait_gpus(cluster, training, GPUS)
    wait_goes_on(cluster, training)
    premium = submit(cluster, "premium", gpus)
    wait_gpus(cluster, premium, gpus)
    if gpus < GPUS:
        wait_gpus(cluster, training, GPUS - gpus)
    else:
        assert cluster.job(training)["JobState"] == "PENDING"
    end(cluster, premium)
    wait_gpus(cluster, training, GPUS)
    runs = 3 if gpus < GPUS else 2
    assert cluster.job(training)["Restarts"] == str(runs - 1)
    wait_for(lambda: all(one.count(0) == runs for one in counted(cluster, training).values()), PATIENCE, "all ranks to have begun anew")
    cluster.controller.run(["touch", f"/shared/end-{training}"])
    cluster.wait_job(training, seconds=PATIENCE)
    for shown in counted(cluster, training).values():
        assert breaks_of(shown) == [0] * (runs - 1), shown


def test_a_burst_is_made_room_for(cluster):
    """Of small premium jobs, as those that answer requests: training gives GPU by GPU, and has them all again afterwards."""
    training = submit(cluster, "basic", GPUS, "2-8")
    wait_gpus(cluster, training, GPUS)
    wait_goes_on(cluster, training)
    burst = [submit(cluster, "premium", 1) for _ in range(4)]
    for job in burst:
        wait_gpus(cluster, job, 1)
    wait_gpus(cluster, training, 4)
    wait_goes_on(cluster, training)
    end(cluster, *burst)
    wait_gpus(cluster, training, GPUS)
    wait_goes_on(cluster, training)
    end(cluster, training)


def test_a_large_job_gets_in_by_defragmentation(cluster):
    """Four GPUs are free, two of each node: it needs those of one."""
    one, filler, other = (submit(cluster, "basic", 2, "2-2", nodes=1) for _ in range(3))
    for job in (one, filler, other):
        wait_gpus(cluster, job, 2)
    assert cluster.job(one)["NodeList"] == cluster.job(filler)["NodeList"] != cluster.job(other)["NodeList"]
    end(cluster, filler)
    large = submit(cluster, "premium", 4, nodes=1)
    wait_gpus(cluster, large, 4)
    for job in (one, other):
        wait_gpus(cluster, job, 2)
        wait_goes_on(cluster, job)
    assert sorted(cluster.job(job)["Restarts"] for job in (one, other)) == ["0", "1"]
    assert cluster.job(one)["NodeList"] == cluster.job(other)["NodeList"] != cluster.job(large)["NodeList"]
    end(cluster, one, other, large)


@pytest.mark.parametrize("where", ["--partition=few", "--constraint=big"])
def test_room_is_made_on_nodes_that_the_job_may_use(cluster, where):
    """Though elsewhere a job could shrink for it, which is to be preferred where it helps."""
    cluster.slurm("scontrol", "update", "NodeName=n2", "AvailableFeatures=big", "ActiveFeatures=big")
    here = submit(cluster, "basic", 4, "4-4", where=[where])
    wait_gpus(cluster, here, 4)
    elsewhere = submit(cluster, "basic", 4, "2-4")
    wait_gpus(cluster, elsewhere, 4)
    wait_goes_on(cluster, here)
    wait_goes_on(cluster, elsewhere)
    premium = submit(cluster, "premium", 2, where=[where])
    wait_gpus(cluster, premium, 2)
    wait_goes_on(cluster, premium)
    assert gpus_of(cluster, here) == 0, plan(cluster)
    end(cluster, premium)
    wait_gpus(cluster, here, 4)
    assert cluster.job(elsewhere)["Restarts"] == "0", said_of(cluster, elsewhere)
    end(cluster, here, elsewhere)


def test_slurms_own_preemption_waits_for_the_planner(cluster, version, has_table):
    """It takes whom the planner cannot move, and whom it likes when there is no planner."""
    if not has_table:
        pytest.skip(f"the select plugin only forwards in Slurm {version}: where things lie in its records is not known")
    def preempted(job):
        return re.search(rf"[Pp]reempted JobId={job}\b", cluster.log("ctl", "slurmctld"))

    with settings(cluster, PreemptType="preempt/qos", PreemptMode="REQUEUE"):
        training = submit(cluster, "basic", GPUS, "2-8")
        wait_gpus(cluster, training, GPUS)
        wait_goes_on(cluster, training)
        wait_for(lambda: "slurmctld's records are read correctly" in cluster.log("ctl", "slurmctld"), PATIENCE, "the select plugin to have a say")
        premium = submit(cluster, "premium", 4)
        wait_gpus(cluster, premium, 4)
        wait_gpus(cluster, training, 4)
        wait_goes_on(cluster, training)
        end(cluster, premium, training)
        assert not preempted(training)
        fixed = submit(cluster, "basic", GPUS)
        wait_gpus(cluster, fixed, GPUS)
        premium = submit(cluster, "premium", 4)
        wait_gpus(cluster, premium, 4)
        assert preempted(fixed)
        end(cluster, premium)
        training = submit(cluster, "basic", GPUS, "2-8")
        wait_gpus(cluster, training, GPUS)
        wait_goes_on(cluster, training)
        cluster.stop_daemon("ctl", PLANNER)
        premium = submit(cluster, "premium", GPUS)
        wait_gpus(cluster, premium, GPUS)
        assert preempted(training)
        end(cluster, premium, training)


def test_jobs_begin_with_what_there_is(cluster):
    """And grow when there is more."""
    holder = submit(cluster, "premium", 6)
    wait_gpus(cluster, holder, 6)
    training = submit(cluster, "standard", GPUS, "2-8")
    wait_gpus(cluster, training, 2)
    by_owner = rf"_slurm_rpc_update_job: complete \S*={training}\b.* uid={USER_IDS['alice']} "
    assert re.search(by_owner, cluster.log("ctl", "slurmctld")), said_of(cluster, training)
    wait_goes_on(cluster, training)
    end(cluster, holder)
    wait_gpus(cluster, training, GPUS)
    end(cluster, training)


@contextlib.contextmanager
def limit(cluster, text):
    """The QOS of tier basic has it meanwhile."""
    def modify(value):
        cluster.slurm("sacctmgr", "-i", "modify", "qos", "basic", "set", f"MaxTRESPerJob=gres/gpu={value}")
        shown = "" if value == -1 else f"gres/gpu={value}"
        wait_for(lambda: re.search(rf"QOS=basic\(.*?MaxTRESPJ=\S*{shown}", cluster.slurm("scontrol", "show", "assoc_mgr", "flags=qos"), re.DOTALL),
                 PATIENCE, "slurmctld to know the limit")

    modify(text)
    try:
        yield
    finally:
        modify(-1)


def test_what_cannot_be_saved_is_not_moved(cluster):
    """It keeps its GPUs from a job of a higher tier, which has them as soon as it can be saved."""
    training = submit(cluster, "basic", GPUS, "2-8", program=HOLDS, where=[EVERY])
    wait_for(lambda: cluster.job(training).get("unsavable") == "yes", PATIENCE, "the training to be noted as one that cannot be saved")
    premium = submit(cluster, "premium", 4)
    think = [PLANNER, "--once", "--dry-run"]
    thought = wait_for(lambda: next((text for text in [cluster.controller.run(think, user="alice").stdout] if str(premium) in text), None),
                       PATIENCE, "the planner to know of the premium job")
    assert "shrink" not in thought, thought
    assert gpus_of(cluster, training) == GPUS and cluster.job(training)["Restarts"] == "0"
    cluster.controller.run(["touch", f"/shared/free-{training}"])
    wait_gpus(cluster, premium, 4)
    wait_gpus(cluster, training, 4)
    wait_goes_on(cluster, training)
    end(cluster, premium, training)


def test_limits_hold_against_the_planner(cluster):
    """A job that runs as large as its QOS allows is made no larger than that, however much is free, and does not wait for it either. One
    that waits, and may have what is free as far as the planner knows, begins with what its QOS allows."""
    with limit(cluster, 4):
        holder = submit(cluster, "premium", GPUS)
        wait_gpus(cluster, holder, GPUS)
        training = submit(cluster, "basic", 4, "2-8")
        wait_for(lambda: cluster.job(training)["Reason"] in ("Resources", "Priority"), PATIENCE, "the training to wait for room")
        end(cluster, holder)
        wait_for(lambda: "MaxGRESPerJob" in cluster.job(training)["Reason"] or gpus_of(cluster, training), PATIENCE, "the training to be offered room")
        wait_gpus(cluster, training, 4)
        wait_goes_on(cluster, training)
        wait_for(lambda: re.search(rf"^ +{training} basic +runs +4 +2-4 ", plan(cluster), re.MULTILINE), 2 * PATIENCE, f"4 to be the most: {plan(cluster)}")
        end(cluster, training)
        assert "gres/gpu=8" not in cluster.slurm("sacct", "-n", "-P", "-X", "-D", "-j", str(training), "-o", "AllocTRES")


def test_a_job_has_the_range_that_slurmctld_was_told(cluster):
    """Whatever its own processes say to the agent when their step begins."""
    lies = "env SINGULARITY_ELASTIC=1-8 SINGULARITY_STEP_HOSTS=$(scontrol show hostnames | paste -sd,) SLURM_SINGULARITY_OF_SCRIPT=1"
    training = cluster.submit("--singularity-elastic=2-4", "--qos=basic", "--gpus=4", "--ntasks=4",
                              script=script(f"srun --singularity-off --ntasks=4 {lies} {WRAPPER} /usr/bin/python3 -c {shlex.quote(COUNT)}"))
    wait_for(lambda: cluster.job(training).get("ranks") == "4", PATIENCE, "the step to be noted")  # words of the AdminComment
    assert cluster.job(training)["elastic"] == "2-4"
    wait_for(lambda: re.search(rf"^ +{training} basic +runs +4 +2-4 ", plan(cluster), re.MULTILINE), PATIENCE, f"the plan to show the job: {plan(cluster)}")
    end(cluster, training)


def test_speeds_are_measured(cluster):
    """A training whose steps wait for their data is on half of its GPUs not half as fast, which the planner would assume."""
    def work():
        found = re.fullmatch(r"0:\d+:[0-9a-f]+:(\d+)", cluster.job(training).get("work", ""))  # a word of its AdminComment
        return int(found[1]) if found else None

    def speed():
        found = re.search(rf"^ +{training} basic +runs +\d+ +4-8 +(\d+) ", plan(cluster), re.MULTILINE)
        return int(found[1]) if found else None

    training = cluster.submit("--singularity-elastic=4-8", "--singularity-checkpoint-every=0:08", "--qos=basic", f"--gpus={GPUS}", f"--ntasks={GPUS}",
                              script=script('export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) LOADING_MS=200',
                                            f"srun --ntasks={GPUS} {BUILD}/workloads/train_data 100000"))
    wait_gpus(cluster, training, GPUS)
    first = wait_for(work, PATIENCE, f"a checkpoint of job {training}")
    wait_for(lambda: work() > first + 40, PATIENCE, "checkpoints to tell of half a minute's work")
    premium = submit(cluster, "premium", 4)
    wait_gpus(cluster, training, 4)
    wait_for(lambda: speed() == 50, PATIENCE, f"half the speed to be assumed: {plan(cluster)}")
    wait_for(lambda: (speed() or 0) > 60, PATIENCE, f"its speed to be measured: {plan(cluster)}")
    cluster.slurm("scancel", str(training))
    end(cluster, premium)


def test_whoever_gives_all_waits_and_comes_back(cluster):
    """A gang that needs everything: the basic job makes room, is not begun before there is some, and loses nothing."""
    training = submit(cluster, "basic", GPUS, "4-8")
    wait_gpus(cluster, training, GPUS)
    wait_goes_on(cluster, training)
    premium = submit(cluster, "premium", GPUS)
    wait_gpus(cluster, premium, GPUS)
    assert cluster.job(training)["JobState"] == "PENDING"
    end(cluster, premium)
    wait_gpus(cluster, training, GPUS)
    wait_goes_on(cluster, training)
    end(cluster, training)


def test_a_planner_that_dies(cluster):
    """At any point of a move: jobs go on by themselves, and the next planner finishes what is left to do."""
    training = submit(cluster, "basic", GPUS, "2-8")
    wait_gpus(cluster, training, GPUS)
    wait_goes_on(cluster, training)
    premium = submit(cluster, "premium", 4)
    wait_for(lambda: cluster.job(training)["JobState"] != "RUNNING", PATIENCE, "the training to be told to shrink")
    cluster.stop_daemon("ctl", PLANNER, "KILL")
    wait_gpus(cluster, premium, 4)
    wait_gpus(cluster, training, 4)
    end(cluster, premium)
    cluster.start_daemon("ctl", PLANNER)
    wait_gpus(cluster, training, GPUS)
    end(cluster, training)


def test_a_mixed_load(cluster):
    """Of all tiers, while slurmctld and the planner are killed: all of it is done, once."""
    seed = int(os.environ.get("SINGULARITY_TEST_SEED", time.time_ns()))
    print("seed", seed)
    draw = random.Random(seed)
    jobs = {}
    for _ in range(LOAD):
        tier, gpus = draw.choice(["premium", "standard", "basic"]), draw.choice([1, 2, 2, 4, 4, 8])
        elastic = f"{draw.randint(1, gpus)}-{gpus}" if draw.random() < 0.75 else None
        number = draw.randint(20, 120)
        jobs[submit(cluster, tier, gpus, elastic, number=number)] = number, gpus, elastic
    for name, host, victim in (("slurmctld", "ctl", "slurmctld"), (PLANNER, "ctl", PLANNER), ("slurmctld", "ctl", "slurmctld")):
        time.sleep(draw.uniform(5, 15))
        cluster.stop_daemon(host, victim, "KILL")
        cluster.start_daemon(host, name)
        if name == "slurmctld":
            cluster.wait_controller()
    anew, wrong = [], {}
    for job, (number, gpus, elastic) in jobs.items():
        record = cluster.wait_job(job, ENDS, seconds=10 * PATIENCE)
        shown = counted(cluster, job)
        breaks = {at for one in shown.values() for at in breaks_of(one)}
        # What slurmctld heard in the seconds before it was killed it does not know: that a job had begun, which then begins
        # once more as if it never had, elsewhere also before the node of the first run has been told to end that; or that
        # it had ended; what is not elastic may not be run again then. An agent that is to go on with a job, and cannot,
        # says so.
        state = {"COMPLETED"} if elastic else {"COMPLETED", "NODE_FAIL"}
        forgotten = all(are_runs(one, number) for one in shown.values()) and not any("anew" in line for line in said_of(cluster, job))
        if record["JobState"] not in state or (breaks and not forgotten) or {rank: one[-1] for rank, one in shown.items()} != dict.fromkeys(range(gpus), number - 1):
            wrong[job] = {rank: (breaks_of(one), one[-1]) for rank, one in shown.items()}, number, gpus, record, said_of(cluster, job)
        elif breaks:
            anew.append(job)
    assert not wrong, wrong
    assert len(anew) <= 2 * GPUS, anew  # that were running when it was killed
    moved = sum(int(cluster.job(job)["Restarts"]) for job in jobs)
    print(f"seed {seed}: slurmctld killed twice and the planner once: {LOAD} jobs survived, {moved} moves, {len(anew)} begun anew")
    assert moved > 0


def test_what_it_thinks(cluster):
    """For people, for Prometheus, and without doing anything."""
    training = submit(cluster, "basic", GPUS, "2-8")
    wait_gpus(cluster, training, GPUS)
    wait_for(lambda: re.search(rf"^ +{training} basic +runs +8 +2-8 ", plan(cluster), re.MULTILINE), PATIENCE, f"the plan to show the job: {plan(cluster)}")
    other = cluster.controller.run([PLANNER], check=False)
    assert other.returncode == 1 and "another singularity-planner runs" in other.stderr
    metrics = cluster.controller.run(["cat", "/run/singularity-planner/planner.prom"]).stdout
    assert 'singularity_planner_jobs{tier="basic"} 1' in metrics and "singularity_planner_cluster_gpus 8" in metrics
    cluster.stop_daemon("ctl", PLANNER)
    waits = submit(cluster, "premium", 4)
    shown = wait_for(lambda: re.search(rf"^plan: shrink job {training} .*8 to 4 GPUs: makes room for job {waits}", cluster.controller.run(
        [PLANNER, "--once", "--dry-run"], user="alice").stdout, re.MULTILINE), PATIENCE, "a plan to make room")
    assert shown and gpus_of(cluster, training) == GPUS
    cluster.slurm("scancel", str(waits))
    end(cluster, training)


@pytest.mark.parametrize("user", ["alice", "slurm"])
def test_only_root_changes_jobs_as_their_owners(cluster, user):
    cluster.stop_daemon("ctl", PLANNER)
    refused = cluster.controller.run([PLANNER, "--once"], user=user, check=False, directory="/")
    assert refused.returncode == 1 and "only root may change jobs as their owners" in refused.stderr
