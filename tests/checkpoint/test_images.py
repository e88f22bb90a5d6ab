# SPDX-License-Identifier: GPL-2.0-or-later
"""Images as files: what leads out of the node, files that change in between, the store, and images that somebody has changed."""

import json
import os
import shutil
import signal
import struct
import subprocess

import nodes
import pytest

COUNTER = """
import os, sys, time
log = os.open(sys.argv[1], os.O_CREAT | int(sys.argv[2]), 0o644)
memory = bytearray(os.urandom(1 << 16)) * 256
for number in range(10**6):
    os.write(log, b"%d\\n" % number)
    if os.path.exists("stop"):
        break
    time.sleep(0.01)
"""


def counter(place, flags=os.O_WRONLY | os.O_APPEND):
    node = place.start("python3", "-c", COUNTER, "log", str(flags))
    place.wait_for(lambda: lines(place), "the first line")
    return node


def lines(place):
    try:
        with open(place.path("log"), encoding="ascii") as log:
            return log.read().split()
    except FileNotFoundError:
        return []


def end(place, node):
    with open(place.path("stop"), "w", encoding="ascii"):
        pass
    assert node.wait() == 0, place.output()


def saved(place, flags=os.O_WRONLY | os.O_APPEND):
    """An image, its node gone."""
    node = counter(place, flags)
    images, _ = place.dump(node)
    node.kill()
    return images


def test_pipe_to_outside(place):
    """Standard output is a pipe that we read: after the restore it is another one, and not a byte is missing."""
    counting = "until [ -e go ]; do sleep 0.01; done; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; sleep 0.01; done"
    node = place.start_plainly("/bin/sh", "-c", counting)
    with open(place.path("go"), "w", encoding="ascii"):
        pass
    out, errors = node.process.stdout, node.process.stderr
    first = [int(out.readline()) for _ in range(5)]
    ours = (out.fileno(), errors.fileno())
    images, _ = place.dump(node, options=[f"--fd=stdout={ours[0]}", f"--fd=stderr={ours[1]}"], pass_fds=ours)
    node.kill()
    first += [int(line) for line in out]
    with pytest.raises(nodes.Failed, match="nothing was given to take the place of its descriptor std"):
        place.restore(images)
    read_end, write_end = os.pipe()
    node = place.restore(images, options=[f"--fd=stdout={write_end}", f"--fd=stderr={write_end}"], pass_fds=[write_end])
    os.close(write_end)
    with open(read_end, encoding="ascii") as rest:
        assert first + [int(line) for line in rest] == list(range(1, 301))
    assert node.wait() == 0


def test_stopped_and_resumed(place):
    """A dump whose image could not be stored: the node goes on, sockets included."""
    node = counter(place)
    images, _ = place.dump(node, after="stop")
    count = len(lines(place))
    subprocess.run([nodes.DRIVER, "resume", str(node.init)], check=True, timeout=nodes.PATIENCE)
    place.wait_for(lambda: len(lines(place)) > count + 5, "more lines")
    end(place, node)
    assert os.listdir(images)


def driver(*arguments):
    done = subprocess.run([nodes.DRIVER, *arguments], capture_output=True, text=True, timeout=nodes.PATIENCE)
    if done.returncode:
        raise nodes.Failed(done.stderr)
    return done.stdout


def test_through_the_store(place):
    store = os.path.join(place.top, "store")
    os.mkdir(store, 0o700)
    node = counter(place)
    images, _ = place.dump(node, after="run")
    first = json.loads(driver("save", images, store))
    count = len(lines(place))
    place.wait_for(lambda: len(lines(place)) > count + 5, "more lines")
    later, _ = place.dump(node)
    node.kill()
    second = json.loads(driver("save", later, store))
    print(first, second)
    assert first["content"] > 16 << 20  # the program's memory
    assert second["added"] < 0.2 * second["content"]  # what it did not touch costs nothing
    shutil.rmtree(later)
    loaded = place.images()
    with pytest.raises(nodes.Failed, match="its images take more than 1000 bytes"):
        driver("load", "--largest-images=1000", store, second["id"], loaded)
    driver("load", store, second["id"], loaded)
    count = len(lines(place))
    node = place.restore(loaded)
    place.wait_for(lambda: len(lines(place)) > count + 5, "more lines")
    end(place, node)
    assert lines(place) == [str(i) for i in range(len(lines(place)))]


