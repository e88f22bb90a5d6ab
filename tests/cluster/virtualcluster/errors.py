# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong in words, and waiting that always ends."""

import time


class ClusterError(Exception):
    """Says what was being done, on what, and why it failed."""


LONGEST_SLEEP = 0.5


def wait_for(condition, seconds, what, interval=0.05, progress=None):
    """Calls condition until it returns something true and returns that; ClusterError naming `what` after `seconds`.

    With progress, a function whose value rises to an end: after `seconds` in which it has not risen, however slow the machine is.

    Looking takes a tenth of the time at most, or half a second goes by: who waits for Slurm runs programs to look once, and others compute.
    """
    deadline = time.monotonic() + seconds
    reached = progress() if progress else None
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        if progress and progress() > reached:
            reached = progress()
            deadline = time.monotonic() + seconds
        if time.monotonic() >= deadline:
            raise ClusterError(f"waited {seconds} s{', without any progress,' if progress else ''} for {what}")
        time.sleep(max(interval, min(9 * (time.monotonic() - began), LONGEST_SLEEP)))
