# SPDX-License-Identifier: GPL-2.0-or-later
"""One agent for a file's tests; after each test it has no node left, after the last nothing is."""

import contextlib
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtualnode import Agent, Refused  # noqa: E402

# What other tests mount meanwhile is none of an agent's leftovers.
os.unshare(os.CLONE_NEWNS)
subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@pytest.fixture(scope="module", name="shared_agent")
def one_agent():
    agent = Agent()
    try:
        yield agent
    finally:
        agent.close()


@pytest.fixture(name="agent")
def clean_agent(shared_agent):
    yield shared_agent
    left = shared_agent.leftovers()
    with shared_agent.connect() as connection:  # the next test has nothing to do with it
        for name in os.listdir(shared_agent.state):
            with contextlib.suppress(Refused):
                connection.destroy(name)
    assert not left, f"{left}\n{shared_agent.log()}"


@pytest.fixture(name="own_agent")
def agent_to_kill():
    agent = Agent()
    try:
        yield agent
    finally:
        agent.close()
