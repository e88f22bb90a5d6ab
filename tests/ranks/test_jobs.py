# SPDX-License-Identifier: GPL-2.0-or-later
"""A job of several nodes is what its user has asked for: ranks, names, addresses, output, exit status, and nobody else's."""

import hashlib
import ipaddress
import os
import re

import pytest
from rankhosts import CTL, CUT_JOB, PATIENCE, end
from virtualcluster.errors import wait_for
from virtualnode import text  # after rankhosts, which says where it is

SHOW = ('echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $SLURM_PROCID/$SLURM_NTASKS '
        '$SLURM_LOCALID $SLURM_NODEID/$SLURM_NNODES $(hostname) $(id -u):$(id -g):$(id -G)"')

# All ranks reach rank 0 by name, and tell what it has told them.
MEET = """
import os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(("", where[1]))
    peers = [server.accept()[0] for _ in range(size - 1)]
    seen = sorted(int(peer.recv(100)) for peer in peers)
    for peer in peers:
        peer.sendall(repr(seen).encode())
        peer.close()
    print("all met", seen)
else:
    while True:
        try:
            peer = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            pass
    peer.sendall(str(rank).encode())
    print(rank, "was told", peer.recv(1000).decode())
"""


def test_what_ranks_are_told(hosts):
    done = hosts.run("n1", "n1,n2,n3", "sh", "-c", SHOW, options=["--ranks-per-node", "2", "--label"])
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    job = re.search(r" (u1001-j[0-9a-f]{6})-0:29500 ", lines["0"]).group(1)
    for rank in range(6):
        node, local = divmod(rank, 2)
        assert lines[str(rank)] == (f"{rank}/6 {local}/2 {job}-0:29500 {rank}/6 {local} {node}/3 {job}-{node} 1001:1001:1001")
    assert len(lines) == 6


@pytest.mark.parametrize("asked, where", [("n1", "n1,n2,n3"), ("n3", "n1,n2"), ("n2", "n1,n1,n3,n1"), ("n1", "n1"), ("n1", "n2")])
def test_ranks_meet(hosts, asked, where):
    ranks = 2 * (where.count(",") + 1)
    done = hosts.run(asked, where, "python3", "-c", MEET, options=["--ranks-per-node", "2", "--label"])
    assert done.returncode == 0, done.stderr
    assert f"0: all met {list(range(1, ranks))}" in done.stdout
    assert done.stdout.count("was told") == ranks - 1


# Of 1.9 MB: Linux takes 2 MiB with the usual limit of the stack.
LARGE = {f"LARGE_{number}": f"{number}:" * 20000 for number in range(35)}
START_WITH_IT = "import os, sys; os.execve(sys.argv[1], sys.argv[1:], {**os.environ, **{f'LARGE_{n}': f'{n}:' * 20000 for n in range(35)}})"


