# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs with GPUs in images that bring a C library of their own: ours, and others', saved and restored."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_files import wait_run
from test_lifecycle import counted, output, requeue, script, wait_counted
from test_lifecycle_devices import results, steps
from test_lifecycle_moves import SOON
from virtualcluster.cluster import CHECKOUT
from virtualcluster.errors import wait_for

sys.path.insert(0, os.path.join(CHECKOUT, "tests", "node"))
import images  # noqa: E402

BUILD = os.path.abspath(os.environ.get("CTEST_BINARY_DIR", os.path.join(CHECKOUT, "build", "release")))
CUDA = os.path.realpath(os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64"))
PYTHON, TRAINING = "/shared/python", "/shared/training"
# As CuPy works: NVRTC makes a kernel, the driver's functions run it; what it counts is in the device's memory.
COUNT = r"""
import ctypes, os, platform, time
cuda, nvrtc, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("/opt/cuda/libnvrtc.so.13"), ctypes.CDLL("libnvidia-ml.so.1")
def call(library, name, *arguments):
    code = getattr(library, name)(*arguments)
    assert code == 0, (name, code)
by = ctypes.byref
SOURCE = b'extern "C" __global__ void add(int *values) { values[threadIdx.x] += threadIdx.x + 1; }'
program, size = ctypes.c_void_p(), ctypes.c_size_t()
call(nvrtc, "nvrtcCreateProgram", by(program), SOURCE, b"add.cu", 0, None, None)
call(nvrtc, "nvrtcCompileProgram", program, 1, (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_90"))
call(nvrtc, "nvrtcGetPTXSize", program, by(size))
text = ctypes.create_string_buffer(size.value)
call(nvrtc, "nvrtcGetPTX", program, text)
context, module, function, memory, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
call(cuda, "cuInit", 0)
call(cuda, "cuDeviceGetCount", by(count))
call(nvml, "nvmlInit_v2")
devices = ctypes.c_uint()
call(nvml, "nvmlDeviceGetCount_v2", by(devices))
call(cuda, "cuDevicePrimaryCtxRetain", by(context), 0)
call(cuda, "cuCtxSetCurrent", context)
call(cuda, "cuModuleLoadData", by(module), text)
call(cuda, "cuModuleGetFunction", by(function), module, b"add")
call(cuda, "cuMemAlloc_v2", by(memory), 4 * 32)
call(cuda, "cuMemsetD32_v2", memory, 0, 32)
print("glibc", platform.libc_ver()[1], "devices", count.value, devices.value, flush=True)
values, number = (ctypes.c_int * 32)(), 0
os.makedirs("/opt/cache")  # in the image
kept = open("/opt/cache/count", "w+")
while not os.path.exists("/shared/end"):
    call(cuda, "cuMemcpyDtoH_v2", values, memory, 4 * 32)
    assert list(values) == [number * (lane + 1) for lane in range(32)], (number, list(values))
    print("rank 0", values[0], flush=True)
    print(number, file=kept, flush=True)
    number += 1
    call(cuda, "cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, (ctypes.c_void_p * 1)(ctypes.addressof(memory)), None)
    time.sleep(0.05)
kept.seek(0)
print("end of", number, "kept", len(kept.read().split()), flush=True)
"""


@pytest.fixture(scope="module")
def cluster(release):
    shown = "containers:\n  mounts: /home:/shared\n  writable: always\n"  # without local directories
    with elastic_up(release, SOON + shown, nodes=2, conf=TIME_TO_SAVE) as made:
        for host in made.nodes:  # what is written to roots is in memory, since a host of this cluster is an overlay
            host.run("mkdir -p /var/spool/singularity/local && mount -t tmpfs -o mode=700,size=512m local /var/spool/singularity/local")
        user = int(made.controller.run(["id", "-u", "alice"]).stdout)
        for image, fill in ((PYTHON, python_image), (TRAINING, training_image)):
            top = os.path.join(made.directory, *image.split("/"))
            fill(top, user)
            images.squash(top, f"{top}.sqsh", "-all-root", "-comp", "lz4")
        with open(os.path.join(made.directory, "shared", "count.py"), "w", encoding="ascii") as file:
            file.write(COUNT)
        yield made
        assert_clean(made)


@pytest.fixture(autouse=True)
def no_jobs(cluster):
    cluster.controller.run(["rm", "-f", "/shared/end"])
    yield
    # Shown where a test has failed.
    print(cluster.controller.run("squeue; tail -n 30 /shared/slurm-*.out").stdout)
    for job in cluster.slurm("squeue", "-h", "-o", "%i").split():  # of a test that has failed
        cluster.slurm("scancel", job, check=False)
    wait_for(lambda: cluster.slurm("squeue", "-h") == "", PATIENCE, "the jobs to be gone")


def python_image(top, user):
    """Python and all that it needs, of Debian 12, which is older than what all else here was built on; of this machine's if that is not there."""
    source = images.debian12() or "/"
    images.small(top, user)
    libraries = os.path.join(top, "usr", "lib")
    shutil.rmtree(os.path.join(top, "usr", "bin"))
    shutil.rmtree(libraries)
    os.makedirs(os.path.join(top, "usr", "bin"))
    os.makedirs(libraries)
    python = os.path.realpath(os.path.join(source, "usr", "bin", "python3"))
    name = os.path.basename(python)
    ignored = shutil.ignore_patterns("test", "__pycache__", "idlelib", "config-*", "lib2to3", "tkinter")
    shutil.copytree(os.path.join(source, "usr", "lib", name), os.path.join(libraries, name), symlinks=True, ignore=ignored)
    loaded = [os.path.join(libraries, name, "lib-dynload", file) for file in os.listdir(os.path.join(libraries, name, "lib-dynload")) if file.startswith("_ctypes.")]
    inside = ["/usr/bin/" + name, "/usr/bin/dash", *("/usr" + file.removeprefix(os.path.join(top, "usr")) for file in loaded)]
    found = subprocess.run(["chroot", source, "ldd", *inside], capture_output=True, text=True, check=True).stdout
    needed = {word for line in found.splitlines() for word in line.split() if word.startswith("/") and not word.endswith(":")}
    # What NVIDIA's libraries need of the C library's and the compiler's.
    needed |= {f"/usr/lib/x86_64-linux-gnu/{one}" for one in ("librt.so.1", "libdl.so.2", "libpthread.so.0", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6")}
    for library in needed:  # by what is no absolute link, which would lead to this machine's
        shutil.copy(os.path.join(source, library[1:].replace("lib64/", "lib/x86_64-linux-gnu/")), os.path.join(libraries, os.path.basename(library)))
    for program, names in ((python, (name, "python3")), (os.path.join(source, "usr", "bin", "dash"), ("sh",))):
        for one in names:
            shutil.copy(program, os.path.join(top, "usr", "bin", one))
    images.own(top, user)


def training_image(top, user):
    """Only the training, with its libraries, CUDA's runtime among them, and a shell."""
    images.small(top, user)
    images.add(top, os.path.join(BUILD, "workloads", "train_data"), user, missing=("libnccl.so.2", "libcuda.so.1"))
    shutil.copytree(os.path.join(CHECKOUT, "tests", "workloads", "data"), os.path.join(top, "digits"))
    with open(os.path.join(top, "etc", "environment"), "w", encoding="ascii") as file:
        file.write("WORKLOADS_DATA=/digits\n")
    images.own(top, user)


def check_count(cluster, job):
    text = output(cluster, job)
    numbers = counted(cluster, job)[0]
    assert numbers == list(range(len(numbers))), text
    assert f"end of {len(numbers)} kept {len(numbers)}\n" in text, text
    assert " devices 2 2\n" in text, text
    if images.debian12():
        assert "glibc 2.36 " in text, text


@pytest.mark.parametrize("kind", ["", ".sqsh"])
def test_programs_of_others(cluster, kind):
    """Python that knows of no GPU, and NVIDIA's compiler; the device's memory goes with them."""
    line = f"srun --export=ALL,LD_LIBRARY_PATH=/opt/cuda --singularity-image={PYTHON}{kind} --singularity-mount={CUDA}:/opt/cuda:ro python3 /shared/count.py"
    job = cluster.submit(ELASTIC, "--open-mode=append", "--requeue", "--mem=2000", "-N1", "-n1", "--gpus=2", script=script(line))
    for run in (1, 2):
        wait_counted(cluster, job, 20 * run, 1)
        requeue(cluster, job)
        wait_run(cluster, job, run)
        wait_counted(cluster, job, counted(cluster, job)[0][-1] + 20, 1)
    cluster.controller.run(["touch", "/shared/end"])
    cluster.wait_job(job, seconds=PATIENCE)
    check_count(cluster, job)
    for host in cluster.nodes:
        wait_for(lambda host=host: host.run(["ls", "/var/spool/singularity/local"]).stdout == "", PATIENCE, "what it has written to be gone")


@pytest.mark.parametrize("kind", ["", ".sqsh"])
def test_a_training(cluster, kind):
    """Ranks on two hosts, on fewer GPUs after they were saved: the bits are those of one that was outside and not disturbed."""
    def submit(*options, program):
        text = ["#!/bin/bash", 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', f"srun --ntasks=8 {program} 500"]
        return cluster.submit(ELASTIC, "--open-mode=append", "--requeue", "--gpus=4", "--ntasks=8", *options, script="\n".join(text) + "\n")

    job = submit(f"--singularity-image={TRAINING}{kind}", "-N2", program="/usr/bin/train_data")
    wait_for(lambda: len(steps(output(cluster, job))) > 30, PATIENCE, "it to train")
    cluster.slurm("scontrol", "requeuehold", str(job))
    cluster.wait_job(job, ("PENDING",), seconds=PATIENCE)
    cluster.slurm("scontrol", "update", f"JobId={job}", "TresPerJob=gres/gpu:2")
    before = len(steps(output(cluster, job)))
    cluster.slurm("scontrol", "release", str(job))
    wait_for(lambda: len(steps(output(cluster, job))) > before, PATIENCE, f"it to go on: {output(cluster, job)}")
    cluster.wait_job(job, seconds=PATIENCE)
    undisturbed = submit("-N2", program=os.path.join(BUILD, "workloads", "train_data"))
    cluster.wait_job(undisturbed, seconds=PATIENCE)
    assert "PASSED" in output(cluster, undisturbed)
    assert results(output(cluster, job)) == results(output(cluster, undisturbed))
