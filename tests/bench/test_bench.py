# SPDX-License-Identifier: GPL-2.0-or-later
"""A bench reports every figure it declares, or fails; it never makes one up."""

import importlib
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import bench  # noqa: E402

DECLARED = {"up_s": "seconds", "ratio": "no unit"}


def test_complete_figures_pass():
    bench.check("b", DECLARED, {"up_s": 0.5, "ratio": 1})


@pytest.mark.parametrize(
    "figures, words",
    [
        ({"up_s": 0.5}, "'ratio' is missing"),
        ({"up_s": None, "ratio": 1}, "'up_s' is None"),
        ({"up_s": float("nan"), "ratio": 1}, "not a finite number"),
        ({"up_s": float("inf"), "ratio": 1}, "not a finite number"),
        ({"up_s": "0.5", "ratio": 1}, "not a finite number"),
        ({"up_s": True, "ratio": 1}, "not a finite number"),
        ({"up_s": 0.5, "ratio": 1, "more": 2}, "does not declare: more"),
    ],
)
def test_anything_else_is_an_error(figures, words):
    with pytest.raises(SystemExit, match=words):
        bench.check("b", DECLARED, figures)


@pytest.mark.parametrize("name", bench.benches())
def test_every_bench_declares_its_figures(name):
    module = importlib.import_module(name)
    assert module.FIGURES and callable(module.run)


@pytest.mark.parametrize("name", bench.benches())
def test_every_bench_needs_targets_that_there_are(name):
    module = importlib.import_module(name)
    with open(os.path.join(os.environ["CTEST_BINARY_DIR"], "build.ninja"), encoding="utf-8") as file:
        targets = set(re.findall(r"^build ([^ /:]+): phony", file.read(), re.MULTILINE))
    assert isinstance(module.NEEDS, tuple) and set(module.NEEDS) - targets == set()


def test_unknown_bench_is_refused():
    answer = subprocess.run([sys.executable, os.path.join(HERE, "bench.py"), "nosuch"], capture_output=True, text=True, check=False)
    assert answer.returncode != 0 and "no bench 'nosuch': one of build, checkpoint" in answer.stderr
