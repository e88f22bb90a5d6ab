# SPDX-License-Identifier: GPL-2.0-or-later
"""A training whose device is saved in the middle, and goes on in another proxy: its output is that of an undisturbed one, to the bit."""

import os
import subprocess
import time

import pytest

import installed
from image_proxy import Place

MODELS = ("gpt", "gpt-graph")
STEPS, SAVED_AFTER = 30, (4, 12)


def wait_for(step, output, process):
    """Until it has printed that step."""
    deadline = time.monotonic() + installed.LIMIT_S
    while True:
        with open(output, encoding="utf-8") as file:
            if f"step {step} " in file.read():
                return
        assert process.poll() is None and time.monotonic() < deadline, f"step {step} does not come: status {process.poll()}"
        time.sleep(0.02)


@pytest.mark.parametrize("model", MODELS)
def test_saved_in_the_middle(model, tmp_path):
    words = ["training.py", model, STEPS]
    wanted = installed.lines("proxied", words, tmp_path)
    output, errors = tmp_path / "output", tmp_path / "errors"
    with Place().start_all() as place, open(output, "wb") as out, open(errors, "wb") as err:
        environment = place.environment(**installed.variables([installed.builds.program("client")]))
        process = subprocess.Popen(installed.program(*words), env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            for step in SAVED_AFTER:
                wait_for(step, output, process)
                saved = place.save("image", "--detach")
                place.kill()
                place.start()
                assert place.restore("image")["clients"] == 1, saved
                place.awaited()
            status = process.wait(installed.LIMIT_S)
        finally:
            process.kill()
            process.wait()
        log = place.log()
    assert status == 0, f"{errors.read_text(encoding='utf-8')[-3000:]}\n{log}"
    with open(output, encoding="utf-8") as file:
        assert file.read().splitlines() == wanted
    assert os.path.getsize(errors) == 0, errors.read_text(encoding="utf-8")
