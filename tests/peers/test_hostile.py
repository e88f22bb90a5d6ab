# SPDX-License-Identifier: GPL-2.0-or-later
"""Whoever is not root of a host of the cluster, or changes what one says, gets nothing from an agent but a closed connection."""

import contextlib
import os
import random
import struct
import subprocess

import pytest
from cipher import TAG
from peering import EXPIRED, HOST, MESSAGE_LIMIT, PORT, VERSION, Caller, ListeningAgent, Munged, fields_of, message
from virtualnode import ALICE, wait_for  # after peering, which says where it is


@pytest.fixture(scope="module", name="munged")
def one_munged():
    # Everything below is in a network of its own: ports are free, and nothing comes from outside.
    os.unshare(os.CLONE_NEWNET)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    munged = Munged()
    yield munged
    munged.close()


@pytest.fixture(name="agent")
def one_agent(munged):
    agent = ListeningAgent(munged)
    yield agent
    try:
        with Caller() as caller:  # whatever happened, it serves who may ask
            assert caller.introduce(munged).ping() == HOST
    finally:
        agent.close()


UNBELIEVED = "it does not authenticate as number {} of what the other side has sent"


def refused(agent, caller, why):
    assert caller.is_closed()
    wait_for(lambda: why in agent.log(), f"'{why}' in the log:\n{agent.log()}", 20)


def test_an_agent_is_served(agent, munged):
    with Caller() as caller:
        caller.introduce(munged)
        for token in (1, 7, 2**32 - 1):
            assert caller.ping(token) == HOST


def test_a_request_that_it_does_not_know_is_answered(agent, munged):
    with Caller() as caller:
        caller.introduce(munged).tell(message(f1=5, f999=b"whatever"))
        reply = caller.hear()
        assert reply[1] == 5 and 2 in reply


JOB = "u1001-j00002a"
PREPARE, CONNECT, START, FOLLOW, SIGNAL, END, CUT = range(5, 12)  # members of Envelope


def prepare(job=JOB, vni=42, uid=ALICE, local=0, **more):
    return message(f1=job, f2=vni, f3=local, f5=message(f1=uid, f2=uid), **more)


@pytest.mark.parametrize("kind, body, why", [
    (PREPARE, prepare(job="../../etc"), "names of uid 1001's jobs"),
    (PREPARE, prepare(job="u1002-j00002a"), "names of uid 1001's jobs"),
    (PREPARE, prepare(job="u1001-j00002a\0"), "names of uid 1001's jobs"),
    (PREPARE, prepare(vni=0), "expected a number from 1"),
    (PREPARE, prepare(vni=2**32 - 1), "expected a number from 1"),
    (PREPARE, prepare(local=5, f4=b"\x05"), "the address of this host is none"),
    (CONNECT, message(f1=JOB, f2=1400), "none of that name"),
    (START, message(f1=JOB), "none of that name"),
    (FOLLOW, message(f1=JOB), "none of that name"),
    (SIGNAL, message(f1=JOB, f2=9), "none of that name"),
    (END, message(f1=JOB), "none of that name"),
    (CUT, message(f1=JOB), "none of that name"),
])
def test_requests_that_make_no_sense(agent, munged, kind, body, why):
    """Even root of another host gets no more than a word."""
    with Caller() as caller:
        caller.introduce(munged).tell(message(f1=9, **{f"f{kind}": body}))
        reply = caller.hear()
        assert reply[1] == 9 and why in fields_of(reply[2])[3].decode(), reply
        # What was begun of it can be ended.
        caller.tell(message(f1=10, **{f"f{END}": message(f1=JOB)}))
        assert caller.hear()[1] == 10


