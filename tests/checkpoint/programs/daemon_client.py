# SPDX-License-Identifier: GPL-2.0-or-later
"""A client of a daemon of the host, as they are in libraries: KIND is stream, waiting (a stream in recv), syslog, packets, or pair
(it is its own daemon, and holds what it has accepted only on its way through a socket). It asks once more for each line that the file `asks` gets, and says what it hears, on one connection for as long as that stands."""

import logging
import logging.handlers
import os
import select
import socket
import sys
import time

kind = sys.argv[1]
kinds = {"stream": socket.SOCK_STREAM, "waiting": socket.SOCK_STREAM, "packets": socket.SOCK_SEQPACKET}


def connect():
    made = socket.socket(socket.AF_UNIX, kinds[kind])
    made.connect("daemon")
    return made


def lines():
    try:
        with open("asks", encoding="ascii") as file:
            return file.read().count("\n")
    except FileNotFoundError:
        return 0


def ask(connection, text):
    """The connection on which the answer came, after a new one, as libnss_sss does it."""
    if select.select([connection], [], [], 0)[0]:
        print("closed by the daemon", repr(connection.recv(100)), flush=True)
        connection.close()
        connection = connect()
    connection.sendall(text)
    print(connection.recv(100).decode(), flush=True)
    return connection


if kind == "syslog":
    log = logging.getLogger("client")
    log.addHandler(logging.handlers.SysLogHandler(os.path.abspath("daemon")))
    log.warning("number 0")
elif kind == "pair":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.abspath("own"))
    listener.listen()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.abspath("own"))
    accepted, _ = listener.accept()
    hand, over = socket.socketpair()
    socket.send_fds(hand, [b"x"], [accepted.fileno()])
    accepted.close()
    received = None
else:
    connection = connect()
    connection = ask(connection, b"number 0")
print("ready", flush=True)
asked = 0
while asked < 3:
    if kind == "waiting" and asked == 0:
        print("hears", repr(connection.recv(100)), flush=True)
        connection.close()
        connection = connect()
        asked = 1
    while asked >= lines():
        time.sleep(0.01)
    asked += 1
    if kind == "syslog":
        log.warning("number %d", asked)
        print("logged", asked, flush=True)
    elif kind == "pair":
        received = received or socket.socket(fileno=socket.recv_fds(over, 1, 1)[1][0])
        connection.sendall(b"within %d" % asked)
        print(received.recv(100).decode(), flush=True)
    else:
        connection = ask(connection, b"number %d" % asked)
