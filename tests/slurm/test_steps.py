# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps of elastic jobs run in virtual nodes; whoever looks at Slurm, or from the program, sees what he saw before."""

import errno
import hashlib
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import METRICS, up
from elastic import ELASTIC, INIT, WRAPPER, assert_clean, left
from virtualcluster.cluster import CHECKOUT
from virtualcluster.errors import wait_for

BUILD = os.path.abspath(os.environ.get("CTEST_BINARY_DIR", os.path.join(CHECKOUT, "build", "release")))
PATIENCE = 60
BOTH = ["-N2", "--ntasks-per-node=2"]


@pytest.fixture
def srun(ours):
    """srun's result; after the test nothing of its steps is left."""

    def run(*words, options=(), user="alice", stdin=None, elastic=True, env=None, before=()):
        line = [*before, "srun", *([ELASTIC] if elastic else []), *options, *words]
        return ours.controller.run(line, user=user, check=False, stdin=stdin, directory="/shared", env=env)

    yield run
    assert_clean(ours)


def begin(cluster, *words, options=(), elastic=True):
    host = cluster.controller
    line = ["srun", *([ELASTIC] if elastic else []), *options, *words]
    return subprocess.Popen(host.command(line, "alice", "/shared"), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def python(code):
    return ["/usr/bin/python3", "-c", code]


def test_ranks_are_in_virtual_nodes(srun):
    """One for each host, which has the host's name."""
    shown = srun("sh", "-c", "echo $SLURM_PROCID $(hostname) $(cat /proc/1/comm) $(id -un)", options=BOTH)
    assert shown.returncode == 0, shown.stderr
    assert sorted(shown.stdout.splitlines()) == [f"{rank} n{rank // 2 + 1} {INIT} alice" for rank in range(4)]


def test_the_environment_is_as_without(srun):
    """But for what differs from step to step."""
    changing = r"(SLURM_(JOB_?ID|JOB_SLUID|STEP_?ID|LAUNCH_NODE_PORT|SRUN_COMM_PORT|STEP_LAUNCHER_PORT|TASK_PID|JOB_(START|END)_TIME|TOPOLOGY.*|UMASK)|SRUN_DEBUG|_|SHLVL|SINGULARITY_ELASTIC)="
    command = ["sh", "-c", "ulimit -n; umask; pwd; env"]
    with_it, without = (srun(*command, options=["-n1", "-wn1"], elastic=elastic).stdout.splitlines() for elastic in (True, False))
    assert "SINGULARITY_ELASTIC=1-requested" in with_it
    assert not [line for line in with_it if line.startswith("SINGULARITY_STEP")]
    stays = [sorted(line for line in lines if not re.match(changing, line)) for lines in (with_it, without)]
    assert stays[0] == stays[1]
    assert any(line.startswith("SLURM_PROCID=") for line in stays[0])


def test_a_large_environment_and_large_arguments_arrive(srun):
    """Less than 2 MiB with what Slurm adds, which is what Linux takes with the usual limit of the stack."""
    large = {f"LARGE_{number}": f"{number}:" * 1000 for number in range(200)} | {f"LONG_{number}": "x" * 100000 for number in range(8)}
    arguments = [str(number) * 1000 for number in range(100)]
    begin_with_it = ("import os, sys; os.execvpe(sys.argv[1], sys.argv[1:], {**os.environ, **{f'LARGE_{n}': f'{n}:' * 1000 for n in range(200)},"
                     " **{f'LONG_{n}': 'x' * 100000 for n in range(8)}})")
    digest = "import hashlib, os, sys; print(hashlib.sha256(repr((sorted(one for one in os.environ.items() if one[0].startswith(('LARGE_', 'LONG_'))), sys.argv[1:])).encode()).hexdigest())"
    shown = srun(*python(digest), *arguments, options=BOTH, before=python(begin_with_it))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines() == [hashlib.sha256(repr((sorted(large.items()), arguments)).encode()).hexdigest()] * 4


def test_ranks_reach_each_other_by_slurms_names(srun):
    """Over the step's own network; the hosts' addresses stay behind."""
    code = """
import os, socket, subprocess, time
rank, first = int(os.environ["SLURM_PROCID"]), os.environ["SLURM_STEP_NODELIST"].replace("[", "").split("-")[0].split(",")[0]
if rank == 0:
    server = socket.create_server((socket.gethostname(), 4711))
    said = []
    for _ in range(3):
        connection, address = server.accept()
        said.append(connection.makefile().readline().strip())
    print(sorted(said), socket.gethostbyname(first), flush=True)
else:
    while True:
        try:
            connection = socket.create_connection((first, 4711), timeout=10)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    connection.sendall(f"{rank}\\n".encode())
"""
    shown = srun(*python(code), options=BOTH)
    assert shown.returncode == 0, shown.stderr
    assert re.fullmatch(r"\['1', '2', '3'\] 10\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.\d+\.\d+\n", shown.stdout), shown.stdout


def test_streams(srun):
    shown = srun("sh", "-c", "cat; echo errors >&2; cat", options=["-n1"], stdin="given\n")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "given\n", "errors\n")
    much = srun("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; head -c 1000000 /dev/zero | tr '\\0' y >&2", options=["-n1"])
    assert much.stdout == "x" * 3000000 + "\n" and much.stderr.count("y") == 1000000