def test_ranks_have_all_of_a_large_environment(hosts):
    """On every host."""
    assert 1_900_000 < sum(len(name) + len(value) + 10 for name, value in LARGE.items()) < 2 << 20
    digest = hashlib.sha256(repr(sorted(LARGE.items())).encode()).hexdigest()
    script = ("import hashlib, os; print(hashlib.sha256(repr(sorted(one for one in os.environ.items() if one[0].startswith('LARGE_')))"
              ".encode()).hexdigest())")
    done = hosts.host("n1").run(["python3", "-c", START_WITH_IT, CTL, "run", "--hosts", "n1,n2", "--ranks-per-node", "2", "--label", "--",
                                 "python3", "-c", script], user="alice", check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", *(f"{rank}: {digest}" for rank in range(4))]


def test_without_hosts_it_is_here(hosts):
    done = hosts.ctl("n2", "run", "--ranks-per-node", "3", "--", "sh", "-c", "echo $RANK")
    assert sorted(done.stdout.split()) == ["0", "1", "2"]


def test_names_and_addresses(hosts):
    done = hosts.run("n1", "n1,n2", "sh", "-c", "head -n 2 /etc/hosts; hostname -i; hostname -I", options=["--label"])
    assert done.returncode == 0, done.stderr
    lines = {rank: [line[3:].split() for line in done.stdout.splitlines() if line.startswith(f"{rank}: ")] for rank in (0, 1)}
    assert lines[0][0] == lines[1][1] and lines[0][1] == lines[1][0]
    for rank in (0, 1):
        address, name = lines[rank][0]
        assert re.fullmatch(rf"10\.\d+\.\d+\.{rank + 1}", address) and name.endswith(f"-{rank}")
        # What scripts take for "the" address of a node, with no IPv6 one beside it.
        assert lines[rank][2] == [address]
        assert lines[rank][3] == [address, str(ipaddress.ip_address("fd53:696e:6775::") + int(ipaddress.ip_address(address)))]


def test_two_jobs_at_once(hosts):
    """Each has its own: the other's addresses lead nowhere."""
    program = ("import os, socket, time\n"
               "socket.create_server(('', 5000)) if os.environ['RANK'] == '0' else None\n"
               "print(open('/etc/hosts').readline().split()[0], flush=True)\n"
               "while not os.path.exists('/shared/' + os.environ['GO']): time.sleep(0.02)")
    first = hosts.detach("n1", "n1,n2", "env", "GO=one", "python3", "-c", program)
    wait_for(lambda: len(hosts.logs("n1", first).split()) == 2, PATIENCE, "the first job to run")
    address = hosts.logs("n1", first, "--rank", "0").strip()
    reach = f"import socket; socket.create_connection(('{address}', 5000), timeout=1)"
    done = hosts.run("n2", "n1,n2", "python3", "-c", reach, options=["--label"])
    assert done.returncode == 1
    assert "timed out" in done.stdout or "Network is unreachable" in done.stdout or "No route" in done.stdout
    with open(os.path.join(hosts.cluster.directory, "shared", "one"), "w", encoding="ascii"):
        pass
    wait_for(lambda: hosts.state("n1", first) == "ended", PATIENCE, "the first job to end")
    assert "exit 0" in hosts.jobs("n1")[first]


def test_output_is_whole(hosts):
    """However fast it comes, and who is slow to read it holds back who writes."""
    count = 6 << 20
    script = f"import os, sys; r = os.environ['RANK']; sys.stdout.write((r * 63 + chr(10)) * ({count} // 64))"
    done = hosts.run("n1", "n1,n2", "python3", "-c", script)
    assert done.returncode == 0, done.stderr
    for rank in "01":
        assert done.stdout.count(rank) == count // 64 * 63
    process = hosts.begin("n1", "n2", "python3", "-c", script)
    assert len(process.stdout.read(1000)) == 1000
    assert len(process.stdout.read()) == count - 1000
    assert process.wait(PATIENCE) == 0
    end(process)


def test_exit_status_is_the_highest(hosts):
    done = hosts.run("n1", "n1,n2", "sh", "-c", "exit $((RANK * 3))")
    assert done.returncode == 3
    assert "rank 1 on n2 has ended with exit status 3" in done.stderr
    done = hosts.run("n1", "n1,n2", "sh", "-c", "[ $RANK = 0 ] && kill -9 $$; sleep 1000")
    assert done.returncode == 128 + 9
    assert "rank 0 on n1 has ended with signal 9" in done.stderr


def test_output_before_a_failure_is_delivered(hosts):
    script = "echo here is $RANK; touch /shared/up-$RANK; while [ ! -e /shared/up-$((1 - RANK)) ]; do sleep 0.02; done; exit $RANK"
    done = hosts.run("n1", "n1,n2", "sh", "-c", script + "; sleep 1000")
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["here is 0", "here is 1"]


def test_detached(hosts):
    go = os.path.join(hosts.cluster.directory, "shared", "go")
    job = hosts.detach("n1", "n1,n2", "sh", "-c", "echo rank $RANK; while [ ! -e /shared/go ]; do sleep 0.02; done; echo after")
    wait_for(lambda: hosts.state("n1", job) == "running", PATIENCE, "the job to run")
    wait_for(lambda: sorted(hosts.logs("n1", job).splitlines()) == ["rank 0", "rank 1"], PATIENCE, "its output")
    assert hosts.logs("n1", job, "--rank", "1") == "rank 1\n"
    assert "n1,n2" in hosts.jobs("n1")[job]
    assert hosts.ctl("n1", "logs", job, "--rank", "2", check=False).returncode == 1
    with open(go, "w", encoding="ascii"):
        pass
    wait_for(lambda: hosts.state("n1", job) == "ended", PATIENCE, "the job to end")
    assert hosts.logs("n1", job, "--rank", "0", "--label") == "0: rank 0\n0: after\n"
    hosts.assert_clean(detached=[job])
    hosts.ctl("n1", "destroy", job)
    assert job not in hosts.jobs("n1")


def test_a_job_is_its_users(hosts):
    job = hosts.detach("n1", "n1,n2", "sleep", "1000")
    for command in (["destroy", job], ["logs", job], ["kill", job]):
        refused = hosts.ctl("n1", *command, user="bob", check=False)
        assert refused.returncode == 1 and "belongs to another user" in refused.stderr
    assert job not in hosts.jobs("n1", user="bob")
    assert job in hosts.jobs("n1", user="root")
    hosts.ctl("n1", "destroy", job)


def test_signals_go_to_all_ranks(hosts):
    job = hosts.detach("n1", "n1,n2", "sh", "-c", "trap 'echo got it; exit 0' USR1; echo up; while :; do sleep 0.02; done")
    wait_for(lambda: hosts.logs("n1", job).count("up") == 2, PATIENCE, "the job to run")
    hosts.ctl("n1", "kill", job, "--signal", "10")
    wait_for(lambda: hosts.state("n1", job) == "ended", PATIENCE, "the job to end")
    assert hosts.logs("n1", job).count("got it") == 2


def test_interrupted_in_the_foreground(hosts):
    process = hosts.begin("n1", "n1,n2", "sh", "-c", "trap 'echo bye; exit 0' INT; echo up; while :; do sleep 0.02; done")
    try:
        for _ in range(2):
            assert process.stdout.readline() == "up\n"
        hosts.host("n1").run(["sh", "-c", "kill -INT $(grep -l '^singularityctl' /proc/[0-9]*/comm | cut -d/ -f3)"])
        output, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, output) == (0, "bye\nbye\n"), errors
    finally:
        end(process)


