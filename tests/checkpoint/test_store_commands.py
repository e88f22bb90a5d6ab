# SPDX-License-Identifier: GPL-2.0-or-later
"""`singularityctl store` as an administrator uses it, on stores with real content."""

import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import nodes
import pytest

CTL = os.path.join(os.environ["CTEST_BINARY_DIR"], "spank", "singularityctl")
WRITER = nodes.program("store-writer")
ALICE, BOB = 1001, 1002
AT_ONCE = ("--grace", "0", "--settle", "0")
ID = re.compile(r"^\d{8}T\d{12}-[0-9a-f]{16}$")
MIB = 1 << 20


class Store:
    def __init__(self, path):
        self.path = str(path)

    def write(self, content, uid=ALICE, job="4711", parent=""):
        done = subprocess.run([WRITER, self.path, str(uid), job, *([parent] if parent else [])], input=content, capture_output=True,
                              timeout=nodes.PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    def command(self, *arguments):
        return ["env", f"SINGULARITY_STORE={self.path}", CTL, "store", *arguments]

    def run(self, *arguments, **options):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=nodes.PATIENCE, check=False, **options)

    def good(self, *arguments):
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        return done.stdout

    def refused(self, *arguments):
        """The message of a command that fails, one line."""
        done = self.run(*arguments)
        assert done.returncode == 1, done
        assert done.stderr.startswith("singularityctl: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def user(self, *parts, uid=ALICE):
        return os.path.join(self.path, "users", str(uid), *parts)

    def chunks(self, uid=ALICE):
        return {os.path.join(where, name) for where, _, names in os.walk(self.user("chunks", uid=uid)) for name in names}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def noise(size, seed):
    return random.Random(seed).randbytes(size)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 16]))


def test_ls_and_show(store):
    first = store.write(noise(5 * MIB, 1))
    second = store.write(noise(5 * MIB, 1) + b"more", parent=first)
    other = store.write(b"x" * 9000, uid=BOB, job="\x1b[2J\n%s")
    assert all(map(ID.match, (first, second, other)))
    listing = store.good("ls")
    lines = listing.splitlines()
    assert lines[0].split() == ["CHECKPOINT", "TIME", "USER", "JOB", "CONTENT", "STORED", "ADDED", "PARENT"]
    line = next(line for line in lines if line.startswith(second))
    assert line.split()[2:4] == [f"user{ALICE}", "4711"] and line.split()[-1] == first
    assert f"uid {ALICE}: 2 checkpoints, " in listing and f"uid {BOB}: 1 checkpoints, " in listing
    assert "\x1b" not in listing and "\\x1b[2J\\n%s" in listing
    assert other not in store.good("ls", "--user", str(ALICE))
    assert store.good("--user", str(ALICE), "ls") == store.good("ls", "--user", str(ALICE))

    shown = store.good("show", second)
    for part in (f"checkpoint: {second}", f"parent: {first}", "job: 4711", f"(uid {ALICE}, gid {ALICE})", "virtual node node0",
                 "image pages: 5.0 MiB, 2 chunks"):
        assert part in shown, shown
    assert "20000101T000000-0000000000000000" in store.refused("show", "20000101T000000-0000000000000000")


def test_quota_is_shown(store, tmp_path):
    store.write(noise(MIB, 1))
    configuration = tmp_path / "singularity.yaml"
    configuration.write_text(f"store:\n  directory: {store.path}\n  quota_gib: 3\n", encoding="ascii")
    done = subprocess.run([CTL, "store", "ls"], capture_output=True, text=True, timeout=nodes.PATIENCE, check=False,
                          env={**os.environ, "SINGULARITY_CONF": str(configuration)})
    assert done.returncode == 0 and "1.0 MiB of 3.0 GiB in 1 chunks" in done.stdout, done


def test_all_stores_of_the_configuration(store, tmp_path):
    other = Store(tmp_path / "other")
    first, second = store.write(noise(5000, 1)), other.write(noise(5000, 2))
    configuration = tmp_path / "singularity.yaml"
    configuration.write_text(f"store:\n  directory: {store.path}\n  others: {other.path}:{tmp_path}/unused\n", encoding="ascii")

    def run(*arguments):
        return subprocess.run([CTL, "store", *arguments], capture_output=True, text=True, timeout=nodes.PATIENCE, check=False,
                              env={**os.environ, "SINGULARITY_CONF": str(configuration)})

    shown = run("ls").stdout
    at = [shown.index(part) for part in (f"store {store.path}\n", first, f"store {other.path}\n", second)]
    assert at == sorted(at) and "unused" not in shown, shown
    assert run("ls", "--store", other.path).stdout == other.good("ls")
    assert run("verify").stdout.count(" 0 damaged") == 2
    assert f"checkpoint: {second}" in run("show", second).stdout
    gone = run("rm", second)
    assert gone.returncode == 0 and second not in other.good("ls") and first in store.good("ls"), gone
    gone = run("rm", second)
    assert gone.returncode == 1 and "nobody has one of that name" in gone.stderr, gone
    os.chmod(store.path, 0o755)
    done = run("ls")
    assert done.returncode == 1 and "others may reach it" in done.stderr and f"store {other.path}\n" in done.stdout, done