ENDS = {
    "status": ["sh", "-c", "exit 7"],
    "not found": ["/nonexistent/program"],
    "signal": ["sh", "-c", "kill -SEGV $$"],
    "one of two": ["sh", "-c", "exit $((SLURM_PROCID * 3))"],
    "at the end": ["sh", "-c", "sleep $SLURM_PROCID; exit 0"],
}


@pytest.mark.parametrize("what", ENDS)
def test_ends_are_as_without(srun, what):
    options = ["-n2", "-N1"] if what in ("one of two", "at the end") else ["-n1"]
    with_it, without = (srun(*ENDS[what], options=options, elastic=elastic) for elastic in (True, False))
    assert with_it.returncode == without.returncode
    if what == "signal":
        assert "Segmentation fault" in with_it.stderr and "Segmentation fault" in without.stderr
    if what == "not found":
        assert "/nonexistent/program" in with_it.stderr and "No such file or directory" in with_it.stderr


def test_a_rank_that_fails_leaves_the_others_alone(srun):
    """Unless srun is told otherwise."""
    command = ["sh", "-c", "[ $SLURM_PROCID = 0 ] && exit 3; sleep 2; echo rank $SLURM_PROCID"]
    shown = srun(*command, options=BOTH)
    assert (shown.returncode, sorted(shown.stdout.splitlines())) == (3, ["rank 1", "rank 2", "rank 3"])
    killed = srun("sh", "-c", "[ $SLURM_PROCID = 0 ] && exit 3; sleep 1000", options=[*BOTH, "--kill-on-bad-exit=1"])
    assert killed.returncode != 0


def test_the_last_rank_of_a_host_waits_for_the_others(srun):
    """Its network holds what others have still to read: more than fits on their side."""
    code = """
import os, socket, time
if os.environ["SLURM_PROCID"] == "0":
    server = socket.create_server((socket.gethostname(), 4711))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    server.accept()[0].sendall(b"x" * 100000)
else:
    while True:
        connection = socket.socket()
        connection.settimeout(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            connection.connect(("n1", 4711))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    time.sleep(2)
    read = 0
    while piece := connection.recv(1000):
        read += len(piece)
    print(read)
"""
    shown = srun(*python(code), options=["-N2", "-n2", "-wn[1-2]"])
    assert (shown.returncode, shown.stdout) == (0, "100000\n"), shown.stderr


def test_signals_reach_the_rank(ours, srun):
    process = begin(ours, "sh", "-c", "trap 'echo got usr1; exit 5' USR1; trap 'echo got term' TERM; echo up; while :; do sleep 0.1; done",
                    options=["-n1", "-J", "signals"])
    assert process.stdout.readline() == "up\n"
    job = ours.slurm("squeue", "-h", "-n", "signals", "-o", "%i")
    ours.slurm("scancel", "-s", "TERM", f"{job}.0", user="alice")
    assert process.stdout.readline() == "got term\n"
    ours.slurm("scancel", "-s", "USR1", f"{job}.0", user="alice")
    assert process.stdout.readline() == "got usr1\n"
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 5


