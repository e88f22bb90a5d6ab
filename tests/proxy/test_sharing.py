# SPDX-License-Identifier: GPL-2.0-or-later
"""Device memory of several processes (cudaIpc*): saved with all that have it, and theirs again in another proxy."""

import os
import random
import subprocess
import sys
import time

import pytest

import image_proxy
from image_proxy import PATIENCE, Place, proxied, running

SEED = int(os.environ.get("SINGULARITY_TEST_SEED", "0")) or random.randrange(1, 1 << 30)
SHARED = "shared_memory"
# A process that is told what to do, a line at a time: "export", "open HANDLE", "read"; it answers with a line each.
PROCESS = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
Handle = ctypes.c_ubyte * 64
class Handles(ctypes.Structure):
    _fields_ = [("reserved", Handle)]
cuda.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handles, ctypes.c_uint]
context, memory, opened = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), int(sys.argv[1])) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for line in sys.stdin:
    words = line.split()
    if words[0] == "export":
        handle = Handles()
        assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
        assert cuda.cuMemsetD32_v2(memory, 4711, ctypes.c_size_t(1024)) == 0 and cuda.cuCtxSynchronize() == 0
        assert cuda.cuIpcGetMemHandle(ctypes.byref(handle), memory) == 0
        print(bytes(handle.reserved).hex(), flush=True)
    elif words[0] == "open":
        handle = Handles(Handle.from_buffer_copy(bytes.fromhex(words[1])))
        print(cuda.cuIpcOpenMemHandle_v2(ctypes.byref(opened), handle, 1), flush=True)
    else:
        word = ctypes.c_uint32()
        print(cuda.cuMemcpyDtoH_v2(ctypes.byref(word), opened, ctypes.c_size_t(4)), word.value, flush=True)
"""
# Others on the same device: 150 MB each, written and read again and again.
OTHER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, word = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(150 << 20)) == 0
for value in range(60):
    assert cuda.cuMemsetD32_v2(memory, value, ctypes.c_size_t(150 << 18)) == 0
    assert cuda.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(memory.value + (100 << 20)), ctypes.c_size_t(4)) == 0
    assert word.value == value
"""
SUCCESS, INVALID_VALUE, INVALID_CONTEXT = "0", "1", "201"


class Process:
    """One of them, on a device of a place."""

    def __init__(self, place, device=0, prefix=()):
        self.process = subprocess.Popen([*prefix, sys.executable, "-c", PROCESS, str(device)], env=place.environment(), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def program(*arguments):
    return [proxied.program("workloads", SHARED), *arguments]


@pytest.fixture(name="place")
def one_place():
    with Place().start_all() as place:
        yield place


def undisturbed(place, *arguments):
    begin = time.monotonic()
    with running(program(*arguments), place.environment()) as one:
        status, out, err = one.result()
    assert status == 0, f"{err}\n{out}\n{place.log()}"
    return out, time.monotonic() - begin


@pytest.mark.parametrize("back", [False, True], ids=["another-proxy", "the-same-proxy"])
def test_saved_in_the_middle(place, back):
    rounds = "400"
    wanted, seconds = undisturbed(place, rounds)
    rng = random.Random(SEED)
    saved = []
    with running(program(rounds), place.environment()) as one:
        deadline = time.monotonic() + PATIENCE
        while len(saved) < 5 and one.poll() is None and time.monotonic() < deadline:
            time.sleep(rng.uniform(0, seconds / 4))
            done = place.save("image", "--detach", check=False)
            if done.returncode != 0:
                assert "has ended in the middle" in done.stderr, done.stderr
                continue
            clients = image_proxy.numbers(done.stdout)["clients"]
            if back or not clients:
                place.resume()
            else:
                place.kill()
                place.start()
                assert place.restore("image")["clients"] == clients
            place.awaited()
            if clients:
                saved.append(clients)
        status, out, err = one.result()
    print(f"seed {SEED}: saved with {saved} clients")
    assert status == 0 and out == wanted, f"seed {SEED}\n{err}\n{out}\n{place.log()}"
    assert max(saved) == 3, f"seed {SEED}: {saved}"


def test_whose_a_handle_is(place):
    """Opened by processes with the same device and host name, as long as the process is there that made it."""
    with Place(2).start_all() as elsewhere, Process(place) as maker, Process(place) as other, Process(elsewhere) as stranger:
        handle = maker.ask("export")
        assert other.ask("open", handle) == SUCCESS and other.ask("read") == "0 4711"
        assert maker.ask("open", handle) == INVALID_CONTEXT
        assert stranger.ask("open", handle) == INVALID_VALUE, "another proxy's"
        with Process(place, prefix=["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]) as another_host:
            assert another_host.ask("open", handle) == INVALID_VALUE
        foreign = stranger.ask("export")
        with Process(elsewhere, device=1) as another_device:
            assert another_device.ask("open", foreign) == INVALID_VALUE
        maker.process.kill()
        maker.process.wait()
        with Process(place) as late:
            deadline = time.monotonic() + PATIENCE
            while late.ask("open", handle) == SUCCESS:
                assert time.monotonic() < deadline, "a handle outlives its process"
                time.sleep(0.01)
        assert other.ask("read") == "0 4711", "who has opened it has it still"


def test_one_device_of_two_in_one_proxy():
    """Two virtual devices on one proxy are two devices for handles, too: another placement would part them."""
    with Place(2).start() as place:
        os.symlink(place.socket(0), place.socket(1))
        with Process(place, device=0) as first, Process(place, device=1) as second, Process(place, device=0) as third:
            handle = first.ask("export")
            assert second.ask("open", handle) == INVALID_VALUE
            assert third.ask("open", handle) == SUCCESS and third.ask("read") == "0 4711"


def test_where_others_take_turns():
    """What is shared stays on the device; the others' memory makes room for each other."""
    with Place(variables={"SINGULARITY_SOFTGPU_MEMORY": "512M"}).start_all() as place:
        others = [subprocess.Popen([sys.executable, "-c", OTHER], env=place.environment()) for _ in range(3)]
        try:
            undisturbed(place, "200")
            assert [other.wait(PATIENCE) for other in others] == [0, 0, 0], place.log()
        finally:
            for other in others:
                other.kill()
                other.wait()
        assert "they take turns" in place.log()
