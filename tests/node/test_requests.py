# SPDX-License-Identifier: GPL-2.0-or-later
"""Who may ask the agent for what, and what garbage does."""

import errno
import fcntl
import os
import random
import socket
import struct
import subprocess

import pytest
from virtualnode import (ALICE, BOB, COMMANDS_REST, CREATE, DESTROY, FIND_STEPS, KEPT, LIST, LOG, OPEN_DOOR, PACKET_LIMIT, PATIENCE, SEALS, START,
                         STEP_RUNS, WAIT, WATCH_SAVES, Agent, Refused, elsewhere, memfd, numbers, spec, task, text, texts, wait_for)


def test_only_root_makes_nodes_of_others(agent):
    with agent.connect(ALICE) as connection:
        for uid in (0, BOB):
            with pytest.raises(Refused, match="only root") as refused:
                connection.create(uid=uid, gid=uid)
            assert refused.value.code == 1


@pytest.mark.parametrize("what, why", [
    ({"gid": 0}, "not in group 0"), ({"gid": BOB}, "not in group 1002"), ({"groups": [ALICE, 4]}, "not in group 4"),
    ({"sockets": ["/run/x"]}, "only root"), ({"commands": ["/usr/bin/su"]}, "only agents"), ({"stand_in": "/tmp/x"}, "only agents"),
    ({"local": [("/tmp", "/root")]}, "only agents"), ({"shown": ["/root"]}, "only agents"), ({"run": 1}, "only agents"), ({"local_origin": "0-n1"}, "only agents"),
    ({"name": "job-1"}, "begin with 'u1001-'"), ({"name": "u1002-x"}, "begin with 'u1001-'")])
def test_what_a_user_may_not_have(agent, what, why):
    with agent.connect(ALICE) as connection, pytest.raises(Refused, match=why):
        connection.create(**{"uid": ALICE, "gid": ALICE, **what})


@pytest.mark.parametrize("what", [
    {"name": "../x"}, {"name": "a/b"}, {"name": "-x"}, {"name": "x" * 65}, {"name": "a b"}, {"hostname": "a_b"}, {"address": "10.0.0.1"},
    {"address": "10.0.0.1/33"}, {"address": "10.0.0.1/24x"}, {"address": "::1/64"}, {"address": "0.0.0.0/8"}, {"environment": ["A"]},
    {"environment": ["=x"]}, {"groups": list(range(65537))}])
def test_specifications_are_checked(agent, what):
    with agent.connect() as connection, pytest.raises(Refused) as refused:
        connection.create(**{"uid": ALICE, "gid": ALICE, **what})
    assert refused.value.code == 22


@pytest.mark.parametrize("kind,body", [
    (OPEN_DOOR, b""), (WATCH_SAVES, b""), (COMMANDS_REST, text("") + struct.pack("=?", False) + texts([])),
    (FIND_STEPS, numbers([]) + struct.pack("=I", 0) + text("") + struct.pack("=?", False)), (STEP_RUNS, struct.pack("=I", 0))])
def test_who_is_no_task_has_no_commands(agent, kind, body):
    for uid in (ALICE, 0):
        with agent.connect(uid) as connection, pytest.raises(Refused, match="that of no task"):
            connection.ask(kind, body)


def test_another_user_is_refused(agent):
    with agent.connect(ALICE) as alice, agent.connect(BOB) as bob, agent.connect() as root:
        name, _ = alice.create(uid=ALICE, gid=ALICE)
        number, _ = alice.start(name, ["sleep", "1000"], stdio=KEPT)
        for act in (lambda: bob.start(name, ["true"], stdio=KEPT), lambda: bob.signal(name, number, 9), lambda: bob.wait(name, number),
                    lambda: bob.log(name, number), lambda: bob.attach(name, number), lambda: bob.destroy(name)):
            with pytest.raises(Refused, match="belongs to another user"):
                act()
        assert bob.ask(LIST)[1].take("I") == 0
        assert alice.ask(LIST)[1].take("I") == root.ask(LIST)[1].take("I") == 1
        with pytest.raises(Refused, match="there is one of that name"):
            alice.create(name=name, uid=ALICE, gid=ALICE)
        root.signal(name, number, 9)
        assert root.wait(name, number) == (9, False)
        root.destroy(name)
        with pytest.raises(Refused, match="there is none of that name"):
            alice.destroy(name)


