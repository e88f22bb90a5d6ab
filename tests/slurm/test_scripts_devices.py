# SPDX-License-Identifier: GPL-2.0-or-later
"""GPUs of batch scripts: their device proxies open them with the first program that uses them, and never if none does."""

import os
import re

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from faults import agent_log
from test_lifecycle import NEVER, OFTEN, output, requeue, script
from test_scripts import disturb, node_of, wait_output
from virtualcluster.errors import wait_for

DRIVER = "/usr/lib/singularity/softgpu/libcuda.so.1"
# Says "NAME used" when it has written to all devices that it sees, and "NAME kept" when that is still there once somebody wants to know.
USE = """
import ctypes, os, sys, time
cuda, name = ctypes.CDLL("libcuda.so.1"), sys.argv[1]
def call(function, *arguments):
    result = getattr(cuda, function)(*arguments)
    assert result == 0, f"{name} {function} {result}"
print(name, "asks", flush=True)
call("cuInit", 0)
count, memories = ctypes.c_int(), []
call("cuDeviceGetCount", ctypes.byref(count))
for number in range(count.value):
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDeviceGet", ctypes.byref(device), number)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
    call("cuMemsetD8_v2", memory, 7 + number, ctypes.c_size_t(4096))
    memories.append((context, memory))
print(name, "used", count.value, flush=True)
while not os.path.exists(f"/shared/go-{name}-{os.environ['SLURM_JOB_ID']}"):
    time.sleep(0.02)
for number, (context, memory) in enumerate(memories):
    call("cuCtxSetCurrent", context)
    found = ctypes.create_string_buffer(4096)
    call("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(4096))
    assert found.raw == bytes([7 + number]) * 4096, name
print(name, "kept", count.value, flush=True)
"""
UNTIL = "until [ -e /shared/go-{0}-$SLURM_JOB_ID ]; do sleep 0.02; done"
PROXIES = "for comm in $(grep -l '^singularity-pro' /proc/[0-9]*/comm); do pid=${comm%/comm}; pid=${pid#/proc/}; "


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, OFTEN + "  look_every: 1s\n", nodes=2, conf=TIME_TO_SAVE) as made:
        made.controller.run(["sh", "-c", "printf %s \"$1\" > /shared/use.py", "sh", USE])
        yield made
        assert_clean(made)


def use(name, before=""):
    return f"{before} python3 /shared/use.py {name}".strip()


def go(cluster, job, name):
    cluster.controller.run(["touch", f"/shared/go-{name}-{job}"])


def submit(cluster, *lines, gpus=2):
    return cluster.submit(ELASTIC, NEVER, "-N1", "-n1", f"--gpus={gpus}", script=script(*lines))


def proxies(cluster, job, which="true"):
    """Pids on the job's host of the device proxies of which the shell's `which` is true."""
    return cluster.host(node_of(cluster, job)).run(f"{PROXIES} if {which}; then echo $pid; fi; done", check=False).stdout.split()


def with_driver(cluster, job):
    return proxies(cluster, job, f"grep -q {DRIVER} /proc/$pid/maps")


def until_opened(cluster, job, number):
    wait_for(lambda: len(with_driver(cluster, job)) == number, PATIENCE, f"{number} devices to be open")


def test_devices_of_a_script_that_leaves_them_to_its_steps_are_not_opened(cluster):
    job = submit(cluster, "echo begun", UNTIL.format("a"), f"srun {use('step')}", "echo between", UNTIL.format("b"), "srun true", "echo over")
    wait_output(cluster, job, "^begun$")
    assert len(proxies(cluster, job)) == 2 and not with_driver(cluster, job)
    go(cluster, job, "a")
    wait_output(cluster, job, "^step used 2$")
    assert len(proxies(cluster, job)) == 4 and len(with_driver(cluster, job)) == 2
    go(cluster, job, "step")
    wait_output(cluster, job, "^between$")
    until_opened(cluster, job, 0)
    go(cluster, job, "b")
    cluster.wait_job(job, seconds=PATIENCE)
    assert "step kept 2" in output(cluster, job) and "over" in output(cluster, job), output(cluster, job)


