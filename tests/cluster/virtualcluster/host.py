# SPDX-License-Identifier: GPL-2.0-or-later
"""One host: mount, PID, network, UTS, IPC and cgroup namespaces over an overlay of a root directory."""

import os
import shlex
import shutil
import socket
import subprocess

from . import cgroups, kernel
from .errors import ClusterError

GPU_MAJOR = 240  # unused by any driver (devices.txt: local/experimental); opening such a node gives ENXIO, not EPERM
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cuda/bin"
# Run on the host by the shell that becomes a command: moves itself into the host's part of each hierarchy, and to its directory.
ENTER = (
    'for group in /sys/fs/cgroup/*/cgroup.procs; do echo 0 >"$group" || exit 125; done; '
    'cd "$1" || exit 125; shift; unset PWD OLDPWD; exec "$@"'
)
DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))


class Host:
    """Directory layout below <cluster>/hosts/<name>: upper/ (its disk), work/, root/ (mount point), init.lock."""

    def __init__(self, cluster_directory, cluster_name, name, address):
        self.cluster_directory = cluster_directory
        self.cluster_name = cluster_name
        self.name = name
        self.address = address
        self.directory = os.path.join(cluster_directory, "hosts", name)
        self.lock_path = os.path.join(self.directory, "init.lock")
        self.upper = os.path.join(self.directory, "upper")

    # -- its life ---------------------------------------------------------------------------------------------

    def pid(self):
        """Its first process, numbered as the caller sees it, or None when it is off."""
        return kernel.lock_holder(self.lock_path)

    def write_file(self, path, content, mode=0o644, owner=0):
        """Writes to the disk of a host that is off."""
        full = self.upper + path
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
        os.chmod(full, mode)
        os.chown(full, owner, owner)

    def boot(self, anchor_pid, lower, binds, gpus):
        """Powers the host on: lower: directories of the overlay, topmost first; binds: (source, target, read-only)."""
        if self.pid() is not None:
            raise ClusterError(f"host {self.name} of cluster {self.cluster_name} is already up")
        for path in lower + [self.directory]:
            if ":" in path or "," in path:
                raise ClusterError(f"'{path}' has a ':' or ',' in it, which an overlay mount cannot take: move it")
        for part in ("upper", "work", "root"):
            os.makedirs(os.path.join(self.directory, part), exist_ok=True)
        cgroups.make(self.cluster_name, self.name)
        reader, writer = os.pipe()
        os.set_inheritable(writer, False)
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._become_host(anchor_pid, lower, binds, gpus, writer)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            problem = pipe.read()  # ends when the host's first process has executed its init
        os.waitpid(child, 0)
        if problem or self.pid() is None:
            raise ClusterError(f"booting host {self.name}: {problem or 'its first process died'}")

    def _become_host(self, anchor_pid, lower, binds, gpus, writer):
        try:
            cgroups.join(self.cluster_name, self.name)
            for kind in ("mnt", "net", "uts", "ipc", "pid"):
                descriptor = os.open(f"/proc/{anchor_pid}/ns/{kind}", os.O_RDONLY)
                os.setns(descriptor)
                os.close(descriptor)
            middle = os.fork()
            if middle != 0:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(middle, 0)[1]))
            os.setsid()
            os.unshare(
                os.CLONE_NEWNS | os.CLONE_NEWUTS | os.CLONE_NEWIPC | os.CLONE_NEWNET | os.CLONE_NEWPID
                | os.CLONE_NEWCGROUP
            )
            if os.fork() != 0:
                os._exit(0)
            lock = kernel.hold_lock(self.lock_path)
            self._make_root(lower, binds, gpus)
            socket.sethostname(self.name)
            kernel.silence()
            kernel.close_other_descriptors([writer, lock])
            os.execve("/usr/bin/tini", ["tini", "--", "sleep", "infinity"], {"PATH": PATH})
        except BaseException as error:  # noqa: whatever it is, the parent must hear of it
            try:
                os.write(writer, str(error).encode())
            finally:
                os._exit(1)

    def _make_root(self, lower, binds, gpus):
        root = os.path.join(self.directory, "root")
        kernel.mount(None, "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        options = f"lowerdir={':'.join(lower)},upperdir={self.upper},workdir={self.directory}/work"
        kernel.mount("overlay", root, "overlay", 0, options)
        for point, mode in (("run", "755"), ("tmp", "1777"), ("dev", "755")):
            kernel.mount("tmpfs", f"{root}/{point}", "tmpfs", kernel.MS_NOSUID, f"mode={mode}")
        self._make_devices(f"{root}/dev", gpus)
        kernel.mount("proc", f"{root}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        kernel.mount("sysfs", f"{root}/sys", "sysfs", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV)
        kernel.mount("tmpfs", f"{root}/sys/fs/cgroup", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
        for controllers in cgroups.hierarchies():
            os.mkdir(f"{root}/sys/fs/cgroup/{controllers}")
            kernel.mount("cgroup", f"{root}/sys/fs/cgroup/{controllers}", "cgroup", 0, controllers)
        for source, target, read_only in binds:
            os.makedirs(root + target, exist_ok=True)
            kernel.bind(source, root + target, read_only)
        old = f"{root}/run/old-root"
        os.mkdir(old)
        kernel.pivot_root(root, old)
        os.chdir("/")
        kernel.unmount("/run/old-root")
        os.rmdir("/run/old-root")

    @staticmethod
    def _make_devices(dev, gpus):
        nodes = [(name, major, minor, 0o666) for name, major, minor in DEVICES]
        nodes += [(f"nvidia{i}", GPU_MAJOR, i, 0o666) for i in range(gpus)]
        nodes += [("net/tun", 10, 200, 0o600), ("fuse", 10, 229, 0o666)]
        os.mkdir(f"{dev}/net")
        for name, major, minor, mode in nodes:
            os.mknod(f"{dev}/{name}", mode | 0o020000, os.makedev(major, minor))
            os.chmod(f"{dev}/{name}", mode)
        for point, kind, options in (
            ("pts", "devpts", "newinstance,ptmxmode=0666,gid=5,mode=620"),
            ("shm", "tmpfs", "mode=1777"),
        ):
            os.mkdir(f"{dev}/{point}")
            kernel.mount(kind, f"{dev}/{point}", kind, kernel.MS_NOSUID | kernel.MS_NOEXEC, options)
        for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
                             ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
            os.symlink(target, f"{dev}/{name}")

    def kill(self):
        """Power loss: everything of the host dies at once; what it had on disk stays."""
        if not kernel.kill_lock_holder(self.lock_path, 15, f"host {self.name}"):
            raise ClusterError(f"host {self.name} of cluster {self.cluster_name} is not up")
        cgroups.remove(self.cluster_name, self.name)
        # An overlay's work directory belongs to one mount.
        shutil.rmtree(os.path.join(self.directory, "work"), ignore_errors=True)

    # -- running things on it ---------------------------------------------------------------------------------

    def _login(self, user, env):
        home = "/root" if user == "root" else f"/home/{user}"
        login = {"PATH": PATH, "HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
        if "TERM" in os.environ:
            login["TERM"] = os.environ["TERM"]
        return {**login, **(env or {})}

    def _enter(self, argv, user, directory):
        pid = self.pid()
        if pid is None:
            raise ClusterError(f"host {self.name} of cluster {self.cluster_name} is not up: boot it first")
        line = ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
                "sh", "-c", ENTER, "sh", directory]
        if user != "root":
            line += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--inh-caps=-all", "--"]
        return line + list(argv)

    def command(self, argv, user="root", directory=None, env=None):
        """The command line that runs argv on the host as user, in its cgroups, with a login's environment plus env."""
        login = self._login(user, env)
        return self._enter(["env", "-i", *(f"{key}={value}" for key, value in login.items()), *argv], user, directory or login["HOME"])

    def run(self, argv, user="root", check=True, timeout=60, stdin=None, directory=None, env=None):
        """Runs argv (a list, or a shell command line) to its end; CompletedProcess with text stdout and stderr."""
        if isinstance(argv, str):
            argv = ["bash", "-c", argv]
        # Tens of thousands of times in a run of all tests: nothing is done between fork and exec here, so that Python takes vfork
        # and its memory is not copied, and no env(1) is run where its variables cannot disturb those that are run before argv.
        login = self._login(user, env)
        line = self.command(argv, user, directory, env) if env else self._enter(argv, user, directory or login["HOME"])
        process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True, env=None if env else login,
        )
        shown = f"'{shlex.join(argv)}' on {self.name} as {user}"
        try:
            out, err = process.communicate(stdin or "", timeout)
        except subprocess.TimeoutExpired:
            # nsenter's child is in its process group; it would outlive nsenter alone.
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            raise ClusterError(f"{shown} took over {timeout} s; so far: {out}{err}") from None
        result = subprocess.CompletedProcess(argv, process.returncode, out, err)
        if check and process.returncode != 0:
            raise ClusterError(f"{shown} exited with {process.returncode}: {(err or out).strip()}")
        return result

    def daemon(self, argv, log, user="root", env=None):
        """Starts argv in the background in a session of its own, its output appended to log (a path on the host), with a login's
        environment plus env."""
        script = f'mkdir -p "$(dirname {log})"; exec setsid -f "$@" </dev/null >>{log} 2>&1'
        self.run(["sh", "-c", script, "sh", *argv], user, directory="/", env=env)
