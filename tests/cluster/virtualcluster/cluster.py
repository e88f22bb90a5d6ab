# SPDX-License-Identifier: GPL-2.0-or-later
"""A cluster: its directory, its hosts, its Slurm.

<cache>/clusters/<name>/ holds cluster.json (what was asked for), anchor.lock and anchor.log, conf/ (every host's
/etc/slurm), shared/ (every host's /shared, the parallel file system), home/ (every host's /home), hosts/<host>/.
"""

import dataclasses
import json
import os
import re
import secrets
import shutil
import sys
import time

from . import anchor, cgroups, daemons, kernel, network, slurmconf
from .commands import SlurmCommands
from .errors import ClusterError, wait_for
from .host import Host

CHECKOUT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
CACHE = os.environ.get("SINGULARITY_CACHE", "/var/cache/slurm-singularity")
CLUSTERS = os.path.join(CACHE, "clusters")
USER_IDS = {"alice": 1001, "bob": 1002}  # made by tests/roots/prepare


@dataclasses.dataclass
class Spec:
    """What a cluster is asked to be."""

    nodes: int = 2
    gpus: int = 4  # per node
    cpus: int = 16  # per node
    memory_mb: int = 8000  # per node, as Slurm counts
    slurm: str = "24.11"  # a release of tests/roots/releases
    accounting: bool = False
    plugin: bool = True  # our files are installed on every host; False: stock Slurm
    conf: dict = dataclasses.field(default_factory=dict)  # slurm.conf settings over the defaults; None removes one
    partitions: list = dataclasses.field(default_factory=list)  # slurm.conf lines in place of the one partition
    plugstack: str = ""  # content of plugstack.conf
    topology: str = ""  # content of topology.conf; empty: no file
    singularity_yaml: str = ""  # content of singularity.yaml; empty: no file
    daemons: bool = True  # Slurm's; False: hosts with munge alone
    owner: int = 0  # process whose end is the cluster's end; 0: it stays until `down`

    def check(self):
        for name, low, high in (("nodes", 1, 64), ("gpus", 0, 64), ("cpus", 1, 1024), ("memory_mb", 100, 10**7)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ClusterError(f"{name} is {value}, must be {low} to {high}")
        if self.slurm not in releases():
            raise ClusterError(f"unknown Slurm release '{self.slurm}': one of {', '.join(releases())}")


def releases():
    """{Slurm release: Debian suite} as tests/roots/releases has them."""
    found = {}
    with open(os.path.join(CHECKOUT, "tests/roots/releases"), encoding="utf-8") as file:
        for line in file:
            fields = line.partition("#")[0].split()
            if fields:
                found[fields[0]] = fields[1]
    return found


def _root_directory(release):
    """The release's root; ./dev names it by the hash of its package lists, and the same rule finds it here."""
    import hashlib

    suite = releases()[release]
    digest = hashlib.sha256()
    for name in ("common.packages", f"{suite}.packages", "prepare"):
        with open(os.path.join(CHECKOUT, "tests/roots", name), "rb") as file:
            digest.update(file.read())
    path = os.path.join(CACHE, "roots", f"{suite}-{digest.hexdigest()[:12]}")
    if not os.path.isdir(path):
        raise ClusterError(f"no root directory for Slurm {release} ({path}): run ./dev setup")
    return path


def _user_of_root(root, name):
    with open(os.path.join(root, "etc/passwd"), encoding="utf-8") as file:
        for line in file:
            fields = line.split(":")
            if fields[0] == name:
                return int(fields[2])
    raise ClusterError(f"no user '{name}' in {root}/etc/passwd: run ./dev clean --all and ./dev setup")


class Cluster(SlurmCommands):
    def __init__(self, name):
        self.down_since = float("inf")  # when down() was called, in seconds since boot
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
            raise ClusterError(f"'{name}' is no cluster name: lower-case letters, digits and '-', at most 31")
        self.name = name
        self.directory = os.path.join(CLUSTERS, name)
        self.lock_path = os.path.join(self.directory, "anchor.lock")
        self.spec = None
        self.hosts = {}

    # -- finding and making -----------------------------------------------------------------------------------

    @classmethod
    def open(cls, name):
        """An existing cluster, whoever made it."""
        self = cls(name)
        try:
            with open(os.path.join(self.directory, "cluster.json"), encoding="utf-8") as file:
                self._adopt(Spec(**json.load(file)["spec"]))
        except FileNotFoundError:
            known = ", ".join(cls.names()) or "none"
            raise ClusterError(f"no cluster '{name}' (there are: {known}): cluster up --name {name}") from None
        return self

    @staticmethod
    def names():
        try:
            return sorted(os.listdir(CLUSTERS))
        except FileNotFoundError:
            return []

    @classmethod
    def up(cls, name=None, progress=None, **spec):
        """Makes a cluster and returns it serving: every node idle. progress: called with a line per phase."""
        say = progress or (lambda line: None)
        self = cls(name or f"t{os.getpid()}-{secrets.token_hex(3)}")
        spec = Spec(**spec)
        spec.check()
        root = _root_directory(spec.slurm)
        os.makedirs(CLUSTERS, exist_ok=True)
        try:
            os.mkdir(self.directory)
        except FileExistsError:
            raise ClusterError(f"cluster '{self.name}' exists: cluster down --name {self.name}") from None
        try:
            self._record(spec)
            self._adopt(spec)
            say(f"{len(self.hosts)} hosts on {releases()[spec.slurm]}, Slurm {spec.slurm}")
            anchor.start(self.lock_path, os.path.join(self.directory, "anchor.log"), spec.owner or None)
            self._write_files(root)
            for host in self.hosts.values():
                self._power_on(host)
            if spec.daemons:
                say("Slurm" + (" and its accounting database" if spec.accounting else ""))
                self._start_slurm()
            say("up")
        except BaseException:
            # What was made of it tells why; an interrupted `up` must still leave nothing.
            self._show_logs_of_failure()
            self.down()
            raise
        return self

    def _record(self, spec):
        record = {"spec": dataclasses.asdict(spec), "owner_start": kernel.process_start_time(spec.owner or os.getpid())}
        path = os.path.join(self.directory, "cluster.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        os.rename(path + ".new", path)

    def _adopt(self, spec):
        self.spec = spec
        names = [slurmconf.CONTROLLER] + [f"n{i}" for i in range(1, spec.nodes + 1)]
        self.hosts = {
            host: Host(self.directory, self.name, host, network.address(index))
            for index, host in enumerate(names, start=1)
        }

    # -- hosts ------------------------------------------------------------------------------------------------

    @property
    def controller(self):
        return self.host(slurmconf.CONTROLLER)

    @property
    def nodes(self):
        return [host for name, host in self.hosts.items() if name != slurmconf.CONTROLLER]

    def host(self, name):
        if name not in self.hosts:
            raise ClusterError(f"cluster '{self.name}' has no host '{name}': one of {', '.join(self.hosts)}")
        return self.hosts[name]

    def _anchor_pid(self):
        pid = kernel.lock_holder(self.lock_path)
        if pid is None:
            raise ClusterError(f"cluster '{self.name}' is dead (its first process is gone): cluster down")
        return pid

    def _lower(self):
        layers = [_root_directory(self.spec.slurm)]
        if self.spec.plugin:
            stage = os.path.join(CHECKOUT, "build", f"stage-{self.spec.slurm}")
            if not os.path.isdir(stage):
                raise ClusterError(f"nothing is built for Slurm {self.spec.slurm} ({stage}): run ./dev build")
            layers.insert(0, stage)
        return layers

    def _power_on(self, host):
        binds = [
            (os.path.join(self.directory, "conf"), "/etc/slurm", False),
            (os.path.join(self.directory, "shared"), "/shared", False),
            (os.path.join(self.directory, "home"), "/home", False),
            (CHECKOUT, CHECKOUT, True),
        ]
        cuda = os.environ.get("CUDA_HOME")
        if cuda:
            binds.append((cuda, cuda, True))
        gpus = 0 if host.name == slurmconf.CONTROLLER else self.spec.gpus
        host.boot(self._anchor_pid(), self._lower(), binds, gpus)
        network.plug(self._anchor_pid(), host.pid(), host.name, host.address)
        daemons.start_munge(host)

    def boot(self, name):
        """Powers a killed host on again and starts its daemons."""
        host = self.host(name)
        self._power_on(host)
        if not self.spec.daemons:
            return
        if name == slurmconf.CONTROLLER:
            if self.spec.accounting:
                daemons.start_database(host)
            daemons.start(host, "slurmctld")
        else:
            daemons.start(host, "slurmd")

    def kill(self, name):
        self.host(name).kill()

    def partition(self, name):
        network.partition(self._anchor_pid(), self.host(name).name)

    def heal(self, name):
        network.heal(self._anchor_pid(), self.host(name).name)

    # -- Slurm ------------------------------------------------------------------------------------------------

    def _write_files(self, root):
        conf = os.path.join(self.directory, "conf")
        for directory, mode in (("conf", 0o755), ("shared", 0o1777), ("home", 0o755), ("hosts", 0o755)):
            path = os.path.join(self.directory, directory)
            os.mkdir(path)
            os.chmod(path, mode)
        for user, number in USER_IDS.items():
            path = os.path.join(self.directory, "home", user)
            os.mkdir(path, 0o700)
            os.chown(path, number, number)
        self.write_conf()
        if self.spec.accounting:
            path = os.path.join(conf, "slurmdbd.conf")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write(slurmconf.SLURMDBD_CONF)
            os.chown(path, _user_of_root(root, "slurm"), 0)
        key, munge = secrets.token_bytes(1024), _user_of_root(root, "munge")
        names = "127.0.0.1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in self.hosts.values())
        for host in self.hosts.values():
            host.write_file("/etc/munge/munge.key", key, 0o400, munge)
            host.write_file("/etc/hosts", names.encode())
            host.write_file("/etc/hostname", f"{host.name}\n".encode())
            os.chmod(os.path.join(host.upper, "etc/munge"), 0o700)
            os.chown(os.path.join(host.upper, "etc/munge"), munge, munge)

    def write_conf(self, **settings):
        """Writes every host's /etc/slurm; settings: slurm.conf values that change from now on (None removes one)."""
        self.spec.conf.update(settings)
        files = {
            "slurm.conf": slurmconf.slurm_conf(self.spec),
            "gres.conf": slurmconf.gres_conf(self.spec),
            "cgroup.conf": slurmconf.CGROUP_CONF,
            "plugstack.conf": self.spec.plugstack,
            "topology.conf": self.spec.topology or None,
            "singularity.yaml": self.spec.singularity_yaml or None,
        }
        for name, content in files.items():
            path = os.path.join(self.directory, "conf", name)
            if content is None:
                continue
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(path + ".new", 0o644)
            os.rename(path + ".new", path)

    def _start_slurm(self):
        if self.spec.accounting:
            daemons.start_database(self.controller)
            daemons.fill_database(self.controller, "virtual")
        daemons.start(self.controller, "slurmctld")
        self.wait_controller()
        for host in self.nodes:
            daemons.start(host, "slurmd")
        self.wait_nodes()

    def wait_controller(self, seconds=30):
        def answers():
            if daemons.pid_of(self.controller, "slurmctld") is None and time.monotonic() > grace:
                raise ClusterError(f"slurmctld is not running: {self.tail_of_log('ctl', 'slurmctld')}")
            return "UP" in self.controller.run(["scontrol", "ping"], check=False).stdout

        grace = time.monotonic() + 5
        wait_for(answers, seconds, "slurmctld to answer")

    def wait_nodes(self, states=("idle", "mixed", "allocated"), nodes=None, seconds=30):
        """Waits until the nodes (all) are in one of the states, as `sinfo -o %T` names them."""
        wanted = sorted(nodes or (host.name for host in self.nodes))

        def ready():
            lines = self.slurm("sinfo", "-h", "-N", "-o", "%N %T", check=False).split("\n")
            found = dict(line.split() for line in lines if len(line.split()) == 2)
            return all(found.get(name) in states for name in wanted)

        wait_for(ready, seconds, f"nodes {','.join(wanted)} to be {' or '.join(states)}")

    def daemon_pid(self, host, name):
        return daemons.pid_of(self.host(host), name)

    def stop_daemon(self, host, name, signal="TERM"):
        daemons.stop(self.host(host), name, signal)

    def start_daemon(self, host, name):
        daemons.start(self.host(host), name)

    def start_agents(self, *names, env=None):
        """singularityd on these nodes, or on all, with these variables; it must be installed there."""
        for host in [self.host(name) for name in names] or self.nodes:
            daemons.start_agent(host, env)

    def restart_slurm(self):
        """slurmctld, then every slurmd, as after a change of slurm.conf that needs it; returns when nodes are ready."""
        for host in self.hosts:
            daemon = "slurmctld" if host == slurmconf.CONTROLLER else "slurmd"
            self.stop_daemon(host, daemon)
            self.start_daemon(host, daemon)
            if host == slurmconf.CONTROLLER:
                self.wait_controller()
        self.wait_nodes()

    # -- looking at it ----------------------------------------------------------------------------------------

    def log_path(self, host, daemon):
        """Where the daemon's log lies on this machine: readable also when the host is off."""
        return os.path.join(self.host(host).upper, f"var/log/slurm/{daemon}.log")

    def log(self, host, daemon):
        try:
            with open(self.log_path(host, daemon), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def tail_of_log(self, host, daemon, lines=15):
        out = os.path.join(self.host(host).upper, f"var/log/slurm/{daemon}.out")
        text = self.log(host, daemon)
        if os.path.exists(out):
            with open(out, encoding="utf-8", errors="replace") as file:
                text += file.read()
        return "\n".join(text.split("\n")[-lines:])

    def _show_logs_of_failure(self):
        for host in self.hosts:
            for daemon in ("slurmctld", "slurmd", "slurmdbd"):
                if os.path.exists(self.log_path(host, daemon)):
                    print(f"--- {host} {daemon}\n{self.tail_of_log(host, daemon)}", file=sys.stderr)

    def alive(self):
        return kernel.lock_holder(self.lock_path) is not None

    def orphaned(self):
        """True when it has an owner that is gone, or was left half-made by an `up` that is gone."""
        try:
            with open(os.path.join(self.directory, "cluster.json"), encoding="utf-8") as file:
                record = json.load(file)
        except FileNotFoundError:
            # Between its directory and its record: give a living `up` the second it needs.
            return time.time() - os.stat(self.directory).st_mtime > 60
        owner = record["spec"]["owner"]
        if owner:
            return kernel.process_start_time(owner) != record["owner_start"]
        return not self.alive()

    # -- its end ----------------------------------------------------------------------------------------------

    def down(self):
        """Ends everything of it, in whatever state it is; can be repeated."""
        if not os.path.isdir(self.directory):
            raise ClusterError(f"no cluster '{self.name}'")
        self.down_since = time.clock_gettime(time.CLOCK_BOOTTIME)
        kernel.kill_lock_holder(self.lock_path, 20, f"cluster {self.name}")
        cgroups.remove(self.name)
        # Every mount of it was in a namespace that has died with it: this removes plain files.
        shutil.rmtree(self.directory)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.down()
