# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic steps in images: what their tasks see, what is refused and when, and that they go on elsewhere in the same image."""

import os

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_files import wait_run
from test_lifecycle import HELD, counted, output, requeue, script, wait_counted
from test_lifecycle_moves import SOON, ctl
from virtualcluster.cluster import CHECKOUT
from virtualcluster.errors import wait_for

IMAGE = "/shared/image"
SHOWN = "containers:\n  mounts: /home:/shared\n"
LOCAL = "local_directories:\n  paths: /tmp\n"  # /var/tmp is in memory
# Its state is in its memory, in a file that is open, and in one that is not.
COUNT = """
echo $SLURM_PROCID > /var/tmp/rank
exec 5> /tmp/count
number=0
while [ ! -e /shared/end ]; do
    echo rank $SLURM_PROCID $number
    echo $number >&5
    number=$((number + 1))
    sleep 0.05
done
echo wrote $(while read -r line; do last=$line; done < /tmp/count; echo $last) of $((number - 1)) as $(cat /var/tmp/rank) in $(cat /etc/release)
"""


# Writes all over the root: in files that are open, or have no name any more, where the image has something, and where it has nothing.
WRITE = """
mkdir -p /opt/cache /workspace/deep && echo kept > /workspace/deep/file
exec 6> /opt/cache/count 7> /opt/unnamed && rm /opt/unnamed && echo unnamed >&7
echo changed > /etc/release && chmod 600 /etc/release && rm -r /data/gone && rm -r /data/other && mkdir /data/other && echo new > /data/other/new
readlink /data/link > /opt/link
number=0
while [ ! -e /shared/end ]; do
    echo rank $SLURM_PROCID $number
    echo $number >&6
    number=$((number + 1))
    sleep 0.05
done
[ -e /data/gone ] || echo gone
echo unnamed more >&7
echo wrote $(while read -r line; do last=$line; done < /opt/cache/count; echo $last) of $((number - 1)): $(cat /workspace/deep/file /etc/release /data/kept) $(ls /data/other) $(cat /proc/self/fd/7)
touch /workspace/after && rm -r /workspace && [ ! -e /workspace ] && echo removed
"""


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, SOON + SHOWN + LOCAL, nodes=2, conf=TIME_TO_SAVE, plugstack="required spank_singularity.so pyxis_options\n") as made:
        for host in made.nodes:  # a host of this cluster is an overlay, on which no image can lie
            host.run("mkdir -p /var/spool/singularity/local && mount -t tmpfs -o mode=700 local /var/spool/singularity/local")
        yield made
        assert_clean(made)


@pytest.fixture(autouse=True)
def image(cluster):
    with open(os.path.join(CHECKOUT, "tests", "node", "images.py"), encoding="utf-8") as file:
        make = file.read()
    user = int(cluster.controller.run(["id", "-u", "alice"]).stdout)
    cluster.controller.run(["rm", "-rf", IMAGE, f"{IMAGE}.sqsh", f"{IMAGE}.sif", "/shared/end", "/shared/data"])
    cluster.controller.run(["python3", "-c", f"{make}\ntop = small({IMAGE!r}, {user})\nfull(top, {user})\nsif(squash(top, {IMAGE + '.sqsh'!r}, '-all-root'), {IMAGE + '.sif'!r})"])
    cluster.controller.run(f"mkdir /shared/data; echo data > /shared/data/file; echo '{COUNT}' > /shared/count.sh; echo '{WRITE}' > /shared/write.sh; chmod a+rX -R /shared/data /shared/*.sh")
    yield
    for job in cluster.slurm("squeue", "-h", "-o", "%i").split():  # of a test that has failed
        cluster.slurm("scancel", job, check=False)
    wait_for(lambda: cluster.slurm("squeue", "-h") == "", PATIENCE, "the jobs to be gone")


def srun(cluster, *words, image_is=IMAGE, check=True):
    line = ["srun", ELASTIC, f"--singularity-image={image_is}", "--mem=1000", *words]
    return cluster.controller.run(line, user="alice", check=check)