@pytest.mark.parametrize("arguments, why", [
    (["--hosts", "n1,nowhere"], "nowhere"),
    (["--hosts", "n1,n 2"], "is no name of a host"),
    (["--hosts", "ctl"], "cannot reach the agent of"),
    (["--hosts", "n1", "--ranks-per-node", "257"], "257"),
    (["--hosts", "n1", "--name", "x"], "--name"),
])
def test_what_cannot_be(hosts, arguments, why):
    done = hosts.ctl("n1", "run", *arguments, "--", "true", check=False)
    assert done.returncode != 0 and why in done.stderr, done.stderr


def test_a_program_that_is_not_there(hosts):
    done = hosts.run("n1", "n1,n2", "/no/such/program")
    assert done.returncode == 1
    assert "/no/such/program" in done.stderr


def test_a_large_world(hosts):
    done = hosts.run("n1", "n1,n2,n3,n1,n2,n3", "sh", "-c", "echo $RANK", options=["--ranks-per-node", "8"])
    assert done.returncode == 0, done.stderr
    assert sorted(int(line) for line in done.stdout.split()) == list(range(48))


STREAM = """
import os, socket, sys
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    peer = socket.create_server(("", where[1])).accept()[0]
    n = 0
    while True:
        got = peer.recv(4096)
        n += len(got)
        with open("/shared/progress", "w") as file:
            file.write(str(n))
else:
    while True:
        try:
            peer = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            pass
    while True:
        peer.sendall(bytes(1024))
"""


def test_the_network_of_a_job_is_cut_and_opened(hosts):
    """On all its hosts, by its coordinator; what it means is in tests/network."""
    progress = os.path.join(hosts.cluster.directory, "shared", "progress")

    def seen():
        try:
            with open(progress, encoding="ascii") as file:
                return int(file.read() or 0)
        except FileNotFoundError:
            return 0

    def grows():
        before = seen()
        wait_for(lambda: seen() > before, PATIENCE, "the stream to flow")

    job = hosts.detach("n1", "n2,n3", "python3", "-c", STREAM)
    grows()
    with hosts.connect("n1") as connection:
        connection.ask(CUT_JOB, text(job) + b"\0")
        for name in ("n2", "n3"):
            ports = hosts.ports(name)
            assert len(ports) == 2 and set(ports.values()) == {"disabled"}, ports
        connection.ask(CUT_JOB, text(job) + b"\1")
        for name in ("n2", "n3"):
            assert set(hosts.ports(name).values()) == {"forwarding"}
    grows()
    hosts.ctl("n1", "destroy", job)


def test_each_node_has_its_devices(hosts):
    done = hosts.run("n1", "n1,n2", "sh", "-c", "ls /run/singularity/devices", options=["--devices", "2", "--backend", "software", "--label"])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank}: {device}.sock" for rank in "01" for device in "01"]


# Four ranks of an unmodified framework on two hosts agree on a sum.
REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(value)
assert (value == 10).all()
print(dist.get_rank(), "of", dist.get_world_size(), value[0].item())
dist.destroy_process_group()
"""


def test_pytorch_ranks_reduce(hosts):
    command = ["env", "USE_LIBUV=0", "OMP_NUM_THREADS=1", "python3", "-c", REDUCE]
    done = hosts.run("n1", "n1,n2", *command, options=["--ranks-per-node", "2"], timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 4 10.0" for rank in range(4)]
