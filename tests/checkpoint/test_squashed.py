# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs whose files lie on a file system that lets root do nothing: they are saved and restored, since whatever is opened, made,
linked, bound or changed for them is so with their user's ids. That is also why nobody gets at root's files through them."""

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import tempfile

import pytest
import saved_nodes
import squashed
import virtualnode
from saved_nodes import PATIENCE, USER

# What a program has in its home directory, and what it does with it once it goes on.
HAS = {
    "a log": ("f = open('log', 'a')", "f.write('more\\n'); f.flush(); print(open('log').read())", "more"),
    "its working directory": ("os.mkdir('sub', 0o700); os.chdir('sub')", "print(os.getcwd()[-9:])", "/home/sub"),
    "an open directory": ("fd = os.open('.', os.O_RDONLY)", "print(sorted(os.listdir(fd)))", "'output'"),
    "a shared mapping": ("f = open('data', 'wb+'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); f.close(); m[:4] = b'then'",
                         "m[4:8] = b'now.'; m.flush(); print(open('data', 'rb').read(8))", "thennow."),
    "a deleted file": ("f = open('gone', 'w+'); f.write('still there'); f.flush(); os.unlink('gone')",
                       "f.seek(0); print(f.read()); print('gone' in os.listdir())", "still there\nFalse"),
    "a socket": ("s = socket.socket(socket.AF_UNIX); s.bind('socket'); os.chmod('socket', 0o600); s.listen()",
                 "c = socket.socket(socket.AF_UNIX); c.connect('socket'); print(oct(os.stat('socket').st_mode))", "0o140600"),
    "a datagram socket": ("s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(os.getcwd() + '/socket')",
                          "c = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); c.sendto(b'hello', 'socket'); print(s.recv(9))", "hello"),
    "a connection that waits": ("s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.listen(); "
                                "c = socket.socket(socket.AF_UNIX); c.connect('socket')",
                                "c.send(b'in line'); print(s.accept()[0].recv(9))", "in line"),
    "a watched directory": ("libc = ctypes.CDLL(None); n = libc.inotify_init1(os.O_NONBLOCK); assert libc.inotify_add_watch(n, b'.', 0x100) == 1",
                            "open('seen', 'w'); print(os.read(n, 99)[16:20])", "seen"),
    "a fifo": ("os.mkfifo('fifo', 0o600); f = os.open('fifo', os.O_RDWR); os.write(f, b'in it')", "print(os.read(f, 9))", "in it"),
    "a lock": ("f = open('data', 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
               "g = open('data', 'w')\ntry: fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept BlockingIOError: print('locked')", "locked"),
    "a program of its own": ("shutil.copy('/bin/cat', 'mine'); os.chmod('mine', 0o700); "
                             "p = subprocess.Popen(['./mine'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)",
                             "print(p.communicate(b'through it')[0])", "through it"),
    "a library of its own": ("shutil.copy(ctypes.util.find_library('m') and '/lib/x86_64-linux-gnu/libm.so.6', 'libmine.so'); "
                             "m = ctypes.CDLL('./libmine.so'); m.cos.restype = ctypes.c_double; m.cos.argtypes = [ctypes.c_double]",
                             "print(m.cos(0.0))", "1.0"),
}
SCRIPT = """
import ctypes, ctypes.util, fcntl, mmap, os, shutil, socket, subprocess, sys, time
output = open('output', 'a', buffering=1)
sys.stdout = output
home = os.getcwd()
{before}
print('ready')
while not os.path.exists(home + '/go'): time.sleep(0.05)
print('on')
{after}
print('end')
"""
# Files that nobody can open as the program has them.
WITHOUT_RIGHTS = {
    "is read-only": "f = open('data', 'w+'); os.chmod('data', 0o400)",
    "has no rights": "f = open('data', 'w+'); os.chmod('data', 0)",
    "is mapped": "f = open('data', 'wb+'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); f.close(); os.chmod('data', 0o400)",
}
# Those of the C library's functions that take the name of a file and that criu uses without libsingularity_criu_user.so: for what
# is criu's own, or where it does not matter who looks.
CRIU_S_OWN = {"chmod", "creat64", "faccessat", "fanotify_mark", "fopen64", "ftw64", "mkdir", "mount", "nftw64", "opendir", "readlink", "readlinkat",
              "realpath", "scandir64", "statfs64", "symlinkat", "umount", "umount2", "execvp", "execve", "execv", "execl", "execlp", "dlopen",
              "unlockpt", "ptsname", "mkstemp64", "chroot", "swapon", "acct", "truncate64", "utimes", "utimensat", "lchown", "chown", "link",
              "lstat64", "statvfs64", "setxattr", "getxattr", "lgetxattr", "name_to_handle_at", "open_tree", "move_mount", "remove"}
TAKES_NAME = CRIU_S_OWN | {"open64", "openat64", "open", "openat", "bind", "connect", "inotify_add_watch", "mkdtemp", "mkdirat", "mknod", "mknodat",
                           "symlink", "linkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "fchownat", "fchmodat",
                           "lutimes", "access", "fstatat64", "stat64", "chdir", "mkfifo", "mkfifoat", "lsetxattr", "statx",
                           "__open64_2", "__openat64_2", "__open_2", "__openat_2", "__xstat64", "__lxstat64", "__fxstatat64", "__xmknod",
                           "__xmknodat", "freopen64"}
CHANGES = {"open", "create", "mknod", "mkdir", "symlink", "link", "unlink", "rmdir", "rename", "rename2", "setattr", "setxattr",
           "removexattr", "opendir"}


@pytest.fixture(name="home")
def home_of_the_user(place):
    disk, mounted = os.path.join(place.top, "disk"), place.path("home")
    for directory in (disk, mounted):
        os.mkdir(directory)
    os.chown(disk, USER, USER)
    os.chmod(disk, 0o700)
    served = squashed.Squashed(disk, mounted, os.path.join(place.top, "requests"))
    served.disk = disk
    yield served
    served.close()


def functions(file, which):
    listed = subprocess.run(["nm", "-D", which, file], check=True, capture_output=True, text=True)
    return {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}


def test_criu_opens_nothing_by_other_functions():
    """A later criu that uses another function goes past the library: look whose names it gives to it, and add it there or here."""
    library = os.path.join(os.environ["CTEST_BINARY_DIR"], "libsingularity_criu_user.so")
    used = functions("/usr/sbin/criu", "--undefined-only") & TAKES_NAME
    assert {"openat64", "bind", "connect"} <= used
    assert used - functions(library, "--defined-only") <= CRIU_S_OWN


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def start(place, agent, home, before, after):
    output = os.path.join(home.disk, "output")
    node = agent.run(["/bin/sh", "-c", "cd home && exec /usr/bin/python3 -c \"$0\"", SCRIPT.format(before=before, after=after)],
                     directory=place.shared)
    virtualnode.wait_for(lambda: os.path.exists(output) and "ready" in read(output), "the program", PATIENCE)
    return node, output


def finish(agent, home, node, output):
    with open(os.path.join(home.disk, "go"), "w", encoding="utf-8"):
        pass
    virtualnode.wait_for(lambda: "end" in read(output) or "running" not in agent.task(node), "the program's end", PATIENCE)
    said, errors = read(output), agent.output(node)
    agent.ok("destroy", node)
    assert "on\n" in said, (said, errors)
    return said.partition("on\n")[2] + errors.decode()


@pytest.mark.parametrize("what", HAS)
def test_a_home_directory_in_which_root_is_nobody(place, home, agent, what):
    before, after, expected = HAS[what]
    node, output = start(place, agent, home, before, after)
    agent.ok("checkpoint", node)
    asked = len(home.requests())
    agent.ok("restore", node)
    by_root = [request for request in home.requests()[asked:] if request[0] != USER and request[1] in CHANGES]
    assert expected in finish(agent, home, node, output)
    assert not by_root, by_root
    left = {name: stat.S_IFMT(os.lstat(os.path.join(home.disk, name)).st_mode) for name in os.listdir(home.disk)}
    assert not [name for name in left if ".cr." in name or "cr_link" in name], left
    virtualnode.wait_for(lambda: not agent.leftovers(), "nothing to be left")


@pytest.mark.parametrize("what", WITHOUT_RIGHTS)
def test_a_file_without_rights_is_refused_before_anything_is_lost(place, home, agent, what):
    node, output = start(place, agent, home, WITHOUT_RIGHTS[what], "print('kept')")
    done = agent.ctl("checkpoint", node)
    assert done.returncode == 1 and "lets root do nothing" in done.stderr and "data" in done.stderr, done
    assert "kept" in finish(agent, home, node, output)


def test_a_file_without_rights_where_root_may(place, agent):
    """On other file systems root opens it by its inode."""
    script = "import os, time; f = open('data', 'w+'); os.chmod('data', 0); print('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\nf.write('kept'); f.seek(0); print(f.read(), flush=True)"
    node = agent.run(["/usr/bin/python3", "-c", script], directory=place.shared)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    agent.ok("checkpoint", node)
    agent.ok("restore", node)
    with open(place.path("go"), "w", encoding="utf-8"):
        pass
    output, _ = agent.ended(node)
    agent.ok("destroy", node)
    assert b"kept" in output, output


# What a program has of root's, which its user may use and not read, or not find any more.
OF_ROOTS = {
    "a library that an upgrade has removed": ("shutil.copy('/lib/x86_64-linux-gnu/libm.so.6', top + '/libm.so')",
                                              "m = ctypes.CDLL(top + '/libm.so'); m.cos.restype = ctypes.c_double; m.cos.argtypes = [ctypes.c_double]",
                                              "os.unlink(top + '/libm.so')", "print(m.cos(0.0))", "1.0"),
    "a program that only runs": ("shutil.copy('/bin/cat', top + '/cat'); os.chmod(top + '/cat', 0o711)",
                                 "p = subprocess.Popen([top + '/cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)",
                                 "", "print(p.communicate(b'through it')[0])", "through it"),
    "a directory that can only be entered": ("os.mkdir(top + '/closed', 0o711)", "os.chdir(top + '/closed')", "", "print(os.getcwd())", "/closed"),
}


@pytest.mark.parametrize("what", OF_ROOTS)
def test_what_is_roots(place, agent, what):
    made, before, meanwhile, after, expected = OF_ROOTS[what]
    top = tempfile.mkdtemp(prefix="singularity-test-", dir="/opt")  # all of whose directories are root's, unlike /tmp's
    try:
        os.chmod(top, 0o755)
        exec(made, {"os": os, "shutil": shutil, "top": top})  # noqa: S102
        script = ("import ctypes, os, subprocess, sys, time\n"
                  f"top = {top!r}\n{before}\nprint('ready', flush=True)\n"
                  f"while not os.path.exists({place.path('go')!r}): time.sleep(0.05)\n{after}\n")
        node = agent.run(["/usr/bin/python3", "-c", script], directory=place.shared)
        virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
        exec(meanwhile, {"os": os, "top": top})  # noqa: S102
        before_names = sorted(os.listdir(top))
        agent.ok("checkpoint", node)
        agent.ok("restore", node)
        with open(place.path("go"), "w", encoding="utf-8"):
            pass
        output, _ = agent.ended(node)
        agent.ok("destroy", node)
        assert expected in output.decode(), output
        assert sorted(os.listdir(top)) == before_names
    finally:
        shutil.rmtree(top)


def test_a_file_system_that_lies_to_root(place):
    """It refuses the user, and shows root directories that only root may change: nothing is made there as root all the same."""
    top = tempfile.mkdtemp(prefix="singularity-test-", dir="/opt")
    disk = os.path.join(place.top, "disk")
    os.mkdir(disk)
    os.chown(disk, USER, USER)
    os.chmod(top, 0o755)
    log = os.path.join(place.top, "requests")
    served = squashed.Squashed(disk, top, log)
    agent = saved_nodes.Agent()
    try:
        script = (f"import socket, time; s = socket.socket(socket.AF_UNIX); s.bind({top + '/socket'!r}); s.listen(); "
                  "print('ready', flush=True); time.sleep(1000)")
        node = agent.run(["/usr/bin/python3", "-c", script], directory=place.shared)
        virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
        agent.ok("checkpoint", node)
        with open(log + ".lies", "w", encoding="utf-8"):
            pass
        asked = len(served.requests())
        done = agent.ctl("restore", node, user=USER)
        made = [request for request in served.requests()[asked:] if request[1] == "mknod"]
        assert (USER, "mknod", -errno.EACCES) in made, made
        assert not [request for request in made if request[0] == 0], made
        assert done.returncode == 1, done
    finally:
        agent.close()
        served.close()
        os.rmdir(top)


def test_a_mount_below_a_directory_of_the_user(place, agent):
    """It is mounted again by its name: as the user finds it then, who may have put a link there to where only root may go."""
    secret = os.path.join(place.top, "secret")
    os.makedirs(os.path.join(secret, "inner"))
    with open(os.path.join(secret, "inner", "file"), "w", encoding="ascii") as file:
        file.write("of root\n")
    os.chmod(secret, 0o700)
    mounted = place.path("mounted")
    os.mkdir(mounted)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "automounted", mounted], check=True)
    try:
        with open(os.path.join(mounted, "file"), "w", encoding="ascii") as file:
            file.write("of the user\n")
        script = f"echo ready; while [ ! -e {place.path('go')} ]; do sleep 0.05; done; cat mounted/file; echo end"
        node = agent.run(["/bin/sh", "-c", script], directory=place.shared)
        virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
        agent.ok("checkpoint", node)
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)
    os.rmdir(mounted)
    os.symlink(os.path.join(secret, "inner"), mounted)
    done = agent.ctl("restore", node, user=USER)
    assert done.returncode == 1 and f"{mounted}: Permission denied" in done.stderr, done
    os.unlink(mounted)
    os.mkdir(mounted)
    agent.ok("restore", node)
    with open(place.path("go"), "w", encoding="utf-8"):
        pass
    output, _ = agent.ended(node)
    agent.ok("destroy", node)
    assert b"No such file" in output and b"end" in output, output


def test_nobody_has_the_agents_session_keyring(place):
    """Whoever has it can read and remove the keys that root's processes use, whatever his ids are: neither new nor restored processes do."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(250, 1, None) > 0  # keyctl(KEYCTL_JOIN_SESSION_KEYRING): this process's, and so the agent's
    ask = "libc.syscall(250, 0, -3, 0)"  # keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING)
    agents = eval(ask, {"libc": libc})  # noqa: S307
    script = f"import ctypes, os, time; libc = ctypes.CDLL(None); print('first', {ask}, flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('then', {ask}, flush=True)"
    agent = saved_nodes.Agent()
    try:
        node = agent.run(["/usr/bin/python3", "-c", script], directory=place.shared)
        virtualnode.wait_for(lambda: b"first" in agent.output(node), "the program", PATIENCE)
        agent.ok("checkpoint", node)
        agent.ok("restore", node)
        with open(place.path("go"), "w", encoding="utf-8"):
            pass
        output, _ = agent.ended(node)
        agent.ok("destroy", node)
        rings = [int(line.split()[1]) for line in output.decode().splitlines()]
        assert len(rings) == 2 and agents not in rings and agents > 0, (agents, rings)
    finally:
        agent.close()
