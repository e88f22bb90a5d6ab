# SPDX-License-Identifier: GPL-2.0-or-later
"""Small models, trained on the software GPU directly and through the proxy: the same losses and the same parameters, to the bit."""

import pytest

import installed

MODELS = ("gpt", "gpt-bf16", "gpt-fp16", "gpt-graph", "cnn", "cnn-graph", "lstm", "encoder")


def losses(lines):
    return [float.fromhex(line.split()[-1]) for line in lines if " loss " in line]


@pytest.mark.parametrize("model", MODELS)
def test_trains_alike(model, tmp_path):
    wanted, ours = (installed.lines(mode, ["training.py", model], tmp_path) for mode in installed.MODES)
    assert ours == wanted
    steps = losses(wanted)
    assert len(steps) >= 7 and min(steps[-2:]) < steps[0], f"nothing was learnt: {wanted}"
    assert wanted[-1].startswith("parameters ")
