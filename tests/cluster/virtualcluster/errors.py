# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong in words, and waiting that always ends."""

import time


class ClusterError(Exception):
    """Says what was being done, on what, and why it failed."""


def wait_for(condition, seconds, what, interval=0.05):
    """Calls condition until it returns something true and returns that; ClusterError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise ClusterError(f"waited {seconds} s for {what}")
        time.sleep(interval)