def test_tasks_are_in_the_image(cluster):
    shown = srun(cluster, "-wn2", "-D/shared", "--singularity-mount=/shared/data:/mnt/data:ro,/shared/data/file:/opt/file", "sh", "-c",
                 "cat /etc/release /mnt/data/file /opt/file; pwd; id -un; uname -n; ls -d /home/alice; touch /mnt/data/new 2>&1 || true; echo mine > /etc/release")
    assert shown.stdout.splitlines()[:7] == ["a small root", "data", "data", "/shared", "alice", "n2", "/home/alice"]
    assert shown.stdout.splitlines()[7].endswith("Read-only file system")
    assert srun(cluster, "--singularity-workdir=/usr", "sh", "-c", "pwd; cat /etc/release").stdout == "/usr\na small root\n"  # each step has a layer of its own


def said_by(cluster, job):
    """Without what srun says where it has waited for the step before to end."""
    return [line for line in output(cluster, job).splitlines() if not line.startswith("srun: ")]


def test_steps_of_scripts(cluster):
    """The script is outside, as are steps that say so; each step may have its own image."""
    job = cluster.submit(ELASTIC, f"--singularity-image={IMAGE}", "--mem=1000", "-N2", "-n2",
                         script=script("[ -e /etc/release ] || echo outside", "srun cat /etc/release", "srun --singularity-workdir=/usr/bin pwd"))
    cluster.wait_job(job, seconds=PATIENCE)
    assert said_by(cluster, job) == ["outside", "a small root", "a small root", "/usr/bin", "/usr/bin"]


def test_options_of_pyxis(cluster):
    """A step and a script of a cluster with pyxis stay as they are, but that they are elastic."""
    options = [f"--container-image={IMAGE}.sqsh", "--container-mounts=/shared/data:/mnt:ro,/shared/data/file:/opt/file:rw,/shared/data", "--container-workdir=/usr",
               "--container-writable", "--container-mount-home"]
    shown = cluster.controller.run(["srun", ELASTIC, "--mem=1000", *options, "sh", "-c", "pwd; cat /etc/release /mnt/file /opt/file /shared/data/file; echo new > /etc/release"],
                                   user="alice")
    assert shown.stdout == "/usr\na small root\ndata\ndata\ndata\n"
    shown = cluster.controller.run(["srun", ELASTIC, "--mem=1000", f"--container-image={IMAGE}.sqsh", "--container-readonly", "sh", "-c", "echo new > /etc/release"],
                                   user="alice", check=False)
    assert shown.returncode != 0 and "Read-only file system" in shown.stderr, shown.stderr
    text = script("[ -e /etc/release ] || echo outside", "srun sh -c 'pwd; cat /etc/release'", f"srun --container-image={IMAGE} --container-workdir=/ pwd",
                  "srun --singularity-off sh -c '[ -e /etc/release ] || echo outside'")
    head, rest = text.split("\n", maxsplit=1)
    job = cluster.submit(ELASTIC, "--mem=1000", "-n1", script="\n".join([head, *(f"#SBATCH {option}" for option in options), rest]))
    cluster.wait_job(job, seconds=PATIENCE)
    assert said_by(cluster, job) == ["outside", "/usr", "a small root", "/", "outside"]


@pytest.mark.parametrize("options, words", [
    (["--container-image=docker://debian:12"], "cannot accept --container-image docker://debian:12: expected the absolute path"),
    (["--container-image=nvcr.io#nvidia/pytorch:25.01-py3"], "enroot import"),
    ([f"--container-image={IMAGE}", "--container-mounts=/shared:/mnt:x"], "cannot accept --container-mounts /shared:/mnt:x: expected SRC, SRC:DST"),
    ([f"--container-image={IMAGE}", "--container-name=mine"], "cannot accept --container-name mine: each step has its own layer"),
    ([f"--container-image={IMAGE}", "--container-remap-root"], "nobody is root"),
    ([f"--container-image={IMAGE}", "--container-writable", "--container-readonly"], "is given for the same already"),
    (["--container-mounts=/shared:/mnt"], "it is about an image"),
    ([f"--container-image={IMAGE}", "--singularity-off"], "--singularity-off leaves no elastic step that could be in an image"),
])
def test_options_of_pyxis_that_are_refused(cluster, options, words):
    for command in (["srun", "true"], ["sbatch", "--wrap=true"]):
        shown = cluster.controller.run([command[0], ELASTIC, *options, *command[1:]], user="alice", check=False)
        assert shown.returncode != 0 and words in shown.stderr, shown.stderr
    if "--singularity-off" not in options:
        alone = cluster.controller.run(["srun", *options, "true"], user="alice", check=False)
        assert alone.returncode != 0 and "add --singularity-elastic, or leave it out" in alone.stderr, alone.stderr


