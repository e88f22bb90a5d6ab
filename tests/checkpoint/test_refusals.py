# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host image cannot hold is refused with its reason, and the program goes on as if nobody had asked."""

import os
import resource
import shutil
import socket
import subprocess

import nodes
import pytest

CAP_SYS_RESOURCE = 24
# what programs/refused.py holds: options of the driver, what the message must say
KINDS = {
    "io_uring": ([], ["io_uring", "python3"]),
    "traced": ([], ["is traced by process"]),
    "inotify": ([], ["watches a file or directory that has been deleted"]),
    "deleted": (["--largest-deleted=1000000"], ["large", "2097152 bytes", "limit is 1000000"]),
    "renamed": ([], ["deleted under this name but has another"]),
    "mapped": ([], ["the mapping of", "deleted under this name but has another"]),
    "message_queue": ([], ["'/kept'", "CRIU cannot save message queues of mq_open(3)"]),
    "closed_queue": ([], ["it has the message queue '/kept'"]),
    "sealed": ([], ["the mapping of '/memfd:sealed", "it is sealed against writing"]),
    "own_descriptors": ([], ["one of its threads has descriptors of its own"]),
    "own_directory": ([], ["one of its threads has a working directory and umask of its own"]),
    "half_ended": ([], ["python3", "its first thread has ended and others run on"]),
    "other_family": ([], ["sockets of family 40"]),
    "name_space": ([], ["another network namespace"]),
    "local": (["--local=/tmp/scratch"], ["'/tmp/scratch' is of this machine only"]),
}


def start(place, kind="nothing"):
    shutil.copytree(os.path.join(nodes.HERE, "programs"), place.path("programs"))
    node = place.start("python3", "programs/refused.py", kind)
    place.wait_for_output("ready")
    return node


def check(node, *options):
    return subprocess.run([nodes.DRIVER, "check", *options, str(node.init)], capture_output=True, text=True, timeout=nodes.PATIENCE)


def goes_on(place, node):
    with open(place.path("go"), "w", encoding="utf-8"):
        pass
    assert node.wait() == 0
    assert place.output() == "ready\nwent on\n"


@pytest.mark.parametrize("kind", KINDS)
def test_refused(place, kind):
    options, words = KINDS[kind]
    node = start(place, kind)
    refusal = check(node, *options)
    assert refusal.returncode == 3
    for word in words:
        assert word in refusal.stderr
    goes_on(place, node)


def test_nothing_to_refuse(place):
    node = start(place)
    assert check(node).stderr == ""
    goes_on(place, node)


def room_for_descriptors():
    """How many a process can have that CRIU makes."""
    with open("/proc/self/status", encoding="ascii") as status, open("/proc/sys/fs/nr_open", encoding="ascii") as most:
        rights = int(status.read().partition("CapEff:")[2].split()[0], 16)
        return int(most.read()) if rights >> CAP_SYS_RESOURCE & 1 else resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def test_a_descriptor_next_to_the_limit(place):
    """Valgrind moves its own there. In a restore CRIU's lie above, in the last units of 128 that it can have."""
    fits = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 1 + 64 <= room_for_descriptors() // 128 * 128
    node = start(place, "top")
    refusal = check(node)
    assert refusal.returncode == (0 if fits else 3), refusal.stderr
    assert fits or "CRIU's own could not lie above it" in refusal.stderr
    goes_on(place, node)


def test_another_user_in_the_node(place):
    node = start(place)
    intruder = subprocess.Popen(["nsenter", "-t", str(node.init), "-p", "sleep", "1000"])
    try:
        place.wait_for(lambda: len(node.processes()) == 4 or "user ids" in check(node).stderr, "the intruder")
        refusal = check(node)
        assert refusal.returncode == 3 and "it has user ids 0, 0, 0, 0 where all must be 1001" in refusal.stderr
    finally:
        intruder.kill()
        intruder.wait()
    goes_on(place, node)


def test_descriptor_from_outside(place):
    """A Unix socket whose other end is here: not in the node's network namespace."""
    shutil.copytree(os.path.join(nodes.HERE, "programs"), place.path("programs"))
    ours, theirs = socket.socketpair()
    node = place.start("python3", "-c", "import time; print('ready', flush=True); time.sleep(1000)", options=["--input=keep"],
                       stdin=theirs)
    place.wait_for_output("ready")
    refusal = check(node)
    assert refusal.returncode == 3 and "the socket was made outside of the node" in refusal.stderr
    ours.close()
    theirs.close()


def test_a_process_that_is_just_ending_is_waited_for(place):
    """Where there is much memory to take away, that takes as long."""
    node = start(place, "ending")
    place.dump(node, after="run")
    goes_on(place, node)


def test_failed_dump(place):
    """CRIU itself fails, in the middle of its work, because the image directory is full: the program goes on."""
    node = start(place)
    images = place.images()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", images], check=True)
    try:
        with pytest.raises(nodes.Failed) as failure:
            place.dump(node, images=images)
        assert "No space left on device" in str(failure.value)
        assert place.log in str(failure.value)
        assert os.stat(place.log).st_mode & 0o777 == 0o600
    finally:
        subprocess.run(["umount", images], check=True)
    goes_on(place, node)


TABLE = """
import mmap, os, socket, time
daemon = socket.socket(socket.AF_UNIX)
daemon.connect("daemon")
descriptor = socket.recv_fds(daemon, 1, 1)[1][0]
table = mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ, trackfd=False)
os.close(descriptor)
daemon.close()
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print("went on", flush=True)
"""


def test_a_file_that_only_another_user_may_open(place):
    """As nscd shares its tables with programs: it could not be given back."""
    secret = place.path("table")
    with open(secret, "wb") as file:
        file.write(bytes(4096))
    os.chmod(secret, 0o600)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place.path("daemon"))
    os.chmod(place.path("daemon"), 0o666)
    listener.listen()
    node = place.start("python3", "-c", TABLE)
    connection, _ = listener.accept()
    with open(secret, "rb") as file:
        socket.send_fds(connection, [b"x"], [file.fileno()])
    place.wait_for_output("ready")
    refusal = check(node)
    assert refusal.returncode == 3 and f"('{secret}') of process" in refusal.stderr and "is one that its user may not read" in refusal.stderr
    with pytest.raises(nodes.Failed) as failure:
        place.dump(node)
    assert "a restore could not open it" in str(failure.value)
    goes_on(place, node)
