# SPDX-License-Identifier: GPL-2.0-or-later
"""A node agent of the test's own, its protocol, and what it leaves behind."""

import array
import contextlib
import errno
import fcntl
import glob
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.path.abspath(os.environ.get("SINGULARITY_BUILD", os.environ.get("CTEST_BINARY_DIR", os.path.join(TOP, "build", "release"))))
PATIENCE = 60  # seconds, for whatever does not end by itself
ALICE, BOB = 1001, 1002

(CREATE, START, SIGNAL, WAIT, ATTACH, TIE, LIST, LOG, DESTROY,
 CREATED, STARTED, DONE, ENDED, LENT, NODES, FAILED) = range(64, 80)
OPEN_DOOR, WATCH_SAVES, COMMANDS_REST = range(102, 105)
FIND_STEPS, STEP_RUNS = 107, 109
GIVEN, TERMINAL, KEPT = range(3)


def program(name):
    return os.path.join(BUILD, "spank", name)


def wait_for(condition, what, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.01)


# -- packets: spank/node/packet.hpp -----------------------------------------------------------------------------

DATAGRAM_LIMIT = 384 << 10
PACKET_LIMIT = 8 << 20
ELSEWHERE = 0xffff  # what lies in a memfd: spank/node/seqpacket.hpp
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def elsewhere(size):
    """The datagram that says of a packet that it lies in the memfd that comes last."""
    return struct.pack("=HHIQ", 1, ELSEWHERE, 0, size)


def memfd(content, seals=SEALS):
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def text(value):
    raw = os.fsencode(value)
    return struct.pack("=I", len(raw)) + raw


def texts(values):
    return struct.pack("=I", len(values)) + b"".join(text(value) for value in values)


def numbers(values):
    return struct.pack(f"=I{len(values)}I", len(values), *values)


def spec(name="", hostname="", address="", uid=0, gid=0, groups=(), sockets=(), environment=(), tied=False,
         devices=0, backend="", every=0, job="", neighbours=(), commands=(), stand_in="", run=0, local=(), local_origin="",
         image="", mounts=(), account="", account_groups=(), root=0, shown=()):
    return (text(name) + text(hostname) + text(address) + struct.pack("=II", uid, gid) + numbers(groups) + texts(sockets)
            + texts(environment) + struct.pack("=?I", tied, devices) + text(backend) + struct.pack("=I", every) + text(job)
            + struct.pack("=I", len(neighbours)) + b"".join(text(name) + text(where) for name, where in neighbours)
            + texts(commands) + text(stand_in) + struct.pack("=II", run, len(local)) + b"".join(text(path) + text(source) for path, source in local)
            + text(local_origin) + text(image) + struct.pack("=I", len(mounts))
            + b"".join(text(source) + text(target) + struct.pack("=?", read_only) for source, target, read_only in mounts)
            + text(account) + texts(account_groups) + struct.pack("=I", root) + texts(shown))


def task(arguments, environment=("PATH=/usr/bin:/bin",), directory="/", limits=(), mask=0o22, stdio=GIVEN, rows=24, columns=80, cpus=b""):
    return (texts(arguments) + texts(environment) + text(directory)
            + struct.pack("=I", len(limits)) + b"".join(struct.pack("=IQQ", *limit) for limit in limits)
            + struct.pack("=IBHH", mask, stdio, rows, columns) + struct.pack("=I", len(cpus)) + cpus)


class Fields:
    """What comes back, read from front to back."""

    def __init__(self, raw):
        self.raw = raw

    def take(self, layout):
        values = struct.unpack_from("=" + layout, self.raw)
        self.raw = self.raw[struct.calcsize("=" + layout):]
        return values if len(values) > 1 else values[0]

    def list(self, layout):
        return [self.take(layout) for _ in range(self.take("I"))]

    def text(self):
        size = self.take("I")
        value, self.raw = self.raw[:size], self.raw[size:]
        return os.fsdecode(value)


class Refused(Exception):
    """The agent's answer `failed`."""

    def __init__(self, doing, on, why, code):
        super().__init__(f"cannot {doing} {on}: {why}")
        self.code = code


