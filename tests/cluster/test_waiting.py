# SPDX-License-Identifier: GPL-2.0-or-later
"""Waiting ends: at the deadline, or, where progress counts, a deadline after the last of it. Time is the test's own."""

import pytest
from virtualcluster import errors


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    one = Clock()
    monkeypatch.setattr(errors, "time", one)
    return one


def test_the_deadline_counts_from_the_beginning(clock):
    with pytest.raises(errors.ClusterError, match="waited 10 s for the job"):
        errors.wait_for(lambda: clock.now > 25, 10, "the job")
    assert 10 <= clock.now < 11


def test_what_makes_progress_is_waited_for(clock):
    assert errors.wait_for(lambda: clock.now > 25, 10, "the job", progress=lambda: clock.now // 5)


def test_the_deadline_counts_from_the_last_progress(clock):
    with pytest.raises(errors.ClusterError, match="waited 10 s, without any progress, for the job"):
        errors.wait_for(lambda: clock.now > 40, 10, "the job", progress=lambda: min(clock.now // 5, 3))
    assert 25 <= clock.now < 26.1


def test_going_back_is_no_progress(clock):
    with pytest.raises(errors.ClusterError, match="without any progress"):
        errors.wait_for(lambda: clock.now > 25, 10, "the job", progress=lambda: -clock.now)
