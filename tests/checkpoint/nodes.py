# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual nodes and their images, for tests: host-image-driver as processes, and where everything lies."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time



def program(name):
    return os.path.join(os.environ["CTEST_BINARY_DIR"], "checkpoint", name)


DRIVER = program("host-image-driver")
HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 120  # against hangs: the machine may be busy
USER = 1001
FAILED = 3  # the driver's exit status when the library has said no
PIVOT_ROOT = 155  # its number on x86-64
MNT_DETACH = 2


def private_mounts():
    """This process and its children: a mount namespace of their own, in which /run is a tmpfs, as criu wants it."""
    os.unshare(os.CLONE_NEWNS)
    # ./dev runs everything in a root that is only a directory of its mount namespace (chroot). CRIU wants one whose root
    # directory is that of a mount, as on a real machine: setns(2) leaves the chroot, and pivot_root(2) makes it the root.
    libc = ctypes.CDLL(None, use_errno=True)
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    here = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    os.setns(here, os.CLONE_NEWNS)
    os.fchdir(root)
    if os.stat(".").st_ino != os.stat("/").st_ino or os.stat(".").st_dev != os.stat("/").st_dev:
        for call in (lambda: libc.syscall(PIVOT_ROOT, b".", b"."), lambda: libc.umount2(b".", MNT_DETACH)):
            assert call() == 0, os.strerror(ctypes.get_errno())
    os.chdir("/")
    os.close(root)
    os.close(here)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", "/run"], check=True)


class Failed(Exception):
    """The library said no."""


def _reads_line(process):
    line = process.stdout.readline()
    if not line:
        process.wait(PATIENCE)
        raise Failed(process.stderr.read())
    return line


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_with_root(root):
    """Processes, criu's own included, that have something mounted from or on a node's root directory, but no others."""
    found = []
    own = os.readlink("/proc/self/ns/mnt")
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{name}/ns/mnt") == own:
                continue
            with open(f"/proc/{name}/mountinfo", encoding="utf-8") as mounts:
                if os.path.dirname(root) in mounts.read():
                    found.append(int(name))
    return found


class Running:
    """A node that runs: the process that waits for its init, and the init."""

    def __init__(self, arguments, pass_fds=(), stdin=subprocess.DEVNULL):
        self.process = subprocess.Popen([DRIVER, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        pass_fds=pass_fds)
        self.init = int(_reads_line(self.process))

    def wait(self):
        return self.process.wait(PATIENCE)

    def ended(self):
        return not _alive(self.init)

    def processes(self):
        """Ids, outside of the node, of all its processes."""
        space = os.readlink(f"/proc/{self.init}/ns/pid")
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/pid") == space:
                    found.append(int(name))
        return sorted(found)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self.process.wait(PATIENCE)


class Place:
    """A directory for one test: what the node shares with the outside, its root, its images."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="host-image-", dir="/tmp")
        os.chmod(self.top, 0o755)
        self.shared = os.path.join(self.top, "shared")
        self.root = os.path.join(self.top, "root")
        self.log = os.path.join(self.top, "criu.log")
        for directory in (self.shared, self.root):
            os.mkdir(directory)
        os.chown(self.shared, USER, USER)
        shutil.copy(DRIVER, self.path("init"))
        subprocess.run(["mount", "--bind", "/", self.root], check=True)
        self.running = []
        self._count = 0

    def path(self, name):
        return os.path.join(self.shared, name)

    def start(self, *command, options=(), **more):
        """command sees the shared directory as its working directory; its output goes to the file `output` there."""
        script = f"exec >>{self.path('output')} 2>&1; exec \"$0\" \"$@\""
        return self._run("start", *options, self.root, self.shared, "/bin/sh", "-c", script, *command, **more)

    def _run(self, *arguments, **more):
        node = Running(arguments, **more)
        self.running.append(node)
        return node

    def images(self):
        self._count += 1
        directory = os.path.join(self.top, f"images-{self._count}")
        os.mkdir(directory, 0o700)
        return directory

    def start_plainly(self, *command):
        """Its output goes to the pipe on which the caller reads the process id first: it must wait until that has been read."""
        return self._run("start", self.root, self.shared, *command)

    def dump(self, node, after="end", images=None, options=(), pass_fds=()):
        """The image directory, and what the library reported."""
        images = images or self.images()
        done = subprocess.run([DRIVER, "dump", f"--log={self.log}", f"--after={after}", *options, str(node.init), images],
                              capture_output=True, text=True, timeout=PATIENCE, pass_fds=pass_fds)
        if done.returncode:
            raise Failed(done.stderr)
        return images, json.loads(done.stdout)

    def restore(self, images, options=(), **more):
        return self._run("restore", f"--log={self.log}", *options, images, self.root, **more)

    def output(self):
        with open(self.path("output"), encoding="utf-8") as file:
            return file.read()

    def wait_for(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"waited {PATIENCE} s for {what}"
            time.sleep(0.01)

    def wait_for_output(self, text):
        def there():
            assert not self.running[-1].ended(), self.output()
            return os.path.exists(self.path("output")) and text in self.output()

        self.wait_for(there, f"{text!r} in the output")

    def remove(self):
        for node in self.running:
            if node.process.poll() is None:
                node.kill()
            for pipe in (node.process.stdout, node.process.stderr):
                if pipe:
                    pipe.close()
        subprocess.run(["umount", "-l", self.root], check=True)
        shutil.rmtree(self.top)


def with_ids(field, value):
    """The credentials of a core image begin with eight ids: fields 1 to 8, here 1001 as two bytes."""
    user = b"".join(bytes([number << 3, 0xE9, 0x07]) for number in range(1, 9))

    def change(data):
        assert data.count(user) == 1
        changed = bytearray(user)
        changed[3 * (field - 1) + 1:3 * field] = value
        return data.replace(user, bytes(changed))

    return change
