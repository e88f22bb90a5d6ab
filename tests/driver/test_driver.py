# SPDX-License-Identifier: GPL-2.0-or-later
"""This project's two libcuda.so.1 answer as NVIDIA's own does, as far as that can be seen without a device, but for the differences of
differences.py; and singularity-proxyd, started on NVIDIA's library, says in words that there is no device.
"""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys

import pytest
from elftools.elf.elffile import ELFFile
from virtualcluster.cluster import CHECKOUT

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import ask  # noqa: E402
import differences  # noqa: E402
import nvidia  # noqa: E402
import questions  # noqa: E402

BUILD = os.path.abspath(os.environ.get("CTEST_BINARY_DIR", os.path.join(CHECKOUT, "build", "release")))
OURS = {"client": os.path.join(BUILD, "client", "libcuda.so.1"), "software GPU": os.path.join(BUILD, "softgpu", "libcuda.so.1")}
REAL = "NVIDIA's driver"
LIMIT_S = 400
SHOWN = 40
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "SINGULARITY_"))}
NO_DEVICE = {**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""}


def exports(path):
    with open(path, "rb") as file:
        return {symbol.name for symbol in ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
                if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] == "STT_FUNC"}


def answers_of(path, text):
    done = subprocess.run([sys.executable, os.path.join(HERE, "ask.py"), path], input=text, env=NO_DEVICE, capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"asking {path} ended with {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def interface():
    return questions.Interface()


@pytest.fixture(scope="module")
def answers(interface):
    """{library: {question: answer}}, of all three side by side."""
    paths = {REAL: nvidia.library(), **OURS}
    text = json.dumps(interface.questions(nvidia.CUDA_VERSION))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = dict(zip(paths, pool.map(lambda path: answers_of(path, text), paths.values())))
    exported = {library: exports(path) for library, path in paths.items()}
    for symbol in set().union(*exported.values()):
        for library, symbols in exported.items():
            found[library][f"exports {symbol}"] = "yes" if symbol in symbols else "no"
    return found


def listed(lines):
    return "\n  ".join([*sorted(lines)[:SHOWN], *([f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])])


@pytest.mark.parametrize("library", OURS)
def test_answers_as_the_real_driver(answers, interface, library):
    real, ours = answers[REAL], answers[library]
    missing = [question for question in real if question not in ours and not question.startswith("call ")]
    assert not missing, f"not answered by the {library}:\n  {listed(missing)}"
    # A function that NVIDIA's does not have was not called there.
    different = {question: (answer, ours[question]) for question, answer in real.items() if question in ours and ours[question] != answer}
    known = differences.of(library, interface, questions.FLAGS, nvidia.CUDA_VERSION)
    wrong = [f"{question}: {REAL}: {its}; the {library}: {own}" for question, (its, own) in different.items()
             if question not in known or known[question].real not in (None, its) or known[question].ours not in (None, own)]
    assert not wrong, f"{len(wrong)} answers differ, and tests/driver/differences.py has no such difference:\n  {listed(wrong)}"
    gone = [f"{question}: {real.get(question, 'not asked')} (there because: {known[question].why})" for question in known if question not in different]
    assert not gone, f"{len(gone)} entries of tests/driver/differences.py are no differences any more:\n  {listed(gone)}"


def test_enough_was_asked(answers):
    """Of a library that loads and says nothing, no answer would differ."""
    real = answers[REAL]
    assert real["cuInit 0"] == "no device"
    assert real["cuDriverGetVersion"] == f"success: {nvidia.CUDA_VERSION}"
    assert real["call cuMemAlloc_v2"] == "not initialized"
    assert real["cuGetProcAddress cuMemAlloc 0"] == "from 0 nothing, status 2, from 2000 cuMemAlloc, from 3020 cuMemAlloc_v2"
    assert sum(question.startswith("call ") for question in real) > 550
    assert sum(question.startswith("cuGetProcAddress ") for question in real) > 3000
    assert not [answer for answer in real.values() if answer.startswith(("asking failed", "no answer"))]


def test_a_crash_is_an_answer():
    def crashes():
        yield "first"
        os.kill(os.getpid(), signal.SIGKILL)
        yield "never"
    assert ask.in_child(crashes) == ["first", "crashes"]
    assert ask.in_child(lambda: iter(["all", "well"])) == ["all", "well"]


def test_proxyd_says_that_there_is_no_device(tmp_path):
    done = subprocess.run([os.path.join(BUILD, "singularity-proxyd"), "--driver", nvidia.library(), "--socket", str(tmp_path / "socket")],
                          env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "finds no device on this host" in done.stderr
    assert nvidia.library() in done.stderr
    assert not os.path.exists(tmp_path / "socket")
