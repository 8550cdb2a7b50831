"""How much room brokers say they have, and how long they are believed."""

from __future__ import annotations

import pytest

from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.links.frames import Body, Frame, decode_load, encode_load
from supercluster.broker.jetstream.node.capacity_reports import (
    LOAD_AGAIN_MS,
    LOAD_EVERY_MS,
    LOAD_VALID_MS,
    CapacityReports,
)
from supercluster.broker.jetstream.placement.room import Room


class Pair:
    """A broker that reports, and who is told."""

    def __init__(self) -> None:
        self.leader: str | None = "b"
        self.room = Room(6400, 640)
        self.takes = True
        self.sent: list[tuple[str, int, Room]] = []
        self.load = CapacityReports("a", lambda: self.room, self._post, lambda: self.leader)

    def _post(self, node: str, frame: int, body: Body) -> bool:
        if self.takes:
            self.sent.append((node, frame, Room(*decode_load(memoryview(b"".join(body))))))
        return self.takes


def test_the_meta_leader_is_told_what_changed_within_two_seconds_and_a_new_one_at_once() -> None:
    pair = Pair()
    pair.load.tick(5)
    assert pair.sent == [("b", Frame.LOAD, Room(6400, 640))]
    for room in (Room(6300, 640), Room(6200, 640), Room(6200, 620)):
        now_ms = pair.load.deadline_ms()
        assert now_ms is not None
        pair.room = room
        pair.load.tick(now_ms - 1)
        pair.load.tick(now_ms)
        assert pair.load.deadline_ms() == now_ms + LOAD_EVERY_MS
    assert [room for _, _, room in pair.sent[1:]] == [Room(6200, 640), Room(6200, 620)], (
        "a hundred less is no news"
    )
    pair.leader = "c"
    pair.load.tell_soon()
    pair.load.tick(5 + 3 * LOAD_EVERY_MS + 1)
    assert pair.sent[-1] == ("c", Frame.LOAD, Room(6200, 620))


def test_what_stays_the_same_is_said_seldom_and_what_did_not_leave_at_once_again() -> None:
    pair = Pair()
    pair.takes = False
    pair.load.tick(0)
    pair.takes = True
    for now_ms in range(LOAD_EVERY_MS, 2 * LOAD_AGAIN_MS, LOAD_EVERY_MS):
        pair.load.tick(now_ms)
    assert len(pair.sent) == 2


def test_nobody_is_told_without_a_leader_and_a_leader_tells_itself_nothing() -> None:
    pair = Pair()
    for leader in (None, "a"):
        pair.leader = leader
        pair.load.tick(10_000)
        assert pair.load.deadline_ms() is None
    assert pair.sent == []
    assert pair.load.room_of("a", 0) == Room(6400, 640)


def test_what_was_told_is_believed_for_a_while() -> None:
    load = Pair().load
    assert load.room_of("b", 0) is None
    load.took("b", Room(7, 3), 1000)
    found = load.room_of("b", 1000 + LOAD_VALID_MS)
    assert found == Room(7, 3)
    assert (found.of("file"), found.of("memory")) == (7, 3)
    assert load.room_of("b", 1001 + LOAD_VALID_MS) is None
    load.took("b", Room(7, 3), 1000)
    load.forget("b")
    assert load.room_of("b", 1000) is None


def test_a_report_travels_as_it_is() -> None:
    (body,) = encode_load(1 << 62, 5)
    assert decode_load(memoryview(body)) == (1 << 62, 5)
    with pytest.raises(WireError):
        decode_load(memoryview(b"short"))