class Connection:
    """To the agent, as any user."""

    def __init__(self, path, uid=0, gid=None, groups=()):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, DATAGRAM_LIMIT)
        before = os.getgroups()
        # The kernel keeps who has connected (unix(7), SO_PEERCRED).
        os.setgroups(list(groups))
        os.setegid(uid if gid is None else gid)
        os.seteuid(uid)
        try:
            self.socket.connect(path)
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(before)
        self.token = 0
        self.early = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, kind, body=b"", descriptors=()):
        self.token += 1
        packet = struct.pack("=HHI", 1, kind, self.token) + body
        if len(packet) <= DATAGRAM_LIMIT:
            self.send_datagram(packet, descriptors)
            return self.token
        content = memfd(packet)
        try:
            self.send_datagram(elsewhere(len(packet)), [*descriptors, content])
        finally:
            os.close(content)
        return self.token

    def send_datagram(self, packet, descriptors=()):
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self.socket.sendmsg([packet], control)

    def answer(self, token):
        """(kind, Fields, descriptors) of the answer; Refused if that is the answer."""
        while token not in self.early:
            raw, ancillary, _, _ = self.socket.recvmsg(1 << 20, socket.CMSG_SPACE(16))
            if not raw:
                raise EOFError("the agent has hung up")
            descriptors = array.array("i")
            for _, kind, data in ancillary:
                if kind == socket.SCM_RIGHTS:
                    descriptors.frombytes(data[:len(data) - len(data) % 4])
            _, kind, number = struct.unpack_from("=HHI", raw)
            self.early[number] = (kind, Fields(raw[8:]), list(descriptors))
        kind, fields, descriptors = self.early.pop(token)
        if kind == FAILED:
            raise Refused(fields.text(), fields.text(), fields.text(), fields.take("i"))
        return kind, fields, descriptors

    def ask(self, kind, body=b"", descriptors=()):
        return self.answer(self.send(kind, body, descriptors))

    def create(self, **arguments):
        _, fields, _ = self.ask(CREATE, spec(**arguments))
        name = fields.text()
        return name, fields.take("i")

    def start(self, node, arguments, descriptors=(), **options):
        """(task, descriptors that came back)"""
        _, fields, lent = self.ask(START, text(node) + task(arguments, **options), descriptors)
        return fields.take("Ii")[0], lent

    def wait(self, node, number, forget=False):
        """(wait status, whether the whole node has ended)"""
        _, fields, _ = self.ask(WAIT, text(node) + struct.pack("=I?", number, forget))
        return fields.take("i?")

    def nodes(self):
        """name -> (state, {task: whether it runs}), as spank/agent/protocol/agent_messages.hpp has them."""
        _, fields, _ = self.ask(LIST)
        found = {}
        for _ in range(fields.take("I")):
            name = fields.text()
            _ = [fields.text(), fields.text(), fields.take("II"), fields.list("I")]  # host name, address, ids, groups
            _ = [[fields.text() for _ in range(fields.take("I"))] for _ in ("sockets", "environment")]
            _ = [fields.take("?I"), fields.text(), fields.take("I"), fields.text()]  # tied and devices, backend, every, job
            _ = [(fields.text(), fields.text()) for _ in range(fields.take("I"))]  # neighbours
            _ = [[fields.text() for _ in range(fields.take("I"))], fields.text(), fields.take("I")]  # commands, stand-in, run
            _ = [[(fields.text(), fields.text()) for _ in range(fields.take("I"))], fields.text()]  # local directories and their origin
            _ = [fields.text(), [(fields.text(), fields.text(), fields.take("?")) for _ in range(fields.take("I"))], fields.text()]  # image, account
            _ = [[fields.text() for _ in range(fields.take("I"))], fields.take("I")]  # groups, root
            _ = [fields.text() for _ in range(fields.take("I"))]  # shown
            _ = [fields.take("iQQQ"), fields.take("q")]  # init, made
            _ = [(fields.text(), fields.take("II")) for _ in range(fields.take("I"))]  # given
            _ = [fields.list("iQQQ"), fields.text(), fields.text(), fields.take("?")]  # proxies, checkpoint, periodic, in doubt
            state = fields.text()
            found[name] = state, {number: runs for number, _, runs, _ in fields.list("Ii?i")}
        assert fields.take("?"), "more nodes than a packet holds"
        return found

    def signal(self, node, number, which):
        self.ask(SIGNAL, text(node) + struct.pack("=Ii", number, which))

    def destroy(self, node):
        self.ask(DESTROY, text(node))

    def attach(self, node, number):
        return self.ask(ATTACH, text(node) + struct.pack("=I", number))[2][0]

    def log(self, node, number=1):
        out = b""
        for descriptor in self.ask(LOG, text(node) + struct.pack("=I", number))[2]:
            with os.fdopen(descriptor, "rb") as file:
                out += file.read()
        return out

    def run(self, node, arguments, **options):
        """(wait status, standard output and errors) of a task with pipes and no input."""
        reading, writing = os.pipe()
        with open("/dev/null", "rb") as null, os.fdopen(reading, "rb") as output:
            try:
                number, _ = self.start(node, arguments, [null.fileno(), writing, writing], **options)
            finally:
                os.close(writing)
            said = output.read().decode()
            status, ended = self.wait(node, number, True)
            assert not ended
            return status, said


