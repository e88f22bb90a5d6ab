# SPDX-License-Identifier: GPL-2.0-or-later
"""Unix sockets of a node that lead to a daemon of the host: a program that runs on keeps them, and one that is restored makes new ones."""

import os
import shutil
import socket
import subprocess
import threading

import nodes
import pytest


class Daemon:
    """Answers what it is asked, and hears when a connection ends."""

    def __init__(self, place, kind=socket.SOCK_STREAM):
        self.heard, self.connections, self.ended, self._last = [], 0, 0, None
        self._socket = socket.socket(socket.AF_UNIX, kind)
        self._socket.bind(place.path("daemon"))
        os.chmod(place.path("daemon"), 0o666)
        if kind == socket.SOCK_DGRAM:
            threading.Thread(target=self._hear, daemon=True).start()
        else:
            self._socket.listen()
            threading.Thread(target=self._accept, daemon=True).start()

    def say(self, text):
        self._last.sendall(text.encode())

    def give(self, file):
        socket.send_fds(self._last, [b"x"], [file.fileno()])

    def _hear(self):
        while True:
            self.heard.append(self._socket.recv(1000).decode().rpartition(">")[2].rstrip("\0"))

    def _accept(self):
        while True:
            one, _ = self._socket.accept()
            self._last = one
            self.connections += 1
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one):
        with one:
            while asked := one.recv(100):
                self.heard.append(asked.decode())
                one.sendall(b"answer to " + asked)
        self.ended += 1


def start(place, kind, before="exec "):
    shutil.copy(os.path.join(nodes.HERE, "programs", "daemon_client.py"), place.path("daemon_client.py"))
    node = place.start("sh", "-c", f"{before}python3 daemon_client.py {kind}")
    place.wait_for_output("ready")
    return node


def ask(place):
    with open(place.path("asks"), "a", encoding="ascii") as file:
        file.write("\n")


def resume(node):
    subprocess.run([nodes.DRIVER, "resume", str(node.init)], check=True, timeout=nodes.PATIENCE)


def ends(place, node):
    for _ in range(3):
        ask(place)
    assert node.wait() == 0, place.output()


# What the node comes to: options of the dump, and how it goes on.
def restored(place, node):
    images, _ = place.dump(node)
    return place.restore(images)


def resumed(place, node):
    place.dump(node, after="stop")
    resume(node)
    return node


def runs_on(place, node):
    place.dump(node, after="run")
    return node


# Whether it keeps its connections.
WAYS = ((restored, False), (resumed, True), (runs_on, True))


def answers(first, last):
    return "".join(f"answer to number {number}\n" for number in range(first, last + 1))


@pytest.mark.parametrize("way, keeps", WAYS)
def test_an_idle_connection(place, way, keeps):
    daemon = Daemon(place)
    node = start(place, "stream")
    ask(place)
    place.wait_for_output("answer to number 1")
    node = way(place, node)
    if not keeps:
        place.wait_for(lambda: daemon.ended == 1, "the daemon to hear that its client has gone")
    ends(place, node)
    closed = "" if keeps else "closed by the daemon b''\n"
    assert place.output() == answers(0, 0) + "ready\n" + answers(1, 1) + closed + answers(2, 3)
    assert daemon.connections == 1 + (not keeps)


def test_it_is_saved_again(place):
    """With a connection that has ended at the first restore and is not looked at, and a new one of each life."""
    daemon = Daemon(place)
    node = start(place, "stream")
    node = restored(place, restored(place, node))
    ask(place)
    place.wait_for_output("answer to number 1")
    node = restored(place, node)
    ends(place, node)
    closed = "closed by the daemon b''\n"
    assert place.output() == answers(0, 0) + "ready\n" + closed + answers(1, 1) + closed + answers(2, 3)
    assert daemon.connections == 3


@pytest.mark.parametrize("way, keeps", WAYS)
def test_a_program_that_waits_for_the_daemon(place, way, keeps):
    daemon = Daemon(place)
    node = way(place, start(place, "waiting"))
    if keeps:
        daemon.say("at last")
    place.wait_for_output("hears b'at last'" if keeps else "hears b''")
    ends(place, node)
    assert place.output().endswith(answers(2, 3))
    assert daemon.connections == 2


@pytest.mark.parametrize("way", [way for way, _ in WAYS])
def test_a_log(place, way):
    """No line is lost, whichever socket it goes through."""
    daemon = Daemon(place, socket.SOCK_DGRAM)
    node = start(place, "syslog")
    node = way(place, node)
    ends(place, node)
    assert place.output() == "ready\nlogged 1\nlogged 2\nlogged 3\n"
    place.wait_for(lambda: len(daemon.heard) == 4, "the daemon to hear all lines")
    assert daemon.heard == [f"number {number}" for number in range(4)]


def test_a_save_that_is_refused_at_the_last_moment(place):
    """What has come and was not received would be lost. All of the node's processes go on, though some of them end meanwhile."""
    daemon = Daemon(place)
    node = start(place, "stream", "while ! test -e ended; do /bin/true; done & exec ")
    with open("/dev/null", "rb") as file:
        daemon.give(file)
    for _ in range(5):
        with pytest.raises(nodes.Failed) as failure:
            place.dump(node)
        assert "a descriptor waits in it that its program has not received yet" in str(failure.value), failure.value
    with open(place.path("ended"), "w", encoding="ascii"):
        pass
    ask(place)
    place.wait_for_output("closed by the daemon b'x'")
    ends(place, node)
    assert daemon.connections == 2 and place.output().endswith(answers(1, 3))


def test_sockets_of_another_kind(place):
    """What the project's own processes speak by: nobody but they may end one."""
    daemon = Daemon(place, socket.SOCK_SEQPACKET)
    node = start(place, "packets")
    with pytest.raises(nodes.Failed) as failure:
        place.dump(node)
    assert "a Unix socket leads to a process outside of the node" in str(failure.value)
    ends(place, node)
    assert daemon.connections == 1


def test_connections_within_the_node(place):
    """By a name in a directory of the host, too: both ends come back, and what was on its way."""
    node = start(place, "pair")
    node = restored(place, node)
    ends(place, node)
    assert place.output() == "ready\n" + "".join(f"within {number}\n" for number in range(1, 4))