def test_staging_of_the_dead(place):
    base = os.path.join(place.top, "staging")
    owners = [subprocess.Popen([nodes.DRIVER, "staging", base, "make"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = [owner.stdout.readline().strip() for owner in owners]
    with open(os.path.join(paths[0], "pages-1.img"), "wb") as file:
        file.write(b"a job's memory")
    assert [os.stat(path).st_mode & 0o777 for path in [base, *paths]] == [0o700] * 3
    owners[0].send_signal(signal.SIGKILL)
    owners[0].wait()
    assert driver("staging", base, "clean") == "1\n"
    assert [os.path.exists(path) for path in paths] == [False, True]
    owners[1].send_signal(signal.SIGKILL)
    owners[1].wait()
    for owner in owners:
        owner.stdout.close()
    os.chmod(base, 0o755)
    with pytest.raises(nodes.Failed, match="must belong to user 0 and have mode 700"):
        driver("staging", base, "clean")


# Images that somebody has changed. A field of one byte is changed in place: the image stays well-formed.


def edit(images, name, change):
    path = os.path.join(images, name)
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(change(data))


def core_of(images):
    return next(name for name in sorted(os.listdir(images)) if name.startswith("core-"))


ROOT = b"\x80\x00"  # 0, as long as 1001

HOSTILE = {
    "root": (core_of, nodes.with_ids(1, ROOT), "has uid 0, not 1001"),
    "effective root": (core_of, nodes.with_ids(3, ROOT), "has euid 0, not 1001"),
    "root's group": (core_of, nodes.with_ids(6, ROOT), "has sgid 0, not 1001"),
    "file system's root": (core_of, nodes.with_ids(7, ROOT), "has fsuid 0, not 1001"),
    "another user": (core_of, nodes.with_ids(1, b"\xea\x07"), "has uid 1002, not 1001"),
    "cut off": (core_of, lambda data: data[:-5], "it is cut off"),
    "nothing": (core_of, lambda data: b"", "does not begin as CRIU's images"),
    "other magic": (core_of, lambda data: b"\0" * 8 + data[8:], "does not begin as CRIU's images"),
    "absurd size": (core_of, lambda data: data[:8] + struct.pack("<I", 0xFFFFFFF0) + data[12:], "claims to have 4294967280 bytes"),
    "absurd length": (core_of, lambda data: data[:12] + b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + data[22:], "a length of"),
    "no processes": (lambda _: "pstree.img", lambda data: data[:8], "it has no process"),
    "old credentials": (lambda _: "creds-1.img", None, "are not kept in such files"),
    "table": (lambda _: "descriptors", lambda data: b"no tab", "no tab in line"),
}


@pytest.fixture(scope="module")
def good_images():
    place = nodes.Place()
    yield saved(place), place
    place.remove()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_image(place, good_images, name):
    which, change, words = HOSTILE[name]
    images = place.images()
    shutil.copytree(good_images[0], images, dirs_exist_ok=True)
    if change:
        edit(images, which(images), change)
    else:
        shutil.copy(os.path.join(images, core_of(images)), os.path.join(images, which(images)))
    with pytest.raises(nodes.Failed) as failure:
        place.restore(images)
    print(failure.value)
    assert words in str(failure.value)


def test_capabilities_in_an_image(place, good_images):
    """A permitted capability: the words of the set follow the ids; the first that is zero becomes CAP_SYS_ADMIN."""
    images = place.images()
    shutil.copytree(good_images[0], images, dirs_exist_ok=True)

    def change(data):
        end = data.index(b"\x40\xe9\x07") + 3  # behind fsgid
        at = data.index(bytes([10 << 3, 0]), end)
        return data[:at + 1] + b"\x20" + data[at + 2:]

    edit(images, core_of(images), change)
    with pytest.raises(nodes.Failed, match="permitted capabilities"):
        place.restore(images)


def test_random_damage(place, good_images):
    """Whatever is damaged, the end is an error or a node of this user, and nothing is left."""
    import random

    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(12):
        images = place.images()
        shutil.copytree(good_images[0], images, dirs_exist_ok=True)
        name = chance.choice([each for each in sorted(os.listdir(images)) if each.endswith(".img") and not each.startswith("pages")])

        def change(data):
            data = bytearray(data)
            for _ in range(3):
                if data:
                    data[chance.randrange(len(data))] = chance.randrange(256)
            return bytes(data)

        edit(images, name, change)
        try:
            node = place.restore(images, options=["--timeout-ms=20000"])
        except nodes.Failed as failure:
            print(name, str(failure).strip()[:150])
            continue
        for pid in node.processes():
            with open(f"/proc/{pid}/status", encoding="utf-8") as status:
                assert "Uid:\t1001\t1001\t1001\t1001" in status.read(), name
        node.kill()