# All that a program can take, and one of the realtime kind.
TAKEN = [*(number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP)), signal.SIGRTMIN + 6]
TAKES = """
import os, signal, sys
missing = {int(number) for number in sys.argv[1:]}
def take(number, _):
    missing.discard(number)
    os.write(1, b"got %d\\n" % number)
for number in sorted(missing):
    signal.signal(number, take)
os.write(1, b"up\\n")
while missing:
    signal.pause()
"""


@pytest.mark.parametrize("elastic", [True, False])
def test_the_program_is_found_as_slurmstepd_finds_it(ours, srun, elastic):
    ours.controller.run(["sh", "-c", "printf '#!/bin/sh\\necho mine\\n' >mine; printf 'echo plain\\n' >plain; chmod +x mine plain"], user="alice", directory="/shared")
    shown = srun("mine", options=["-n1"], elastic=elastic)
    assert (shown.returncode, shown.stdout) == (0, "mine\n"), shown.stderr
    plain = srun("./plain", options=["-n1"], elastic=elastic)
    assert (plain.returncode, plain.stdout) == (errno.ENOEXEC, "") and "Exec format error" in plain.stderr, plain.stderr
    bare = srun("env", options=["-n1", "--export=NONE"], elastic=elastic)
    assert (bare.returncode, bare.stdout) == (errno.ENOENT, "") and "No such file or directory" in bare.stderr, bare.stderr


@pytest.mark.parametrize("elastic", [True, False])
def test_every_signal_reaches_the_rank(ours, srun, elastic):
    process = begin(ours, *python(TAKES), *map(str, TAKEN), options=["-n1", "-J", f"every-{elastic}"], elastic=elastic)
    assert process.stdout.readline() == "up\n"
    job = ours.slurm("squeue", "-h", "-n", f"every-{elastic}", "-o", "%i")
    for number in TAKEN:
        ours.slurm("scancel", "-s", str(number), f"{job}.0", user="alice")
        assert process.stdout.readline() == f"got {number}\n"
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


@pytest.mark.parametrize("elastic", [True, False])
def test_every_signal_reaches_the_script(ours, elastic):
    """But SIGTERM, which is asked about first if the job is elastic (test_lifecycle.py)."""
    numbers = [number for number in TAKEN if number != signal.SIGTERM]
    path = f"takes-{elastic}"
    job = ours.submit(*([ELASTIC] if elastic else []), "-n1", "-wn1", "-o", path, script=f"#!/usr/bin/python3\nimport sys\nsys.argv[1:] = {numbers}\n{TAKES}")

    def said():
        return ours.controller.run(["cat", f"/shared/{path}"], check=False).stdout.splitlines()

    wait_for(lambda: said() == ["up"], PATIENCE, "the script to wait for signals")
    for position, number in enumerate(numbers):
        ours.slurm("scancel", "--batch", "-s", str(number), str(job), user="alice")
        wait_for(lambda seen=position + 2: len(said()) == seen, PATIENCE, f"signal {number} to reach the script")
    assert said() == ["up", *(f"got {number}" for number in numbers)]
    ours.wait_job(job)


@pytest.mark.parametrize("elastic", [True, False])
def test_a_program_can_stop_itself(ours, srun, elastic):
    """Its process group is not alone in its session, where SIGTSTP would do nothing."""
    process = begin(ours, "sh", "-c", "echo up; kill -TSTP $$; echo on", options=["-n1", "-wn1", "-J", f"stops-{elastic}"], elastic=elastic)
    assert process.stdout.readline() == "up\n"
    stopped = "grep -l '^State:.T' /proc/[0-9]*/status"
    wait_for(lambda: ours.host("n1").run(stopped, check=False).stdout, PATIENCE, "the program to stop")
    ours.slurm("scancel", "-s", "CONT", "-n", f"stops-{elastic}", user="alice")
    assert process.communicate(timeout=PATIENCE)[0] == "on\n"
    assert process.returncode == 0


