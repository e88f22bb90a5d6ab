# SPDX-License-Identifier: GPL-2.0-or-later
"""Device images: programs that are saved, lose their proxy, and go on with another one, and notice nothing."""

import contextlib
import ctypes
import os
import random
import select
import signal
import struct
import subprocess
import threading
import time

import pytest

import image_proxy
from image_proxy import PATIENCE, WORKLOADS, Place, proxied, running

SEED = int(os.environ.get("SINGULARITY_TEST_SEED", "0")) or random.randrange(1, 1 << 30)
MOVES = 3  # of one program in one run
PROBE = "singularity-probe"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def direct(name, devices, *arguments):
    environment = dict(os.environ, LD_LIBRARY_PATH=proxied.program("softgpu"), LD_AUDIT=proxied.program("libsingularity-redirect.so"),
                       SINGULARITY_SOFTGPU_DEVICES=str(devices), WORKLOADS_DATA=image_proxy.WORKLOADS_DATA)
    start = time.monotonic()
    done = subprocess.run([proxied.program("workloads", name), *arguments], env=environment, capture_output=True, timeout=PATIENCE,
                          check=False)
    return done, time.monotonic() - start


def move(place, device, file, back):
    """One virtual device to another proxy, or `back` to the same; whether a client was there to be moved."""
    for options in ([], ["--detach"]):
        done = place.save(file, *options, device=device, check=False)
        if done.returncode != 0:
            # What the program itself would be told by its next call, or it has come to its end just then; it must go on
            # as if nothing had been asked.
            assert "its context has failed" in done.stderr or "has ended in the middle" in done.stderr, done.stderr
            return None
        saved = image_proxy.numbers(done.stdout)
        if not options and not saved["clients"]:
            return None  # one that has not come yet would find no proxy that lives long enough
    if back or not saved["clients"]:
        place.resume(device)
    else:
        place.kill(device)
        place.start(device)
        place.restore(file, device=device)
    place.awaited(device)
    return saved if saved["clients"] else None


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload(name):
    """Saved at random points, its proxy killed, restored in a new one, or back with the same: the output is that of an undisturbed run."""
    rng = random.Random(f"{SEED} {name}")
    devices = WORKLOADS[name]
    reference, seconds = direct(name, devices)
    assert reference.returncode == 0, reference.stderr
    with Place(devices).start_all() as place:
        with running([proxied.program("workloads", name)], place.environment()) as program:
            moves = []
            deadline = time.monotonic() + PATIENCE
            while len(moves) < MOVES and program.poll() is None and time.monotonic() < deadline:
                time.sleep(rng.uniform(0, seconds / 2))
                back = rng.random() < 0.3
                for device in range(devices):
                    saved = move(place, device, f"{len(moves)}.{device}", back)
                    if saved is not None:
                        moves.append(saved)
            status, out, err = program.result()
        print(f"seed {SEED}: {len(moves)} moves, {[(one['bytes'], one['pause_us'] // 1000) for one in moves]} (bytes, ms)")
        assert status == 0, f"seed {SEED}\n{err}\n{place.log()}"
        assert out == reference.stdout, f"seed {SEED}\n{err}\n{place.log()}"


# --- What goes wrong. tests/proxy/probe.cpp is the client: "steady" launches a kernel for each line that it reads.

def steady(place):
    return subprocess.Popen([proxied.program("proxy", PROBE), "steady"], env=place.environment(), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)


def works(client):
    client.stdin.write("\n")
    client.stdin.flush()
    line = client.stdout.readline()
    assert line.split() == ["value", "7"], f"{line} {client.stderr.read() if client.poll() is not None else ''}"


@pytest.fixture(name="place")
def one_place():
    with Place().start_all() as place:
        yield place


@pytest.fixture(name="client")
def steady_client(place):
    client = steady(place)
    try:
        assert client.stdout.readline().split() == ["ready", "1"]
        works(client)
        yield client
    finally:
        client.kill()
        client.wait()
        for pipe in (client.stdin, client.stdout, client.stderr):
            pipe.close()


