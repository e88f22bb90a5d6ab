# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program in a virtual node sees, and what becomes of it."""

import contextlib
import os
import resource
import signal
import socket
import subprocess

import pytest
from virtualnode import ALICE, BUILD, KEPT, PATIENCE, TERMINAL, Refused, Terminal, wait_for


@pytest.fixture(name="node")
def running_node(agent):
    """(connection, name, pid of init) of a node of alice's."""
    with agent.connect(ALICE, groups=[ALICE, 4, 24]) as connection:
        name, pid = connection.create(uid=ALICE, gid=ALICE, groups=[4, 24], hostname="rank0", address="10.20.30.40/24")
        yield connection, name, pid
        with contextlib.suppress(Refused):
            connection.destroy(name)


def said(node, script, **options):
    connection, name, _ = node
    status, output = connection.run(name, ["sh", "-c", script], **options)
    assert status == 0, output
    return output


# What a program is told: (name, number on x86-64 or None, arguments, error). A socket has no number: family, type, protocol.
HIDDEN = [
    ("io_uring_setup", 425, (8, 0), "ENOSYS"),
    ("perf_event_open", 298, (0, 0, -1, -1, 0), "ENOSYS"),
    ("fanotify_init", 300, (0, 0), "ENOSYS"),
    ("memfd_secret", 447, (0,), "ENOSYS"),
    ("landlock_create_ruleset", 444, (0, 0, 1), "ENOSYS"),
    ("mseal", 462, (0, 0, 0), "ENOSYS"),
    ("pkey_alloc", 330, (0, 0), "ENOSPC"),
    ("MPTCP", None, (2, 1, 262), "EPROTONOSUPPORT"),
    ("MPTCP over IPv6", None, (10, 1, 262), "EPROTONOSUPPORT"),
    ("AF_ALG", None, (38, 5, 0), "EAFNOSUPPORT"),
    ("AF_SMC", None, (43, 1, 0), "EAFNOSUPPORT"),
]
CALLS = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
for name, number, arguments, _ in eval(sys.argv[1]):
    longs = [ctypes.c_long(argument) for argument in arguments]
    result = libc.syscall(ctypes.c_long(41 if number is None else number), *longs)
    print(name, "works" if result >= 0 else errno.errorcode[ctypes.get_errno()], sep=": ")
