# SPDX-License-Identifier: GPL-2.0-or-later
"""A host of Debian 13 with systemd and the unified cgroup hierarchy: a virtual machine that QEMU emulates (no KVM is needed).

<cache>/machines/<hash of image/> is made by ./dev: qemu/, kernel, initrd, disk.raw. Beside them, made here when it is first needed,
up-<hash>.qcow2: what the disk and the memory were when it had booted, from which machines are started in a second. running/ has a
directory for each machine, whose lock says that somebody has it.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time

from virtualcluster.cluster import CACHE, CHECKOUT
from virtualcluster.errors import ClusterError, wait_for
from virtualcluster.host import PATH

IMAGE = os.path.join(CHECKOUT, "tests/cgroup2/image")
MEMORY_MIB = 1024
PROCESSORS = 2
# Not svm, or the guest's kernel offers KVM; not la57, whose paging costs time.
OPTIONS = ["-accel", "tcg,thread=multi", "-cpu", "max,-svm,-la57", "-smp", str(PROCESSORS), "-m", str(MEMORY_MIB), "-machine", "pc",
           "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-device", "virtio-serial-pci,max_ports=1"]
KERNEL = ("quiet console=ttyS0 root=/dev/vda rw mitigations=off audit=0 selinux=0 apparmor=0 systemd.show_status=0 systemd.unit=test.target")
BOOT_S, LOAD_S, ANSWER_S, END_S = 180, 60, 30, 20
PR_SET_PDEATHSIG = 1


def image_directory():
    """Named by the hash of what it is made from; ./dev has the same rule."""
    digest = hashlib.sha256()
    paths = [os.path.join(where, name) for where, _, names in os.walk(IMAGE) for name in names]
    for path in sorted(paths, key=os.fsencode):
        with open(path, "rb") as file:
            digest.update(file.read())
    path = os.path.join(CACHE, "machines", digest.hexdigest()[:12])
    if not os.path.isdir(path):
        raise ClusterError(f"no image of the virtual machine ({path}): run ./dev test cgroup2")
    return path


def tool(image, name):
    """(path, environment) of a program of QEMU's packages, which are not installed."""
    return os.path.join(image, "qemu/usr/bin", name), {"PATH": PATH, "LD_LIBRARY_PATH": os.path.join(image, "qemu/usr/lib/x86_64-linux-gnu")}