def maps_and_files(pid):
    """Mappings and descriptors of a process by what they are of."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        mapped = {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) == 6}
    files = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    return mapped, files


def left_of_proxy(pid):
    mapped, files = maps_and_files(pid)
    return [name for name in mapped if "singularity-channel" in name] + [name for name in files if name.startswith("socket:")]


def test_saved_and_run_on(place, client):
    """With the same proxy; the image can be restored all the same, but its window is taken."""
    for _ in range(3):
        assert place.save("image")["clients"] == 1
        works(client)
    refused = place.restore("image", check=False)
    assert refused.returncode == 1 and "window" in refused.stderr
    works(client)


def test_a_detached_client_is_an_ordinary_process(place, client):
    """Nothing of the proxy is left in it: no channel, no socket."""
    before, sockets = maps_and_files(client.pid)
    assert any("singularity-channel" in name for name in before) and any(name.startswith("socket:") for name in sockets)
    place.save("image", "--detach")
    place.kill()
    os.unlink(place.socket(0))
    # It hangs up before it unmaps, and may just be asking whether another proxy is there.
    deadline = time.monotonic() + PATIENCE
    while left_of_proxy(client.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left_of_proxy(client.pid)
    place.start()
    place.restore("image")
    place.awaited()
    works(client)


def test_a_detached_client_comes_back(place, client):
    """To what it has left, which nobody has touched; before it is called it waits."""
    place.resume()  # nobody is away: nothing happens
    for _ in range(3):
        assert place.save("image", "--detach")["clients"] == 1
        refused = place.save("other", check=False)
        assert refused.returncode == 1 and "1 clients have not come back yet" in refused.stderr, refused.stderr
        client.stdin.write("\n")
        client.stdin.flush()
        assert not select.select([client.stdout], [], [], 0.2)[0], "it works without a session"
        place.resume()
        place.awaited()
        assert client.stdout.readline().split() == ["value", "7"]
        works(client)
    place.save("image", "--detach")  # and is one that can be saved as any other
    place.kill()
    place.start()
    place.restore("image")
    works(client)


def free_memory(place):
    done = subprocess.run([proxied.program("proxy", PROBE), "free"], env=place.environment(), capture_output=True, text=True,
                          timeout=PATIENCE, check=True)
    return image_proxy.numbers(done.stdout)["free"]


def test_a_detached_client_that_ends_leaves_nothing(place, client):
    del client
    before = free_memory(place)
    other = steady(place)
    try:
        assert other.stdout.readline().split() == ["ready", "1"]
        # Each has a device of its own, as far as it is told.
        assert free_memory(place) == before
        assert place.save("image", "--detach")["clients"] == 2
    finally:
        other.kill()
        other.communicate()
    place.resume()
    place.awaited()
    assert free_memory(place) == before
    assert place.save("image")["clients"] == 1


def test_a_client_that_waits_in_vain_gets_errors(place):
    client = subprocess.Popen([proxied.program("proxy", PROBE), "calls"],
                              env=dict(place.environment(), SINGULARITY_PROXY_ATTACH_TIMEOUT="1"), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert client.stdout.readline().split() == ["ready", "1"]
        place.save("image", "--detach")
        out, err = client.communicate(timeout=PATIENCE)
        assert {line.split()[1] for line in out.splitlines()} == {"CUDA_ERROR_DEVICE_UNAVAILABLE"}, out
        assert "SINGULARITY_PROXY_ATTACH_TIMEOUT" in err
    finally:
        client.kill()
        client.wait()


def test_a_kernel_without_an_end_is_refused(place):
    client = subprocess.Popen([proxied.program("proxy", PROBE), "endless"], env=place.environment(), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert client.stdout.readline().split() == ["ready", "1"]
        refused = place.save("image", "--detach", "--quiesce", "500", check=False)
        assert refused.returncode == 1 and "cannot wait any longer for session" in refused.stderr, refused.stderr
        assert client.poll() is None
    finally:
        client.kill()
        client.communicate()


def test_times_between_events(place):
    """Of events from before a save to the bit; to one from after the restore without the time in which the program stood still."""
    still = 1.5  # seconds, each time
    client = subprocess.Popen([proxied.program("proxy", PROBE), "events"], env=place.environment(), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)

    def look():
        client.stdin.write("\n")
        client.stdin.flush()
        line = client.stdout.readline()
        assert line, client.stderr.read()
        exact, rest = line.split(" far ")
        words = rest.split()
        return exact, dict(zip(words[1::2], map(float, words[2::2])), far=float(words[0]))

    try:
        begin = time.monotonic()
        assert client.stdout.readline().split() == ["ready", "1"]
        exact, first = look()
        assert "never CUDA_ERROR_INVALID_HANDLE timeless CUDA_ERROR_INVALID_HANDLE" in exact
        last = first
        for number in range(3):
            place.save(str(number), "--detach")
            place.kill()
            time.sleep(still)
            place.start()
            place.restore(str(number))
            place.awaited()
            again, times = look()
            assert again == exact
            assert times["far"] == pytest.approx(first["far"], rel=1e-5)
            ran = (time.monotonic() - begin - (number + 1) * still) * 1000
            assert last["since"] < times["since"] < ran, (last, times, ran)
            assert times["until"] == -times["since"] and times["none"] == 0
            assert 0 <= times["soon"] <= times["graph"] < times["since"], times
            last = times
    finally:
        client.kill()
        client.communicate()


def test_contexts_that_come_and_go(place):
    """Also between the end of one and the beginning of the next there is a state that another proxy can take."""
    rng = random.Random(SEED)
    client = subprocess.Popen([proxied.program("proxy", PROBE), "contexts"], env=place.environment(), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert client.stdout.readline().split() == ["ready", "1"]
        for number in range(20):
            time.sleep(rng.uniform(0, 0.02))
            assert move(place, 0, str(number), rng.random() < 0.5) is not None
        out, err = client.communicate(timeout=PATIENCE)
        assert client.returncode == 0, f"seed {SEED}\n{err}\n{place.log()}"
        assert image_proxy.numbers(out)["rounds"] > 0
    finally:
        client.kill()
        client.wait()


def image_of(place):
    place.save("image", "--detach")
    place.kill()
    place.start()
    with open(place.path("image"), "rb") as file:
        return bytearray(file.read())


def refuses(place, content):
    with open(place.path("bad"), "wb") as file:
        file.write(content)
    done = place.restore("bad", check=False)
    assert done.returncode == 1 and "record" in done.stderr, done.stderr


def test_damaged_images_are_refused_by_record(place, client):
    """Cut anywhere, any bit changed; then the same proxy takes the good one."""
    rng = random.Random(SEED)
    good = image_of(place)
    for _ in range(20):
        refuses(place, good[:rng.randrange(len(good))])
    for _ in range(40):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        refuses(place, bad)
    refuses(place, rng.randbytes(10_000))
    refuses(place, b"")
    place.restore("image")
    works(client)


def started(place, what, *options):
    """An operation of singularity-images on device 0, under way."""
    return subprocess.Popen([proxied.program("proxy", "singularity-images"), what, place.control(0), place.path("image"), *options],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_killed_proxy_in_the_middle_of_a_restore(place, client):
    """The client still waits, and another proxy takes the image."""
    rng = random.Random(SEED)
    image_of(place)
    client.send_signal(signal.SIGSTOP)  # it does not attach to one that is about to be killed
    begin = time.monotonic()
    place.restore("image")
    seconds = time.monotonic() - begin
    for _ in range(8):
        place.kill()
        place.start()
        restoring = started(place, "restore")
        time.sleep(rng.uniform(0, seconds))
        place.kill()
        restoring.wait(PATIENCE)
        place.start()
    place.restore("image")
    client.send_signal(signal.SIGCONT)
    works(client)


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_a_killed_proxy_in_the_middle_of_a_save(place, options):
    """An image that is complete can be restored and the client goes on; without one it is told that its device is gone."""
    rng = random.Random(SEED)
    saves = restored = 0
    for _ in range(8):
        client = subprocess.Popen([proxied.program("proxy", PROBE), "calls"],
                                  env=dict(place.environment(), SINGULARITY_PROXY_ATTACH_TIMEOUT="3"), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert client.stdout.readline().split() == ["ready", "1"]
            saving = started(place, "save", *options)
            time.sleep(rng.uniform(0, 0.02))
            place.kill()
            complete = saving.wait(PATIENCE) == 0
            place.start()
            again = place.restore("image", check=False)
            saves += complete
            if complete:
                assert again.returncode == 0, again.stderr
            if complete and options:
                place.awaited()
                restored += 1
            # The image may be complete without anybody knowing, and the client here: in the end it has nobody.
            time.sleep(0.1)
            place.kill()
            place.start()
            out, _ = client.communicate(timeout=PATIENCE)
            assert {line.split()[1] for line in out.splitlines()} == {"CUDA_ERROR_DEVICE_UNAVAILABLE"}, out
        finally:
            client.kill()
            client.wait()
        place.kill()
        place.start()
    print(f"seed {SEED}: 8 saves, {saves} complete, {restored} restored")


def test_a_client_that_comes_while_another_proxy_is_awaited(place, client):
    """It gets its session from the one that takes the place, not from the one that is about to end."""
    place.save("image", "--detach")
    late = steady(place)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            late.wait(0.5)
        # Nobody comes to a proxy before its images are there: an agent shows its socket afterwards.
        late.send_signal(signal.SIGSTOP)
        place.kill()
        os.unlink(place.socket(0))
        place.start()
        place.restore("image")
        late.send_signal(signal.SIGCONT)
        assert late.stdout.readline().split() == ["ready", "1"]
        works(late)
        works(client)
    finally:
        late.kill()
        late.communicate()


@contextlib.contextmanager
def put_away_again_and_again(path):
    """As an agent puts a socket away and back: at every moment there is something of that name."""
    libc = ctypes.CDLL(None, use_errno=True)
    away = f"{path}.away".encode()
    os.symlink("nowhere", away)
    over = threading.Event()

    def exchange():
        while not over.is_set():
            assert libc.renameat2(AT_FDCWD, path.encode(), AT_FDCWD, away, RENAME_EXCHANGE) == 0, os.strerror(ctypes.get_errno())

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_clients_that_come_while_the_socket_is_put_away_and_back(place):
    with put_away_again_and_again(place.socket(0)):
        for _ in range(20):
            client = steady(place)
            try:
                assert client.stdout.readline().split() == ["ready", "1"], client.stderr.read()
                works(client)
            finally:
                client.kill()
                client.communicate()


def test_a_killed_client_in_the_middle_of_a_save(place):
    rng = random.Random(SEED)
    for _ in range(10):
        client = steady(place)
        try:
            assert client.stdout.readline().split() == ["ready", "1"]
            saving = started(place, "save", "--detach")
            time.sleep(rng.uniform(0, 0.02))
        finally:
            client.kill()
            client.communicate()
        saving.wait(PATIENCE)
        place.resume()
        place.awaited()
    assert place.save("image")["clients"] == 0
    last = steady(place)
    try:
        assert last.stdout.readline().split() == ["ready", "1"]
        works(last)
    finally:
        last.kill()
        last.communicate()


def test_a_device_that_fails_ends_its_proxy():
    """What uses it hears so, and whoever has started the proxy sees that."""
    with Place() as place:
        place.variables["SINGULARITY_SOFTGPU_FAULT_FILE"] = place.path("fault")
        place.start()
        client = steady(place)
        try:
            assert client.stdout.readline().split() == ["ready", "1"]
            works(client)
            with open(place.path("fault.0"), "w", encoding="utf-8"):
                pass
            out, _ = client.communicate("\n", timeout=PATIENCE)
            assert "value 7" not in out and client.returncode != 0, out
        finally:
            client.kill()
            client.communicate()
        place.proxies[0].wait(PATIENCE)
        assert "CUDA_ERROR_ECC_UNCORRECTABLE: the device has failed, and this device proxy ends" in place.log()


def test_two_virtual_devices_on_one_proxy():
    """Saved from two proxies, restored into one; the paths of both sockets lead there."""
    name, epochs = "train_parallel", "60"
    reference, seconds = direct(name, 2, epochs)
    with Place(2).start_all() as place:
        with running([proxied.program("workloads", name), epochs], place.environment()) as program:
            deadline = time.monotonic() + PATIENCE
            saved = [0, 0]
            while min(saved) == 0 and program.poll() is None and time.monotonic() < deadline:
                time.sleep(seconds / 10)
                for device in range(2):
                    if saved[device] == 0 and place.save(f"image.{device}", device=device)["clients"] != 0:
                        saved[device] = place.save(f"image.{device}", "--detach", device=device)["clients"]
            assert min(saved) == 1, "the program has ended too early"
            for device in range(2):
                place.kill(device)
            place.start(0)
            os.unlink(place.socket(1))
            os.symlink(place.socket(0), place.socket(1))
            for device in range(2):
                tool_result = image_proxy.tool("restore", place.control(0), place.path(f"image.{device}"))
                assert tool_result["clients"] == 1
            status, out, err = program.result()
        assert status == 0, f"{err}\n{place.log()}"
        assert out == reference.stdout


def alone(place, device):
    """The environment of a process that sees one of several devices."""
    return place.environment(CUDA_VISIBLE_DEVICES=str(device))


def test_processes_of_different_devices_meet_on_one():
    """Each has seen its own device alone, as number 0. Both know addresses of variables."""
    points = 8_000_000
    command = [proxied.program("workloads", "constant_symbols"), str(points)]
    reference, _ = direct("constant_symbols", 1, command[1])
    with Place(2).start_all() as place:
        with running(command, alone(place, 0)) as first, running(command, alone(place, 1)) as second:
            deadline = time.monotonic() + PATIENCE
            saved = [0, 0]
            while min(saved) == 0 and time.monotonic() < deadline:
                for device in range(2):
                    if saved[device] == 0 and place.save(f"image.{device}", device=device)["content_bytes"] > 2 * 4 * points:  # has computed
                        saved[device] = place.save(f"image.{device}", "--detach", device=device)["clients"]
            assert saved == [1, 1], "a program has ended too early"
            for device in range(2):
                place.kill(device)
            place.start(0)
            os.unlink(place.socket(1))
            os.symlink(place.socket(0), place.socket(1))
            for device in range(2):
                assert image_proxy.tool("restore", place.control(0), place.path(f"image.{device}"))["clients"] == 1
            for program in first, second:
                status, out, err = program.result()
                assert status == 0 and out == reference.stdout, f"{err}\n{place.log()}"


def test_devices_whose_graphs_copy_between_them_are_saved_at_once():
    """Graphs are under way that read and write the other device's memory: neither device stops before they have ended."""
    name, launches = "peer_copies", "400"
    reference, seconds = direct(name, 2, launches)
    assert reference.returncode == 0, reference.stderr
    rng = random.Random(SEED)
    with Place(2).start_all() as place:
        with running([proxied.program("workloads", name), launches], place.environment()) as program:
            moves = 0
            deadline = time.monotonic() + PATIENCE
            while moves < 8 and program.poll() is None and time.monotonic() < deadline:
                time.sleep(rng.uniform(0, seconds / 8))
                failed = []

                def save(device):
                    done = place.save(f"image.{device}", "--detach", device=device, check=False)
                    if done.returncode != 0:
                        failed.append(done.stderr)

                savers = [threading.Thread(target=save, args=(device,)) for device in range(2)]
                for saver in savers:
                    saver.start()
                for saver in savers:
                    saver.join(PATIENCE)
                over = program.poll() is not None
                assert not failed or over or all("has ended in the middle" in text for text in failed), f"seed {SEED}: {failed}"
                for device in range(2):
                    place.resume(device)
                for device in range(2):
                    place.awaited(device)
                if not over:
                    moves += 1
            status, out, err = program.result()
        print(f"seed {SEED}: {moves} moves")
        assert moves > 0 and status == 0, f"seed {SEED}\n{err}\n{place.log()}"
        assert out == reference.stdout