@pytest.mark.parametrize("elastic", [True, False])
def test_a_task_can_be_stopped(ours, srun, elastic):
    """By SIGSTOP, which no process can take and pass on."""
    name = f"stop-{elastic}"
    process = begin(ours, "sh", "-c", f"until [ -e /shared/{name}-over ]; do echo tick >> /shared/{name}; sleep 0.1; done", options=["-n1", "-J", name], elastic=elastic)

    def ticks():
        return ours.controller.run(["cat", f"/shared/{name}"], check=False).stdout.count("tick")

    wait_for(ticks, PATIENCE, "the task to run")
    ours.slurm("scancel", "-s", "STOP", "-n", name, user="alice")
    time.sleep(1)
    before = ticks()
    time.sleep(1.5)
    assert ticks() == before
    ours.slurm("scancel", "-s", "CONT", "-n", name, user="alice")
    wait_for(lambda: ticks() > before + 1, PATIENCE, "the task to go on")
    ours.controller.run(["touch", f"/shared/{name}-over"])
    assert process.communicate(timeout=PATIENCE)[0] == "" and process.returncode == 0


@pytest.mark.parametrize("elastic", [True, False])
def test_what_a_task_has_started_hears_no_signals(ours, srun, elastic):
    child = "trap 'echo child' USR1; echo up; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done"
    task = f"trap 'echo task' USR1; sh -c \"{child}\" & wait; wait"
    process = begin(ours, "sh", "-c", task, options=["-n1", "-J", f"one-{elastic}"], elastic=elastic)
    assert process.stdout.readline() == "up\n"
    ours.slurm("scancel", "-s", "USR1", "-n", f"one-{elastic}", user="alice")
    assert process.communicate(timeout=PATIENCE)[0] == "task\n"


def test_everything_is_in_slurms_cgroups(ours, srun):
    """So limits and accounting hold, and nothing outlives the step."""
    shown = srun("sh", "-c", "cat /proc/self/cgroup; echo job_$SLURM_JOB_ID/step_$SLURM_STEP_ID", options=["-n1"])
    *groups, step = shown.stdout.splitlines()
    assert sum(f"/{step}" in line for line in groups) >= 3, shown.stdout  # devices, freezer, memory
    over = srun(*python("x = bytearray(b'x') * (400 << 20); print(len(x))"), options=["-n1", "--mem=100"])
    assert over.returncode != 0 and over.stdout == ""


def test_each_rank_is_in_the_cgroups_of_its_task(srun):
    """As without it. But for the older hierarchy of devices: there it is in that of the step."""

    def places(elastic):
        shown = srun("sh", "-c", "sed \"s/^/$SLURM_PROCID /\" /proc/self/cgroup", options=["-n2", "-N1", "--mem=100"], elastic=elastic)
        lines = [re.sub(r"/job_\d+/step_\d+", "/STEP", line) for line in shown.stdout.splitlines() if "/job_" in line]
        return sorted(re.sub(r"(:.*\bdevices\b.*:.*/STEP)/.*", r"\1", line) for line in lines)

    stock = places(False)
    assert any(line.endswith("/task_1") for line in stock), stock
    assert places(True) == stock


def test_killed_jobs_leave_nothing(ours, srun):
    process = begin(ours, "sh", "-c", "echo up; setsid sleep 1000 & trap '' TERM; sleep 1000", options=[*BOTH, "-J", "killed"])
    assert [process.stdout.readline() for _ in range(4)] == ["up\n"] * 4
    nodes = left(ours)
    assert all(nodes.values()), nodes
    ours.slurm("scancel", "-n", "killed", user="alice")
    process.communicate(timeout=PATIENCE)
    assert process.returncode != 0


def pids(cluster, host, comm):
    script = f"grep -l '^{comm}$' /proc/[0-9]*/comm | cut -d/ -f3"
    return [int(pid) for pid in cluster.host(host).run(script, check=False).stdout.split()]


def test_a_rank_dies_with_its_wrapper(ours, srun):
    process = begin(ours, "sh", "-c", "echo up; sleep 1000", options=["-n1", "-wn1"])
    assert process.stdout.readline() == "up\n"
    (wrapper,) = pids(ours, "n1", "singularity-tas")
    ours.host("n1").run(["kill", "-KILL", str(wrapper)])
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGKILL, errors