def test_a_job_obeys_its_coordinator_alone(agent, munged):
    with Caller() as caller, Caller(name="another") as other:
        caller.introduce(munged).tell(message(f1=1, **{f"f{PREPARE}": prepare()}))
        assert fields_of(caller.hear()[12])[1] == 1500  # prepared, with this MTU
        other.introduce(munged)
        for kind in (CONNECT, START, FOLLOW, SIGNAL, END, CUT):
            other.tell(message(f1=1, **{f"f{kind}": message(f1=JOB)}))
            assert "none of that name that another coordinates" in fields_of(other.hear()[2])[3].decode()
        # Nodes that are not as they must be; what a user would have asked for is made by his own agent.
        node = message(f1=1, f2=HOST, f4="u1001-j00002a-1", f5="10.64.42.1/24")
        caller.tell(message(f1=2, **{f"f{CONNECT}": message(f1=JOB, f2=1500, f3=node)}))
        assert "its node 1 is not as it must be" in fields_of(caller.hear()[2])[3].decode()
        caller.tell(message(f1=3, **{f"f{END}": message(f1=JOB)}))
        assert 14 in caller.hear()  # done


def test_a_port_that_any_user_may_have(agent):
    with Caller(reserved=False) as caller:
        refused(agent, caller, "it calls from a port that any user may have")


def test_a_credential_of_another_uid(agent, munged):
    with Caller() as caller:
        caller.hello()
        caller.take_hello()
        caller.send_frame(message(f1=munged.encode(caller.pledge(), uid=ALICE)))
        refused(agent, caller, f"uid {ALICE} has made it, not root")


def test_a_credential_of_another_key(agent):
    other = Munged()
    try:
        with Caller() as caller:
            caller.hello()
            caller.take_hello()
            caller.prove(other)
            refused(agent, caller, "cannot believe a munge credential: Invalid credential")
    finally:
        other.close()


def test_an_expired_credential(agent, munged):
    with Caller() as caller:
        caller.hello()
        caller.take_hello()
        credential = munged.encode(caller.pledge(), ttl=1)
        # Made later, expired later. Reading the credential itself would make it a replayed one.
        probe = munged.encode(b"probe", ttl=1)
        wait_for(lambda: munged.decode(probe)[0] == EXPIRED, "a credential to expire", 20)
        caller.send_frame(message(f1=credential))
        refused(agent, caller, "Expired credential")


def test_a_credential_that_was_read_before(agent, munged):
    with Caller() as caller:
        caller.hello()
        caller.take_hello()
        credential = munged.encode(caller.pledge())
        assert munged.decode(credential)[0] == 0
        caller.send_frame(message(f1=credential))
        refused(agent, caller, "Replayed credential")


@pytest.mark.parametrize("change, why", [
    ({"to": "elsewhere"}, f"its credential is from 'there' to 'elsewhere', and not from there to {HOST}"),
    ({"name": "third"}, f"its credential is from 'third' to '{HOST}'"),
    # Whoever stands between the two has put in another share.
    ({"share": b"n" * 32}, "its credential was made for another connection"),
    ({"peer_share": b"n" * 32}, "its credential was made for another connection"),
    ({"answer": 1}, "its credential is one of another release, or of the other side"),
    ({"version": VERSION - 1}, "its credential is one of another release"),
])
def test_a_credential_for_something_else(agent, munged, change, why):
    with Caller() as caller:
        caller.hello()
        caller.take_hello()
        caller.prove(munged, **change)
        refused(agent, caller, why)


@pytest.mark.parametrize("change, why", [
    ({"to": "elsewhere"}, f"it is for 'elsewhere', and this is {HOST}"),
    ({"share": b"short"}, "has no host name and share of a key as they must be"),
    ({"name": "no name\n"}, "has no host name and share of a key as they must be"),
])
def test_a_first_message_that_is_wrong(agent, change, why):
    with Caller() as caller:
        caller.hello(**change)
        refused(agent, caller, why)


