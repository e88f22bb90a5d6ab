# SPDX-License-Identifier: GPL-2.0-or-later
"""CUDA programs in virtual nodes that are saved while they run on, or restored on other numbers of devices; test_workloads.py
ends and restores every workload. The output is that of an undisturbed run, to the bit."""

import random
import time

import pytest
import saved_nodes
import virtualnode
from saved_nodes import PATIENCE, SEED, USER, built

MOVES = 5
TIMES = {"train_digits": 6}
CONTINUED = ("nbody", "train_digits", "graphs", "managed_memory", "mapped_memory", "streams_threads", "virtual_memory", "multi_device")
WORKLOADS = saved_nodes.workloads()

HOLD = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, f"{name}: {result}"

call("cuInit", 0)
memory = []
for device in range(2):
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(320 << 20))
    call("cuMemsetD32_v2", address, 41 + device, ctypes.c_size_t(80 << 20))
    memory.append((context, address))
print("ready", flush=True)
sys.stdin.readline()
for context, address in memory:
    word = ctypes.c_uint32()
    call("cuCtxSetCurrent", context)
    call("cuMemcpyDtoH_v2", ctypes.byref(word), ctypes.c_uint64(address.value + (316 << 20)), ctypes.c_size_t(4))
    print(word.value, flush=True)
"""


def program(name):
    """It takes some 50 ms, and a checkpoint longer: again and again, so that every moment of a process's life is hit."""
    # What it says on standard error depends on whether devices reach each other, which through proxies they do not.
    return ["/bin/sh", "-c", f"for i in $(seq {TIMES.get(name, 20)}); do {built('workloads', name)} 2>/dev/null || exit 1; done"]


def test_memory_of_several_processes(agent):
    """They have opened each other's device memory: saved, ended, restored, they have the same memory again."""
    chance = random.Random(f"{SEED} shared_memory")
    node = agent.run([built("workloads", "shared_memory"), "4000"], 1)
    moves = 0
    while moves < 3 and "running" in agent.task(node):
        time.sleep(chance.uniform(0.05, 0.5))
        agent.ok("checkpoint", node)
        assert not agent.leftovers()
        agent.ok("restore", node)
        moves += 1
    found, ended = agent.ended(node)
    assert moves > 1 and ended == "1: exit 0", f"seed {SEED}: {moves} moves, {ended}\n{found.decode()}\n{agent.proxy_logs(node)}\n{agent.log()}"
    assert found.endswith(b"PASSED\n"), found.decode()
    agent.ok("destroy", node)


@pytest.mark.parametrize("name", CONTINUED)
def test_output_is_the_same(agent, name):
    chance = random.Random(f"{SEED} {name}")
    command = program(name)
    wanted, seconds = saved_nodes.undisturbed(command, WORKLOADS[name])
    node = agent.run(command, WORKLOADS[name])
    saved = 0
    while saved == 0 or (saved < MOVES and "running" in agent.task(node)):
        time.sleep(chance.uniform(0, seconds / 6))
        saved += 1
        done = agent.ctl("checkpoint", "--continue", node, user=USER)
        assert done.returncode == 0, f"seed {SEED}: {done.stderr}\n{agent.log()}"
    print(f"seed {SEED}: saved {saved} times")
    assert agent.finish(node) == wanted, f"seed {SEED}"
    agent.ok("destroy", node)


def moved(agent, command, chance, longest):
    """A training with four devices that was moved to two, to one and to four; None: it had ended before."""
    node = agent.run(command, 4)
    for size in (2, 1, 4):
        time.sleep(chance.uniform(0, longest))
        agent.ok("checkpoint", node)
        assert not agent.leftovers()
        agent.ok("restore", "--devices", str(size), node)
        assert len(agent.proxies(node)) == size
        if "running" not in agent.task(node):
            agent.ok("destroy", node)
            return None
    return node


def test_training_on_fewer_devices(agent):
    """Four ranks that train together, on four devices, then on two, on one, on four again: the same losses."""
    chance = random.Random(f"{SEED} training")
    command = ["/bin/sh", "-c", f"{built('workloads', 'train_parallel')} 80 2>/dev/null"]
    wanted, seconds = saved_nodes.undisturbed(command, 4)
    # How fast it is the next time, depends on what else the machine does.
    tries = (moved(agent, command, chance, seconds / 4 / 2**number) for number in range(5))
    node = next(filter(None, tries), None)
    assert node, f"seed {SEED}: it ends too early"
    assert agent.finish(node) == wanted, f"seed {SEED}"
    agent.ok("destroy", node)


@pytest.mark.parametrize("sizes", [[1, 2], [2, 1, 2], [1, 1]])
def test_devices_share_proxies(agent, sizes):
    """A process with two virtual devices, both on one real one, and back; with each line it uses its device."""
    program = saved_nodes.foreground(agent, "run", "--devices", "2", "--backend", "software", "--", built("proxy", "singularity-probe"), "steady")
    assert program.stdout.readline().split() == ["ready", "1"]
    saved_nodes.answers(program)
    node = next(iter(agent.nodes()))
    for size in sizes:
        agent.ok("checkpoint", node)
        program.communicate(timeout=PATIENCE)
        program = saved_nodes.foreground(agent, "restore", "--devices", str(size), node)
        saved_nodes.answers(program)
        assert len(agent.proxies(node)) == size
        saved_nodes.answers(program)
    program.communicate(timeout=PATIENCE)
    assert program.returncode == 0
    virtualnode.wait_for(lambda: not agent.leftovers(), "everything to be gone")


@pytest.mark.parametrize("sees", ["CUDA_VISIBLE_DEVICES=1", "SINGULARITY_PROXY_SOCKETS=${SINGULARITY_PROXY_SOCKETS##*:}"], ids=["chosen", "by its socket"])
def test_a_process_with_the_second_device(agent, sees):
    """Its own first; also where it knows of no other. It is the second of the node, wherever that is served."""
    command = ["/bin/sh", "-c", f"{sees} exec {built('proxy', 'singularity-probe')} steady"]
    program = saved_nodes.foreground(agent, "run", "--devices", "2", "--backend", "software", "--", *command)
    assert program.stdout.readline().split() == ["ready", "1"]
    saved_nodes.answers(program)
    node = next(iter(agent.nodes()))
    for size in (2, 1, 2):
        agent.ok("checkpoint", node)
        program.communicate(timeout=PATIENCE)
        program = saved_nodes.foreground(agent, "restore", "--devices", str(size), node)
        saved_nodes.answers(program)
    program.communicate(timeout=PATIENCE)
    assert program.returncode == 0
    virtualnode.wait_for(lambda: not agent.leftovers(), "everything to be gone")


def test_devices_that_do_not_fit():
    """Two virtual devices with 320 MB in use each, on a real one with 512 MB: they take turns, and nothing is lost."""
    agent = saved_nodes.Agent(SINGULARITY_SOFTGPU_MEMORY="512M")
    try:
        program = saved_nodes.foreground(agent, "run", "--devices", "2", "--backend", "software", "--", "python3", "-c", HOLD)
        assert program.stdout.readline() == "ready\n", program.stderr.read()
        node = next(iter(agent.nodes()))
        agent.ok("checkpoint", node)
        program.communicate(timeout=PATIENCE)
        program = saved_nodes.foreground(agent, "restore", "--devices", "1", node)
        assert program.communicate("\n", timeout=PATIENCE)[0] == "41\n42\n"
        virtualnode.wait_for(lambda: not agent.leftovers(), "nothing to be left")
    finally:
        agent.close()
