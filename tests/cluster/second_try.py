# SPDX-License-Identifier: GPL-2.0-or-later
"""A pytest plugin: tells why a test was run a second time.

The tests of live clusters have deadlines, and races with Slurm's own daemons, on machines that may be busy with something
else. One that fails is run once more (--reruns 1, of pytest-rerunfailures), so that one slow moment among hundreds of tests
does not refuse a change. It is not forgotten: what failed is printed here, into ctest's log, and ./dev test ends with a list.
"""

import os
import signal

FAILED = "FIRST TRY FAILED"


def pytest_configure():
    # Told to end, as when there is no time left: fixtures take down what they have brought up.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.default_int_handler(number, frame))
    # A process that is forked (multiprocessing.Pool ends its own by this signal) has no fixtures of its own: it must not take
    # down those of its parent. Until it has the default action the signal waits.
    os.register_at_fork(before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
                        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]),
                        after_in_child=default_action)


def default_action():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def pytest_runtest_logreport(report):
    if report.outcome == "rerun":
        print(f"\n{FAILED}: {report.nodeid} ({report.when})\n{report.longreprtext}\n{report.capstdout}{report.capstderr}")
