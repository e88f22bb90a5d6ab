# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs and the world outside of them: servers that they are connected with, before and after a restore."""

import re
import shlex

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean, checks
from test_lifecycle import output, requeue, script
from test_lifecycle_moves import SOON, ctl
from virtualcluster.errors import wait_for

# One line in the log for whatever becomes of a connection; who waits is spoken to when /shared/speak is there.
SERVER = """
import http.server, os, socket, socketserver, threading, time
log = open("/shared/server.log", "w")

def say(*words):
    print(*words, file=log, flush=True)

class Waiter(socketserver.BaseRequestHandler):
    def handle(self):
        name = self.request.recv(100).decode()
        say("open", name, "from", self.client_address[0])
        spoken = False
        while True:
            self.request.settimeout(0.1)
            try:
                if self.request.recv(100) == b"":
                    return say("closed", name)
            except TimeoutError:
                if not spoken and os.path.exists("/shared/speak"):
                    self.request.sendall(b"word")
                    spoken = True
            except OSError as error:
                return say("error", name, error.errno)

class Files(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        # As storage serves it: parts on request; slowly, so that something happens meanwhile.
        first = int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(SIZE - first))
        self.end_headers()
        for at in range(first, SIZE, 1000):
            self.wfile.write(b"%09d\\n" % (at // 10) * 100)
            time.sleep(0.03)
    def log_message(self, *_):
        pass

SIZE = 1000000
for port, handler in ((5000, Waiter), (5001, Files)):
    server = type("Server", (socketserver.ThreadingTCPServer,), {"allow_reuse_address": True, "daemon_threads": True})(("", port), handler)
    threading.Thread(target=server.serve_forever).start()
say("up")
"""

# Waits without a limit, as programs do that use somebody's client library, and connects again when that fails.
WAITS = """
import os, socket
rank = os.environ["SLURM_PROCID"]
while not os.path.exists("/shared/end"):
    with socket.create_connection(("{server}", 5000), timeout=30) as connection:
        connection.settimeout(None)
        connection.sendall(rank.encode())
        print("rank", rank, "waits", flush=True)
        try:
            while (said := connection.recv(100)) != b"":
                print("rank", rank, "hears", said.decode(), flush=True)
                if os.path.exists("/shared/end"):
                    break
        except OSError as error:
            print("rank", rank, "lost", error.errno, flush=True)
"""

# As pip, Hugging Face's hub and others do it: what is there is kept, and the rest asked for.
DOWNLOADS = """
import http.client, time
got = b""
while len(got) < 1000000:
    try:
        connection = http.client.HTTPConnection("{server}", 5001, timeout=30)
        connection.request("GET", "/", headers={{"Range": f"bytes={{len(got)}}-"}})
        reply = connection.getresponse()
        while piece := reply.read1(5000):
            got += piece
            print("has", len(got), flush=True)
    except OSError as error:
        print("begins again after", type(error).__name__, flush=True)
whole = b"".join(b"%09d\\n" % (at // 10) * 100 for at in range(0, 1000000, 1000))
print("downloaded", "right" if got == whole else "wrong", flush=True)
"""

# Two ranks, as those of torch.distributed: one of them is to be found where they were told.
MEETS = """
import os, socket, sys, time
address, rank = sys.argv[1], os.environ["SLURM_PROCID"]
if socket.gethostbyname(socket.gethostname()) == address:
    other, _ = socket.create_server((address, 29500)).accept()
else:
    for attempt in range(300):
        try:
            other = socket.create_connection((address, 29500))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
said, ends, number = b"", False, 0
while not ends and said != b"end":
    ends = os.path.exists("/shared/end")
    other.sendall(b"end" if ends else b"...")
    said = other.recv(3, socket.MSG_WAITALL)
    number += 1
    with open(f"/shared/met-{{rank}}", "w") as file:
        file.write(str(number))
    time.sleep(0.05)
print("rank", rank, "has met the other one", flush=True)
"""


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, SOON + "  check_after: 1s\n", nodes=2, conf=TIME_TO_SAVE) as made:
        made.controller.daemon(["python3", "-c", SERVER], "/shared/server.out")
        wait_for(lambda: "up\n" in log(made), PATIENCE, "the server to be up")
        yield made
        assert_clean(made)


@pytest.fixture(autouse=True)
def quiet(cluster):
    cluster.controller.run("rm -f /shared/speak /shared/end /shared/met-*")


