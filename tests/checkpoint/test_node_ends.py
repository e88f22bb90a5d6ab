# SPDX-License-Identifier: GPL-2.0-or-later
"""Deaths at exact steps (steps.py): recoveries die one after the other; agent and worker die with a restore that nobody knows of;
a device proxy dies at the end of a restore; criu or the agent die where something was left once. Afterwards nothing is left, and
the program runs on or its checkpoint restores."""

import contextlib
import os
import random
import select
import signal
import subprocess

import pytest
import saved_nodes
import scenes
import steps
import virtualnode
from saved_nodes import PATIENCE, SEED, USER

PTRACE_ATTACH = 16


@pytest.fixture(name="scene")
def one_scene(_mounts, request):
    one = scenes.Scene(request.param, random.Random(SEED))
    try:
        yield one
        assert not one.agent.steps.plans, "a worker was not started"
        one.check(None)
        one.finish()
    except BaseException:
        print(one.agent.log())
        raise
    finally:
        one.close()


def has_effect(call):
    return call.kind != "read"


def held_processes(pid):
    """The names of those of which it holds a pidfd."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{number}") == "anon_inode:[pidfd]":
                with open(f"/proc/{pid}/fdinfo/{number}", encoding="utf-8") as about:
                    other = next(line.split()[1] for line in about if line.startswith("Pid:"))
                with open(f"/proc/{other}/comm", encoding="utf-8") as name:
                    found.append(name.read().strip())
    return found


def knows_init(call):
    """Whether the worker holds the restored init: criu is done."""
    return call.program == "singularity-wor" and "singularity-ini" in held_processes(call.pid)


def tells_of_init(call, _mark):
    """Before this the agent knows of no process of the node."""
    return call.name == "sendmsg" and knows_init(call)


def settled_by(scene, *plans):
    for plan in plans:
        virtualnode.wait_for(plan.ended.is_set, "each worker to end", PATIENCE)
        assert plan.reached and not plan.failure, plan.failure
    virtualnode.wait_for(lambda: not scene.agent.workers(), "the workers to be gone", PATIENCE)


@pytest.mark.parametrize("restarted", [False, True], ids=["same agent", "another agent"])
@pytest.mark.parametrize("scene", scenes.PROGRAMS, indirect=True)
def test_recoveries_that_die(scene, restarted):
    """Whatever it is that kills them, the node does not stand still for ever: after three it ends, and says why."""
    deaths = []

    def die(_):
        deaths.extend(scene.agent.workers())
        if restarted and len(deaths) == 1:
            scene.agent.kill()
        scene.kill("worker")
        if restarted and len(deaths) == 1:
            scene.agent.start()

    stands_still = steps.Plan(has_effect, lambda call, _: call.program == "criu", die)
    recoveries = [steps.Plan(has_effect, lambda call, _: call.name == "flock", die) for _ in range(3)]
    scene.agent.steps.arm(stands_still, *recoveries)
    done = scene.agent.ctl("checkpoint", scene.node, user=USER)
    settled_by(scene, stands_still, *recoveries)
    virtualnode.wait_for(lambda: not scene.is_there(), "the node to end", PATIENCE)
    assert len(set(deaths)) == 4, deaths
    said = "3 processes that were to let it go on have died one after the other, so it is ended"
    assert done.returncode == 1 and said in (scene.agent.log() if restarted else done.stderr), f"{done}\n{scene.agent.log()}"


def last_of_criu(scene):
    """Of an undisturbed restore."""
    scene.prepare("restore")
    plan = steps.Plan(has_effect)
    status, errors = scene.attempt("restore", plan)
    assert status == 0, errors
    return [mark for call, mark in plan.steps if call.program == "criu"][-1]


@pytest.mark.parametrize("moment", ["criu has made them", "the worker knows them"])
@pytest.mark.parametrize("scene", scenes.PROGRAMS, indirect=True)
def test_strays_of_a_restore(scene, moment):
    """Processes of a node that no record names, since worker and agent have died: the next agent ends them."""
    strays = []

    def die(_):
        strays.extend(scene.agent.init_pids())
        scene.agent.kill()
        scene.kill("worker")

    if moment == "criu has made them":
        last = last_of_criu(scene)
        plan = steps.Plan(has_effect, lambda _, mark: mark == last, die)
    else:
        plan = steps.Plan(has_effect, tells_of_init, die)
    scene.prepare("restore")
    scene.agent.steps.arm(plan)
    done = scene.agent.ctl("restore", scene.node, user=USER)
    settled_by(scene, plan)
    assert done.returncode == 1
    assert strays and strays == scene.agent.init_pids(), f"{strays} end by themselves, {plan.reached}"
    scene.agent.start()
    virtualnode.wait_for(lambda: not scene.is_there() and not scene.agent.leftovers(), f"the strays to end: {scene.agent.leftovers()}",
                         PATIENCE)


def waits(pid):
    """Whether a thread of it, not the first one, is in poll(2)."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            if thread != str(pid):
                with open(f"/proc/{pid}/task/{thread}/syscall", encoding="utf-8") as call:
                    found.append(call.read().split()[0])
    return any(number in ("7", "271") for number in found)


