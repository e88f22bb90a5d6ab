# SPDX-License-Identifier: GPL-2.0-or-later
"""Directories of a host that elastic jobs have for themselves: they travel, others do not see them, and they end with the job."""

import re
import shlex
import time

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_files import find, lose, saved, wait_run
from test_lifecycle import output, requeue, script
from test_lifecycle_moves import SOON, ctl
from virtualcluster.errors import wait_for

BASE = "/var/spool/singularity/local"
LOCAL = "local_directories:\n  paths: /tmp:/var/tmp\n  quota_gib: 1\n"

# Makes one of each kind of file, works among them until it is told to end, and compares.
WORK = r"""
import hashlib, os, socket, stat, sys, time

def made():
    os.makedirs("/tmp/d/deep/er")
    for mode in (0o600, 0o444, 0o4755):
        with open(f"/tmp/d/mode-{mode:o}", "w") as file:
            file.write("x" * mode)
        os.chmod(f"/tmp/d/mode-{mode:o}", mode)
    os.symlink("/nowhere/at all", "/tmp/d/dangling")
    os.symlink("deep", "/tmp/d/link")
    with open("/tmp/d/deep/one", "wb") as file:
        file.write(os.urandom(300000))
    os.link("/tmp/d/deep/one", "/tmp/d/two")
    os.setxattr("/tmp/d/deep/one", "user.note", b"kept")
    with open("/tmp/d/sparse", "wb") as file:
        file.seek(3 << 30)
        file.write(b"end")
    os.mkfifo("/tmp/d/pipe", 0o640)
    for name in (" name with blanks ", "line\nfeed", "u\u00fc", "-rf", "x" * 250):
        open("/tmp/d/deep/er/" + name, "w").close()
    with open("/var/tmp/other", "w") as file:
        file.write("other")
    os.utime("/tmp/d/two", ns=(5, 1234567890123456789))
    os.mkdir("/tmp/d/closed")
    open("/tmp/d/closed/inside", "w").close()
    os.chmod("/tmp/d/closed", 0o555)

def described():
    out = {}
    for top in ("/tmp", "/var/tmp"):
        for where, directories, files in os.walk(top):
            for name in [*directories, *files]:
                path = os.path.join(where, name)
                about = os.lstat(path)
                content = ""
                if stat.S_ISLNK(about.st_mode):
                    content = os.readlink(path)
                elif stat.S_ISREG(about.st_mode) and about.st_size < 1 << 20:
                    with open(path, "rb") as file:
                        content = hashlib.sha256(file.read()).hexdigest()
                notes = os.listxattr(path, follow_symlinks=False)
                out[path] = (oct(about.st_mode), about.st_nlink, about.st_size, about.st_mtime_ns, about.st_uid, about.st_gid, content, notes,
                             about.st_blocks < 100 if about.st_size > 1 << 30 else None)
    return out

def bare():
    with open("/proc/self/mountinfo") as mounts:
        return {fields[4]: {"nosuid", "nodev"} <= {*fields[5].split(",")} for fields in map(str.split, mounts)}
assert stat.S_IMODE(os.stat("/tmp").st_mode) == 0o1777 and os.access("/tmp", os.W_OK)
assert bare()["/tmp"] and bare()["/var/tmp"]
with open("/tmp/from-script") as file:
    assert file.read() == "from the script\n"
assert os.listdir("/var/tmp") == []
made()
before = described()
del before["/tmp/from-script"] # a script that is run again writes it again
os.chdir("/tmp/d/deep")
log = open("/tmp/d/log", "w")
log.write("begin\n"); log.flush()
unlinked = open("/tmp/d/unlinked", "w+")
os.unlink("/tmp/d/unlinked")
unlinked.write("still there"); unlinked.flush()
listener = socket.socket(socket.AF_UNIX)
listener.bind("/tmp/d/deep/er/socket"); listener.listen()
reader = open("/tmp/d/two", "rb"); first = reader.read(1000)
number = 0
while not os.path.exists("/shared/end"):
    log.write(f"{number}\n"); log.flush()
    number += 1
    with open("/shared/number.new", "w") as file:
        file.write(str(number))
    os.rename("/shared/number.new", "/shared/number")
    time.sleep(0.05)
with open("/tmp/d/log") as file:
    lines = file.read().split()
assert lines == ["begin", *map(str, range(number))], lines[-3:]
unlinked.seek(0); assert unlinked.read() == "still there"
assert first + reader.read() == open("/tmp/d/deep/one", "rb").read() == open("one", "rb").read()
client = socket.socket(socket.AF_UNIX); client.connect("/tmp/d/deep/er/socket")
client.close(); listener.close()
os.unlink("/tmp/d/deep/er/socket"); os.unlink("/tmp/d/log")
after = described()
after.pop("/tmp/from-script")
changed = {"/tmp/d", "/tmp/d/deep/er"} # their time and links: names have come and gone
assert bare()["/tmp"] and bare()["/var/tmp"]
wrong = {path: (before.get(path), after.get(path)) for path in {*before, *after} - changed if before.get(path) != after.get(path)}
assert wrong == {}, wrong
with open("/tmp/result", "w") as file:
    file.write("all is there\n")
"""