@pytest.mark.parametrize("version, older", [(VERSION - 1, "'there'"), (VERSION + 7, HOST)])
def test_another_version(agent, version, older):
    """Both sides can say which host is to be upgraded."""
    with Caller() as caller:
        caller.hello(version=version)
        answer = caller.take()
        assert (answer[1], answer[2].decode()) == (VERSION, HOST)
        refused(agent, caller, f"'there' speaks version {version} of the agents' protocol and {HOST} speaks version {VERSION}: "
                               f"upgrade slurm-singularity on {older}")


def test_credentials_are_encrypted_as_agents_want_it(agent, munged):
    with Caller() as caller:
        caller.hello()
        caller.take_hello()
        caller.prove(munged)
        assert munged.cipher(caller.take()[1]) == "aes256"


def test_a_share_of_which_no_key_can_be_made(agent, munged):
    zeros = bytes(32)
    with Caller() as caller:
        caller.hello(share=zeros)
        caller.take_hello()
        caller.prove(munged, share=zeros)
        refused(agent, caller, "the other side's share of it is none")


def test_no_credential_at_all(agent):
    for body in (message(f1=b""), message(f1=b"a\0b"), b"", message(f1=b"MUNGE:" + b"A" * 4000 + b":"), b"\xff" * 100):
        with Caller() as caller:
            caller.hello()
            caller.take_hello()
            caller.send_frame(body)
            assert caller.is_closed()