OTHER = """
#include <slurm/spank.h>
SPANK_PLUGIN(other, 1)
static struct spank_option image = {"container-image", "IMAGE", "the other plugin has it", 1, 0, 0};
int slurm_spank_init(spank_t spank, int count, char **arguments) { return spank_option_register(spank, &image); }
"""


def test_another_plugin_with_these_options(cluster):
    """Slurm says so, and gives them to the one that plugstack.conf names first."""
    cluster.controller.run(f"cp -a /etc/slurm/plugstack.conf /root/plugstack.conf; printf '%s' '{OTHER}' > /root/other.c; gcc -shared -fPIC -o /shared/other.so /root/other.c")
    try:
        for lines, is_ours in (("echo required /shared/other.so; cat /root/plugstack.conf", False), ("cat /root/plugstack.conf; echo required /shared/other.so", True)):
            cluster.controller.run(f"({lines}) > /etc/slurm/plugstack.conf")
            shown = cluster.controller.run(["srun", "--container-image=/none", "echo", "ran"], user="alice", check=False)
            assert 'option "container-image" provided by both' in shown.stderr, shown.stderr
            assert ("only elastic jobs run in images" in shown.stderr, shown.stdout) == ((True, "") if is_ours else (False, "ran\n")), shown
    finally:
        cluster.controller.run("cp -a /root/plugstack.conf /etc/slurm/plugstack.conf; rm /shared/other.so")


def test_programs_and_commands(cluster):
    """Programs are those of the image; Slurm's commands work all the same, in an image that has none."""
    shown = srun(cluster, "python3", "-V", check=False)
    assert shown.returncode != 0
    assert f"cannot run 'python3' in the image '{IMAGE}': it has no such program" in shown.stderr, shown.stderr
    assert srun(cluster, "sh", "-c", "squeue -h -o %u").stdout == "alice\n"


@pytest.mark.parametrize("options, words", [
    (["--singularity-image=image"], "cannot accept --singularity-image image: expected an absolute path"),
    (["--singularity-image=/shared/../etc"], "cannot accept --singularity-image /shared/../etc"),
    ([f"--singularity-image={IMAGE}", "--singularity-mount=/data"], "cannot accept --singularity-mount /data: expected SRC:DST or SRC:DST:ro"),
    ([f"--singularity-image={IMAGE}", "--singularity-workdir=work"], "cannot accept --singularity-workdir work"),
    ([f"--singularity-image={IMAGE}", "--singularity-mount=/shared:/mnt,/home:/mnt"], "something else is to be mounted at /mnt already"),
    (["--singularity-mount=/shared:/mnt"], "add --singularity-image=DIR"),
    ([f"--singularity-image={IMAGE}", "--singularity-root=ro"], "cannot accept --singularity-root ro: expected writable or read-only"),
])
def test_refused_at_submission(cluster, options, words):
    for command in (["srun", "true"], ["sbatch", "--wrap=true"]):
        shown = cluster.controller.run([command[0], ELASTIC, *options, *command[1:]], user="alice", check=False)
        assert shown.returncode != 0 and words in shown.stderr, shown.stderr
        off = cluster.controller.run([command[0], ELASTIC, "--singularity-off", *options, *command[1:]], user="alice", check=False)
        assert off.returncode != 0 and "--singularity-off leaves no elastic step that could be in an image" in off.stderr, off.stderr
    alone = cluster.controller.run(["srun", options[0], "true"], user="alice", check=False)
    assert alone.returncode != 0 and "add --singularity-elastic" in alone.stderr