def log(cluster):
    return cluster.controller.run(["cat", "/shared/server.log"], check=False).stdout


def submit(cluster, program, *options):
    line = f"srun /usr/bin/python3 -c {shlex.quote(program.format(server=cluster.controller.address))}"
    return cluster.submit(ELASTIC, "--open-mode=append", "--requeue", *options, script=script(line))


def count(text, pattern):
    return len(re.findall(pattern, text, re.MULTILINE))


@pytest.mark.parametrize("which", ["head", "tail"])
@pytest.mark.parametrize("saved", [False, True])
def test_an_address_that_one_step_has_found_out_is_right_in_the_next(cluster, which, saved):
    """The recipe of PyTorch's own example for Slurm, on either host; in two steps at a time, or in a script that goes on elsewhere."""
    def met():
        return int(cluster.controller.run("cat /shared/met-0", check=False).stdout or 0)

    options = ["--singularity-save-script"] if saved else []
    meets = f"srun --overlap /usr/bin/python3 -c {shlex.quote(MEETS.format())} $ip"
    steps = 1 if saved else 2
    job = cluster.submit(ELASTIC, "--open-mode=append", "--requeue", "-N2", "-n2", *options, script=script(
        f"first=$(scontrol show hostnames | {which} -n1)", "ip=$(srun -N1 -n1 -w $first hostname --ip-address)", "echo at $ip",
        *[f"{meets} &"] * (steps - 1), meets, "wait"))
    wait_for(lambda: met() > 10, PATIENCE, "both ranks to meet")
    if saved:
        requeue(cluster, job)
        wait_for(lambda: cluster.job(job)["Restarts"] == "1", PATIENCE, "the job to end")
        cluster.controller.run("rm -f /shared/met-*")
        wait_for(lambda: met() > 10, PATIENCE, "both ranks to go on")
    cluster.controller.run("touch /shared/end")
    cluster.wait_job(job, seconds=PATIENCE)
    said = output(cluster, job).splitlines()
    assert sorted(line for line in said if "has met" in line) == [f"rank {rank} has met the other one" for rank in range(2) for _ in range(steps)], said
    assert sum(line.startswith("at 10.") for line in said) == 1, said


@pytest.mark.parametrize("moves", [False, True])
def test_who_waits_outside_hears_of_a_restore(cluster, moves):
    """Both ends, at once: neither has a limit for its wait."""
    ranks = 2
    looked = sum(checks(cluster, "clear").values())
    job = submit(cluster, WAITS, *(("-N1", "--ntasks=2") if moves else ("-N2", "--ntasks-per-node=1")))
    opened = count(log(cluster), r"^open ")
    lost = count(log(cluster), r"^error \d 104$")
    wait_for(lambda: count(output(cluster, job), r"waits$") == ranks, PATIENCE, "both ranks to be connected")
    # They can be saved: nobody says otherwise at the first look.
    wait_for(lambda: sum(checks(cluster, "clear").values()) >= looked + (1 if moves else 2), PATIENCE, "the agents to have looked at them")
    assert "cannot be saved" not in output(cluster, job)
    # A checkpoint while they run on costs no connection.
    saved = cluster.controller.run(["singularityctl", "checkpoint", str(job)], user="alice")
    assert saved.stdout.startswith("saved as"), saved
    cluster.controller.run(["touch", "/shared/speak"])
    wait_for(lambda: count(output(cluster, job), r"hears word$") == ranks, PATIENCE, "both ranks to hear a word")
    assert count(log(cluster), r"^error \d 104$") == lost and count(output(cluster, job), "lost") == 0
    cluster.controller.run(["rm", "/shared/speak"])
    if moves:
        other = {"n1": "n2", "n2": "n1"}[cluster.job(job)["NodeList"]]
        cluster.controller.run(["singularityctl", "migrate", str(job), f"--to={other}"], user="alice")
    else:
        requeue(cluster, job)
    wait_for(lambda: count(output(cluster, job), r"waits$") == 2 * ranks, PATIENCE, "both ranks to be connected again")
    # What they had heard before is not heard again, and the end of the old connection is a reset.
    assert count(output(cluster, job), r"lost 104$") == ranks and count(output(cluster, job), "hears") == ranks
    wait_for(lambda: count(log(cluster), r"^error \d 104$") == lost + ranks, 15, f"the server to hear that they are gone: {log(cluster)}")
    assert count(log(cluster), r"^open ") == opened + 2 * ranks
    hosts = {host.address for host in cluster.nodes}
    assert set(re.findall(r"^open \d from (\S+)$", log(cluster), re.MULTILINE)) <= hosts
    cluster.controller.run(["touch", "/shared/end", "/shared/speak"])
    cluster.wait_job(job, seconds=PATIENCE)
    assert cluster.job(job)["JobState"] == "COMPLETED"