def test_a_conversation_that_was_recorded(agent, munged):
    with Caller() as first:
        first.introduce(munged).ping()
    for cut in (len(first.sent), len(first.sent) // 2):
        with Caller() as again:
            again.send(first.sent[:cut])
            again.socket.shutdown(1)
            assert again.is_closed()
    with Caller() as again:
        again.send(first.sent)
        refused(agent, again, "Replayed credential")


def test_a_message_sent_twice(agent, munged):
    with Caller() as caller:
        caller.introduce(munged)
        caller.ping()
        caller.send_frame(caller.sealed(message(f1=1, f3=b""), number=0))
        refused(agent, caller, UNBELIEVED.format(1))


def test_messages_in_another_order(agent, munged):
    with Caller() as caller:
        caller.introduce(munged)
        caller.send_frame(caller.sealed(message(f1=1, f3=b""), number=1))
        refused(agent, caller, UNBELIEVED.format(0))


def test_a_message_that_was_changed(agent, munged):
    for at in (0, 3, -TAG, -1):
        with Caller() as caller:
            raw = bytearray(caller.introduce(munged).sealed(message(f1=1, f3=b"")))
            raw[at] ^= 1
            caller.send_frame(bytes(raw))
            refused(agent, caller, UNBELIEVED.format(0))


def test_a_message_of_the_other_direction(agent, munged):
    with Caller() as caller:
        caller.introduce(munged)
        caller.send_frame(caller.sealed(message(f1=1, f3=b""), key=caller.keys[1]))
        refused(agent, caller, UNBELIEVED.format(0))
    with Caller() as caller:  # the agent's own
        caller.introduce(munged).tell(message(f1=1, f3=b""))
        caller.send_frame(caller.frame())
        refused(agent, caller, UNBELIEVED.format(1))


def test_a_message_in_the_clear(agent, munged):
    with Caller() as caller:
        caller.introduce(munged).send_frame(message(f1=1, f3=b""))
        refused(agent, caller, f"bytes have no room for a tag of {TAG}")


def test_a_message_of_another_connection(agent, munged):
    with Caller() as one, Caller() as other:
        one.introduce(munged)
        other.introduce(munged)
        other.send_frame(one.sealed(message(f1=1, f3=b"")))
        refused(agent, other, UNBELIEVED.format(0))


def test_a_message_that_is_too_long(agent, munged):
    with Caller() as caller:
        caller.introduce(munged)
        caller.send(struct.pack(">I", MESSAGE_LIMIT + TAG + 1))
        refused(agent, caller, f"it says that it has {MESSAGE_LIMIT + TAG + 1} bytes")
    with Caller() as caller:  # before it has proved itself it may say much less
        caller.send(struct.pack(">I", 8193))
        refused(agent, caller, "it says that it has 8193 bytes; expected 1 to 8192")


def test_a_sealed_message_that_is_none(agent, munged):
    for body in (b"", b"\xff" * 50, message(f3=b"")):  # the last has no token
        with Caller() as caller:
            caller.introduce(munged).tell(body)
            assert caller.is_closed()


def test_who_says_nothing_is_given_up(agent):
    with Caller() as caller:
        refused(agent, caller, "to prove itself: 15000ms have passed")


def test_bytes_of_every_kind(agent, munged):
    """At every step of a conversation; each connection ends, and the agent holds nothing of it."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    before = agent.descriptors()
    for _ in range(300):
        with Caller() as caller:
            step = rng.randrange(3)
            if step > 0:
                caller.hello()
                caller.take_hello()
            if step > 1:
                caller.prove(munged)
                caller.take_proof(munged)
            body = bytearray(rng.randbytes(rng.randrange(1, 400)))
            if rng.random() < 0.5:  # a length that fits
                body = bytearray(struct.pack(">I", len(body))) + body
            caller.send(bytes(body))
            caller.socket.shutdown(1)
            assert caller.is_closed()
    assert agent.process.poll() is None, f"seed {seed}: {agent.log()}"
    wait_for(lambda: agent.descriptors() <= before, f"the agent to have let go of everything (seed {seed})")


def addresses(last):
    """Of callers: all are loopback's."""
    return [f"127.0.0.{number}" for number in range(2, last + 1)]


class Idle:
    """Callers that say nothing. Each that is sent away comes again."""

    def __init__(self, of_each, places):
        self.callers = [self.caller(place) for _ in range(of_each) for place in places]

    @staticmethod
    def caller(place):
        out = Caller(address=place)
        out.socket.setblocking(False)
        return out

    def come_again(self):
        """How many were sent away."""
        gone = [caller for caller in self.callers if self.is_gone(caller)]
        for caller in gone:
            place = caller.socket.getsockname()[0]
            caller.socket.close()
            self.callers.remove(caller)
            self.callers.append(self.caller(place))
        return len(gone)

    @staticmethod
    def is_gone(caller):
        try:
            return caller.socket.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for caller in self.callers:
            caller.socket.close()


def test_idle_connections_of_an_address_keep_nobody_out(agent, munged):
    """They have 8 places, and whoever else comes from there gets the oldest one's."""
    with Idle(8, ["127.0.0.1"]) as idle:
        for _ in range(5):
            with Caller() as caller:
                assert caller.introduce(munged).ping() == HOST
                wait_for(lambda: idle.come_again() > 0, "an idle one to be sent away")
        assert "others from its address have not proved themselves" in agent.log()


def test_an_address_whose_connections_have_proved_themselves_has_no_more(agent, munged):
    before = agent.descriptors()
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Caller()).introduce(munged) for _ in range(8)]
        with Caller() as one_more:
            refused(agent, one_more, "there are too many connections from its address")
        for caller in callers:
            assert caller.ping() == HOST
    wait_for(lambda: agent.descriptors() <= before, "the agent to see that they have gone")


def test_idle_connections_of_many_addresses_keep_nobody_out(agent, munged):
    """Whoever has most of the places gives one away, so one connection of another address stays."""
    with Idle(8, addresses(9)) as idle, Caller() as caller:
        caller.hello()
        caller.take_hello()
        for _ in range(10):  # while it proves itself, others come
            wait_for(lambda: idle.come_again() > 0, "an idle one to be sent away")
        caller.prove(munged)
        caller.take_proof(munged)
        assert caller.ping() == HOST
        assert "too many others have not proved themselves yet" in agent.log()


def test_a_flood_does_not_fill_the_log(agent):
    for _ in range(200):
        with Caller(reserved=False) as caller:
            assert caller.is_closed()
    assert agent.log().count("is refused") <= 45  # 20 in 10 s
    assert PORT == agent.port