"""


def calls(node, table):
    connection, name, _ = node
    status, output = connection.run(name, ["/usr/bin/python3", "-c", CALLS, repr(table)])
    assert status == 0, output
    return output.splitlines()


def test_what_cannot_be_saved_is_hidden(node):
    assert calls(node, HIDDEN) == [f"{name}: {error}" for name, _, _, error in HIDDEN]
    others = [("TCP", None, (2, 1, 6), ""), ("TCP over IPv6", None, (10, 1, 0), ""), ("Unix", None, (1, 1, 0), ""), ("epoll_create1", 291, (0,), ""),
              ("userfaultfd for user mode", 323, (1,), "")]
    assert calls(node, others) == [f"{name}: works" for name, *_ in others]


def test_exit_statuses(agent):
    for script, expected in (("true", 0), ("exit 7", 7), ("kill -USR1 $$", 128 + signal.SIGUSR1), ("kill -9 $$", 137)):
        assert agent.ctl("run", "--", "sh", "-c", script).returncode == expected, script
    missing = agent.ctl("run", "--", "/no/such/program")
    assert missing.returncode == 1
    assert missing.stderr == "singularityctl: cannot run '/no/such/program': No such file or directory\n"


def test_streams(agent):
    done = agent.ctl("run", "--", "sh", "-c", "cat; echo problem >&2", input="a\nb\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\nb\n", "problem\n")
    size = 5 << 20
    done = agent.ctl("run", "--", "head", "-c", str(size), "/dev/zero")
    assert len(done.stdout) == size
    # Output and errors that go to one place keep their order.
    done = subprocess.run(agent.command("run", "--", "sh", "-c", "for i in 1 2 3; do echo $i; echo e$i >&2; done"),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    assert done.stdout == "1\ne1\n2\ne2\n3\ne3\n"


def test_a_reader_that_leaves_ends_the_writer(agent):
    """As in a shell: yes | head."""
    done = subprocess.run(["bash", "-c", '"$@" | head -n 1; echo ${PIPESTATUS[0]}', "bash", *agent.command("run", "--", "yes")],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == ["y", str(128 + signal.SIGPIPE)], done.stderr


def test_program_surroundings(agent):
    cpu = max(os.sched_getaffinity(0))

    def prepare():
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
        os.sched_setaffinity(0, {cpu})

    script = "echo $MARK; pwd; umask; ulimit -n; ulimit -Hn; id -u; id -G; grep ^Cpus_allowed_list /proc/self/status"
    done = agent.ctl("run", "--", "sh", "-c", script, user=ALICE, env={"PATH": "/usr/bin:/bin", "MARK": "here"}, umask=0o27, preexec_fn=prepare)
    assert done.stdout.split() == ["here", "/", "0027", "100", "200", "1001", "1001", "Cpus_allowed_list:", str(cpu)], done.stderr


def test_processors_that_are_not_here(node):
    """A task runs on those that there are."""
    connection, name, _ = node
    for cpus in (b"", b"\0" * 127 + b"\x80", b"\0" * 8, b"\xff" * 2000):
        status, output = connection.run(name, ["/usr/bin/grep", "^Cpus_allowed_list", "/proc/self/status"], cpus=cpus)
        assert status == 0 and output.split()[1], (cpus, output)


def test_environment_is_exact(node):
    connection, name, _ = node
    status, output = connection.run(name, ["/usr/bin/env"], environment=["A=1", "B=x y"])
    assert (status, output) == (0, "A=1\nB=x y\n")
    status, output = connection.run(name, ["/bin/pwd"], directory="/usr/lib")
    assert (status, output) == (0, "/usr/lib\n")
    with pytest.raises(Refused, match="work in the directory '/no/such'"):
        connection.run(name, ["true"], directory="/no/such")
    with pytest.raises(Refused, match="cannot run 'nothing-of-that-name'"):
        connection.run(name, ["nothing-of-that-name"])


def test_node_environment_comes_first(agent):
    with agent.connect() as connection:
        name, _ = connection.create(environment=["SINGULARITY_MARK=node"])
        status, output = connection.run(name, ["/usr/bin/env"], environment=["SINGULARITY_MARK=task", "Z=1"])
        assert (status, sorted(output.split())) == (0, ["SINGULARITY_MARK=node", "Z=1"])
        connection.destroy(name)


def test_ids_and_privileges(node):
    lines = dict(line.split(":\t") for line in said(node, "cat /proc/self/status").splitlines() if ":\t" in line)
    assert lines["Uid"].split() == ["1001"] * 4 and lines["Gid"].split() == ["1001"] * 4
    assert lines["Groups"].split() == ["4", "24"]
    assert int(lines["CapEff"], 16) == int(lines["CapPrm"], 16) == 0
    assert lines["NoNewPrivs"] == "1"
    assert int(lines["SigBlk"], 16) == int(lines["SigIgn"], 16) == 0


def test_init_is_as_criu_wants_it(node):
    connection, name, pid = node
    assert os.readlink(f"/proc/{pid}/exe") == os.path.join(BUILD, "singularity-init")
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        status = dict(line.rstrip().split(":\t") for line in file if ":\t" in line)
    assert status["Uid"].split() == ["1001"] * 4 and status["Threads"] == "1" and status["NSpid"].split()[-1] == "1"
    assert status["NSsid"].split()[-1] == "1", "no session leader"
    descriptors = {name: os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    assert {n: descriptors.get(n) for n in "012"} == dict.fromkeys("012", "/dev/null")
    # The listening socket and the agent's connection.
    assert sorted(descriptors) == ["0", "1", "2", "3", "4"] and all(descriptors[n].startswith("socket:") for n in "34")
    assert os.stat(f"/proc/{pid}/fd/0").st_dev == os.stat(f"/proc/{pid}/root/dev").st_dev, "the host's /dev/null"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as file:
        assert "shared:" not in file.read()
    assert said(node, "tr -d '\\0' </proc/1/environ; echo") == "\n"


def test_descriptors(node):
    assert said(node, "ls /proc/$$/fd").split() == ["0", "1", "2"]


def test_names_and_network(node):
    assert said(node, "hostname; cat /proc/sys/kernel/hostname").split() == ["rank0", "rank0"]
    assert said(node, "getent ahostsv4 rank0 | head -n 1").split()[0] == "10.20.30.40"
    assert said(node, "ip -o -4 addr | awk '{print $2, $4}'").splitlines() == ["lo 127.0.0.1/8", "eth0 10.20.30.40/24"]
    assert said(node, "ip -o link show up | wc -l").strip() == "3", "lo, eth0, uplink are up"
    assert said(node, "ip -o link show eth0 | grep -c LOWER_UP").strip() == "1"
    assert said(node, "python3 -c 'import socket as s; a=s.socket(); a.bind((\"rank0\",0)); a.listen(); "
                      "b=s.create_connection(a.getsockname()); a.accept()[0].send(b\"ok\"); print(b.recv(2))'") == "b'ok'\n"


def test_who_is_not_there_yet_is_waited_for(node):
    """The kernel alone would say after 3 s that there is no way."""
    call = "import socket; socket.create_connection((\"10.20.30.99\", 4000), timeout=5)"
    assert "TimeoutError: timed out" in said(node, f"python3 -c '{call}' 2>&1; true")


def test_own_file_systems(node):
    assert sorted(said(node, "ls /proc | grep '^[0-9]*$'; echo").split())[0] == "1"
    # init, sh, ls, grep: nobody of the host
    assert len(said(node, "ls /proc | grep '^[0-9]*$'").split()) <= 5
    assert set(said(node, "ls /dev").split()) == {
        "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}
    assert said(node, "echo x >/dev/null; head -c 3 /dev/zero | wc -c; echo y >/dev/full 2>&1 || echo full").split()[0] == "3"
    said(node, "echo mine >/dev/shm/mark-of-a-test")
    assert not os.path.exists("/dev/shm/mark-of-a-test")
    assert said(node, "cat /dev/shm/mark-of-a-test") == "mine\n"
    assert set(said(node, "ls /run/singularity").split()) == {"devices", "init.sock", "sockets"}
    for place in ("", "devices/", "sockets/"):  # root's memory
        said(node, f"! touch /run/singularity/{place}x 2>/dev/null")
    connection, name, _ = node
    status, output = connection.run(name, ["python3", "-c", "import socket\n"
                                           "socket.socket(1, socket.SOCK_SEQPACKET).connect('/run/singularity/init.sock')"])
    assert status != 0 and "PermissionError" in output
    types = said(node, "sed 's/.* - //' /proc/self/mountinfo | cut -d' ' -f1").split()
    assert not {"nsfs", "debugfs", "tracefs", "devtmpfs"} & set(types) and {"mqueue", "devpts", "proc"} <= set(types)


def test_separate_ipc(node):
    created = subprocess.run(["ipcmk", "-M", "4096"], capture_output=True, text=True, check=True).stdout.split()[-1]
    try:
        assert created not in said(node, "cat /proc/sysvipc/shm").split()
        assert len(said(node, "cat /proc/sysvipc/shm").splitlines()) == 1
    finally:
        subprocess.run(["ipcrm", "-m", created], check=True)


def test_signals(node):
    connection, name, _ = node
    reading, writing = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    # A child in the same group, to see that the group gets it.
    script = "trap 'echo caught; exit 3' TERM; (trap 'echo child; exit' TERM; echo up; while :; do sleep 0.05; done) & wait $!; wait"
    number, _ = connection.start(name, ["bash", "-c", script], [null, writing, null])
    os.close(writing)
    os.close(null)
    with os.fdopen(reading, encoding="ascii") as output:
        assert output.readline() == "up\n"
        connection.signal(name, number, signal.SIGTERM)
        assert sorted(output.read().split()) == ["caught", "child"]
    assert connection.wait(name, number) == (3 << 8, False)
    assert connection.wait(name, number) == (3 << 8, False), "a status is kept until it is forgotten"
    connection.wait(name, number, True)
    with pytest.raises(Refused, match="there is no such task"):
        connection.wait(name, number)
    with pytest.raises(Refused):
        connection.signal(name, number, signal.SIGTERM)


def test_a_signal_to_all(node):
    connection, name, _ = node
    numbers = [connection.start(name, ["sleep", "1000"], stdio=KEPT)[0] for _ in range(3)]
    connection.signal(name, 0, signal.SIGKILL)
    assert [connection.wait(name, number) for number in numbers] == [(signal.SIGKILL, False)] * 3
    assert said(node, "echo alive") == "alive\n"


def test_orphans_are_reaped_and_end_with_the_node(node):
    connection, name, pid = node
    said(node, "(sleep 0.01 &) ; (setsid sleep 1000 >/dev/null 2>&1 </dev/null &)")
    children = f"/proc/{pid}/task/{pid}/children"

    def orphans():
        with open(children, encoding="ascii") as file:
            return file.read().split()

    (orphan,) = wait_for(lambda: orphans() if len(orphans()) == 1 else None, "one orphan to be left")
    with open(f"/proc/{orphan}/status", encoding="ascii") as file:
        assert f"PPid:\t{pid}\n" in file.read()
    descriptor = os.pidfd_open(int(orphan))
    connection.destroy(name)
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, 0)
    os.close(descriptor)


def test_forwarded_signals(agent):
    process = subprocess.Popen(agent.command("run", "--", "bash", "-c", "trap 'exit 9' USR1; echo up; while :; do sleep 0.05; done"),
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGUSR1)
    assert process.wait(PATIENCE) == 9
    process.stdout.close()


def test_terminal(agent):
    with Terminal(agent.command("run", "--", "bash", "--norc", "--noprofile")) as terminal:
        terminal.send(b"stty size; tty; ps -o tty= -p $$; echo done-$((1+1))\n")
        terminal.expect(b"30 100")
        terminal.expect(b"/dev/pts/0")
        terminal.expect(b"done-2")
        terminal.send(b"trap 'echo size-is $(stty size)' WINCH; echo trap-$((1+1))\n")
        # Before it prompts, readline sets the size that it has just read: a change in between would be lost.
        terminal.expect(b"trap-2")
        terminal.expect(b"bash-")
        terminal.resize(40, 120)
        # The terminal is in no session of ours that the kernel would tell of the change.
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.send(b"until [ \"$(stty size)\" = '40 120' ]; do sleep 0.01; done\n")
        terminal.expect(b"size-is 40 120")
        terminal.send(b"sleep 4711\n")
        wait_for(lambda: subprocess.run(["pgrep", "-fx", "sleep 4711"], stdout=subprocess.DEVNULL).returncode == 0, "sleep to run")
        terminal.send(b"\x03")
        terminal.expect(b"^C")
        terminal.send(b"echo status-$?\n")
        terminal.expect(b"status-130")
        terminal.send(b"exit 5\n")
        assert terminal.process.wait(PATIENCE) == 5
        assert terminal.is_as_before(), "the user's terminal is left raw"


def test_terminal_can_be_attached_again(node):
    connection, name, _ = node
    number, (first,) = connection.start(name, ["cat"], stdio=TERMINAL)
    os.write(first, b"one\n")
    assert os.read(first, 100).startswith(b"one")
    os.close(first)
    second = connection.attach(name, number)
    os.write(second, b"two\n")
    seen = b""
    while seen.count(b"two") < 2:  # echo and answer
        seen += os.read(second, 100)
    os.write(second, b"\x04")
    assert connection.wait(name, number) == (0, False)
    os.close(second)


def test_detached(agent):
    started = agent.ctl("run", "--detach", "--", "sh", "-c", "echo out; echo err >&2; sleep 1000", user=ALICE)
    name = started.stdout.strip()
    assert started.returncode == 0 and name.startswith("u1001-"), started.stderr
    wait_for(lambda: agent.ctl("logs", name, user=ALICE).stdout == "out\nerr\n", "its output")
    (line,) = [line for line in agent.ctl("ps", user=ALICE).stdout.splitlines() if line.startswith(name)]
    assert "running" in line and "1: running" in line
    assert agent.ctl("kill", "--task", "1", "--signal", "15", name, user=ALICE).returncode == 0
    wait_for(lambda: "1: signal 15" in agent.ctl("ps", user=ALICE).stdout, "its end in the list")
    assert agent.ctl("destroy", name, user=ALICE).returncode == 0
    assert name not in agent.ctl("ps").stdout


def test_a_long_log_keeps_its_end(node):
    connection, name, _ = node
    number, _ = connection.start(name, ["sh", "-c", "seq 2000000; echo the-end"], stdio=KEPT)
    assert connection.wait(name, number) == (0, False)
    wait_for(lambda: connection.log(name, number).endswith(b"the-end\n"), "the log's end")
    assert 4 << 20 <= len(connection.log(name, number)) <= (8 << 20) + (1 << 17)


def test_root_sockets_are_exposed(agent, tmp_path):
    path = str(tmp_path / "proxy.sock")
    with socket.socket(socket.AF_UNIX) as listener, agent.connect() as connection:
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen()
        name, _ = connection.create(uid=ALICE, gid=ALICE, sockets=[path])
        status, output = connection.run(name, ["python3", "-c", "import socket; s=socket.socket(1); "
                                               "s.connect('/run/singularity/sockets/0'); s.send(b'hello')"])
        assert status == 0, output
        assert listener.accept()[0].recv(5) == b"hello"
        connection.destroy(name)


def test_given_pipes_are_in_the_record(agent, node):
    connection, name, _ = node
    reading, writing = os.pipe()
    key = os.readlink(f"/proc/self/fd/{writing}").encode()
    record = os.path.join(agent.state, name, "record")
    number, _ = connection.start(name, ["cat"], [reading, writing, writing])
    with open(record, "rb") as file:
        assert file.read().count(key) == 3, "one pipe, three streams"
    connection.signal(name, number, signal.SIGKILL)
    connection.wait(name, number)
    with open(record, "rb") as file:
        assert key not in file.read()
    os.close(reading)
    os.close(writing)
