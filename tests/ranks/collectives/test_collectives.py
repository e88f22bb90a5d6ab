# SPDX-License-Identifier: GPL-2.0-or-later
"""libnccl.so.2 and what is behind it: every collective, to the bit, and what becomes of errors."""

import os
import signal
import subprocess

import pytest

import ranked
from ranked import proxied

SIZES = range(1, 9)
# Of device memory: enough for a slab of 2 MiB for each of eight ranks, for what they stage in not even without them.
FULL = "18M"


def devices_for(ranks):
    """Not one for each: some share, some have their own."""
    return {1: 1, 2: 2, 3: 2, 4: 1, 5: 3, 6: 2, 7: 4, 8: 2}[ranks]


@pytest.mark.parametrize("ranks", SIZES)
def test_every_collective_in_processes(ranks):
    output = ranked.finished(ranked.command(ranks, devices_for(ranks), ranked.built("every_collective")))
    assert output.count("PASSED") == ranks


@pytest.mark.parametrize("ranks", SIZES)
def test_every_collective_in_threads(ranks):
    run = proxied.proxied([ranked.built("every_collective"), "--threads", str(ranks)], devices=devices_for(ranks))
    assert "PASSED" in ranked.finished(run)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])  # all sizes would take twice as long
def test_every_collective_on_the_device(ranks, tmp_path):
    """All ranks on one device, which does the reductions: the same bits."""
    staging = ranked.Staging(tmp_path)
    output = ranked.finished(ranked.command(ranks, 1, ranked.built("every_collective"), options=staging.options))
    assert output.count("PASSED") == ranks
    staging.check()


def test_groups_and_splits_on_the_device(tmp_path):
    staging = ranked.Staging(tmp_path)
    output = ranked.finished(ranked.command(5, 1, ranked.built("groups_and_splits"), options=staging.options))
    assert output.count("PASSED") == 5
    staging.check()


def test_threads_on_the_device(tmp_path):
    """Ranks that share a context."""
    staging = ranked.Staging(tmp_path)
    run = proxied.proxied([ranked.built("every_collective"), "--threads", "3"], options=staging.options)
    assert "PASSED" in ranked.finished(run)
    staging.check()


def test_a_full_device_is_no_failure(tmp_path):
    """What the ranks have leaves no memory to stage in: all of them go through memory of the host."""
    staging = ranked.Staging(tmp_path)
    run = ranked.command(8, 1, ranked.built("groups_and_splits"), options=staging.options, SINGULARITY_SOFTGPU_MEMORY=FULL)
    assert ranked.finished(run).count("PASSED") == 8
    staging.check(on_device=False)


@pytest.mark.parametrize("ranks, devices", [(2, 1), (4, 4), (5, 2), (8, 2)])
def test_groups_and_splits(ranks, devices):
    output = ranked.finished(ranked.command(ranks, devices, ranked.built("groups_and_splits")))
    assert output.count("PASSED") == ranks


def test_groups_and_splits_in_threads():
    """A device for each: threads that share one share a context, in which freeing memory waits for all of them."""
    run = proxied.proxied([ranked.built("groups_and_splits"), "--threads", "4"], devices=4)
    assert "PASSED" in ranked.finished(run)


@pytest.mark.parametrize("devices", [1, 4])
def test_one_thread_drives_all_devices(devices):
    assert "PASSED" in ranked.finished(proxied.proxied([ranked.built("one_thread")], devices=devices))


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("what", ["aborted", "shrunk"])
def test_the_others_learn_of_an_abort(what, devices):
    output = ranked.finished(ranked.command(4, devices, ranked.built("failing_rank"), what))
    assert output.count("PASSED") == 4


@pytest.mark.parametrize("devices", [1, 2])
def test_the_others_learn_of_a_death(devices):
    """The dead rank is killed in the middle of collectives; nobody hangs, and nobody takes a wrong result for a right one."""
    kill_the_first(devices)


def test_the_others_learn_of_a_death_on_the_device(tmp_path):
    """What the dead rank has staged stays until nobody uses it."""
    staging = ranked.Staging(tmp_path)
    kill_the_first(1, staging.options)
    staging.check()


def kill_the_first(devices, options=(), program="failing_rank"):
    line, environment = ranked.command(4, devices, ranked.built(program), "killed", options=options, LAUNCH_MAY_DIE="0")
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            words = run.stdout.readline().split()
            assert words[:2] == ["[0]", "ready"], (words, run.stderr.read())
            os.kill(int(words[2]), signal.SIGKILL)
            output, errors = run.communicate(timeout=ranked.DEADLINE)
        finally:
            run.kill()
    assert run.returncode == 0, errors
    assert output.count("PASSED") == 3, errors


@pytest.mark.parametrize("ranks, devices", [(2, 2), (2, 1), (4, 4), (4, 1), (5, 2)])
def test_captured_collectives(ranks, devices):
    output = ranked.finished(ranked.command(ranks, devices, ranked.built("captured_rules"), "rules"))
    assert output.count("PASSED") == ranks


def test_captured_collectives_in_threads():
    """A device for each, as above."""
    run = proxied.proxied([ranked.built("captured_rules"), "--threads", "3"], devices=3)
    assert "PASSED" in ranked.finished(run)


def test_what_a_graph_cannot_do_with_collectives_is_said():
    line, environment = ranked.command(2, 2, ranked.built("captured_rules"), "rules")
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=ranked.DEADLINE)
    assert done.returncode == 0, done.stderr
    for words in ("a graph with collectives cannot be a node of another graph: launch it by itself",
                  "a launch of a graph with collectives cannot be captured: capture what the graph does",
                  "a graph with collectives cannot be launched by kernels: instantiate it without",
                  "2 collectives of a graph were captured in an order that its edges do not allow",
                  "a node of an executable graph with collectives cannot be changed"):
        assert words in done.stderr, done.stderr


@pytest.mark.parametrize("how, words", [("destroyed", "has been destroyed or aborted"), ("aborted", "has been destroyed or aborted"),
                                        ("finalized", "has been finalized or revoked")])
def test_a_graph_whose_communicator_is_gone(how, words):
    """An error that stays, in words."""
    line, environment = ranked.command(2, 2, ranked.built("captured_rules"), how)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=ranked.DEADLINE)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stderr
    assert done.stderr.count(f"a graph with collectives cannot be launched: the communicator of a captured collective {words}") == 2, done.stderr


@pytest.mark.parametrize("devices", [1, 4])
def test_launches_of_graphs_learn_of_a_death(devices):
    kill_the_first(devices, program="captured_rules")


@pytest.mark.parametrize("ranks, devices", [(2, 2), (2, 1), (3, 2)])
def test_a_captured_ring(ranks, devices):
    """The same as with four ranks (test_training.py) with another number."""
    assert "[0] PASSED" in ranked.finished(ranked.command(ranks, devices, proxied.program("workloads", "captured_ring")))


def test_another_libcuda_is_refused_in_words():
    """Directly on the software GPU, with our libnccl.so.2: a clear error, not a crash."""
    line, environment = proxied.direct([ranked.built("one_thread")])
    environment["LD_PRELOAD"] = proxied.program("client", "libnccl.so.2")
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=ranked.DEADLINE)
    assert done.returncode == 1
    assert "ncclCommInitAll" in done.stderr and "it is not the device proxy's" in done.stderr


@pytest.mark.parametrize("ranks, devices", [(2, 1), (4, 4), (5, 2)])
def test_what_later_versions_of_nccl_have(ranks, devices):
    output = ranked.finished(ranked.command(ranks, devices, ranked.built("later_functions")))
    assert output.count("PASSED") == ranks
