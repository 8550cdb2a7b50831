"""Acknowledgements at the broker of the client, while their stream has no leader: they wait, within bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.jetstream.encoding.ack_subjects import Ack, again
from supercluster.broker.jetstream.frontend.ack_forwarder import (
    ASK_LEADER_MS,
    SENT_MAX,
    SENT_MS,
    WAIT_MS,
    WAITING_MAX,
    AckForwarder,
)
from supercluster.broker.jetstream.links.frames import Frame, decode_acks

GROUP = "S.$G.S.1"
PLAIN: Ack = (b"$JS.ACK.S.c.1.1.1.0.0", b"", b"")
DOUBLE: Ack = (b"$JS.ACK.S.c.1.2.2.0.0", b"_R.2", b"+ACK")


class Core:
    """What the post needs of a broker: who leads, and what it sends."""

    node = "here"

    def __init__(self) -> None:
        self.leader: str | None = None
        self.network = self
        self.sent: list[tuple[str, list[Ack]]] = []
        self.groups: list[str] = []
        """Of what was sent."""
        self.published: list[tuple[bytes, bytes]] = []
        self.asked = 0
        self.moved: dict[str, str] = {}
        """Groups whose streams another super-cluster has, and its groups."""
        self.acks = AckForwarder(self, self, self)  # type: ignore[arg-type]

    def leader_of(self, group: str) -> str | None:
        return self.leader

    def ask(self, group: str) -> None:
        self.asked += 1

    def by_group(self, group: str) -> Any:
        return SimpleNamespace(account="$G") if group in (GROUP, *self.moved.values()) else None

    def goes_on_as(self, group: str) -> str:
        return self.moved.get(group, group)

    def post(self, node: str, frame: int, body: list[bytes | memoryview]) -> bool:
        assert frame == Frame.ACKS
        group, acks = decode_acks(memoryview(b"".join(body)))
        self.sent.append((node, acks))
        self.groups.append(group)
        return True

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self.published.append((subject, header))


@pytest.mark.covers("SF-2", "MV-10")
def test_they_wait_for_a_leader_and_go_in_order() -> None:
    core = Core()
    core.acks.add("$G", GROUP, PLAIN)
    core.acks.flush(0)
    assert (core.sent, core.asked, bool(core.acks)) == ([], 1, False)
    core.acks.tick(core.acks.deadline_ms() or 0)
    assert core.asked == 2, "whoever leads is asked to say so again"
    core.leader = "a"
    core.acks.leader_serves(GROUP)
    core.acks.add("$G", GROUP, DOUBLE)
    assert core.acks
    core.acks.flush(300)
    assert core.sent == [("a", [PLAIN, DOUBLE])]
    assert core.acks.deadline_ms() is None


@pytest.mark.covers("SF-2", "MV-10")
def test_what_comes_back_goes_to_the_next_leader_before_what_came_since() -> None:
    core = Core()
    core.acks.back("a", GROUP, [PLAIN], 0)
    core.acks.add("$G", GROUP, DOUBLE)
    core.leader = "b"
    core.acks.leader_serves(GROUP)
    core.acks.flush(0)
    assert core.sent == [("b", [PLAIN, DOUBLE])]
    core.acks.back("a", GROUP, [PLAIN], 0)
    core.acks.flush(0)
    assert core.sent[1:] == [("b", [PLAIN])], "the next leader is known already"
    core.acks.back("a", "S.$G.GONE.1", [DOUBLE], 0)
    assert not core.acks


@pytest.mark.covers("SF-2")
def test_those_of_one_stream_go_before_a_request_that_shows_what_they_changed() -> None:
    core = Core()
    core.leader = "a"
    core.acks.add("$G", GROUP, PLAIN)
    core.acks.flush_group("S.$G.OTHER.1", 0)
    assert core.sent == []
    core.acks.flush_group(GROUP, 0)
    assert core.sent == [("a", [PLAIN])]
    core.acks.flush(0)
    core.leader = None
    core.acks.link_down("a", 1)
    assert core.acks.deadline_ms() is not None, "what was sent in this way is remembered as well"
    assert len(core.sent) == 1


@pytest.mark.covers("BG-5")
def test_what_is_for_a_stream_that_another_super_cluster_has_now_goes_there_in_its_order() -> None:
    core = Core()
    third: Ack = (b"$JS.ACK.S.c.1.3.3.0.0", b"", b"")
    core.leader = "a"
    core.acks.add("$G", GROUP, third)
    core.acks.flush(0)
    core.leader = None
    core.acks.add("$G", GROUP, PLAIN)
    core.acks.flush(0)
    core.acks.add("$G", GROUP, DOUBLE)
    core.moved, core.leader = {GROUP: f"{GROUP}~1"}, "far"
    core.acks.groups_gone([GROUP])
    core.acks.flush(1)
    assert core.published == [], "nobody is told that nobody is there"
    assert (core.sent[1:], core.groups[1:]) == ([("far", [PLAIN, DOUBLE])], [f"{GROUP}~1"])
    core.acks.back("a", GROUP, [DOUBLE], 2)
    core.acks.flush(2)
    assert (core.sent[2:], core.groups[2:]) == ([("far", [DOUBLE])], [f"{GROUP}~1"]), (
        "what comes back later, too"
    )
    core.acks.link_down("a", 3)
    core.acks.leader_serves(f"{GROUP}~1")
    core.acks.flush(3)
    assert (core.sent[3:], core.groups[3:]) == ([("far", [third])], [f"{GROUP}~1"])
    assert core.acks.deadline_ms() is None


@pytest.mark.covers("MV-11", "SF-15")
def test_a_leader_without_room_for_them_is_asked_again_in_a_while_and_another_one_at_once() -> None:
    core = Core()
    core.leader = "a"
    core.acks.back("a", GROUP, [PLAIN], 0)
    core.acks.leader_serves(GROUP)
    core.acks.flush(0)
    core.acks.tick(ASK_LEADER_MS - 1)
    assert not core.acks, "they would go to and fro as fast as links are"
    core.acks.tick(ASK_LEADER_MS)
    core.acks.flush(ASK_LEADER_MS)
    assert core.sent == [("a", [PLAIN])]
    core.acks.back("a", GROUP, [PLAIN], 300)
    core.leader = "b"
    core.acks.leader_serves(GROUP)
    core.acks.flush(300)
    assert core.sent[1:] == [("b", [PLAIN])]


@pytest.mark.covers("SF-2", "MV-10")
def test_what_a_lost_broker_was_sent_last_is_said_again_to_the_next_leader() -> None:
    core = Core()
    core.leader = "a"
    refused: Ack = (PLAIN[0], b"", b"-NAK")
    for at_ms, ack in ((0, PLAIN), (SENT_MS - 1, DOUBLE), (SENT_MS, refused)):
        core.acks.add("$G", GROUP, ack)
        core.acks.flush(at_ms)
    core.leader = None
    core.acks.link_down("b", SENT_MS)
    assert core.acks.deadline_ms() is None, "it was sent nothing"
    core.acks.link_down("a", SENT_MS)
    core.leader = "b"
    core.acks.leader_serves(GROUP)
    core.acks.flush(SENT_MS)
    assert core.sent[3:] == [("b", [DOUBLE])], "the first is long written, the last would count twice"
    core.acks.link_down("a", SENT_MS)
    core.acks.link_down("b", 2 * SENT_MS)
    assert core.acks.deadline_ms() is None, "each once, and not for ever"


@pytest.mark.covers("SF-15")
def test_no_more_is_remembered_than_there_is_room_for() -> None:
    core = Core()
    core.leader = "a"
    for _ in range(3):
        for _ in range(SENT_MAX // 2):
            core.acks.add("$G", GROUP, PLAIN)
        core.acks.flush(0)
    core.acks.link_down("a", 0)
    core.acks.leader_serves(GROUP)
    core.acks.flush(0)
    assert len(core.sent[3][1]) == SENT_MAX
    core.leader = core.node
    core.acks.add("$G", GROUP, PLAIN)
    core.acks.flush(0)
    core.acks.link_down(core.node, 0)
    assert core.acks.deadline_ms() is None


@pytest.mark.covers("SF-2", "SF-15")
def test_who_waits_for_confirmation_is_told_when_nobody_leads_for_too_long() -> None:
    core = Core()
    core.acks.add("$G", GROUP, PLAIN)
    core.acks.add("$G", GROUP, DOUBLE)
    core.acks.flush(0)
    core.acks.tick(WAIT_MS - 1)
    assert core.published == []
    core.acks.tick(WAIT_MS)
    ((reply, header),) = core.published
    assert reply == DOUBLE[1]
    assert b"503" in header
    assert core.acks.deadline_ms() is None


@pytest.mark.covers("SF-15")
def test_those_that_are_too_many_are_refused_at_once() -> None:
    core = Core()
    for _ in range(WAITING_MAX):
        core.acks.add("$G", GROUP, PLAIN)
    core.acks.add("$G", GROUP, DOUBLE)
    core.acks.flush(0)
    assert [reply for reply, _ in core.published] == [DOUBLE[1]]


def test_a_deleted_stream_confirms_nothing() -> None:
    core = Core()
    core.acks.add("$G", GROUP, DOUBLE)
    core.acks.flush(0)
    core.acks.groups_gone([GROUP])
    assert [reply for reply, _ in core.published] == [DOUBLE[1]]
    assert core.acks.deadline_ms() is None


def test_only_what_says_the_same_is_said_again() -> None:
    subject = PLAIN[0]
    said = [b"", b"+ACK", b"-NAK", b"+WPI", b"+TERM gone", b"+NXT 5", b"nonsense"]
    found = again([(subject, b"_R", payload) for payload in said])
    assert [(reply, payload) for _, reply, payload in found] == [
        (b"_R", b""),
        (b"_R", b"+ACK"),
        (b"_R", b"+TERM gone"),
        (b"", b"+ACK"),
    ]
