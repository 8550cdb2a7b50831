"""Moves in the meta group's state: what each operation does to an assignment, on every replica alike."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.encoding.sections import Section, section
from supercluster.broker.jetstream.links.frames import decode_move_end, encode_move_end
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import Audit, MoveEnd, MoveReport, Outcome
from supercluster.broker.jetstream.meta.operations import (
    cancel_move,
    delete_stream,
    end_move,
    put_stream,
    renew_stream,
    replace_target,
    start_move,
)
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.raft.entry import EntryKind, make_entry

OLD = ("east-0@a", "east-1@b", "east-2@c")
NEW = ("west-0@d.t", "west-1@e.t", "west-2@f.t")
EAST = read_stream({"name": "S", "subjects": ["s"], "num_replicas": 3, "placement": {"cluster": "east"}})
WEST = replace(EAST, placement=Placement("west"))
GROUP = "S.$G.S.1"


class Replica:
    """A state that is fed entries, and a second one that is restored from its snapshot after each."""

    def __init__(self) -> None:
        self.state = MetaState()
        self.index = 0
        self.do(put_stream("$G", "S", GROUP, EAST, OLD))

    def do(self, body: bytes) -> list[str]:
        self.index += 1
        payload = b"".join(bytes(part) for part in section(Section.META, [body]))
        touched = self.state.apply(
            make_entry(
                term=1, index=self.index, kind=EntryKind.BATCH, payload=payload, time_ns=self.index * 1000
            )
        )
        assert MetaState.restore(self.state.snapshot()) == self.state
        return touched

    @property
    def stream(self) -> Assignment:
        return self.state.streams["$G", "S"]

    def start(self, move_id: str = "m1") -> None:
        self.do(start_move(self.stream, WEST, move_id, NEW, OLD, 5_000_000))


def end(outcome: Outcome, members: tuple[str, ...], move_id: str = "m1") -> MoveEnd:
    audit = Audit(3, 25_000, 0, 1, 25_000, "ab" * 8, dict.fromkeys(NEW, "equal"))
    return MoveEnd(GROUP, members, MoveReport(move_id, outcome, "", 1 << 20, audit, 99))


@pytest.mark.covers("MV-1")
def test_a_move_starts_with_the_new_placement_and_the_old_members() -> None:
    replica = Replica()
    version = replica.stream.version
    assert replica.do(start_move(replica.stream, WEST, "m1", NEW, OLD, 5_000_000)) == [GROUP]
    found = replica.stream
    assert found.config == WEST
    assert found.members == OLD, "only the end of a move changes the members"
    assert found.version > version
    move = found.move
    assert move is not None
    assert (move.targets, move.origin, move.joining) == (NEW, OLD, NEW)
    assert move.origin_placement == EAST.placement
    assert (move.started_ns, move.bytes_per_s, move.cancelled) == (2000, 5_000_000, False)


@pytest.mark.covers("MV-3")
def test_a_second_move_is_void_while_one_runs() -> None:
    replica = Replica()
    replica.start()
    before = replica.stream
    assert replica.do(start_move(before, EAST, "m2", OLD, OLD)) == []
    assert replica.stream == before


def test_a_move_that_is_done_leaves_its_members_and_report() -> None:
    replica = Replica()
    replica.start()
    version = replica.stream.version
    replica.do(end_move(replica.stream, end(Outcome.DONE, NEW)))
    found = replica.stream
    assert (found.members, found.config, found.move) == (NEW, WEST, None)
    assert found.version == version, "the configuration did not change"
    report = found.last_move
    assert report is not None
    assert (report.outcome, report.targets, report.origin) == (Outcome.DONE, NEW, OLD)
    assert (report.started_ns, report.ended_ns, report.config_index) == (2000, 3000, 99)
    assert report.audit.results["west-0@d.t"] == "equal"


@pytest.mark.covers("MV-9")
def test_a_cancelled_move_ends_with_the_placement_that_was() -> None:
    replica = Replica()
    replica.start()
    replica.do(cancel_move(replica.stream, "m1"))
    found = replica.stream
    assert found.move is not None
    assert found.move.cancelled
    assert found.config == WEST, "until the stream's group has said how it ends"
    replica.do(end_move(found, end(Outcome.CANCELLED, OLD)))
    assert (replica.stream.config, replica.stream.members, replica.stream.move) == (EAST, OLD, None)
    assert replica.stream.version == replica.index, "the stream takes the restored configuration"


def test_a_cancel_that_came_too_late_ends_as_the_group_says() -> None:
    replica = Replica()
    replica.start()
    replica.do(cancel_move(replica.stream, "m1"))
    replica.do(end_move(replica.stream, end(Outcome.DONE, NEW)))
    assert (replica.stream.config, replica.stream.members) == (WEST, NEW)


def test_a_target_is_replaced_unless_it_stays_from_before() -> None:
    replica = Replica()
    targets = (OLD[0], OLD[1], NEW[0])
    replica.do(start_move(replica.stream, EAST, "m1", targets, OLD))
    assert replica.do(replace_target(replica.stream, "m1", OLD[0], NEW[1])) == []
    assert replica.do(replace_target(replica.stream, "other", NEW[0], NEW[1])) == []
    assert replica.do(replace_target(replica.stream, "m1", NEW[0], NEW[1])) == [GROUP]
    assert replica.stream.move is not None
    assert replica.stream.move.targets == (OLD[0], OLD[1], NEW[1])
    replica.do(cancel_move(replica.stream, "m1"))
    assert replica.do(replace_target(replica.stream, "m1", NEW[1], NEW[2])) == []


def test_words_about_another_move_are_void() -> None:
    replica = Replica()
    replica.start()
    before = replica.stream
    for body in (
        cancel_move(before, "m0"),
        end_move(before, end(Outcome.DONE, NEW, "m0")),
        end_move(replace(before, group="S.$G.S.0"), end(Outcome.DONE, NEW)),
    ):
        assert replica.do(body) == []
        assert replica.stream == before
    replica.do(end_move(before, end(Outcome.DONE, NEW)))
    after = replica.stream
    assert replica.do(end_move(after, end(Outcome.DONE, NEW))) == [], "the end is told until the map shows it"
    assert replica.stream == after


def test_other_changes_of_the_configuration_leave_the_move_alone() -> None:
    replica = Replica()
    replica.start()
    replica.do(put_stream("$G", "S", GROUP, replace(WEST, max_msgs=7), OLD))
    assert replica.stream.move is not None
    replica.do(end_move(replica.stream, end(Outcome.CANCELLED, OLD)))
    assert replica.stream.config == replace(EAST, max_msgs=7), "only the placement goes back"


def test_a_deleted_stream_takes_its_move_along() -> None:
    replica = Replica()
    replica.start()
    found = replica.stream
    assert replica.do(delete_stream(found)) == [GROUP]
    assert replica.do(end_move(found, end(Outcome.DONE, NEW))) == []
    assert replica.state.streams == {}


def test_a_stream_that_begins_anew_has_no_move() -> None:
    replica = Replica()
    replica.start()
    replica.do(renew_stream(replica.stream, "S.$G.S.2", ("east-0@a.n",)))
    found = replica.stream
    assert (found.move, found.config.placement) == (None, EAST.placement)
    assert found.last_move is not None
    assert (found.last_move.outcome, found.last_move.id) == (Outcome.CANCELLED, "m1")


def test_a_snapshot_without_moves_is_read() -> None:
    row = ["$G", "S", GROUP, EAST.to_json(), 1, list(OLD), 7]
    whole = {"streams": [row], "brokers": [["east-0", "east", "a", 1]], "applied": 1, "time": 7}
    state = MetaState.restore(json.dumps(whole).encode())
    assert state.streams["$G", "S"] == Assignment("$G", "S", GROUP, EAST, 1, OLD, 7)


def test_the_end_of_a_move_travels_as_it_is_and_garbage_is_refused() -> None:
    told = end(Outcome.DONE, NEW)
    (body,) = encode_move_end(told)
    assert decode_move_end(memoryview(body)) == told
    for garbage in (b"", b"{}", b"[]", b'{"group": "x", "members": [], "report": {"id": 1}}', b"\xff"):
        with pytest.raises(WireError):
            decode_move_end(memoryview(garbage))
