# SPDX-License-Identifier: GPL-2.0-or-later
"""Cases that run at the same time in one thread: each is a generator, which yields what it waits for. One that fails ends alone."""

import dataclasses
import time
from collections.abc import Callable

from elastic import PATIENCE
from virtualcluster.errors import ClusterError


@dataclasses.dataclass
class Until:
    """`yield Until(...)` gives the first true value of the condition."""

    condition: Callable
    what: str | Callable  # for the one who has waited too long
    seconds: float = PATIENCE


def pause(seconds):
    """Of a fault that comes at any time."""
    end = time.monotonic() + seconds
    return Until(lambda: time.monotonic() >= end, "time to pass", seconds + PATIENCE)


class Case:
    def __init__(self, steps):
        self.steps = steps
        self.value = self.failure = None
        self.wish = Until(lambda: True, "its begin")
        self.deadline = float("inf")
        self.over = False

    def look(self):
        """Goes on, if what it waits for is there."""
        try:
            value = self.wish.condition()
            if value:
                self.wish = self.steps.send(value if self.deadline != float("inf") else None)
                self.deadline = time.monotonic() + self.wish.seconds
            elif time.monotonic() >= self.deadline:
                self.steps.throw(ClusterError(f"waited {self.wish.seconds} s for {self.wish.what() if callable(self.wish.what) else self.wish.what}"))
        except StopIteration as end:
            self.value, self.over = end.value, True
        except Exception as error:  # pylint: disable=broad-except
            self.failure, self.over = error, True

    def result(self):
        if self.failure:
            raise self.failure
        return self.value


def run_together(generators):
    """{name: generator} to {name: Case}, all at their end."""
    cases = {name: Case(steps) for name, steps in generators.items()}
    while open_ones := [case for case in cases.values() if not case.over]:
        for case in open_ones:
            case.look()
        time.sleep(0.02)
    return cases
