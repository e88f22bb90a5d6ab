# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong in words, and waiting that always ends."""

import time


class ClusterError(Exception):
    """Says what was being done, on what, and why it failed."""


LONGEST_SLEEP = 0.5


def wait_for(condition, seconds, what, interval=0.05):
    """Calls condition until it returns something true and returns that; ClusterError naming `what` after `seconds`.

    Looking takes a quarter of the time at most: who waits for Slurm runs half a dozen programs to look once, and others compute.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise ClusterError(f"waited {seconds} s for {what}")
        time.sleep(max(interval, min(3 * (time.monotonic() - began), LONGEST_SLEEP)))