# Each rank's own, by a name that all have.
MINE = r"""
import os, time
rank = os.environ["SLURM_PROCID"]
file = open("/tmp/mine", "w"); file.write(rank); file.flush()
with open("/tmp/closed", "w") as closed:
    closed.write(rank)
while not os.path.exists("/shared/end"):
    open(f"/shared/alive-{rank}", "w").close()
    time.sleep(0.05)
print("rank", rank, open("/tmp/mine").read(), open("/tmp/closed").read(), flush=True)
"""


# One of two steps that share their directories: a file of its own that it has open, by a name that both see.
OWN = r"""
import os, sys, time
name = sys.argv[1]
log = open(f"/tmp/{name}", "a")
number = 0
while not os.path.exists("/shared/end"):
    if name == "first" and os.path.exists("/shared/hold"):
        time.sleep(0.05)
        continue
    log.write(f"{number}\n"); log.flush()
    number += 1
    if number % 50 == 0:
        with open(f"/shared/alive-{name}", "w") as file:
            file.write(str(number))
    time.sleep(0.001)
with open(f"/tmp/{name}") as file:
    lines = file.read().split()
assert lines == [*map(str, range(number))], (len(lines), number)
assert os.path.samestat(os.stat(f"/tmp/{name}"), os.fstat(log.fileno()))
print(name, "is whole", flush=True)
"""


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, SOON + LOCAL, nodes=2, conf=TIME_TO_SAVE) as made:
        yield made
        assert_clean(made)


@pytest.fixture(autouse=True)
def fresh(cluster):
    for host in [cluster.controller, *cluster.nodes]:
        host.run("rm -rf /shared/end /shared/number /shared/beside /shared/hold /shared/alive-* /tmp/seen-by-all; echo host >/tmp/seen-by-all; chmod 666 /tmp/seen-by-all")
    yield
    for job in cluster.slurm("squeue", "-h", "-o", "%i").split():  # of a test that has failed
        cluster.slurm("scancel", job, check=False)
    gone(cluster)


def trees(cluster):
    return {host.name: host.run(f"ls -A {BASE} | grep -vxF .lock", check=False).stdout.split() for host in cluster.nodes}


def gone(cluster):
    wait_for(lambda: not any(trees(cluster).values()), PATIENCE, f"nothing of jobs to be left: {trees(cluster)}")


def python(text):
    return f"/usr/bin/python3 -c {shlex.quote(text)}"


def number(cluster):
    return int(cluster.controller.run(["cat", "/shared/number"], check=False).stdout or -1)


def wait_more(cluster, more=10):
    at = number(cluster) + more
    wait_for(lambda: number(cluster) >= at, PATIENCE, "the program to go on")


def submit(cluster, *lines, options=("-N1", "-n1")):
    return cluster.submit(ELASTIC, "--open-mode=append", "--mem=1000", *options, script=script(*lines))


def end(cluster, job):
    cluster.controller.run(["touch", "/shared/end"], user="alice")
    cluster.wait_job(job, ("COMPLETED", "FAILED"), seconds=PATIENCE)
    assert cluster.job(job)["JobState"] == "COMPLETED", output(cluster, job)
    return output(cluster, job)