def test_a_download_goes_on(cluster):
    """Across a checkpoint, a restore, and the death of its node."""
    job = submit(cluster, DOWNLOADS, "-N1", "-n1")

    def has():
        return int(re.findall(r"^has (\d+)$", output(cluster, job) or "has 0", re.MULTILINE)[-1])

    def more():
        before = has()
        wait_for(lambda: has() > before + 20000, PATIENCE, "the download to go on")

    wait_for(lambda: "has" in output(cluster, job), PATIENCE, "the download to begin")
    cluster.controller.run(["singularityctl", "checkpoint", str(job)], user="alice")
    more()
    requeue(cluster, job)
    wait_for(lambda: "begins again after ConnectionResetError" in output(cluster, job), PATIENCE, "the program to be restored")
    more()
    name = cluster.job(job)["NodeList"]
    cluster.controller.run(["singularityctl", "checkpoint", str(job)], user="alice")
    cluster.kill(name)
    cluster.slurm("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=lost")
    cluster.wait_job(job, seconds=PATIENCE)
    assert output(cluster, job).count("downloaded right") == 1, output(cluster, job)[-2000:]
    assert count(output(cluster, job), "begins again after ConnectionResetError") >= 2
    cluster.boot(name)
    cluster.start_agents(name)
    cluster.slurm("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)  # refused if it has come by itself
    cluster.wait_nodes()


# Answers each datagram, but one that begins with "keep".
DATAGRAMS = """
import socket
server = socket.socket(type=socket.SOCK_DGRAM)
server.bind(("", 5002))
print("up", flush=True)
while True:
    said, who = server.recvfrom(100)
    if not said.startswith(b"keep"):
        server.sendto(said + b" from " + who[0].encode(), who)
"""
# Sockets that are connected, and wait without a limit; one that is not, and asks again when no answer comes, as statsd's and NTP's do;
# and one of a program's own, on its loopback, which is nobody's business.
ASKS_BY_DATAGRAM = """
import itertools, os, socket, threading, time
server = "{server}"

def waits(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.connect((address, 5002))
        one.send(b"keep")
        print(family.name, "waits", flush=True)
        try:
            print(family.name, "hears", one.recv(100), flush=True)
        except OSError as error:
            print(family.name, "lost", error.errno, flush=True)
        for _ in range(300):
            one.settimeout(1)
            try:
                one.send(b"again")
                print(family.name, "is answered", one.recv(100).decode(), flush=True)
                break
            except TimeoutError:
                pass

own = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(2)]
for each in own:
    each.bind(("127.0.0.1", 0))
own[0].connect(own[1].getsockname())
own[1].connect(own[0].getsockname())

def waits_within():
    print("within is", own[0].recv(100).decode(), flush=True)

threads = [threading.Thread(target=waits, args=(socket.AF_INET, server)), threading.Thread(target=waits, args=(socket.AF_INET6, "::ffff:" + server)),
           threading.Thread(target=waits_within)]
for thread in threads:
    thread.start()
with socket.socket(type=socket.SOCK_DGRAM) as asks:
    asks.settimeout(1)
    for number in itertools.count():
        while True:
            asks.sendto(b"%d" % number, (server, 5002))
            try:
                print("number", asks.recv(100).decode(), flush=True)
                break
            except TimeoutError:
                pass
        time.sleep(0.05)
        if os.path.exists("/shared/end"):
            break
own[1].send(b"undisturbed")
for thread in threads:
    thread.join()
"""


def test_datagrams(cluster):
    """A checkpoint changes nothing; after a restore who waits on a connected socket hears of it at once, once, and asks again."""
    cluster.controller.daemon(["python3", "-c", DATAGRAMS], "/shared/datagrams.out")
    wait_for(lambda: "up" in cluster.controller.run(["cat", "/shared/datagrams.out"]).stdout, PATIENCE, "the server of datagrams to be up")
    job = submit(cluster, ASKS_BY_DATAGRAM, "-N1", "-n1")

    def asked():
        return count(output(cluster, job), "^number ")

    families = ("AF_INET", "AF_INET6")
    wait_for(lambda: asked() > 5 and count(output(cluster, job), " waits$") == len(families), PATIENCE, f"answers: {output(cluster, job)}")
    first = cluster.host(cluster.job(job)["NodeList"])
    assert ctl(cluster, "checkpoint", job).returncode == 0
    before = asked()
    wait_for(lambda: asked() > before + 10, PATIENCE, "more answers")
    assert count(output(cluster, job), "lost|hears") == 0
    other = {"n1": "n2", "n2": "n1"}[first.name]
    assert ctl(cluster, "migrate", job, f"--to={other}").returncode == 0
    wait_goes_on(cluster, job, 1, asked)
    second = cluster.host(other)
    for family in families:
        wait_for(lambda family=family: f"{family} is answered again from {second.address}" in output(cluster, job), PATIENCE, f"{family}: {output(cluster, job)}")
        assert f"{family} lost 111\n" in output(cluster, job) and f"{family} hears" not in output(cluster, job)
    assert "within is" not in output(cluster, job)
    cluster.controller.run(["touch", "/shared/end"])
    cluster.wait_job(job, seconds=PATIENCE)
    assert "within is undisturbed\n" in output(cluster, job)
    # No question is answered twice, none is left out, and each leaves with the address of the host of that time.
    answers = re.findall(r"^number (\d+) from (\S+)$", output(cluster, job), re.MULTILINE)
    assert [int(number) for number, _ in answers] == list(range(len(answers)))
    assert list(dict.fromkeys(address for _, address in answers)) == [first.address, second.address]


# storage-N has the address 10.9.0.N, which is said after a tenth of a second: a save comes while lookups are under way.
NAMES = """
import socket, socketserver, struct, sys, threading, time

def answer_to(asked):
    question = asked[12:asked.index(b"\\0", 12) + 5]
    kind = struct.unpack(">H", question[-4:-2])[0]
    answer = b"\\xc0\\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes([10, 9, 0, int(question[1:1 + question[0]].split(b"-")[1])]) if kind == 1 else b""
    time.sleep(0.1)
    return asked[:2] + struct.pack(">HHHHH", 0x8180, 1, bool(answer), 0, 0) + question + answer

class Datagram(socketserver.BaseRequestHandler):
    def handle(self):
        asked, server = self.request
        server.sendto(answer_to(asked), self.client_address)

class Stream(socketserver.StreamRequestHandler):
    def handle(self):
        while size := self.rfile.read(2):
            answer = answer_to(self.rfile.read(struct.unpack(">H", size)[0]))
            self.request.sendall(struct.pack(">H", len(answer)) + answer)

socketserver.ThreadingTCPServer.allow_reuse_address = True
datagrams = socketserver.ThreadingUDPServer((sys.argv[1], 53), Datagram)
threading.Thread(target=datagrams.serve_forever, daemon=True).start()
streams = socketserver.ThreadingTCPServer((sys.argv[1], 53), Stream)
print("up", flush=True)
streams.serve_forever()
"""
ASKS = """
import concurrent.futures, itertools, os, socket, time
# Each has a socket of its own, and numbers its questions as it likes.
def looked_up(number):
    return socket.gethostbyname(f"storage-{{number}}.example.org")
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for number in itertools.count():
        found = list(pool.map(looked_up, range(number % 100, number % 100 + 8)))
        right = [f"10.9.0.{{each}}" for each in range(number % 100, number % 100 + 8)]
        print(number, "right" if found == right else found, flush=True)
        time.sleep(0.05)
        if os.path.exists("/shared/end"):
            break
"""


def wait_goes_on(cluster, job, restarts, done):
    """Until the job has done more in that run: it goes on with the one before until it is saved."""
    wait_for(lambda: (cluster.job(job)["Restarts"], cluster.job(job)["JobState"]) == (str(restarts), "RUNNING"), PATIENCE, f"run {restarts}")
    before = done()
    wait_for(lambda: done() > before + 10, PATIENCE, f"more to be done in run {restarts}")


@pytest.fixture(scope="module")
def name_servers(cluster):
    address = cluster.controller.address
    for host in [cluster.controller, *cluster.nodes]:
        at = address if host == cluster.controller else "127.0.0.53"
        host.daemon(["python3", "-c", NAMES, at], "/run/names.out")
    for host in [cluster.controller, *cluster.nodes]:
        wait_for(lambda host=host: "up" in host.run(["cat", "/run/names.out"]).stdout, PATIENCE, "the name servers to be up")


@pytest.mark.parametrize("server, options", [("network", ""), ("loopback", ""), ("loopback", "options use-vc")])
def test_names_of_hosts_outside(cluster, name_servers, server, options):
    at = cluster.controller.address if server == "network" else "127.0.0.53"
    for host in cluster.nodes:
        host.run(f"printf 'nameserver {at}\\n{options}\\n' >/etc/resolv.conf")
    job = submit(cluster, ASKS, "-N1", "-n1")

    def asked():
        return count(output(cluster, job), r"^\d+ right$")

    wait_for(lambda: asked() > 5, PATIENCE, "names to be found")
    requeue(cluster, job)
    wait_goes_on(cluster, job, 1, asked)
    cluster.controller.run(["touch", "/shared/end"])
    cluster.wait_job(job, seconds=PATIENCE)
    numbers = [int(number) for number in re.findall(r"^(\d+) right$", output(cluster, job), re.MULTILINE)]
    assert numbers == list(range(len(numbers))), output(cluster, job)


# carol is a user of whom nobody but sssd knows, as of those in a directory of users. nscd's client is part of every program.
SSSD = """
[sssd]
services = nss
domains = local
[domain/local]
id_provider = files
passwd_files = /etc/carol.passwd
group_files = /etc/carol.group
"""
LOOKS_UP = """
import itertools, os, pwd, time
os.environ["SSS_NSS_USE_MEMCACHE"] = "{memory}"
for number in itertools.count():
    print(number, pwd.getpwnam("{user}").pw_dir, flush=True)
    time.sleep(0.05)
    if os.path.exists("/shared/end"):
        break
"""


def sssd(host):
    host.run(["sh", "-c", "mkdir -p /etc/sssd; cat >/etc/sssd/sssd.conf; chmod 600 /etc/sssd/sssd.conf; "
              "echo carol:x:2001:2001::/home/carol:/bin/sh >/etc/carol.passwd; echo carol:x:2001: >/etc/carol.group"], stdin=SSSD)
    host.daemon(["sssd", "-i"], "/run/sssd.out")
    wait_for(lambda: host.run(["getent", "-s", "sss", "passwd", "carol"], check=False).stdout, PATIENCE, f"sssd of {host.name}")


def nscd(host, shared="no"):
    host.run(f"mkdir -p /run/nscd; sed -Ei 's/^(\\s*shared\\s+\\w+\\s+)\\w+/\\1{shared}/' /etc/nscd.conf")
    host.daemon(["nscd", "--foreground"], "/run/nscd.out")
    wait_for(lambda: host.run(["nscd", "--statistics"], check=False).returncode == 0, PATIENCE, f"nscd of {host.name}")


@pytest.mark.parametrize("daemon, user, memory", [(sssd, "carol", "NO"), (sssd, "carol", "YES"), (nscd, "alice", "NO")])
def test_users_are_looked_up_by_a_daemon(cluster, daemon, user, memory):
    """By a socket that a program keeps, and by a table of the daemon's that it maps."""
    for host in cluster.nodes:
        daemon(host)
    try:
        job = submit(cluster, LOOKS_UP.replace("{memory}", memory).replace("{user}", user), "-N1", "-n1")

        def found():
            return count(output(cluster, job), rf"^\d+ /home/{user}$")

        wait_for(lambda: found() > 5, PATIENCE, f"{user} to be found")
        requeue(cluster, job)
        wait_goes_on(cluster, job, 1, found)
        moved = ctl(cluster, "migrate", job)
        assert moved.returncode == 0, moved
        wait_goes_on(cluster, job, 2, found)
        cluster.controller.run(["touch", "/shared/end"])
        cluster.wait_job(job, seconds=PATIENCE)
        numbers = [int(number) for number in re.findall(rf"^(\d+) /home/{user}$", output(cluster, job), re.MULTILINE)]
        assert numbers == list(range(len(numbers))), output(cluster, job)
        assert "anew" not in output(cluster, job) and "cannot" not in output(cluster, job)
    finally:
        end_daemons(cluster)


# As journald, but for where it writes.
LOGS = """
import os, socket, sys
os.makedirs("/run/systemd/journal", exist_ok=True)
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/run/systemd/journal/dev-log")
os.chmod("/run/systemd/journal/dev-log", 0o666)
print("up", flush=True)
while True:
    print(log.recv(1000).decode().rpartition(": ")[2].strip("\\0"), flush=True)
"""
SAYS_TO_LOG = """
import itertools, os, syslog, time
syslog.openlog("job")
for number in itertools.count():
    syslog.syslog(f"number {{number}}")
    print(number, flush=True)
    time.sleep(0.05)
    if os.path.exists("/shared/end"):
        break
"""


def test_lines_for_the_log_of_the_host(cluster):
    """By /dev/log: to the daemon of the host where the program is, each line once."""
    for host in cluster.nodes:
        host.daemon(["python3", "-c", LOGS], "/run/logs.out")
        host.run("ln -sf /run/systemd/journal/dev-log /dev/log")
        wait_for(lambda host=host: "up" in host.run(["cat", "/run/logs.out"]).stdout, PATIENCE, "the log's daemon")
    try:
        job = submit(cluster, SAYS_TO_LOG, "-N1", "-n1")

        def said():
            return count(output(cluster, job), r"^\d+$")

        wait_for(lambda: said() > 5, PATIENCE, "lines")
        first = cluster.job(job)["NodeList"]
        assert ctl(cluster, "checkpoint", job).returncode == 0, output(cluster, job)
        other = {"n1": "n2", "n2": "n1"}[first]
        assert ctl(cluster, "migrate", job, f"--to={other}").returncode == 0, output(cluster, job)
        wait_goes_on(cluster, job, 1, said)
        cluster.controller.run(["touch", "/shared/end"])
        cluster.wait_job(job, seconds=PATIENCE)
        heard = [re.findall(r"^number (\d+)$", cluster.host(name).run(["cat", "/run/logs.out"]).stdout, re.MULTILINE) for name in (first, other)]
        assert all(heard), heard
        assert [int(number) for number in heard[0] + heard[1]] == list(range(said())), (heard, output(cluster, job))
    finally:
        for host in cluster.nodes:
            host.run("rm -f /dev/log")


def end_daemons(cluster):
    for host in cluster.nodes:
        for file in ("/run/sssd.pid", "/run/nscd/nscd.pid"):
            if pid := host.run(["cat", file], check=False).stdout.strip():
                host.run(["kill", pid], check=False)
                wait_for(lambda host=host, pid=pid: host.run(["kill", "-0", pid], check=False).returncode, PATIENCE, f"{file}'s process to end")


def is_refused(cluster, job, said):
    """A checkpoint, for that reason; its program, which counts, goes on, and the job is ended."""
    def counted():
        return count(output(cluster, job), r"^\d+")

    assert ctl(cluster, "checkpoint", job).returncode != 0
    wait_for(lambda: said in output(cluster, job), PATIENCE, f"the reason: {output(cluster, job)}")
    before = counted()
    wait_for(lambda: counted() > before + 5, PATIENCE, "the program to go on")
    cluster.slurm("scancel", str(job))
    cluster.wait_job(job, ("CANCELLED",), seconds=PATIENCE)


def test_tables_that_only_a_daemon_may_open(cluster):
    """nscd shares its own with all programs, and nobody could give them back: nothing is saved that could not be restored."""
    for host in cluster.nodes:
        nscd(host, shared="yes")
    try:
        job = submit(cluster, LOOKS_UP.replace("{memory}", "NO").replace("{user}", "alice"), "-N1", "-n1")
        wait_for(lambda: count(output(cluster, job), "^[0-9]+ /home/alice$") > 5, PATIENCE, "alice to be found")
        is_refused(cluster, job, "('/var/cache/nscd/passwd') of process 2 (python3) is one that its user may not read")
    finally:
        end_daemons(cluster)


def test_a_bus_that_its_clients_do_not_survive(cluster):
    """dbus-monitor ends when its connection does, as programs with libdbus do: it is not saved in order to end at once."""
    for host in cluster.nodes:
        host.run("mkdir -p /run/dbus")
        host.daemon(["dbus-daemon", "--system", "--nofork"], "/run/dbus.out")
        wait_for(lambda host=host: host.run(["test", "-S", "/run/dbus/system_bus_socket"], check=False).returncode == 0, PATIENCE, "the bus")
    line = "srun sh -c 'dbus-monitor --system & for number in $(seq 1000); do echo $number; sleep 0.05; done'"
    job = cluster.submit(ELASTIC, "-N1", "-n1", script=script(line))
    wait_for(lambda: "NameAcquired" in output(cluster, job), PATIENCE, "the monitor to be connected")
    is_refused(cluster, job, "system_bus_socket' of the host, whose clients end when it does: close it before a checkpoint")
