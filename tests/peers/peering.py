# SPDX-License-Identifier: GPL-2.0-or-later
"""The agents' protocol by hand (spank/peers/handshake.hpp), a munged, and an agent that listens on loopback."""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

import cipher

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "node"))
from virtualnode import BUILD, LIST, PATIENCE, Connection, program, wait_for  # noqa: E402

HOST = "here"  # the agent's name
PORT = 8474
MESSAGE_LIMIT = 8 << 20
VERSION = 2
EXPIRED = 15  # EMUNGE_CRED_EXPIRED of munge.h


# -- protobuf, as much of it as is needed ------------------------------------------------------------------------

def varint(value):
    out = b""
    while value > 0x7f:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def message(**fields):
    """message(f1=3, f2="text"): field 1 a number, field 2 a string."""
    out = b""
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def fields_of(raw):
    """{number: value}; numbers and byte strings only."""
    def number():
        nonlocal raw
        value = shift = 0
        while True:
            byte, raw = raw[0], raw[1:]
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    out = {}
    while raw:
        key = number()
        if key & 7 == 0:
            out[key >> 3] = number()
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            size = number()
            out[key >> 3], raw = raw[:size], raw[size:]
    return out


# -- munge -------------------------------------------------------------------------------------------------------

class Munged:
    """munged with a key of its own, or another's."""

    def __init__(self, key=None):
        self.directory = tempfile.mkdtemp(prefix="singularity-munge-", dir="/run")
        os.chmod(self.directory, 0o755)
        self.key = key or secrets.token_bytes(1024)
        path = os.path.join(self.directory, "key")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(self.key)
        self.socket = os.path.join(self.directory, "socket")
        names = [f"--{name}-file={os.path.join(self.directory, name)}" for name in ("key", "log", "pid", "seed")]
        said = os.path.join(self.directory, "said")
        with open(said, "wb") as file:
            self.process = subprocess.Popen(["munged", "--foreground", f"--socket={self.socket}", *names],
                                            stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        wait_for(lambda: os.path.exists(self.socket) or self.process.poll() is not None, "munged")
        if self.process.poll() is not None:
            with open(said, encoding="utf-8") as file:
                raise AssertionError(file.read())

    def encode(self, payload, uid=0, ttl=60, restrict=0):
        line = ["munge", f"--socket={self.socket}", f"--ttl={ttl}", "--no-output"]
        line[-1:] = [f"--restrict-uid={restrict}"] if restrict is not None else []
        who = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        return subprocess.run(line, input=payload, capture_output=True, timeout=PATIENCE, check=True, **who).stdout.strip()

    def decode(self, credential):
        """(EMUNGE_..., payload)"""
        done = subprocess.run(["unmunge", f"--socket={self.socket}", "--metadata=/dev/null", "--output=-"], input=credential,
                              capture_output=True, timeout=PATIENCE)
        return done.returncode, done.stdout

    def cipher(self, credential):
        """What it is encrypted with, as munge calls it."""
        done = subprocess.run(["unmunge", f"--socket={self.socket}", "--keys=CIPHER", "--metadata=-", "--output=/dev/null"],
                              input=credential, capture_output=True, timeout=PATIENCE, check=True)
        return done.stdout.decode().split()[1]

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        shutil.rmtree(self.directory)


# -- an agent ----------------------------------------------------------------------------------------------------

class ListeningAgent:
    """singularityd that other agents can call at 127.0.0.1."""

    def __init__(self, munged, host=HOST, port=PORT):
        self.host, self.port = host, port
        self.directory = tempfile.mkdtemp(prefix="singularity-test-", dir="/tmp")
        self.socket = os.path.join(self.directory, "agent.sock")
        path = os.path.join(self.directory, "singularity.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"agents:\n  address: 127.0.0.1\n  port: {port}\n  munge_socket: {munged.socket}\n  run_without_slurm: true\n")
        self.log_path = os.path.join(self.directory, "log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [program("singularityd"), "--host", host, "--socket", self.socket, "--state", os.path.join(self.directory, "nodes"),
                 "--staging", os.path.join(self.directory, "staging")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ, SINGULARITY_LIBDIR=BUILD, SINGULARITY_CONF=path))
        wait_for(self.serves, "the agent to serve")

    def serves(self):
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError), Connection(self.socket) as connection:
            connection.ask(LIST)
            return True
        return False

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return file.read().split()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, self.log()
        shutil.rmtree(self.directory)