@pytest.mark.parametrize("how", ["requeued", "moved"])
def test_saved_before_the_first_program_that_uses_them_and_after_it(cluster, how):
    job = submit(cluster, "echo begun", UNTIL.format("a"), use("first"), UNTIL.format("b"), use("second"), "echo run ${SLURM_RESTART_COUNT:-0}")
    wait_output(cluster, job, "^begun$")
    disturb(cluster, job, how)
    wait_for(lambda: len(proxies(cluster, job)) == 2, PATIENCE, "the script's proxies")
    assert not with_driver(cluster, job)
    go(cluster, job, "a")
    wait_output(cluster, job, "^first used 2$")
    assert len(with_driver(cluster, job)) == 2
    disturb(cluster, job, how)
    go(cluster, job, "first")
    wait_output(cluster, job, "^first kept 2$")
    disturb(cluster, job, how)
    assert not with_driver(cluster, job), "nothing of the first is left that would be restored"
    for name in ("b", "second"):
        go(cluster, job, name)
    cluster.wait_job(job, seconds=PATIENCE)
    assert re.findall("^(?:begun|run|first|second).*$", output(cluster, job), re.MULTILINE) == [
        "begun", *(f"{name} {what}" for name in ("first", "second") for what in ("asks", "used 2", "kept 2")), "run 0"], output(cluster, job)


def test_a_device_that_no_program_sees_is_not_opened(cluster):
    job = submit(cluster, "echo begun", use("second", "CUDA_VISIBLE_DEVICES=1"), use("both"))
    wait_output(cluster, job, "^second used 1$")
    assert len(with_driver(cluster, job)) == 1
    go(cluster, job, "second")
    wait_output(cluster, job, "^both used 2$")
    assert len(with_driver(cluster, job)) == 2
    go(cluster, job, "both")
    cluster.wait_job(job, seconds=PATIENCE)
    assert "second kept 1" in output(cluster, job) and "both kept 2" in output(cluster, job), output(cluster, job)


def test_programs_that_come_at_once_and_children(cluster):
    forked = "python3 -c \"import os; parent = os.fork(); os.execvp('python3', ['python3', '/shared/use.py', 'parent' if parent else 'child'])\""
    names = ("one", "two", "parent", "child")
    job = submit(cluster, f"{use('one')} &", f"{use('two')} &", f"{forked} &", "wait", UNTIL.format("child"))
    for name in names:
        wait_output(cluster, job, f"^{name} used 2$")
        go(cluster, job, name)
    for name in names:
        wait_output(cluster, job, f"^{name} kept 2$")
    cluster.wait_job(job, seconds=PATIENCE)


def test_an_agent_that_dies_between_the_first_client_and_the_start(cluster):
    """The proxies, which it is not there to see, stand still meanwhile; the next agent knows them."""
    job = submit(cluster, "echo begun", UNTIL.format("a"), use("late"), "echo over")
    wait_output(cluster, job, "^begun$")
    name = node_of(cluster, job)
    host = cluster.host(name)
    still = proxies(cluster, job)
    host.run(["kill", "-STOP", *still])
    try:
        go(cluster, job, "a")
        wait_output(cluster, job, "^late asks$")
        cluster.stop_daemon(name, "singularityd", "KILL")
        cluster.start_agents(name)
        wait_for(lambda: "running" in host.run(["singularityctl", "ps"], check=False).stdout, PATIENCE, "the agent to have found the node")
        assert "late used" not in output(cluster, job)
    finally:
        host.run(["kill", "-CONT", *still])
    wait_output(cluster, job, "^late used 2$")
    assert sorted(with_driver(cluster, job)) == sorted(still)
    requeue(cluster, job)
    go(cluster, job, "late")
    cluster.wait_job(job, seconds=PATIENCE)
    assert re.findall("^late .*$", output(cluster, job), re.MULTILINE) == ["late asks", "late used 2", "late kept 2"], output(cluster, job)


def test_a_device_that_cannot_be_opened_is_an_error_in_words(cluster):
    """In the job's output, and at once: what the script makes of it is its own business."""
    job = submit(cluster, "echo begun", UNTIL.format("a"), f"{use('late')} || echo refused", "sleep 600")
    wait_output(cluster, job, "^begun$")
    host = cluster.host(node_of(cluster, job))
    away = f"{os.path.dirname(DRIVER)}/away"
    host.run(["mv", DRIVER, away])
    try:
        go(cluster, job, "a")
        wait_output(cluster, job, r"refuses this process: it has no device: cannot open the driver library .*libcuda\.so\.1")
        wait_output(cluster, job, "^refused$")
        lost = wait_for(lambda: re.search(r"the proxy of device \d has ended; .*", agent_log(cluster, host.name)), PATIENCE, "its agent to say so")
        assert "cannot open the driver library" in lost[0], lost[0]
    finally:
        host.run(["mv", away, DRIVER])
        cluster.controller.run(["scancel", str(job)], check=False)
    wait_for(lambda: cluster.job(job)["JobState"] in ("CANCELLED", "COMPLETED"), PATIENCE, "the job to end")