@pytest.mark.parametrize("disturbed", ["migrate", "power", "requeue"])
def test_they_travel(cluster, disturbed):
    """With all that is in them, open or not; the batch script and the steps see the same."""
    job = submit(cluster, "set -e", "echo from the script >/tmp/from-script", "cd /tmp", f"srun {python(WORK)}", "cat /tmp/result", "srun cat /tmp/result")
    wait_run(cluster, job, 0)
    wait_more(cluster)
    first = cluster.job(job)["NodeList"]
    saved(cluster, job)
    wait_more(cluster)
    if disturbed == "power":
        lose(cluster, first)
    elif disturbed == "requeue":
        requeue(cluster, job)
    else:
        moved = ctl(cluster, "migrate", job)
        assert moved.returncode == 0, moved
    wait_run(cluster, job, 1)
    if disturbed == "power":
        find(cluster, first)
    wait_more(cluster)
    assert disturbed == "requeue" or cluster.job(job)["NodeList"] != first
    said = end(cluster, job)
    assert said.count("all is there\n") == 2, said
    for host in cluster.nodes:
        if host.name != first or disturbed != "power":
            assert host.run(["cat", "/tmp/seen-by-all"]).stdout == "host\n"
        assert "from-script" not in host.run(["ls", "/tmp"]).stdout


def test_jobs_do_not_see_each_others(cluster):
    """Nor the host's; each sees what its own earlier steps have left."""
    look = "ls -A /tmp /var/tmp; echo $SLURM_JOB_ID >/tmp/whose"
    jobs = [submit(cluster, f"srun sh -c '{look}'", "srun cat /tmp/whose", "sleep 3") for _ in range(2)]
    for job in jobs:
        cluster.wait_job(job, seconds=PATIENCE)
        assert output(cluster, job).split() == ["/tmp:", "/var/tmp:", str(job)]