# -- who calls it ------------------------------------------------------------------------------------------------

class Caller:
    """Another agent, or somebody who would like to be one."""

    def __init__(self, port=PORT, reserved=True, name="there", address="127.0.0.1"):
        self.name = name
        self.connect(port, reserved, address)
        self.sent = b""  # a record of the conversation
        self.transcript = b""  # what goes into the keys
        self.exchange = cipher.Exchange()
        self.numbers = [0, 0]

    def connect(self, port, reserved, address):
        for _ in range(2000):  # many ports below 1024 are still in use by connections of before
            self.socket = socket.socket()
            self.socket.settimeout(PATIENCE)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                if reserved:
                    self.socket.bind((address, 512 + secrets.randbelow(512)))
                self.socket.connect(("127.0.0.1", port))
                return
            except OSError as error:
                self.socket.close()
                if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                    raise
        raise AssertionError("no port below 1024 is free")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, raw):
        self.sent += raw
        self.socket.sendall(raw)

    def send_frame(self, body):
        self.send(struct.pack(">I", len(body)) + body)

    def receive(self, count):
        out = b""
        while len(out) < count:
            got = self.socket.recv(count - len(out))
            if not got:
                raise EOFError
            out += got
        return out

    def frame(self):
        return self.receive(struct.unpack(">I", self.receive(4))[0])

    def is_closed(self):
        """Waits until the agent has hung up."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def say(self, body):
        """A frame of the handshake."""
        self.transcript += struct.pack(">I", len(body)) + body
        self.send_frame(body)

    def take(self):
        body = self.frame()
        self.transcript += struct.pack(">I", len(body)) + body
        return fields_of(body)

    def hello(self, to=HOST, version=VERSION, share=None, **more):
        self.say(message(f1=version, f2=more.get("name", self.name), f3=to, f4=share or self.exchange.share))

    def take_hello(self):
        self.peer_share = self.take()[4]

    def pledge(self, to=HOST, answer=0, share=None, peer_share=None, name=None, version=VERSION):
        return message(f1=version, f2=answer, f3=name or self.name, f4=to, f5=share or self.exchange.share,
                       f6=peer_share or self.peer_share)

    def prove(self, munged, **pledge):
        self.say(message(f1=munged.encode(self.pledge(**pledge))))

    def take_proof(self, munged):
        why, payload = munged.decode(self.take()[1])
        assert why == 0, f"munge error {why}"
        found = fields_of(payload)
        assert (found[2], found[3].decode(), found[4].decode()) == (1, HOST, self.name)
        assert (found[5], found[6]) == (self.exchange.share, self.peer_share)
        self.agree()

    def agree(self):
        salt = hashlib.sha256(self.transcript).digest()
        secret = self.exchange.shared(self.peer_share)
        self.keys = [cipher.hkdf(secret, salt, b"singularity peers 2: from " + side) for side in (b"caller", b"called")]

    def introduce(self, munged):
        """The whole handshake."""
        self.hello()
        self.take_hello()
        self.prove(munged)
        self.take_proof(munged)
        return self

    def sealed(self, body, number=None, key=None):
        return cipher.seal(key or self.keys[0], self.numbers[0] if number is None else number, body)

    def tell(self, body):
        self.send_frame(self.sealed(body))
        self.numbers[0] += 1

    def hear(self):
        body = cipher.unseal(self.keys[1], self.numbers[1], self.frame())
        self.numbers[1] += 1
        return fields_of(body)

    def ping(self, token=1):
        """The name that the agent answers with."""
        self.tell(message(f1=token, f3=b""))
        reply = self.hear()
        assert reply[1] == token
        return fields_of(reply[4])[1].decode()