class Terminal:
    """A terminal of a user's, with a program in it."""

    def __init__(self, argv, rows=30, columns=100, **options):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.master)
        options = {"stderr": slave, "cwd": "/", **options}
        self.process = subprocess.Popen(argv, stdin=slave, stdout=slave, start_new_session=True, **options)
        os.close(slave)
        self.seen = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("=HHHH", rows, columns, 0, 0))

    def is_as_before(self):
        return termios.tcgetattr(self.master)[:4] == self.before[:4]

    def wait_until_raw(self):
        """From then on keys go to the program in the node as they are."""
        wait_for(lambda: not termios.tcgetattr(self.master)[3] & termios.ICANON, "the terminal to be raw")

    def send(self, keys):
        os.write(self.master, keys)

    def read(self):
        """What comes next; nothing at the end, when no program has it any more."""
        assert select.select([self.master], [], [], PATIENCE)[0], f"nothing comes after {self.seen}"
        try:
            return os.read(self.master, 4096)
        except OSError as error:
            assert error.errno == errno.EIO, error
            return b""

    def expect(self, what):
        """Everything up to it."""
        while what not in self.seen:
            more = self.read()
            assert more, f"{what} in {self.seen}"
            self.seen += more
        end = self.seen.index(what) + len(what)
        before, self.seen = self.seen[:end], self.seen[end:]
        return before

    def rest(self):
        """Everything up to the end of the program."""
        while more := self.read():
            self.seen += more
        return self.seen


class Agent:
    """singularityd with a socket and a state directory of its own."""

    def __init__(self, where="/tmp", settings="agents:\n  run_without_slurm: true\n", **environment):
        self.environment = environment  # of the agent, besides its own
        self.directory = tempfile.mkdtemp(prefix="singularity-test-", dir=where)
        os.chmod(self.directory, 0o755)
        self.socket = os.path.join(self.directory, "agent.sock")
        self.state = os.path.join(self.directory, "nodes")
        self.staging = os.path.join(self.directory, "staging")
        self.store = os.path.join(self.directory, "store")
        self.configuration = os.path.join(self.directory, "singularity.yaml")
        with open(self.configuration, "w", encoding="utf-8") as file:
            file.write(f"store:\n  directory: {self.store}\n{settings}")
        os.mkdir(self.store, 0o700)
        self.mounts = self.own_mounts()
        self.links = self.own_links()
        self.process = None
        self.descriptors = None  # as many as the test has
        self.start()

    def begin(self):
        limit = [] if self.descriptors is None else ["prlimit", f"--nofile={self.descriptors}"]
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [*limit, program("singularityd"), "--socket", self.socket, "--state", self.state, "--staging", self.staging],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(os.environ, SINGULARITY_LIBDIR=BUILD, SINGULARITY_CONF=self.configuration) | self.environment)

    def start(self):
        self.begin()
        wait_for(self.serves, "the agent to serve")

    def serves(self):
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError), self.connect() as connection:
            connection.ask(LIST)
            return True
        return False

    def log(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(PATIENCE)

    def connect(self, uid=0, **who):
        return Connection(self.socket, uid, **who)

    def command(self, *arguments):
        first, *rest = arguments
        return [program("singularityctl"), first, "--socket", self.socket, *rest]

    def ctl(self, *arguments, user=0, **options):
        """singularityctl to its end."""
        who = {"user": user, "group": user, "extra_groups": []} if user else {}
        return subprocess.run(self.command(*arguments), timeout=PATIENCE, capture_output=True, text=True, cwd="/", **who, **options)

    def init_pids(self):
        """Host process ids of the inits of this agent's nodes: by the files that they have mounted."""
        found = []
        for path in glob.glob("/proc/[0-9]*"):
            with contextlib.suppress(OSError):
                with open(f"{path}/comm", encoding="utf-8") as name, open(f"{path}/mountinfo", encoding="utf-8") as mounts:
                    if name.read().strip() == "singularity-ini" and self.directory in mounts.read():
                        found.append(int(path.rpartition("/")[2]))
        return found

    @staticmethod
    def own_mounts():
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            return file.read()

    @staticmethod
    def own_links():
        with open("/proc/net/dev", encoding="utf-8") as file:
            return sorted(line.split(":")[0].strip() for line in file if ":" in line)

    def leftovers(self):
        """What the kernel still knows of its nodes: processes (with their namespaces), mounts, links, files."""
        processes = []
        own = self.own_mounts()
        for path in glob.glob("/proc/[0-9]*"):
            if path in (f"/proc/{os.getpid()}", f"/proc/{self.process.pid}"):
                continue
            with contextlib.suppress(OSError):
                with open(f"{path}/mountinfo", encoding="utf-8") as file, open(f"{path}/cmdline", "rb") as command:
                    words, mounts = command.read(), file.read()
                    if self.directory in mounts and mounts != own or b"singularity-proxyd" in words and self.directory.encode() in words:
                        processes.append(path)
        found = {
            "processes": processes,
            "mounts": [] if self.own_mounts() == self.mounts else [self.own_mounts()],
            "links": [name for name in self.own_links() if name not in self.links],
            "files": [name for place in (self.state, self.staging) if os.path.exists(place) for name in os.listdir(place)],
        }
        return {kind: items for kind, items in found.items() if items}

    def close(self):
        try:
            if self.process.poll() is not None:
                self.start()
            with self.connect() as connection:
                for name in os.listdir(self.state):
                    with contextlib.suppress(Refused):
                        connection.destroy(name)
            self.kill(signal.SIGTERM)
            assert self.process.returncode == 0, self.log()
            assert not self.leftovers(), self.leftovers()
            assert not os.path.exists(self.socket)
        finally:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.directory, ignore_errors=True)
