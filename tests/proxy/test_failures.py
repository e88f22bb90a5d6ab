# SPDX-License-Identifier: GPL-2.0-or-later
"""What is left when a client, a proxy or a program goes wrong. Every wait has a deadline."""

import array
import contextlib
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import on_device  # noqa: E402
import proxied  # noqa: E402
from proxy import Proxy  # noqa: E402

PATIENCE = 30  # seconds; a deadline for every wait, how soon the other side really notices is what ./dev bench proxy measures
PROBE = proxied.program("proxy", "singularity-probe")


class Probe:
    """tests/proxy/probe.cpp as a client, and the lines it writes."""

    def __init__(self, mode, environment):
        self.process = subprocess.Popen([PROBE, mode], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)

    def line(self):
        text = self.process.stdout.readline()
        assert text, f"the probe has ended: {self.process.stderr.read()}"
        return text.split()

    def ready(self):
        assert self.line() == ["ready", "1"]
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def probe(mode, environment):
    one = Probe(mode, environment)
    try:
        yield one
    finally:
        one.kill()


@pytest.fixture(name="proxy")
def running_proxy():
    with Proxy() as one:
        yield one


def lines_of(mode, environment):
    done = subprocess.run([PROBE, mode], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def free(proxy):
    return int(lines_of("free", proxy.environment()).split()[1])


def free_on_device(proxy):
    return on_device.free(proxy.environment())


def test_a_killed_client_leaves_nothing(proxy):
    """Its memory is free again at once, although its kernel never ends."""
    before, on_device = free(proxy), free_on_device(proxy)
    with probe("endless", proxy.environment()) as client:
        client.ready()
        assert free_on_device(proxy) <= on_device - (256 << 20)
        assert free(proxy) == before  # of a device of one's own
        client.kill()
        deadline = time.monotonic() + PATIENCE
        while free_on_device(proxy) != on_device and time.monotonic() < deadline:
            time.sleep(0.01)
        assert free_on_device(proxy) == on_device
        assert free(proxy) == before


@pytest.mark.parametrize("mode", ["endless", "launches", "calls", "copies"])
def test_a_killed_proxy_fails_every_call(mode):
    """In flight or later, with and without a reply: an error at once, and the program goes on to its own end."""
    with Proxy() as proxy, probe(mode, proxy.environment()) as client:
        client.ready()
        proxy.process.kill()
        proxy.process.wait()
        client.process.wait(PATIENCE)
        output = client.process.stdout.read()
        assert client.process.returncode == 0, client.process.stderr.read()
        results = [line.split()[1] for line in output.splitlines()]
        assert results and set(results) == {"CUDA_ERROR_DEVICE_UNAVAILABLE"}, output


def steady(client):
    client.process.stdin.write("\n")
    client.process.stdin.flush()
    assert client.line() == ["value", "7"]


def test_a_bad_kernel_is_its_own_clients(proxy):
    """What it sees is what it sees without a proxy; another client sees nothing."""
    with probe("steady", proxy.environment()) as other:
        other.ready()
        steady(other)
        through = lines_of("bad-store", proxy.environment())
        steady(other)
    assert through == lines_of("bad-store", proxied.direct([])[1])
    assert "result CUDA_ERROR_ILLEGAL_ADDRESS" in through


def test_out_of_memory_is_an_answer(proxy):
    through = lines_of("exhaust", proxy.environment())
    assert through == lines_of("exhaust", proxied.direct([])[1])
    assert through.splitlines() == ["result CUDA_ERROR_OUT_OF_MEMORY", "after CUDA_SUCCESS"]


def test_captures_forbid_what_they_forbid_without_a_proxy(proxy):
    through = lines_of("captures", proxy.environment())
    assert through == lines_of("captures", proxied.direct([])[1])
    assert "0/0/other allocation CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" in through
    assert "1/0/other allocation CUDA_SUCCESS" in through
    assert "end CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" in through


def test_devices_of_two_proxies_copy_but_do_not_share():
    command, environment = proxied.proxied([PROBE, "peers"], devices=2)
    assert proxied.run(command, environment).splitlines() == [
        "access 0", "enable CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "enable with flags CUDA_ERROR_INVALID_VALUE",
        "disable CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer CUDA_SUCCESS", "same 1", "peer async CUDA_SUCCESS", "fives 1",
        "too long CUDA_ERROR_INVALID_VALUE", "no context CUDA_ERROR_INVALID_CONTEXT"]


def test_conditional_nodes_are_refused(proxy):
    assert lines_of("conditional", proxy.environment()).splitlines() == ["handle CUDA_ERROR_NOT_SUPPORTED",
                                                                         "destroy CUDA_SUCCESS"]


HEADER = struct.Struct("=IIQ")  # PacketHeader: type, size, ticket
HELLO, WELCOME = 1, 17 - 1
HELLO_BODY = struct.Struct("=IIQQQQII")  # version, devices, window; process, ordinal; number of the node's device, of so many


def hello(path):
    """A session opened by hand: (socket, the segment)."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.settimeout(PATIENCE)
    link.connect(path)
    link.send(HEADER.pack(HELLO, HELLO_BODY.size, 0) + HELLO_BODY.pack(4, 1, 0, *random.sample(range(1 << 30), 2), 0, 0, 1))
    descriptors = array.array("i")
    message, ancillary, _, _ = link.recvmsg(1 << 16, socket.CMSG_SPACE(16))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[:len(data) - len(data) % descriptors.itemsize])
    assert HEADER.unpack_from(message)[0] == WELCOME, message[:64]
    size = os.fstat(descriptors[0]).st_size
    segment = mmap.mmap(descriptors[0], size)
    for descriptor in descriptors:
        os.close(descriptor)
    return link, segment


def ended(link):
    """Whether the daemon hangs up at once; what it says before is its farewell."""
    link.settimeout(PATIENCE)
    while True:
        try:
            if not link.recv(1 << 16):
                return True
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


@pytest.mark.parametrize("seed", range(8))
def test_garbage_ends_its_own_session(proxy, seed):
    """Random bytes all over the ring and its positions: that session ends, another client works on."""
    rng = random.Random(seed)
    with probe("steady", proxy.environment()) as other:
        other.ready()
        steady(other)
        link, segment = hello(proxy.socket)
        with link, segment:
            # The records first, then the position that makes the daemon read them.
            for at in range(4096, min(len(segment), 1 << 20), 4096):
                segment[at:at + 256] = rng.randbytes(256)
            segment[0:8] = struct.pack("=Q", rng.choice([64, 4096, 1 << 63, (1 << 64) - 1, rng.getrandbits(64)]))
            # A consumer that sleeps looks at its deadline, not at us: a packet that nobody expects wakes the session.
            with contextlib.suppress(OSError):
                link.send(rng.randbytes(rng.randrange(1, 64)))
            assert ended(link)
        steady(other)
    assert proxy.process.poll() is None


def test_garbage_instead_of_hello(proxy):
    for body in (b"", b"x", HEADER.pack(HELLO, 1 << 31, 0), HEADER.pack(99, 0, 0), os.urandom(4096)):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with link:
            link.connect(proxy.socket)
            link.send(body) if body else link.shutdown(socket.SHUT_WR)
            assert ended(link), body
    assert free(proxy) > 0


def test_a_killed_run_leaves_no_process():
    """kill -9 of singularityctl: the proxy and the program end as well."""
    command, environment = proxied.proxied([PROBE, "steady"])
    runner = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert runner.stdout.readline() == "ready 1\n"
    with open(f"/proc/{runner.pid}/task/{runner.pid}/children", encoding="ascii") as children:
        pids = [int(word) for word in children.read().split()]
    assert len(pids) == 2
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    deadline = time.monotonic() + PATIENCE
    left = pids
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if os.path.exists(f"/proc/{pid}")]
    assert not left


def test_what_run_says_of_its_program():
    command, environment = proxied.proxied(["sh", "-c", "exit 7"])
    assert subprocess.run(command, env=environment, timeout=PATIENCE).returncode == 7
    command, environment = proxied.proxied(["sh", "-c", "kill -USR1 $$"])
    assert subprocess.run(command, env=environment, timeout=PATIENCE).returncode == 128 + signal.SIGUSR1
    command, environment = proxied.proxied([PROBE, "free"])
    assert subprocess.run(command, env=environment, timeout=PATIENCE, capture_output=True, text=True).stderr == ""
    command, environment = proxied.proxied(["/no/such/program"])
    done = subprocess.run(command, env=environment, timeout=PATIENCE, capture_output=True, text=True)
    assert done.returncode == 1 and "/no/such/program" in done.stderr


# What PyTorch loads when memory is out, to say who has it; without all of these it stops with a fault of its own.
ASKED_WHEN_MEMORY_IS_OUT = """
import ctypes
nvml, device, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_uint(128)
room = ctypes.create_string_buffer(128 * 64)
for name in ("nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetHandleByPciBusId_v2"):
    getattr(nvml, name)
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
for kind in ("Compute", "Graphics", "MPSCompute"):
    for version in ("", "_v2", "_v3"):
        ask = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}")
        count.value = 128
        assert ask(device, ctypes.byref(count), room) == 0 and count.value == 0, (kind, version)
        assert ask(device, None, room) == 2, (kind, version)
"""


def test_nvml_knows_no_processes(proxy):
    done = subprocess.run([sys.executable, "-c", ASKED_WHEN_MEMORY_IS_OUT], env=proxy.environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