def test_nodes_that_come_together_keep_their_own(cluster):
    """Two hosts, then one for both ranks."""
    job = submit(cluster, f"srun {python(MINE)}", options=["-n2", "-N1-2", "--spread-job"])
    alive = [f"/shared/alive-{rank}" for rank in range(2)]
    wait_for(lambda: cluster.controller.run(["ls", *alive], check=False).returncode == 0, PATIENCE, "both ranks")
    assert cluster.job(job)["NumNodes"] == "2"
    try:
        cluster.slurm("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
        requeue(cluster, job)
        wait_run(cluster, job, 1)
        cluster.controller.run(["rm", *alive])
        wait_for(lambda: cluster.controller.run(["ls", *alive], check=False).returncode == 0, PATIENCE, "both ranks on one host")
        assert cluster.job(job)["NodeList"] == "n2"
        said = end(cluster, job)
        assert "rank 0 0 0" in said and "rank 1 1 1" in said, said
    finally:
        cluster.slurm("scontrol", "update", "NodeName=n1", "State=RESUME", check=False)


def alive(cluster, name):
    return int(cluster.controller.run(["cat", f"/shared/alive-{name}"], check=False).stdout or -1)


@pytest.mark.parametrize("later", ["first", "second"])
def test_steps_do_not_replace_each_others_open_files(cluster, later):
    """Saved one after the other: the first's archive, which is unpacked first, has an older or a newer state of what the second has open. It has not written yet when the second comes."""
    job = submit(cluster, f"srun --overlap {python(OWN)} first &", "sleep 2", f"srun --overlap {python(OWN)} second &", "wait", options=["-N1", "-n1"])
    wait_for(lambda: min(alive(cluster, "first"), alive(cluster, "second")) > 0, PATIENCE, "both steps")
    node = cluster.job(job)["NodeList"]
    for number in sorted([0, 1], reverse=later == "first"):
        cluster.host(node).run(["singularityctl", "checkpoint", "--continue", f"u1001-s{job}-{number}"])
        more = {name: alive(cluster, name) + 500 for name in ("first", "second")}
        wait_for(lambda: all(alive(cluster, name) >= more[name] for name in more), PATIENCE, "both steps to go on")
    cluster.controller.run(["touch", "/shared/hold"])
    lose(cluster, node)
    cluster.controller.run(["rm", "/shared/alive-second"])
    wait_run(cluster, job, 1)
    wait_for(lambda: alive(cluster, "second") > 0, PATIENCE, "the second step to go on")
    cluster.controller.run(["rm", "/shared/hold"])
    find(cluster, node)
    at = alive(cluster, "first") + 500
    wait_for(lambda: alive(cluster, "first") >= at, PATIENCE, "the first step to go on")
    said = end(cluster, job)
    assert "first is whole" in said and "second is whole" in said, said


def test_what_has_not_changed_is_not_stored_again(cluster):
    """Though a small file in front of it has grown."""
    job = submit(cluster, "srun sh -c 'head -c 50M /dev/urandom >/tmp/large; while [ ! -e /shared/end ]; do echo 1 >/shared/number; echo more >>/tmp/a; sleep 0.1; done'")
    wait_for(lambda: number(cluster) == 1, PATIENCE, "the file to be there")
    saved(cluster, job)
    saved(cluster, job)
    log = cluster.host(cluster.job(job)["NodeList"]).run(["cat", "/var/log/singularityd.log"]).stdout
    first, second = map(float, re.findall(rf" u1001-s{job}-0: saved in .* ([0-9.]+) MiB new in the store", log))
    assert first >= 50 and second < 5, (first, second)
    end(cluster, job)


def test_scripts_that_are_saved_have_them(cluster):
    """The script's own files come along as well, with steps that have ended before."""
    lines = ["set -e", "cd /tmp", "echo begun >log", "srun sh -c 'echo step >>/tmp/log'", "exec 3>>log", "touch /shared/number; echo 1 >/shared/number",
             "while [ ! -e /shared/end ]; do sleep 0.1; done", "echo end >&3", "cat log", "srun cat /tmp/log", "pwd"]
    job = submit(cluster, *lines, options=["-N1", "-n1", "--singularity-save-script"])
    wait_for(lambda: number(cluster) == 1, PATIENCE, "the script to wait")
    moved = ctl(cluster, "migrate", job)
    assert moved.returncode == 0, moved
    wait_run(cluster, job, 1)
    said = end(cluster, job).splitlines()
    assert [line for line in said if line in ("begun", "step", "end", "/tmp")] == ["begun", "step", "end"] * 2 + ["/tmp"], said


def test_more_than_the_quota_is_not_saved(cluster):
    """The program runs on, and its user is told."""
    job = submit(cluster, "srun sh -c 'dd if=/dev/zero of=/tmp/large bs=1M count=1100 status=none; "
                          "while [ ! -e /shared/end ]; do echo 1 >/shared/number; sleep 0.1; done; ls -s /tmp/large'")
    wait_for(lambda: number(cluster) == 1, PATIENCE, "the file to be there")
    done = ctl(cluster, "checkpoint", job)
    assert done.returncode != 0, done
    wait_for(lambda: "cannot save /tmp: the job's local directories on this host hold more than 1 GiB" in output(cluster, job), PATIENCE, "its user to be told")
    assert "/tmp/large" in end(cluster, job)


# A process of the user's beside its job: what it could do to the tar that saves it, with the same uid.
BESIDE = r"""
import os, resource, signal, sys, time
end = time.monotonic() + 100
while time.monotonic() < end and not os.path.exists("/shared/end"):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm:
                if comm.read() != "tar\n" or os.stat(f"/proc/{pid}").st_uid != os.getuid():
                    continue
            if sys.argv[1] == "stop":
                os.kill(int(pid), signal.SIGSTOP)
                continue
            said = "kept out"
            for way in (lambda: open(f"/proc/{pid}/mem", "rb").close(), lambda: os.readlink(f"/proc/{pid}/fd/1"),
                        lambda: resource.prlimit(int(pid), resource.RLIMIT_NOFILE)):
                try:
                    way()
                    said = "came in"
                except PermissionError:
                    pass
        except OSError:
            continue # it has just ended
        with open("/shared/beside", "a") as file:
            file.write(said + "\n")
    time.sleep(0.002)
"""
MANY = "mkdir /tmp/many; cd /tmp/many; seq 20000 | xargs touch; echo 1 >/shared/number; while [ ! -e /shared/end ]; do sleep 0.1; done"


@pytest.mark.parametrize("what", ["look", "stop"])
def test_the_user_does_not_get_into_what_saves_the_job(cluster, what):
    """Who looks sees neither its memory nor its descriptors. One who stops it has that save fail, at once, and nothing else."""
    job = submit(cluster, f"{python(BESIDE)} {what} &", f"srun --overlap sh -c '{MANY}'", "wait",
                 options=("-N1", "-n1", "--singularity-no-save-script"))  # in a virtual node nobody sees what saves it
    wait_for(lambda: number(cluster) == 1, PATIENCE, "the files to be there")
    began = time.monotonic()
    done = ctl(cluster, "checkpoint", job)
    if what == "look":
        assert done.returncode == 0, done
        assert set(cluster.controller.run(["cat", "/shared/beside"]).stdout.split("\n")) == {"kept out", ""}
    else:
        assert done.returncode != 0, done
        assert time.monotonic() - began < 60
        host = cluster.host(cluster.job(job)["NodeList"])
        assert "cannot save /tmp: tar was ended or stopped by signal" in host.run(["cat", "/var/log/singularityd.log"]).stdout
    end(cluster, job)


def test_no_archive_is_not_taken_for_one(cluster):
    """Where tar cannot be run, or ends as if only some files had changed meanwhile, nothing is saved, and the job runs on."""
    job = submit(cluster, "srun sh -c 'echo kept >/tmp/file; while [ ! -e /shared/end ]; do echo 1 >/shared/number; sleep 0.1; done; cat /tmp/file'")
    wait_for(lambda: number(cluster) == 1, PATIENCE, "the file to be there")
    host = cluster.host(cluster.job(job)["NodeList"])
    host.run("cp /usr/bin/tar /run/real-tar; chmod 755 /run/real-tar")  # which CRIU runs
    host.run("printf '%s\\n' '#!/bin/sh' 'case \"$*\" in *--sort=name*) exit 1;; esac' 'exec /run/real-tar \"$@\"' >/run/no-tar; chmod 755 /run/no-tar; "
             "mount --bind /run/no-tar /usr/bin/tar")
    try:
        done = ctl(cluster, "checkpoint", job)
        assert done.returncode != 0, done
        assert "cannot save /tmp: tar has made no archive" in host.run(["cat", "/var/log/singularityd.log"]).stdout
    finally:
        host.run("umount /usr/bin/tar")
    assert "kept" in end(cluster, job)


# In the place of tar: which session keyring it has, and then tar. keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING).
RINGS = r"""#!/usr/bin/python3
import ctypes, os, sys
with open("/shared/rings", "a") as file:
    file.write(f"{ctypes.CDLL(None).syscall(250, 0, -3, 0)}\n")
os.execv("/run/real-tar", ["tar", *sys.argv[1:]])
"""


def test_tar_has_a_session_keyring_of_its_own(cluster):
    """Each time another: that of root's processes would be the same one, with the keys that are in it."""
    job = submit(cluster, "srun sh -c 'echo kept >/tmp/file; while [ ! -e /shared/end ]; do echo 1 >/shared/number; sleep 0.1; done; cat /tmp/file'")
    wait_for(lambda: number(cluster) == 1, PATIENCE, "the file to be there")
    host = cluster.host(cluster.job(job)["NodeList"])
    host.run("cp /usr/bin/tar /run/real-tar; chmod 755 /run/real-tar")
    host.run(["tee", "/run/rings"], stdin=RINGS)
    # CRIU runs it as well.
    host.run("printf '%s\\n' '#!/bin/sh' 'case \"$*\" in *--sort=name*) exec /run/rings \"$@\";; esac' 'exec /run/real-tar \"$@\"' >/run/rings-tar; "
             "chmod 755 /run/rings /run/rings-tar; mount --bind /run/rings-tar /usr/bin/tar")
    try:
        for _ in range(2):
            done = ctl(cluster, "checkpoint", job)
            assert done.returncode == 0, host.run(["tail", "-5", "/var/log/singularityd.log"]).stdout
    finally:
        host.run("umount /usr/bin/tar")
    rings = host.run(["cat", "/shared/rings"]).stdout.split()
    assert len(rings) >= 2 and len(set(rings)) == len(rings) and all(int(ring) > 0 for ring in rings), rings
    assert "kept" in end(cluster, job)


def test_files_of_others_do_not_stop_a_restore(cluster):
    """They are the user's then, who is told."""
    job = submit(cluster, "srun sh -c 'while [ ! -e /shared/end ]; do echo 1 >/shared/number; sleep 0.1; done; stat -c \"%n is of %u\" /tmp/theirs; cat /tmp/theirs'")
    wait_for(lambda: number(cluster) == 1, PATIENCE, "the program to run")
    host = cluster.host(cluster.job(job)["NodeList"])
    host.run(f"echo precious >{BASE}/job.u1001-s{job}/main/tmp/theirs; chmod 644 {BASE}/job.u1001-s{job}/main/tmp/theirs")
    moved = ctl(cluster, "migrate", job)
    assert moved.returncode == 0, moved
    wait_run(cluster, job, 1)
    said = end(cluster, job)
    assert "/tmp/theirs is of 1001\nprecious\n" in said, said
    assert "belongs to the job's user now" in said, said


def test_what_the_site_forbids_there_stays_forbidden(cluster):
    """No program runs from a base that is mounted so."""
    host = cluster.nodes[0]
    host.run(f"mkdir -p -m 700 {BASE}; mount --bind {BASE} {BASE}; mount -o remount,bind,noexec {BASE}")
    try:
        look = 'grep " /tmp " /proc/self/mountinfo'
        job = submit(cluster, look, f"srun {look}", options=["-N1", "-n1", f"-w{host.name}"])
        cluster.wait_job(job, seconds=PATIENCE)
        seen = [set(line.split()[5].split(",")) for line in output(cluster, job).splitlines() if f"-s{job}/main/tmp /tmp " in line]
        assert len(seen) == 2 and all({"noexec", "nosuid", "nodev"} <= one for one in seen), output(cluster, job)
    finally:
        gone(cluster)
        host.run(f"umount {BASE}")


def test_a_change_of_the_configuration_waits_for_the_agent(cluster):
    """Batch scripts have what the agent was started with, as steps do."""
    hosts = [cluster.controller, *cluster.nodes]
    for host in hosts:
        host.run("sed -i 's,paths: /tmp:/var/tmp,paths: \"\",' /etc/slurm/singularity.yaml")
    try:
        job = submit(cluster, "ls -A /tmp", "srun touch /tmp/mine", "ls -A /tmp")
        cluster.wait_job(job, seconds=PATIENCE)
        assert output(cluster, job).split() == ["mine"]
    finally:
        for host in hosts:
            host.run("sed -i 's,paths: \"\",paths: /tmp:/var/tmp,' /etc/slurm/singularity.yaml")


def test_a_slow_disk_does_not_hold_up_the_agent(cluster):
    """One that is so slow that the lock of all directories is held meanwhile: nothing of a job that ends can be put away, and others are saved as ever."""
    host = cluster.nodes[0]
    on_it = ["-N1", "-n1", f"-w{host.name}"]
    stays = submit(cluster, "srun sh -c 'while [ ! -e /shared/end ]; do echo 1 >/shared/number; sleep 0.1; done'", options=on_it)
    goes = submit(cluster, "srun sh -c 'touch /shared/alive-0; sleep 1000'", options=on_it)
    wait_for(lambda: number(cluster) == 1 and host.run("ls /shared/alive-0", check=False).returncode == 0, PATIENCE, "both to run")
    host.run("rm -f /run/let-go /run/held")
    host.run(f"timeout 100 flock {BASE}/.lock sh -c 'touch /run/held; while [ ! -e /run/let-go ]; do sleep 0.1; done' >/dev/null 2>&1 </dev/null &")
    try:
        wait_for(lambda: host.run("ls /run/held", check=False).returncode == 0, PATIENCE, "the lock")
        cluster.slurm("scancel", str(goes))
        cluster.wait_job(goes, ("CANCELLED",), seconds=PATIENCE)
        until = time.monotonic() + 12
        while time.monotonic() < until:
            began = time.monotonic()
            done = ctl(cluster, "checkpoint", stays)
            assert done.returncode == 0, done
            assert time.monotonic() - began < 10
        assert any(f"-s{goes}" in name for name in trees(cluster)[host.name])
    finally:
        host.run("touch /run/let-go")
    wait_for(lambda: not any(f"-s{goes}" in name for name in trees(cluster)[host.name]), PATIENCE, "what was left of it to go")
    end(cluster, stays)


def test_a_job_that_is_cancelled_leaves_nothing(cluster):
    """Though its user has closed its directories, and there are many of them."""
    job = submit(cluster, "srun sh -c 'mkdir -p /tmp/a/b; cd /tmp/a/b; for i in $(seq 2000); do mkdir d; cd d; done; touch f; chmod 0 .; "
                          "chmod 0500 /tmp/a/b /tmp/a; chmod 0 /tmp; echo 1 >/shared/number; sleep 1000'")
    wait_for(lambda: number(cluster) == 1, PATIENCE, "the directories to be there")
    assert any(trees(cluster).values())
    cluster.slurm("scancel", str(job))
    cluster.wait_job(job, ("CANCELLED",), seconds=PATIENCE)