def run_tool(image, name, *arguments):
    path, env = tool(image, name)
    found = subprocess.run([path, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False)
    if found.returncode != 0:
        raise ClusterError(f"'{shlex.join([name, *arguments])}' exited with {found.returncode}: {found.stderr.strip()}")


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Channel:
    """A Unix socket over which lines of JSON are exchanged with QEMU."""

    def __init__(self, path, what):
        self.what = what
        self.socket = socket.socket(socket.AF_UNIX)
        self.rest = b""
        wait_for(lambda: self._connect(path), LOAD_S, f"{what} ({path})")

    def _connect(self, path):
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            self.socket.connect(path)
            return True
        return False

    def send(self, message):
        self.socket.settimeout(ANSWER_S)
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = self.socket.recv(65536)
            except TimeoutError:
                raise ClusterError(f"waited {seconds} s for an answer of {self.what}") from None
            if not more:
                raise ClusterError(f"{self.what} has ended")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def close(self):
        self.socket.close()


class Emulator:
    """The process of QEMU, and what can be said to it."""

    def __init__(self, image, directory, disk, *arguments):
        self.directory = directory
        self.log = os.path.join(directory, "qemu.log")
        path, env = tool(image, "qemu-system-x86_64")
        libraries = os.path.join(image, "qemu/usr/share")
        command = [path, "-L", os.path.join(libraries, "qemu"), "-L", os.path.join(libraries, "seabios"), *OPTIONS,
                   "-kernel", os.path.join(image, "kernel"), "-initrd", os.path.join(image, "initrd"), "-append", KERNEL,
                   "-drive", f"file={disk},format=qcow2,if=virtio,cache=unsafe", "-serial", "file:console", "-qmp", "unix:control,server=on,wait=off",
                   "-chardev", "socket,id=commands,path=commands,server=on,wait=off", "-device", "virtconsole,chardev=commands", *arguments]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=env, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=_die_with_parent)
        try:
            self.control = Channel(os.path.join(directory, "control"), "QEMU's control socket")
            self.control.receive(ANSWER_S)  # its greeting
            self.tell("qmp_capabilities")
            self.commands = Channel(os.path.join(directory, "commands"), "the machine's command server")
        except BaseException:
            self.kill()
            raise

    def tell(self, command, seconds=ANSWER_S, **arguments):
        self.control.send({"execute": command, "arguments": arguments})
        while True:
            answer = self.control.receive(seconds)
            if "error" in answer:
                raise ClusterError(f"QEMU refuses {command} {arguments}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    def save(self, name):
        said = self.tell("human-monitor-command", LOAD_S, **{"command-line": f"savevm {name}"})
        if said.strip():
            raise ClusterError(f"the machine cannot be saved: {said}")

    def add_drive(self, name, path):
        """As a virtio disk that can only be read, whose serial number is the name."""
        self.tell("blockdev-add", **{"driver": "raw", "node-name": name, "read-only": True, "file": {"driver": "file", "filename": path}})
        self.tell("device_add", driver="virtio-blk-pci", drive=name, id=f"{name}-disk", serial=name)

    def kill(self):
        self.process.kill()
        self.process.wait(END_S)


def _locked(path, how):
    """The descriptor that holds the lock, or None if somebody else has it and how says not to wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(running):
    """Directories of machines whose owner was killed: QEMU has died with it."""
    for name in os.listdir(running):
        held = _locked(os.path.join(running, name, "lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if held is not None:
            shutil.rmtree(os.path.join(running, name))
            os.close(held)


def _of_root(member):
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


class Machine:
    """It runs from its construction on until close(), or the end of this process."""

    def __init__(self, image=None):
        self.image = image or image_directory()
        self.number = 0
        self.drives = 0
        running = os.path.join(self.image, "running")
        os.makedirs(running, exist_ok=True)
        guard = _locked(os.path.join(self.image, "lock"), fcntl.LOCK_EX)  # others make a snapshot, for BOOT_S at most
        try:
            _remove_abandoned(running)
            self.directory = tempfile.mkdtemp(dir=running)
            self.lock = _locked(os.path.join(self.directory, "lock"), fcntl.LOCK_EX)
            snapshot = self._snapshot()
        finally:
            os.close(guard)
        try:
            disk = os.path.join(self.directory, "disk.qcow2")
            shutil.copyfile(snapshot, disk)
            self.emulator = Emulator(self.image, self.directory, disk, "-loadvm", "up")
            # It goes on at the moment at which it was saved.
            self.run(["date", "--set", f"@{time.time():.3f}"])
        except BaseException:
            self._explain()
            self._remove()
            raise

    def _snapshot(self):
        """The file from which machines are started; it is made if it is not there."""
        digest = hashlib.sha256(json.dumps([OPTIONS, KERNEL]).encode()).hexdigest()[:12]
        path = os.path.join(self.image, f"up-{digest}.qcow2")
        if os.path.exists(path):
            return path
        disk = os.path.join(self.directory, "first.qcow2")
        run_tool(self.image, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", os.path.join(self.image, "disk.raw"), disk)
        try:
            self.emulator = Emulator(self.image, self.directory, disk)
            self.emulator.commands.receive(BOOT_S)  # the server's first word: it has begun
            self.run("systemctl is-active --quiet munge.service dbus.socket || systemctl start munge.service dbus.socket", timeout=BOOT_S)
            self.emulator.save("up")
            self.emulator.kill()
        except BaseException:
            self._explain()
            self._remove()
            raise
        os.rename(disk, path)
        for name in ("control", "commands"):
            os.unlink(os.path.join(self.directory, name))
        return path

    def _explain(self):
        """What is known of a machine that has not come up, for whoever reads the test's output."""
        for name in ("qemu.log", "console"):
            with contextlib.suppress(FileNotFoundError), open(os.path.join(self.directory, name), encoding="utf-8", errors="replace") as file:
                print(f"--- {name}: {file.read()[-4000:]}")

    def _remove(self):
        if getattr(self, "emulator", None):
            self.emulator.kill()
        shutil.rmtree(self.directory)
        os.close(self.lock)

    def close(self):
        self._remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- what is done in it ---------------------------------------------------------------------------------------

    def run(self, argv, user="root", check=True, timeout=60, stdin=None, directory=None, env=None):
        """As Host.run of the virtual cluster: argv (a list, or a shell command line) to its end, one at a time."""
        if isinstance(argv, str):
            argv = ["bash", "-c", argv]
        home = "/root" if user == "root" else f"/home/{user}"
        login = {"PATH": PATH, "HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "LANG": "C.UTF-8", **(env or {})}
        self.number += 1
        self.emulator.commands.send({"number": self.number, "argv": argv, "user": user, "env": login, "directory": directory or home,
                                     "stdin": stdin or "", "timeout": timeout})
        answer = self.emulator.commands.receive(timeout + ANSWER_S)
        while answer["number"] != self.number:  # of one that nobody has waited for
            answer = self.emulator.commands.receive(timeout + ANSWER_S)
        shown = f"'{shlex.join(argv)}' as {user}"
        if answer["late"]:
            raise ClusterError(f"{shown} took over {timeout} s; so far: {answer['out']}{answer['err']}")
        if check and answer["status"] != 0:
            raise ClusterError(f"{shown} exited with {answer['status']}: {(answer['err'] or answer['out']).strip()}")
        return subprocess.CompletedProcess(argv, answer["status"], answer["out"], answer["err"])

    def write_file(self, path, text, mode=0o644):
        self.run(["install", "-D", "-m", f"{mode:o}", "/dev/stdin", path], stdin=text)

    def bring(self, tree):
        """Copies a directory's content to / of the machine, all of it root's, by a drive that is an archive."""
        self.drives += 1
        name = f"drive{self.drives}"
        path = os.path.join(self.directory, name)
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
            for one in sorted(os.listdir(tree)):
                archive.add(os.path.join(tree, one), one, filter=_of_root)
        self.emulator.add_drive(name, path)
        # The kernel makes the node when it has found the disk; without udev there are no names but those of the kernel.
        find = f'for d in /sys/block/vd*; do [ "$(cat $d/serial)" != {name} ] || echo /dev/${{d##*/}}; done'
        device = wait_for(lambda: self.run(find).stdout.strip(), ANSWER_S, f"the machine to see the disk {name}")
        self.run(["tar", "-x", "-f", device, "-C", "/", "--keep-directory-symlink", "--no-overwrite-dir"], timeout=120)