def holds_back(cluster, host, pid, number):
    """Whether a process has blocked a signal."""
    status = cluster.host(host).run(["cat", f"/proc/{pid}/status"], check=False).stdout
    blocked = re.search(r"^SigBlk:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return blocked is not None and bool(int(blocked[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_rank_runs_ends_the_task_by_it(ours, srun, number):
    """As it would have ended the program, which waits here for an agent that does not answer."""
    agent = str(ours.daemon_pid("n1", "singularityd"))
    ours.host("n1").run(["kill", "-STOP", agent])
    try:
        process = begin(ours, "sleep", "1000", options=["-n1", "-wn1", "-J", f"early-{number}"])
        # Before it has signals of its own to read, any would end it as it is.
        wait_for(lambda: any(holds_back(ours, "n1", pid, number) for pid in pids(ours, "n1", "singularity-tas")), PATIENCE, "the wrapper to ask for its rank")
        job = ours.slurm("squeue", "-h", "-n", f"early-{number}", "-o", "%i")
        ours.slurm("scancel", "-s", signal.Signals(number).name[3:], f"{job}.0", user="alice")
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        ours.host("n1").run(["kill", "-CONT", agent])
    assert process.returncode == 128 + number, errors


def test_an_agent_that_dies_is_not_missed(ours, srun):
    """Neither the first host's, which coordinates, nor the other."""
    process = begin(ours, "sh", "-c", "echo up; read x </shared/go; echo rank $SLURM_PROCID; exit 4", options=BOTH)
    fifo = os.path.join(ours.directory, "shared", "go")
    os.mkfifo(fifo)
    os.chmod(fifo, 0o666)
    try:
        assert [process.stdout.readline() for _ in range(4)] == ["up\n"] * 4
        for name in ("n1", "n2"):
            ours.stop_daemon(name, "singularityd", "KILL")
            ours.start_agents(name)
        with open(fifo, "w", encoding="ascii") as file:
            file.write("\n" * 4)
            file.flush()
            out, errors = process.communicate(timeout=PATIENCE)
    finally:
        os.unlink(fifo)
    assert (process.returncode, sorted(out.splitlines())) == (4, [f"rank {rank}" for rank in range(4)]), errors


def test_output_comes_while_there_is_no_agent(ours, srun):
    """The rank's pipes end at its wrapper: nobody else has what it writes."""
    process = begin(ours, "sh", "-c", "for n in $(seq 400); do echo $n; sleep 0.1; [ -e /shared/agents-are-back ] && exit; done", options=["-n1", "-wn1"])
    assert process.stdout.readline() == "1\n"
    ours.stop_daemon("n1", "singularityd", "KILL")
    try:
        shown = [process.stdout.readline() for _ in range(50)]
    finally:
        ours.start_agents("n1")
    ours.controller.run(["touch", "/shared/agents-are-back"])
    out, errors = process.communicate(timeout=PATIENCE)
    numbers = [int(line) for line in [*shown, *out.splitlines()]]
    assert process.returncode == 0 and numbers == list(range(2, 2 + len(numbers))), errors


SPREADS = {"3,1": ["-N2", "-n4", "-m", "plane=3"], "cyclic": [*BOTH, "--distribution=cyclic"]}


@pytest.mark.parametrize("how", SPREADS)
def test_ranks_are_where_slurm_puts_them(srun, how):
    command = ["sh", "-c", "echo $SLURM_PROCID $SLURM_LOCALID $(hostname) $SLURM_STEP_TASKS_PER_NODE; exit $SLURM_PROCID"]
    with_it, without = (srun(*command, options=SPREADS[how], elastic=elastic) for elastic in (True, False))
    assert with_it.returncode == without.returncode == 3
    assert sorted(with_it.stdout.splitlines()) == sorted(without.stdout.splitlines()) and with_it.stdout


@pytest.mark.parametrize("options, inside", [((), True), (("--singularity-no-save-script",), False)], ids=["in a node", "outside"])
def test_batch_scripts_are_where_their_user_wants_them(ours, options, inside):
    """Each of its steps has a virtual node of its own; steps come one after the other."""
    script = "#!/bin/sh\ncat /proc/1/comm; for i in 1 2 3; do srun sh -c 'echo step $SLURM_STEP_ID $(cat /proc/1/comm)'; done; exit 6\n"
    # srun's own words are elsewhere: that a step has to wait until slurmctld knows of the last one's end.
    job = ours.submit("-n1", ELASTIC, *options, "-o", "%j.steps", "-e", "%j.errors", script=script)
    ours.wait_job(job, states=("FAILED",))
    lines, errors = (ours.controller.run(["cat", f"/shared/{job}.{name}"]).stdout.splitlines() for name in ("steps", "errors"))
    assert ours.job(job)["ExitCode"] == "6:0", (lines, errors)
    assert (lines[0] == INIT) == inside and lines[1:] == [f"step {step} {INIT}" for step in range(3)], (lines, errors)


def test_each_rank_runs_where_slurm_binds_its_task(srun):
    """As task/affinity would bind it; here by hand, since the hosts' processors are not real."""
    cpus = sorted(os.sched_getaffinity(0))
    script = (f"export SINGULARITY_STEP_HOSTS=n1; set -- {' '.join(map(str, cpus))}; shift $((SLURM_PROCID % $#)); "
              f"exec taskset -c $1 {WRAPPER} sh -c 'echo $SLURM_PROCID $(grep ^Cpus_allowed_list /proc/self/status)'")
    shown = srun("sh", "-c", script, options=["-wn1", "-n2"], elastic=False)
    assert shown.returncode == 0, shown.stderr
    assert sorted(shown.stdout.splitlines()) == [f"{rank} Cpus_allowed_list: {cpus[rank % len(cpus)]}" for rank in range(2)]


def test_two_steps_at_once(ours, srun):
    script = "#!/bin/sh\nfor i in 1 2; do srun --exact -n1 --mem=200 sh -c 'echo begin; sleep 1; hostname' & done; wait\n"
    job = ours.submit("-n2", "-N1", "--mem=600", ELASTIC, "-o", "%j.steps", "-e", "%j.errors", script=script)
    ours.wait_job(job)
    lines = ours.controller.run(["cat", f"/shared/{job}.steps"]).stdout.splitlines()
    assert sorted(lines)[:2] == ["begin"] * 2 and len(set(lines)) == 2, lines


def test_a_terminal(ours, srun):
    script = "script -qec 'srun --singularity-elastic --pty -n1 sh -c \"tty; stty size; exit 3\"' /dev/null; echo status $?"
    shown = ours.controller.run(["sh", "-c", script], user="alice", check=False)
    assert "/dev/pts/0" in shown.stdout and "status 3" in shown.stdout, shown.stdout + shown.stderr


def test_devices(ours, srun, release):
    """Ranks see the step's GPUs, by proxies, and no device files."""
    if release != "24.11":
        pytest.skip("its build has no proxy")
    program = os.path.join(BUILD, "workloads", "device_properties")
    shown = srun("sh", "-c", f"ls /dev | grep nvidia; echo $CUDA_VISIBLE_DEVICES; {program} | grep devices", options=["-n1", "--gpus=2"])
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines() == ["0,1", "devices 2"], shown.stdout
    script = f"#!/bin/sh\nsrun --gpus=1 --exact {program} | grep devices; srun {program} | grep devices\n"
    job = ours.submit("-n1", "--gpus=3", ELASTIC, "-o", "%j.devices", "-e", "%j.errors", script=script)
    ours.wait_job(job)
    assert ours.controller.run(["cat", f"/shared/{job}.devices"]).stdout.splitlines() == ["devices 1", "devices 3"]


def test_each_rank_has_gpus_of_its_own(srun, release):
    if release != "24.11":
        pytest.skip("its build has no proxy")
    program = os.path.join(BUILD, "workloads", "device_properties")
    script = f"echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES $({program} | grep devices)"
    shown = srun("sh", "-c", script, options=[*BOTH, "--gpus-per-task=2"])
    assert shown.returncode == 0, shown.stderr
    assert sorted(shown.stdout.splitlines()) == [f"{rank} {gpus} devices 2" for rank, gpus in enumerate(["0,1", "2,3"] * 2)]


def test_a_training_of_many_ranks(ours, srun, release):
    """Results are those of one process of the same size without Slurm."""
    if release != "24.11":
        pytest.skip("its build has no proxy")
    program = os.path.join(BUILD, "workloads", "train_parallel")
    results = []
    for options in (["-N2", "--ntasks-per-node=4", "--gpus-per-node=4"], ["-N1", "-n8", "--gpus=4"], ["-N1", "-n8", "--gpus=1"]):
        shown = srun(program, options=options)
        assert shown.returncode == 0, shown.stderr
        results.append(sorted(shown.stdout.splitlines()))
    assert results[0] and results[0] == results[1] == results[2]


def forged(**changes):
    """singularity-task by hand, as somebody who lies about his step."""
    said = {"SINGULARITY_STEP_HOSTS": "n1,n2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "0", "SLURM_NODEID": "0", **changes}
    return ["env", *(f"{name}={value}" for name, value in said.items()), WRAPPER, "hostname"]


def test_tasks_are_confined_as_the_agent_is(srun):
    """By its unit, with which the cluster starts it: not even root's processes can have what is not in CapabilityBoundingSet."""
    shown = srun("cat", "/proc/self/status", options=["-n1"])
    status = dict(line.split(":\t", 1) for line in shown.stdout.splitlines())
    modules, raw_io, boot = (1 << number for number in (16, 17, 22))  # CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_BOOT of capability.h
    assert not int(status["CapBnd"], 16) & (modules | raw_io | boot) and status["NoNewPrivs"] == "1" and int(status["CapEff"], 16) == 0


def test_who_is_in_no_step_gets_none(ours):
    shown = ours.host("n1").run(forged(), user="alice", check=False)
    assert shown.returncode == 1 and "in the cgroup of none" in shown.stderr and shown.stdout == ""
    assert_clean(ours)


def test_hosts_without_tasks_of_the_step_have_no_part_in_it(srun):
    """Whatever a task says: n2 has never heard of its step."""
    shown = srun(*forged(), options=["-n1", "-wn1"], elastic=False, user="bob")
    assert shown.returncode == 1 and "the tasks of step" in shown.stderr and "on n2" in shown.stderr, shown.stderr


@pytest.mark.parametrize("changes, words", [({"SLURM_NODEID": "1"}, "this is the agent of n1"), ({"SLURM_PROCID": "2"}, "there is no rank 2 among 2"),
                                            ({"SINGULARITY_STEP_HOSTS": "n1,n1"}, "is there twice"),
                                            ({"SLURM_STEP_TASKS_PER_NODE": "100000(x2)"}, "expected 1 to 256")])
def test_lies_are_refused(srun, changes, words):
    shown = srun(*forged(**changes), options=["-n1", "-wn1"], elastic=False)
    assert shown.returncode == 1 and words in shown.stderr, shown.stderr


def test_without_an_agent_the_reason_is_told(release):
    with up(release, True, nodes=1) as made:
        shown = made.controller.run(["srun", ELASTIC, "hostname"], user="alice", check=False)
        assert shown.returncode == 1 and "/run/singularity/agent.sock" in shown.stderr and shown.stdout == ""
        assert made.slurm("srun", "hostname", user="alice") == "n1"


def interval(cluster, host="n1"):
    """Of the one job that the host's agent coordinates, seconds; None as long as there is none."""
    text = cluster.host(host).run(["cat", METRICS], check=False).stdout
    found = re.search(r"^singularity_job_checkpoint_interval_seconds\{.*\} (\d+)$", text, re.MULTILINE)
    return found and int(found.group(1))


@pytest.mark.parametrize("asked, kept", [("1", 300), ("600", 600), ("0", 0)])
def test_a_users_own_words_do_not_save_more_often_than_the_site_allows(ours, srun, asked, kept):
    """The plugin refuses that; a user's process that speaks to the agent itself gets no more (elastic.checkpoint_every_least)."""
    said = {"SINGULARITY_STEP_HOSTS": "n1", "SLURM_STEP_TASKS_PER_NODE": "1", "SINGULARITY_STEP_EVERY": asked, "SLURM_SINGULARITY_OF_SCRIPT": "1"}
    wait_for(lambda: interval(ours) is None, PATIENCE, "no job's metrics")
    process = begin(ours, *forged(**said)[:-1], "sleep", "600", options=["-N1", "-wn1"], elastic=False)
    try:
        wait_for(lambda: interval(ours) is not None, PATIENCE, "the job's metrics")
        assert interval(ours) == kept
    finally:
        ours.slurm("scancel", "-u", "alice")
        process.communicate(timeout=PATIENCE)