def test_verify_names_a_flipped_bit_and_offers_the_previous_checkpoint(store):
    content = noise(5 * MIB, 1)
    older = store.write(content[:4 * MIB])
    before = store.chunks()
    time.sleep(1.1)  # what is previous goes by the time, in seconds
    newer = store.write(content, parent=older)
    assert " 0 damaged" in store.good("verify") and " 0 damaged" in store.good("verify", newer)
    (victim,) = store.chunks() - before
    flip(victim, 1000)
    for arguments in (("verify",), ("verify", newer)):
        done = store.run(*arguments)
        assert done.returncode == 1
        assert victim in done.stderr and "does not have the hash" in done.stderr
        assert f"checkpoint {newer} of job '4711' cannot be restored; the previous one that can is {older}" in done.stderr
        assert " 1 damaged" in done.stdout
    assert " 0 damaged" in store.good("verify", older)
    # Set aside, it is missing until the content is written again.
    done = store.run("verify", "--set-aside")
    assert done.returncode == 1 and "it was moved to" in done.stderr
    assert "it is missing" in store.run("verify", newer).stderr
    store.write(content)
    store.good("verify")
    assert os.listdir(store.user("damaged"))

    flip(store.user("checkpoints", older), 100)
    done = store.run("verify")
    assert done.returncode == 1 and store.user("checkpoints", older) in done.stderr
    assert "read manifest" in store.refused("gc", *AT_ONCE)
    assert older in store.run("ls").stderr


def test_gc_removes_what_nothing_reaches(store):
    shared = noise(4 * MIB, 1)
    first = store.write(shared + noise(4 * MIB, 2))
    second = store.write(shared + noise(4 * MIB, 3))
    assert len(store.chunks()) == 3
    assert f"checkpoint {first} is removed" in store.good("rm", first)
    assert "nobody has one of that name" in store.refused("rm", first)
    assert "0 chunks (0 B) removed" in store.good("gc")  # too young
    assert "0 chunks (0 B) removed, 1 wait for a later run" in store.good("gc", "--grace", "0")
    assert len(store.chunks()) == 2
    assert "1 chunks (4.0 MiB) removed, 0 wait" in store.good("gc", *AT_ONCE)
    assert " 2 chunks (" in store.good("verify", second)
    store.good("rm", second)
    store.good("gc", *AT_ONCE)
    assert not store.chunks()
    for part in ("pending", "temporary", "condemned", "rounds", "damaged"):
        assert not os.listdir(store.user(part))


def test_gc_killed_and_run_again(store):
    seed = os.getpid()
    print("seed", seed)
    dice = random.Random(seed)
    kept = store.write(b"".join(noise(2000, seed) for seed in range(3)))
    killed = 0
    for number in range(15):
        # Many chunks: each a checkpoint of its own.
        for part in range(5):
            store.good("rm", store.write(noise(3000, 1000 + 10 * number + part)))
        with subprocess.Popen(store.command("gc", *AT_ONCE), stdout=subprocess.DEVNULL) as process:
            time.sleep(dice.random() * 0.03)  # the moment is what is random here
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        store.good("verify")
    assert killed
    print(killed, "collections killed")
    store.good("gc", *AT_ONCE)
    store.good("verify", kept)
    assert len(store.chunks()) == 1
    assert not os.listdir(store.user("condemned")) and not os.listdir(store.user("rounds"))


def test_help():
    text = subprocess.run([CTL, "store", "--help"], capture_output=True, text=True, timeout=nodes.PATIENCE, check=True).stdout
    for word in ("ls", "show", "verify", "gc", "rm", "--store", "--user", "singularity.yaml"):
        assert word in text
    for command, words in {"ls": [], "show": ["CHECKPOINT"], "verify": ["CHECKPOINT", "--set-aside"], "gc": ["--grace", "--settle"],
                           "rm": ["CHECKPOINT"]}.items():
        text = subprocess.run([CTL, "store", command, "--help"], capture_output=True, text=True, timeout=nodes.PATIENCE, check=True).stdout
        assert all(word in text for word in words), text


@pytest.mark.parametrize("arguments", [(), ("lz",), ("show",), ("rm",), ("gc", "--grace", "-1"), ("gc", "--settle", "soon"), ("ls", "extra"),
                                       ("verify", "--no-such-option")])