@pytest.mark.parametrize("name", ["multi_device", "peer_copies", "train_parallel"])
def test_a_process_begins_where_two_virtual_devices_are_one(name):
    reference, _ = direct(name, 2)
    with Place(2).start() as place:
        os.symlink(place.socket(0), place.socket(1))
        with running([proxied.program("workloads", name)], place.environment()) as program:
            status, out, err = program.result()
        assert status == 0, f"{err}\n{place.log()}"
        assert out == reference.stdout
        again = subprocess.run([proxied.program("proxy", PROBE), "identities"], env=place.environment(), capture_output=True, text=True,
                               timeout=PATIENCE, check=True).stdout.splitlines()
        assert len(set(again)) == 2, again


def test_requests_that_are_none(place, client):
    """Whatever comes in, the proxy goes on serving."""
    import socket
    for content in (b"", b"x", struct.pack("=IIIIQQ", 9, 1, 0, 0, 1, 1), struct.pack("=IIIIQQ", 1, 77, 0, 0, 1, 1000),
                    struct.pack("=IIIIQQ", 1, 1, 0, 0, 1000, 1000)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.settimeout(PATIENCE)
            link.connect(place.control(0))
            if content:
                link.send(content)
                link.recv(4096)
    works(client)
    assert place.save("image")["clients"] == 1