@pytest.mark.parametrize("options, words", [
    (["--singularity-image=/shared/none"], "cannot use the image '/shared/none': this host has nothing of that name"),
    (["--singularity-image=/root"], "cannot use the image '/root': uid"),
    (["--singularity-image=/shared/data/file"], "it is a file, and neither a squashfs"),
    ([f"--singularity-image={IMAGE}", "--singularity-mount=/none:/mnt"], "'/none:/mnt': this host has nothing of that name"),
    ([f"--singularity-image={IMAGE}", "--singularity-mount=/shared:/etc"], "a job has '/etc/hosts' mounted there already"),
    ([f"--singularity-image={IMAGE}", "--singularity-workdir=/none"], "cannot work in the directory '/none' in the image"),
])
def test_refused_at_the_start(cluster, options, words):
    """Before any task runs, on whatever host; the words reach the user."""
    shown = cluster.controller.run(["srun", ELASTIC, "--mem=1000", "-N2", "-n2", *options, "sh", "-c", "echo ran"], user="alice", check=False)
    assert shown.returncode != 0 and words in shown.stderr, shown.stderr
    assert "ran" not in shown.stdout


def servers(cluster):
    """Who serves images that are files: host -> the cgroups of each."""
    script = "for pid in $(pgrep -x squashfuse_ll); do tr '\\n' ' ' < /proc/$pid/cgroup; echo; done"
    return {host.name: found for host in cluster.nodes if (found := host.run(["bash", "-c", script]).stdout.splitlines())}


def disturb(cluster, job, how, run):
    """It goes on after that, in its run of that number."""
    if how == "requeue":
        requeue(cluster, job)
    else:
        moved = ctl(cluster, "migrate", job)
        assert moved.returncode == 0, moved
    wait_run(cluster, job, run)
    before = counted(cluster, job)[0][-1]
    wait_counted(cluster, job, before + 20, 1)


@pytest.mark.parametrize("disturbed", ["requeue", "migrate"])
@pytest.mark.parametrize("kind", ["", ".sqsh", ".sif"])
def test_they_go_on(cluster, kind, disturbed):
    job = cluster.submit(ELASTIC, f"--singularity-image={IMAGE}{kind}", "--singularity-mount=/shared/data:/mnt", "--open-mode=append", "--requeue", "--mem=1000",
                         "-N1", "-n1", script=script("srun sh /shared/count.sh", "echo end"))
    for run in (1, 2):
        wait_counted(cluster, job, 20 * run, 1)
        first = cluster.job(job)["NodeList"]
        disturb(cluster, job, disturbed, run)
        assert disturbed == "requeue" or cluster.job(job)["NodeList"] != first
        served = servers(cluster)
        if kind:  # by one process of the job's, where the job is
            assert list(served) == [cluster.job(job)["NodeList"]], served
            assert len(*served.values()) == 1 and f"/job_{job}/" in str(served), served
        else:
            assert not served
    cluster.controller.run(["touch", "/shared/end"])
    cluster.wait_job(job, seconds=PATIENCE)
    numbers = counted(cluster, job)[0]
    assert numbers == list(range(len(numbers)))
    assert f"wrote {numbers[-1]} of {numbers[-1]} as 0 in a small root\nend\n" in output(cluster, job), output(cluster, job)
    wait_for(lambda: not servers(cluster), PATIENCE, "the image to be served no more")


@pytest.mark.parametrize("disturbed", ["requeue", "migrate"])
@pytest.mark.parametrize("kind", ["", ".sqsh"])
def test_what_is_written_to_the_root(cluster, kind, disturbed):
    """It goes where the job goes, whatever is done there to what the image has; the image stays as it was, and nothing is left of it."""
    job = cluster.submit(ELASTIC, f"--singularity-image={IMAGE}{kind}", "--open-mode=append", "--requeue", "--mem=1000",
                         "-N1", "-n1", script=script("srun sh /shared/write.sh", "echo end"))
    for run in (1, 2):
        wait_counted(cluster, job, 20 * run, 1)
        disturb(cluster, job, disturbed, run)
    cluster.controller.run(["touch", "/shared/end"])
    cluster.wait_job(job, seconds=PATIENCE)
    numbers = counted(cluster, job)[0]
    assert numbers == list(range(len(numbers)))
    wrote = f"gone\nwrote {numbers[-1]} of {numbers[-1]}: kept changed kept new unnamed unnamed more\nremoved\nend\n"
    assert wrote in output(cluster, job), output(cluster, job)
    assert cluster.controller.run(["cat", f"{IMAGE}/etc/release", f"{IMAGE}/data/gone/file"]).stdout == "a small root\ngone\n"
    for host in cluster.nodes:
        wait_for(lambda host=host: "job." not in host.run(["ls", "-A", "/var/spool/singularity/local"]).stdout, PATIENCE, "its directories to be gone")