def sleeps(pid):
    """Whether its first thread is in clock_nanosleep(2): between two looks at something."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/syscall", encoding="utf-8") as call:
            return call.read().split()[0] == "230"
    return False


# The step, what happens to the proxy there, and what is said. One that is stopped dies when the worker waits for its word that
# clients are back.
MOMENTS = {
    "before the agent says keep": (tells_of_init, signal.SIGKILL, "connect to", "Connection refused"),
    "before it is asked": (lambda call, _: call.name == "connect" and knows_init(call), signal.SIGKILL, "connect to", "Connection refused"),
    "while clients attach": (tells_of_init, signal.SIGSTOP, "wait for the clients of", "the device proxy has hung up"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("scene", ["cuda"], indirect=True)
def test_proxy_at_the_end_of_a_restore(scene, moment):
    """Its program would be restored without its device: the restore fails, and leaves nothing."""
    chosen, number, does, why = MOMENTS[moment]

    def send(which):
        for pid in scene.agent.proxies(scene.node):
            ended = os.pidfd_open(pid)
            os.kill(pid, which)
            # Until then its sockets are open.
            assert which != signal.SIGKILL or select.select([ended], [], [], PATIENCE)[0]
            os.close(ended)

    plan = steps.Plan(has_effect, chosen, lambda _: send(number))
    scene.prepare("restore")
    scene.agent.steps.arm(plan)
    with saved_nodes.foreground(scene.agent, "restore", scene.node) as asking:
        virtualnode.wait_for(lambda: plan.reached or asking.poll() is not None, "the step", PATIENCE)
        if number == signal.SIGSTOP:
            virtualnode.wait_for(lambda: any(map(waits, scene.agent.workers())), "the worker to wait for clients", PATIENCE)
            send(signal.SIGKILL)
        _, errors = asking.communicate(timeout=PATIENCE)
    settled_by(scene, plan)
    assert asking.returncode == 1 and f"{does} device proxy 0 of {scene.node}: {why}" in errors, errors
    virtualnode.wait_for(lambda: not scene.is_there() and not scene.agent.leftovers(), f"nothing to be left: {scene.agent.leftovers()}",
                         PATIENCE)


def killing(scene, who, chosen):
    return steps.Plan(has_effect, chosen, lambda _: scene.kill(who))


@pytest.mark.parametrize("scene", ["shell"], indirect=True)
def test_criu_that_tries_the_kernel(scene):
    """It makes a process that sleeps for ever, attaches to it, and is killed before it has ended it."""
    plan = killing(scene, "criu", lambda call, _: call.program == "criu" and call.name == "ptrace" and call.path == str(PTRACE_ATTACH))
    status, errors = scene.attempt("continue", plan)
    assert plan.reached and status == 1, errors
    scene.check("criu")


@pytest.mark.parametrize("scene", ["shell"], indirect=True)
def test_staging_behind_the_agent(scene):
    """The worker makes its staging directory when the next agent has looked for what is left already."""
    scene.prepare("restore")
    plan = killing(scene, "agent", lambda call, _: call.name == "mkdir" and call.path == os.path.join(scene.agent.staging, scene.node))
    status, errors = scene.attempt("restore", plan)
    assert plan.reached and status == 1, errors
    scene.check("agent")


@pytest.mark.parametrize("scene", ["shell"], indirect=True)
def test_an_init_that_is_slow(scene):
    """It has not closed its connection to the agent yet when the worker is there to save it."""
    (init,) = scene.agent.init_pids()
    plan = steps.Plan(has_effect, lambda call, _: call.name == "flock", lambda _: None)
    os.kill(init, signal.SIGSTOP)
    scene.agent.steps.arm(plan)
    with saved_nodes.foreground(scene.agent, "checkpoint", "--continue", scene.node) as asking:
        try:
            virtualnode.wait_for(lambda: plan.reached or asking.poll() is not None, "the step", PATIENCE)
            virtualnode.wait_for(lambda: asking.poll() is not None or any(map(sleeps, scene.agent.workers())), "the worker to wait", PATIENCE)
        finally:
            os.kill(init, signal.SIGCONT)
        _, errors = asking.communicate(timeout=PATIENCE)
    settled_by(scene, plan)
    assert asking.returncode == 0, errors


@pytest.mark.parametrize("scene", scenes.PROGRAMS, indirect=True)
def test_destroyed_while_it_is_saved(scene):
    """Whatever criu is at then, it does not wait for a process that waits for it."""
    chance = random.Random(f"{SEED} destroyed")
    scene.prepare("checkpoint")
    recorded = steps.Plan(has_effect)
    assert scene.attempt("continue", recorded)[0] == 0
    of_criu = [mark for call, mark in recorded.steps if call.program == "criu"]
    orders = []
    destroyed = 0
    for mark in chance.sample(of_criu, 12):  # some of them are not there in each run
        scene.prepare("checkpoint")
        plan = steps.Plan(has_effect, lambda call, one, mark=mark: one == mark, act=lambda _: orders.append(destroy(scene)))
        scene.attempt("continue", plan)
        if not plan.reached:
            continue
        is_destroyed(scene, orders.pop())
        destroyed += 1
        if destroyed == 5:
            break
    assert destroyed == 5


@pytest.mark.parametrize("scene", ["shell"], indirect=True)
def test_destroyed_while_criu_does_nothing(scene):
    """criu traces a process that has ended, and does not reap it: init waits for that, and criu may wait for init."""
    scene.prepare("checkpoint")

    orders = []

    def act(call):
        os.kill(call.pid, signal.SIGSTOP)
        orders.append(destroy(scene))

    plan = steps.Plan(has_effect, lambda call, _: call.program == "criu" and os.path.basename(call.path).startswith("core-"), act=act)
    scene.attempt("continue", plan)
    assert plan.reached
    is_destroyed(scene, orders.pop())


def destroy(scene):
    """Does not wait for the end: who is to take part in it stands still."""
    init = scene.agent.init_pids()[0]
    process = subprocess.Popen(scene.agent.command("destroy", scene.node), user=USER, group=USER, extra_groups=[], stderr=subprocess.PIPE, text=True)
    virtualnode.wait_for(lambda: not os.path.exists(f"/proc/{init}/exe"), "the node's init to be killed", PATIENCE)
    return process


def is_destroyed(scene, process):
    """The agent waited for it, and not in vain."""
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    virtualnode.wait_for(lambda: not scene.is_there() and not scene.agent.leftovers(), f"nothing to be left: {scene.agent.leftovers()}", PATIENCE)
    scene.nothing_is_left()