def test_programs_are_checked(agent):
    with agent.connect() as connection:
        name, _ = connection.create()
        for options, why in (({"directory": "tmp"}, "no absolute path"), ({"mask": 0o1000}, "is no umask"), ({"stdio": 9}, "no kind of"),
                             ({"limits": [(99, 1, 1)]}, "resource limit 99"), ({"limits": [(7, 2, 1)]}, "resource limit 7"),
                             ({"stdio": 0}, "0 descriptors came")):
            with pytest.raises(Refused, match=why):
                connection.start(name, ["true"], **{"stdio": KEPT, **options})
        with pytest.raises(Refused, match="no program was named"):
            connection.start(name, [], stdio=KEPT)
        with socket.socket() as other, pytest.raises(Refused, match="could not be checkpointed"):
            connection.start(name, ["true"], [other.fileno()] * 3)
        connection.destroy(name)


def test_limits_are_set_and_never_raised(agent):
    with agent.connect() as connection:
        name, _ = connection.create(uid=ALICE, gid=ALICE)
        status, output = connection.run(name, ["sh", "-c", "ulimit -n; ulimit -Hn; ulimit -c"],
                                        limits=[(7, 50, 1 << 40), (4, 0, 0)])
        values = output.split()
        assert status == 0 and values[0] == "50" and int(values[1]) < 1 << 40 and values[2] == "0"
        connection.destroy(name)


# Of a little less than 2 MiB, which is what Linux takes with the usual limit of the stack.
LARGE = [*("V%d=%s" % (number, f"{number}:" * 1000)[:3000] for number in range(200)), *("W%d=%s" % (number, "w" * 120000) for number in range(8))]
LARGE_ARGUMENTS = ["", *("%d" % number * 100 for number in range(1000))]
STACK = 3  # RLIMIT_STACK
SHOW = "import sys; [sys.stdout.buffer.write(open('/proc/self/' + name, 'rb').read() + b'|') for name in ('environ', 'cmdline')]"


def shown(environment, arguments):
    """What SHOW prints where a program has these."""
    return "".join("".join(one + "\0" for one in part) + "|" for part in (environment, ["/usr/bin/python3", "-Sc", SHOW, *arguments]))


def test_a_program_has_all_of_its_environment_and_arguments(agent):
    size = sum(len(one) + 1 + 8 for one in [*LARGE, *LARGE_ARGUMENTS])
    assert 1_900_000 < size < 2 << 20
    with agent.connect(ALICE) as connection:
        name, _ = connection.create(uid=ALICE, gid=ALICE)
        for stack, environment in ((8 << 20, LARGE), (8 << 20, LARGE[:130]), (1 << 30, [f"{number}={one}" for number in range(2) for one in LARGE])):
            status, output = connection.run(name, ["/usr/bin/python3", "-Sc", SHOW, *LARGE_ARGUMENTS], environment=environment,
                                            limits=[(STACK, stack, (1 << 64) - 1)])
            assert status == 0
            assert output == shown(environment, LARGE_ARGUMENTS)
        # More than Linux takes with this limit, and with any.
        for times, why in ((2, "cannot run '/usr/bin/true': Argument list too long"),
                           (5, "its arguments and environment take [0-9]* bytes, and Linux starts nothing with more than 6291456")):
            with pytest.raises(Refused, match=why) as refused:
                connection.start(name, ["/usr/bin/true"], environment=LARGE * times, limits=[(STACK, 8 << 20, (1 << 64) - 1)], stdio=KEPT)
            assert refused.value.code == errno.E2BIG
        assert connection.run(name, ["/usr/bin/true"])[0] == 0
        connection.destroy(name)


def test_many_tasks_with_large_environments_start_at_once(agent):
    """As those of a step of Slurm's: none waits for another, and init takes them one after the other."""
    environment = LARGE[:10]
    with agent.connect(ALICE) as connection:
        name, _ = connection.create(uid=ALICE, gid=ALICE)
        request = text(name) + task(["/usr/bin/true"], environment=environment, stdio=KEPT)
        tokens = [connection.send(START, request) for _ in range(256)]
        tasks = [connection.answer(token)[1].take("Ii")[0] for token in tokens]
        assert [connection.wait(name, number, True) for number in tasks] == [(0, False)] * 256
        connection.destroy(name)