def test_an_image_in_a_local_directory(cluster):
    """Its script has made it there; the host's own directory of that name has another. It travels with the job."""
    for host in cluster.nodes:
        host.run(f"rm -rf /tmp/image; cp -a {IMAGE} /tmp/image; echo of the host > /tmp/image/etc/release")
    job = cluster.submit(ELASTIC, "--open-mode=append", "--requeue", "--mem=1000", "-N1", "-n1",
                         script=script(f"[ -e /tmp/image ] || cp -a {IMAGE} /tmp/image", "srun --singularity-image=/tmp/image sh /shared/count.sh", "echo end"))
    wait_counted(cluster, job, 20, 1)
    cluster.controller.run(f"echo other >> {IMAGE}/etc/release")  # the job has its own
    moved = ctl(cluster, "migrate", job)
    assert moved.returncode == 0, moved
    wait_run(cluster, job, 1)
    before = counted(cluster, job)[0][-1]
    wait_counted(cluster, job, before + 20, 1)
    cluster.controller.run(["touch", "/shared/end"])
    cluster.wait_job(job, seconds=PATIENCE)
    numbers = counted(cluster, job)[0]
    assert numbers == list(range(len(numbers)))
    assert f"wrote {numbers[-1]} of {numbers[-1]} as 0 in a small root\nend\n" in output(cluster, job), output(cluster, job)
    for host in cluster.nodes:
        host.run("rm -rf /tmp/image")


def test_steps_that_are_off(cluster):
    """In a job with an image: outside of it, as its script."""
    job = cluster.submit(ELASTIC, f"--singularity-image={IMAGE}", "--mem=1000", "-n1",
                         script=script("srun --singularity-off sh -c '[ -e /etc/release ] || echo outside'", "srun cat /etc/release"))
    cluster.wait_job(job, seconds=PATIENCE)
    assert said_by(cluster, job) == ["outside", "a small root"]


def test_another_image_holds_the_job(cluster):
    """Nothing of it begins anew; what to do is told, and enough."""
    job = cluster.submit(ELASTIC, f"--singularity-image={IMAGE}", "--open-mode=append", "--requeue", "--mem=1000", "-N1", "-n1",
                         script=script("srun sh /shared/count.sh", "echo end"))
    wait_counted(cluster, job, 20, 1)
    cluster.slurm("scontrol", "requeuehold", str(job))
    wait_for(lambda: cluster.job(job)["Reason"] in HELD, PATIENCE, f"it to be held: {cluster.job(job)}")
    cluster.controller.run(["cp", "-a", IMAGE, "/shared/before"])
    cluster.controller.run(f"echo more >> {IMAGE}/etc/release")
    cluster.slurm("scontrol", "release", str(job))
    wait_for(lambda: cluster.job(job)["Reason"] in HELD and int(cluster.job(job)["Restarts"]) > 1, PATIENCE, f"it to be held again: {cluster.job(job)}")
    comment = cluster.slurm("squeue", "-h", "-j", str(job), "-o", "%k")
    assert f"'{IMAGE}': it is not as it was when the job was saved" in comment, comment
    cluster.controller.run(f"rm -r {IMAGE}; mv /shared/before {IMAGE}; touch /shared/end")
    cluster.slurm("scontrol", "release", str(job))
    cluster.wait_job(job, seconds=PATIENCE)
    numbers = counted(cluster, job)[0]
    assert numbers == list(range(len(numbers))) and "in a small root\nend\n" in output(cluster, job)
