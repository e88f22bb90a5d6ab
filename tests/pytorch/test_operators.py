# SPDX-License-Identifier: GPL-2.0-or-later
"""PyTorch's operator database, float32, forward and backward, compared with the processor: all of it is right but what known.py names."""

import pytest

import installed
from known import KNOWN, OPERATORS

CONTEXT_IS_LOST = 3
ATTEMPTS = 20  # processes, each of which goes on after the operator that the last one could not survive


def verdicts(mode, scratch):
    """{operator: (verdict, why)}; of one that ends its process, "ended"."""
    found, first = {}, 0
    for _ in range(ATTEMPTS):
        done = installed.run(mode, ["operators.py", first], scratch)
        number = name = None
        begun = False
        for line in done.stdout.splitlines():
            if line == "end":
                return found
            number, name, verdict, *why = line.split(" ", 3)
            begun = verdict == "begins"
            if not begun:
                found[name] = (verdict, why[0] if why else "")
        assert name is not None, f"the first operator has not begun: status {done.returncode}\n{done.stderr[-4000:]}"
        if begun:
            found[name] = ("ended", f"its process, with {done.returncode}: {done.stderr[-1000:]}")
        else:
            assert done.returncode == CONTEXT_IS_LOST, f"status {done.returncode} after {name}\n{done.stderr[-4000:]}"
        first = int(number) + 1
    raise AssertionError(f"{ATTEMPTS} operators have ended their process: {found}")


@pytest.mark.parametrize("mode", installed.MODES)
def test_every_operator(mode, tmp_path):
    found = verdicts(mode, tmp_path)
    other = {name: said for name, said in found.items() if said[0] != "right"}
    print(f"{mode}: {len(found) - len(other)} of {len(found)} operators are right; the others: {sorted(other)}")
    wrong = {name: why for name, (verdict, why) in other.items() if verdict == "wrong"}
    assert not wrong, f"{len(wrong)} operators give other results than on the processor, and no error: {wrong}"
    new = {name: said for name, said in other.items() if name not in KNOWN or said[0] != KNOWN[name][0] or KNOWN[name][1] not in said[1]}
    assert not new, f"not right, and tests/pytorch/known.py has no such line: {new}"
    assert not set(KNOWN) - set(other), f"they work: take them out of tests/pytorch/known.py: {sorted(set(KNOWN) - set(other))}"
    assert len(found) == OPERATORS