def test_a_node_has_all_of_its_environment(agent):
    """In its record as well, from which an agent that comes again knows it."""
    with agent.connect(ALICE) as connection:
        name, _ = connection.create(uid=ALICE, gid=ALICE, environment=LARGE)
    agent.kill()
    agent.start()
    with agent.connect(ALICE) as connection:
        wait_for(lambda: connection.nodes()[name][0] == "running", "the node to be found again")
        assert connection.run(name, ["/usr/bin/python3", "-Sc", SHOW], environment=["A=b"]) == (0, shown(["A=b", *LARGE], []))
        connection.destroy(name)
        with pytest.raises(Refused, match="its environment takes [0-9]* bytes, and Linux starts nothing with more than 6291456"):
            connection.create(uid=ALICE, gid=ALICE, environment=LARGE * 5)


# The wrapper of a task and singularityctl have a client of their own.
@pytest.mark.parametrize("limit, works", [("", True), ("ulimit -Sf 1; ", True), ("ulimit -f 100; ", False)])
def test_singularityctl_passes_all_of_it_on(agent, limit, works):
    environment = dict(one.split("=", 1) for one in LARGE) | {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(["/bin/bash", "-c", limit + 'exec "$@"', "bash", *agent.command("run", "--", "cat", "/proc/self/environ")],
                          env=environment, timeout=PATIENCE, capture_output=True, text=True, check=False)
    if works:
        assert done.returncode == 0, done.stderr
        assert {one for one in done.stdout.split("\0") if one[:1] in ("V", "W")} == set(LARGE)
    else:
        assert done.returncode == 1
        assert "this process may write no file of that size (RLIMIT_FSIZE): raise 'ulimit -f'" in done.stderr


def hangs_up(agent, packets, uid=ALICE):
    with agent.connect(uid) as connection:
        for packet in packets:
            try:
                connection.socket.send(packet)
            except (BrokenPipeError, ConnectionResetError):
                return True
        try:
            while connection.socket.recv(1 << 20):
                pass
        except ConnectionResetError:
            pass
        return True


GOOD = [struct.pack("=HHI", 1, CREATE, 1) + spec(uid=ALICE, gid=ALICE), struct.pack("=HHI", 1, WAIT, 1) + text("x") + b"\0" * 5,
        struct.pack("=HHI", 1, START, 1) + text("x") + task(["true"]), struct.pack("=HHI", 1, DESTROY, 1) + text("x"),
        struct.pack("=HHI", 1, LOG, 1) + text("x") + b"\0" * 4]


@pytest.mark.parametrize("packet", [
    b"x", struct.pack("=HHI", 1, 0, 1), struct.pack("=HHI", 2, LIST, 1), struct.pack("=HHI", 1, LIST, 0),
    struct.pack("=HHI", 1, LIST, 1) + b"\0", struct.pack("=HHI", 1, 79, 1), struct.pack("=HHI", 1, CREATE, 1) + b"\xff" * 64,
    struct.pack("=HHI", 1, DESTROY, 1) + struct.pack("=I", 1 << 31), struct.pack("=HHI", 1, DESTROY, 1) + text("a\0b"),
    struct.pack("=HHI", 1, START, 1) + text("x") + struct.pack("=I", 1 << 30), *[good[:-1] for good in GOOD], *[good + b"\0" for good in GOOD]])
def test_garbage_costs_the_connection_only(agent, packet):
    with agent.connect(BOB) as other:
        assert hangs_up(agent, [packet])
        assert other.ask(LIST)[1].take("I") == 0


@pytest.mark.parametrize("seed", range(10))
def test_random_packets(agent, seed):
    rng = random.Random(seed)
    for _ in range(50):
        packet = bytearray(rng.choice(GOOD))
        for _ in range(rng.randrange(1, 5)):
            packet[rng.randrange(len(packet))] = rng.randrange(256)
        # It may still be a request: one that asks for nothing is what ends the connection then.
        assert hangs_up(agent, [bytes(packet), b"end"])
    assert agent.process.poll() is None, agent.log()
    with agent.connect() as connection:
        for name in os.listdir(agent.state):
            connection.destroy(name)


def refused_content(content, seals=SEALS, size=None):
    return [elsewhere(len(content) if size is None else size), lambda: memfd(content, seals)]


def sparse_memfd():
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.truncate(descriptor, 1 << 30)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return descriptor


LISTING = struct.pack("=HHI", 1, LIST, 1)


@pytest.mark.parametrize("datagram, make, why", [
    (*refused_content(LISTING, 0), "its memfd has the seals 0; add F_SEAL_WRITE, F_SEAL_GROW, F_SEAL_SHRINK and F_SEAL_SEAL: 15"),
    (*refused_content(LISTING, SEALS & ~fcntl.F_SEAL_WRITE), "its memfd has the seals 7; add F_SEAL_WRITE"),
    (*refused_content(LISTING, size=9), "its memfd has 8 bytes, and it says 9; send the memfd's size"),
    (*refused_content(LISTING, size=0), f"it has 0 bytes; send 1 to {PACKET_LIMIT}"),
    (*refused_content(LISTING, size=1 << 63), f"it has {1 << 63} bytes; send 1 to {PACKET_LIMIT}"),
    (elsewhere(1 << 30), sparse_memfd, f"it has {1 << 30} bytes; send 1 to {PACKET_LIMIT}"),
    (elsewhere(8), lambda: os.open(__file__, os.O_RDONLY), "its descriptor is no memfd; make one with memfd_create(MFD_ALLOW_SEALING)"),
    (elsewhere(8), lambda: os.open("/dev/zero", os.O_RDONLY), "its descriptor is no memfd"),
    (elsewhere(8), lambda: os.pipe()[0], "its descriptor is no memfd"),
    (elsewhere(8), None, "none came with it; send its descriptor last"),
    (*refused_content(elsewhere(8)), "what is no request: the connection is closed"),
    (*refused_content(LISTING + b"x"), "what is no request: the connection is closed")])
def test_content_that_is_not_final_costs_the_connection_only(agent, datagram, make, why):
    def count():
        return len(os.listdir(f"/proc/{agent.process.pid}/fd"))

    def memory():
        with open(f"/proc/{agent.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    with agent.connect(BOB) as other:
        assert other.ask(LIST)[1].take("I") == 0
        before = count(), memory()
        for _ in range(20):
            said = len(agent.log())
            descriptors = [make()] if make else []
            with agent.connect(ALICE) as connection:
                connection.send_datagram(datagram, descriptors)
                with pytest.raises((EOFError, ConnectionResetError)):
                    connection.answer(1)
            for descriptor in descriptors:
                os.close(descriptor)
            assert why in agent.log()[said:]
        assert other.ask(LIST)[1].take("I") == 0
        wait_for(lambda: count() == before[0], "its descriptors to be closed")
        assert memory() < before[1] + (64 << 10)


def test_content_that_is_final_is_a_request(agent):
    """However small; what came with it besides is not its content."""
    with agent.connect(ALICE) as connection:
        content = memfd(LISTING)
        connection.send_datagram(elsewhere(len(LISTING)), [0, 1, 2, content])
        os.close(content)
        assert connection.answer(1)[1].take("I") == 0


def test_descriptors_that_nobody_wants_are_closed(agent):
    def count():
        return len(os.listdir(f"/proc/{agent.process.pid}/fd"))

    with agent.connect() as connection:
        connection.ask(LIST)
        before = count()
        for _ in range(20):
            connection.ask(LIST, descriptors=[0, 0, 0])
        wait_for(lambda: count() == before, "its descriptors to be closed")


def test_who_does_not_read_is_dropped(agent):
    with agent.connect(ALICE) as deaf, agent.connect(BOB) as other:
        deaf.socket.settimeout(0)
        try:
            for _ in range(100000):
                deaf.send(DESTROY, text("x"))
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass
        assert other.ask(LIST)[1].take("I") == 0


JOIN_STEP = 94
OF_NONE = "in the cgroup of none that Slurm has made for it"
IN_STEP = "cannot join the step 7.3: it does not run here"


def join_again():
    """A task of a step of one host that says it runs already: where it is believed to be in a step, the agent names that."""
    return (struct.pack("=I", 1) + text("host") + struct.pack("=IIIII", 0, 1, 1, 0, 0) + text("") + struct.pack("=I", 0) + text("")
            + struct.pack("=I?", 0, False) + task(["true"], stdio=KEPT) + struct.pack("=?", True) + text("")
            + struct.pack("=I", 0) + text("") + text("") + struct.pack("=I", 0) + text("") + struct.pack("=II", 0, 0) + numbers([])
            + struct.pack("=I?I", 0, False, 0))  # ports that are published; not until it begins an srun; hosts of its job


def answer_from(agent, directory, uid, ask=lambda connection: connection.ask(JOIN_STEP, join_again())):
    """What the agent says to a process of that user in that cgroup."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "no answer"
        try:
            with open(os.path.join(directory, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write("0")
            with agent.connect(uid) as connection:
                said = str(ask(connection))
        except Exception as error:  # noqa: the parent must hear of it
            said = str(error)
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture(name="cgroup")
def a_cgroup_of_roots():
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        points = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2" or "freezer" in line.split()[3].split(",")]
    top = os.path.join(sorted(points)[0], f"test-requests-{os.getpid()}")
    os.mkdir(top)
    yield top
    for directory, _, _ in os.walk(top, topdown=False):
        os.rmdir(directory)


# Who owns what below a directory of root's, and whether the agent believes that Slurm has put a process of Alice's there.
@pytest.mark.parametrize("path, owners, believed", [
    (f"slurm/uid_{ALICE}/job_7/step_3", {}, True),
    (f"slurm/uid_{ALICE}/job_7/step_3/user/task_0", {}, True),
    (f"slurm/uid_{ALICE}/job_7/step_3", {f"slurm/uid_{ALICE}/job_7/step_3": ALICE}, True),
    ("system.slice/n1_slurmstepd.scope/job_7/step_3/user/task_0", {}, True),
    (f"slurm/uid_{BOB}/job_7/step_3", {}, False),
    ("system.slice/job_7/step_3", {}, False),
    (f"user@{ALICE}.service/uid_{ALICE}/job_7/step_3", {f"user@{ALICE}.service": ALICE}, False),
    (f"user@{ALICE}.service/slurmstepd.scope/job_7/step_3", {f"user@{ALICE}.service": ALICE}, False),
    (f"slurm/uid_{ALICE}/job_7/step_3", {f"slurm/uid_{ALICE}/job_7": ALICE}, False),
    (f"slurm/uid_{ALICE}/job_5/step_1/uid_{ALICE}/job_7/step_3", {f"slurm/uid_{ALICE}/job_5/step_1": ALICE}, False)])
def test_a_step_is_where_slurm_makes_it(agent, cgroup, path, owners, believed):
    """A user may have cgroups of his own, with any names in them, and root's processes may be anywhere."""
    os.makedirs(os.path.join(cgroup, path))
    for name, owner in owners.items():
        for directory, _, files in os.walk(os.path.join(cgroup, name)):
            for one in [directory, *(os.path.join(directory, file) for file in files)]:
                os.chown(one, owner, owner)
    said = answer_from(agent, os.path.join(cgroup, path), ALICE)
    if believed:
        assert said == IN_STEP
    elif "/job_5/" in path:
        assert said == IN_STEP.replace("7.3", "5.1"), "its own step"
    else:
        assert OF_NONE in said


RUN_JOB = 84
WITHIN_JOBS = "this site's users do so within their jobs only"


def run_on_two_hosts():
    return (texts(["host", "other"]) + struct.pack("=II", 1, 0) + text("") + task(["true"], stdio=KEPT)
            + struct.pack("=?I", False, 0) + struct.pack("=I", 0))  # no ports are published


@pytest.fixture(name="strict_agent", scope="module")
def agent_as_it_is_installed():
    agent = Agent(settings="")
    try:
        yield agent
    finally:
        agent.close()


def test_users_run_nothing_outside_of_slurm(strict_agent):
    with strict_agent.connect(ALICE) as alice, strict_agent.connect() as root:
        with pytest.raises(Refused, match=WITHIN_JOBS) as refused:
            alice.create(uid=ALICE, gid=ALICE)
        assert refused.value.code == 1
        with pytest.raises(Refused, match="do so by Slurm only") as refused:
            alice.ask(RUN_JOB, run_on_two_hosts())
        assert refused.value.code == 1
        assert root.ask(LIST)[1].take("I") == 0
        name, _ = root.create(uid=ALICE, gid=ALICE)
        root.destroy(name)


@pytest.mark.parametrize("path, owner, may", [
    (f"slurm/uid_{ALICE}/job_7/step_3", 0, True), (f"slurm/uid_{ALICE}/job_7/step_batch", 0, True),
    (f"slurm/uid_{BOB}/job_7/step_3", 0, False), (f"slurm/uid_{ALICE}/job_7/step_3", ALICE, False)])
def test_users_run_programs_within_their_jobs(strict_agent, cgroup, path, owner, may):
    """And these are in the step's cgroups; nobody is in a step by a cgroup of his own making."""
    directory = os.path.join(cgroup, path)
    os.makedirs(directory)
    os.chown(os.path.dirname(directory), owner, owner)

    def run(connection):
        name, _ = connection.create(uid=ALICE, gid=ALICE)
        number, _ = connection.start(name, ["grep", "-c", path, "/proc/self/cgroup"], stdio=KEPT)
        ended = connection.wait(name, number)
        connection.destroy(name)
        return f"ran {ended[0]}"

    said = answer_from(strict_agent, directory, ALICE, run)
    assert said == "ran 0" if may else WITHIN_JOBS in said
