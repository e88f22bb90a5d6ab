# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of batch scripts that hold something of their host, and go on on another one. The hosts' root is an overlay, as that of an image
with a writable layer is."""

import os

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_files_local import LOCAL
from test_lifecycle import NEVER, OFTEN, output, script
from test_scripts import disturb, lines, wait_output

STEPS = 30

# Directories and a file that are watched: one of the system's, and two of the program's own, below where it has something open.
WATCH = f"""
import ctypes, os, struct, time
libc = ctypes.CDLL(None, use_errno=True)
CREATE, MODIFY, ATTRIB = 0x100, 2, 4
os.makedirs("/tmp/own/watched")
log = open("/tmp/own/log", "w")
notify = libc.inotify_init1(os.O_NONBLOCK)
numbers = {{libc.inotify_add_watch(notify, path.encode(), mask): path
           for path, mask in (("/etc/dbus-1", CREATE), ("/tmp/own/watched", CREATE), ("/tmp/own/log", MODIFY))}}
assert -1 not in numbers
for step in range({STEPS}):
    os.mkdir(f"/tmp/own/watched/{{step}}")
    print("line", step, file=log, flush=True)
    read, seen = os.read(notify, 4096), set()
    while read:
        number, mask, _, size = struct.unpack_from("iIII", read)
        seen.add((numbers[number], read[16:16 + size].rstrip(b"\\0").decode()))
        read = read[16 + size:]
    assert seen == {{("/tmp/own/watched", str(step)), ("/tmp/own/log", "")}}, seen
    print("step", step, flush=True)
    time.sleep(0.25)
"""


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, OFTEN + "  look_every: 1s\n" + LOCAL, nodes=2, conf=TIME_TO_SAVE) as made:
        yield made
        assert_clean(made)


def moved_in_the_middle(cluster, name, program, before="", after=""):
    """The output of a script that runs the program, and is moved twice."""
    cluster.controller.run(["sh", "-c", "printf %s \"$1\" > /shared/$2.py", "sh", program, name])
    job = cluster.submit(ELASTIC, "-N1", "-n1", "-c2", NEVER, script=script("set -eu", before, f"python3 /shared/{name}.py", after, "echo over"))
    for moment in (STEPS // 4, STEPS // 2):
        wait_output(cluster, job, f"^step {moment}$")
        disturb(cluster, job, "moved")
    cluster.wait_job(job, seconds=PATIENCE)
    return lines(cluster, job), output(cluster, job)


def test_watched_files_are_watched_elsewhere(cluster):
    tail = "(until [ -e /tmp/own/log ]; do sleep 0.1; done; exec tail --pid=$$ -n +1 -f /tmp/own/log > /shared/tail-$SLURM_JOB_ID) &"
    shown, all_of_it = moved_in_the_middle(cluster, "watch", WATCH, tail,
                                           f"until grep -q 'line {STEPS - 1}' /shared/tail-$SLURM_JOB_ID; do sleep 0.1; done")
    assert shown == [*(f"step {n}" for n in range(STEPS)), "over"], all_of_it
    tails = cluster.controller.run(["sh", "-c", "cat /shared/tail-*"]).stdout.splitlines()
    assert tails == [f"line {n}" for n in range(STEPS)], tails


# What a program has bound its threads and processes to: one of the processors that it has, all of them, or what the task has.
BIND = f"""
import os, subprocess, threading, time
had = sorted(os.sched_getaffinity(0))
assert len(had) > 1, had
bound, ready = {{}}, threading.Barrier(3)
def thread(name, cpus):
    os.sched_setaffinity(0, cpus)
    bound[name] = threading.get_native_id()
    ready.wait()
    time.sleep(1000)
for name, cpus in (("first", had[:1]), ("last", had[-1:])):
    threading.Thread(target=thread, args=(name, cpus), daemon=True).start()
ready.wait()
child = subprocess.Popen(["taskset", "-c", str(had[1]), "sleep", "1000"])
bound["child"], bound["main"] = child.pid, os.getpid()
while os.sched_getaffinity(child.pid) != {{had[1]}}:
    time.sleep(0.01)
for step in range({STEPS}):
    now = sorted(os.sched_getaffinity(0))
    assert len(now) == len(had)
    expected = {{"first": now[:1], "last": now[-1:], "child": now[1:2], "main": now}}
    found = {{name: sorted(os.sched_getaffinity(pid)) for name, pid in bound.items()}}
    assert found == expected, (found, expected)
    print("step", step, flush=True)
    time.sleep(0.25)
child.kill()
child.wait()
os._exit(0)
"""


def test_programs_are_bound_as_they_have_bound_themselves(cluster):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is only one processor")
    shown, all_of_it = moved_in_the_middle(cluster, "bind", BIND)
    assert shown == [*(f"step {n}" for n in range(STEPS)), "over"], all_of_it