def test_wrong_arguments(store, arguments):
    store.write(b"x")
    done = store.run(*arguments)
    assert done.returncode not in (0, 1) and done.returncode > 0
    assert done.stderr and "--help" in done.stderr, done
    assert not done.stdout


@pytest.mark.parametrize("name", ["../../../../etc/passwd", "/etc/shadow", "%s%n{}", "short", "", "x" * 65, "-" * 10 + "x", "a\nb" * 4, "."])
def test_ids_are_data(store, name):
    kept = store.write(b"x")
    before = store.chunks()
    for command in ("show", "verify", "rm"):
        done = store.run(command, "--", name)
        assert done.returncode != 0 and done.stderr, done
        assert not name or "\n" not in done.stderr.strip()
    assert store.chunks() == before
    store.good("verify", kept)


def test_users(store):
    store.write(b"x")
    assert "'nobody-of-that-name'" in store.refused("--user", "nobody-of-that-name", "ls")
    assert store.good("--user", "12345", "verify").startswith("uid 12345: 0 manifests and 0 chunks")
    os.mkdir(os.path.join(store.path, "users", "alice"), 0o700)
    assert "'alice' is no number of a user" in store.refused("ls")


def test_only_root(store):
    identity = store.write(b"x")
    # Where everybody can reach it.
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o755)
        program = shutil.copy(CTL, place)
        for arguments in (("ls",), ("show", identity), ("verify",), ("gc",), ("rm", identity)):
            done = subprocess.run([program, "store", "--store", store.path, *arguments], capture_output=True, text=True, user=ALICE, group=ALICE,
                                  extra_groups=[], timeout=nodes.PATIENCE, check=False, cwd="/")
            assert done.returncode == 1 and "it belongs to root" in done.stderr and "run this as root" in done.stderr, done
            assert not done.stdout
    store.good("verify", identity)


def test_places_that_are_no_store(store, tmp_path):
    assert "No such file" in store.refused("ls")
    (tmp_path / "store").mkdir(0o700)
    assert "there is none in that directory" in store.refused("ls")
    assert "must be absolute" in Store("store").refused("ls")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert "symbolic link" in Store(tmp_path / "link").refused("ls")
    (tmp_path / "file").write_text("x", encoding="ascii")
    assert "Not a directory" in Store(tmp_path / "file").refused("ls")


def test_a_store_that_others_could_change(store, tmp_path):
    identity = store.write(noise(5000, 1))
    (chunk,) = store.chunks()
    places = [store.path, os.path.join(store.path, "users"), os.path.join(store.path, "store"), store.user(),
              store.user("checkpoints", identity), chunk]
    for place in places:
        mode = os.stat(place).st_mode & 0o7777
        os.chmod(place, mode | 0o020)
        done = store.run("verify", identity)
        assert done.returncode == 1 and "others may reach it" in done.stderr and place in done.stderr, done
        os.chmod(place, mode)
        os.chown(place, ALICE, -1)
        done = store.run("verify", identity)
        assert done.returncode == 1 and f"belongs to uid {ALICE}" in done.stderr and place in done.stderr, done
        os.chown(place, 0, -1)
        store.good("verify", identity)
    # A directory above it.
    above = tmp_path / "above"
    above.mkdir(0o777)
    above.chmod(0o777)
    os.rename(store.path, above / "store")
    assert "others may write to it" in Store(above / "store").refused("ls")


def linked(path):
    os.link(path, path + ".2")


def symbolic(path):
    os.rename(path, path + ".2")
    os.symlink(path + ".2", path)


def fifo(path):
    os.unlink(path)
    os.mkfifo(path, 0o600)


def directory(path):
    os.unlink(path)
    os.mkdir(path, 0o700)


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def huge(path):
    os.truncate(path, 1 << 42)


def other_version(path):
    with open(path, "r+b") as file:
        file.seek(16 if b"checkpoints" in os.fsencode(path) else 8)
        file.write(b"\x77\x00\x00\x00")


@pytest.mark.parametrize("kind", ["checkpoints", "chunks"])
@pytest.mark.parametrize("trick, says", [(linked, "2 hard links"), (symbolic, "symbolic link"), (fifo, "no regular file"),
                                         (directory, "no regular file"), (cut, "damaged"), (huge, "bytes"), (other_version, "")])
def test_planted_files(store, kind, trick, says):
    other = store.write(noise(5000, 2), uid=BOB)
    identity = store.write(noise(5000, 1))
    path = store.user("checkpoints", identity) if kind == "checkpoints" else store.chunks().pop()
    trick(path)
    done = store.run("--user", str(ALICE), "verify", identity)
    assert done.returncode == 1
    assert path in done.stderr and says in done.stderr, done
    # Everybody else's is as before.
    store.good("--user", str(BOB), "verify", other)
    assert store.run("verify").returncode == 1
