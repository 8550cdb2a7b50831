"""An entry that takes away many messages is applied a slice a turn. Its result does not depend on where the slices end, and
nobody counts on the state before the last one (docs/adr/checkpoints.md, "Long entries")."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.one_broker import CLIENT, CallMeter, OneBroker
from benchmarks.turns_of_state import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import message, result_of
from tests.broker.jetstream.state.test_consumer_states import NAMES, STEPS, SUBJECTS, Pair
from tests.broker.jetstream.stream.test_replica import ORIGIN, Broker, Replicas, forward
from tests.support.tiers import examples

from supercluster.broker.jetstream.publish.window import Window
from supercluster.broker.jetstream.replica import replica as replicas
from supercluster.broker.jetstream.state import messages
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.state.stream import Applied, StreamState
from supercluster.broker.jetstream.stream.replica import StreamReplica

pytestmark = [pytest.mark.covers("SF-13"), pytest.mark.covers("SF-29")]

MESSAGES = 400
ROLL_UP = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"


# ---- the state ----------------------------------------------------------------------------------------------------


def sliced(pair: Pair, size: int) -> tuple[StreamState, int]:
    """All of the story's entries applied in slices, with readers in between. Also how often it paused."""
    log, paused = pair.story.log, 0
    state = StreamState(pair.story.config, 0, log)
    state.slice_messages = size

    def look() -> None:
        nonlocal paused
        paused += 1
        list(state.consumers.values())
        view = state.subjects.view()
        list(view.parts())
        view.close()

    for entry in log.entries(1, log.last_index, 1 << 40):
        result_of(state.applying(entry, Applied(entry.index)), look)
    return state, paused


def told(pair: Pair, steps: list[tuple[str, Any]]) -> None:
    for kind, value in steps:
        if kind == "roll":
            pair.flush()
            pair.story.publish(message(value[0]), message(value[0], Nats_Rollup=value[1]), message(value[0]))
            pair.follow()
        else:
            pair.step(kind, value)
    pair.flush()


ROLLS = st.tuples(st.just("roll"), st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(["sub", "all"])))


@settings(max_examples=examples(60, 400))
@given(
    st.sampled_from(["limits", "interest", "workqueue"]),
    st.sampled_from([{}, {"max_msgs": 4}, {"max_msgs_per_subject": 2}]),
    st.lists(st.one_of(ROLLS, STEPS.map(lambda steps: steps[0] if steps else ("look", 1))), max_size=30),
    st.integers(1, 3),
)
def test_where_the_slices_end_makes_no_difference(
    retention: str, limits: dict[str, Any], steps: list[tuple[str, Any]], size: int
) -> None:
    pair = Pair(retention=retention, allow_rollup_hdrs=True, **limits)
    told(pair, [("put", (name, filters, 1)) for name, filters in zip(NAMES, ((), ("s.a",)), strict=True)])
    told(pair, [("publish", SUBJECTS), ("deliver", ("c0", 2)), *steps])
    state, _ = sliced(pair, size)
    assert snapshot_of(state) == snapshot_of(pair.story.state)


def test_roll_ups_acknowledgements_and_consumers_that_go_pause() -> None:
    pair = Pair(retention="interest", allow_rollup_hdrs=True)
    told(pair, [("put", ("c0", (), 1)), ("put", ("c1", ("s.a",), 1))])
    before = sliced(pair, 1)[1]
    for steps in (
        [("publish", SUBJECTS * 2), ("deliver", ("c0", 6)), ("ack", ("c0", 0))],
        [("roll", (b"s.a", "sub"))],
        [("reset", ("c0", 5))],
        [("publish", SUBJECTS), ("drop", "c0")],
    ):
        told(pair, steps)
        state, paused = sliced(pair, 1)
        assert paused > before, steps
        assert snapshot_of(state) == snapshot_of(pair.story.state)
        before = paused


# ---- a replica in the midst of an entry ---------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One slice a turn, of 20 messages."""
    monkeypatch.setattr(messages, "SLICE_MESSAGES", 20)
    monkeypatch.setattr(replicas, "REMOVED_MESSAGES", 1)
    for name in ("APPLY_TURN_MESSAGES", "APPLY_LEADER_MESSAGES"):
        monkeypatch.setattr(replicas, name, 1)


def roll_up(broker: OneBroker, subject: bytes) -> None:
    window = broker.core.capture("$G", subject)
    assert isinstance(window, Window)
    assert window.take(broker.publisher, subject, b"", ROLL_UP, b"sum")


class Half:
    """A broker in the midst of a roll-up of one of two subjects."""

    def __init__(self, directory: Path) -> None:
        self.broker = OneBroker(directory, CallMeter())
        for name in ("S", "other"):
            self.broker.create(name, allow_rollup_hdrs=True)
        self.broker.publish([b"S.%d" % (at % 2) for at in range(MESSAGES)])
        self.index = self.group.applied_index
        self.before = snapshot_of(self.group.state)

    @property
    def group(self) -> StreamReplica:
        return self.broker.stream("S")

    def begin(self) -> None:
        self.broker.step(partial(roll_up, self.broker, b"S.1"))
        self.go_on(3)

    def go_on(self, turns: int) -> None:
        for _ in range(turns):
            assert self.group.is_mid_entry
            assert self.group.applied_index == self.index
            self.broker.step()
        assert MESSAGES // 2 < self.group.state.messages < MESSAGES

    def is_whole(self) -> bool:
        state = self.group.state
        counts = state.subjects.subjects()
        return (
            not self.group.is_mid_entry
            and counts == {"S.0": MESSAGES // 2, "S.1": 1}
            and state.has(MESSAGES + 1)
        )


@pytest.fixture
def half(tmp_path: Path, short: None) -> Half:
    return Half(tmp_path)


def test_other_streams_are_served_meanwhile_and_it_is_itself_behind_it(half: Half) -> None:
    half.begin()
    half.broker.step(partial(half.broker.core.on_api, *question(half.broker, "other", b"_R.o")))
    assert b"_R.o" in half.broker.network.answers
    assert half.group.is_mid_entry
    half.broker.settle()
    assert half.is_whole()
    half.broker.publish([b"S.0"])
    assert half.group.state.last_seq == MESSAGES + 2


def question(broker: OneBroker, name: str, reply: bytes) -> tuple[Any, ...]:
    return CLIENT, f"$JS.API.STREAM.INFO.{name}".encode(), reply, b"", b""


def test_what_is_published_meanwhile_is_judged_behind_it(half: Half) -> None:
    half.begin()
    last = half.group.log.last_index
    window = half.broker.core.capture("$G", b"S.1")
    assert isinstance(window, Window)
    assert window.take(half.broker.publisher, b"S.1", b"", b"", b"later")
    half.go_on(2)
    assert half.group.log.last_index == last, "nothing is judged by a state that is of no entry"
    half.broker.settle()
    assert half.group.state.subjects.subjects() == {"S.0": MESSAGES // 2, "S.1": 2}


def killed(half: Half) -> None:
    half.broker.restart()


def stopped(half: Half) -> None:
    index = half.group.checkpoints.index
    half.group.checkpoint()
    assert half.group.checkpoints.index == index, "there is none of such a state"
    half.broker.restart()


def due(half: Half) -> None:
    half.group.checkpoints.begin()
    assert not half.group.checkpoints.is_under_way
    half.broker.settle()
    checkpoint(half.broker, "S")
    half.broker.restart()


def deposed(half: Half) -> None:
    half.group.leave_office()
    half.broker.step()
    assert half.group.is_mid_entry
    assert not half.group.serves, "who does not know all that is committed does not serve"
    half.broker.until(lambda: half.group.serves)


@pytest.mark.covers("SF-17")
@pytest.mark.parametrize("act", [killed, stopped, due, deposed], ids=lambda act: act.__name__)
def test_whatever_happens_meanwhile_it_is_applied_as_a_whole(half: Half, act: Callable[[Half], None]) -> None:
    half.begin()
    act(half)
    half.broker.settle()
    assert half.is_whole()
    half.broker.restart()
    assert half.is_whole()


@pytest.mark.covers("SF-17")
def test_a_checkpoint_that_is_made_meanwhile_is_of_the_entry_before(half: Half) -> None:
    half.broker.core.copies.slices.units_per_turn = 1
    half.group.checkpoints.begin()
    half.begin()
    assert half.group.checkpoints.is_under_way
    half.broker.until(lambda: not half.group.checkpoints.is_under_way)
    found = half.group.log.load_checkpoint()
    assert found is not None
    assert found[0] == half.index
    assert found[1].endswith(half.before)
    half.broker.restart()
    assert half.is_whole()


def test_the_state_for_a_follower_waits(half: Half) -> None:
    checkpoint(half.broker, "S")
    found = half.group.log.load_checkpoint()
    assert found is not None
    half.begin()
    asked = half.group.transfer.emptied(found[1], for_member=True)
    for _ in range(50):
        next(asked)
    half.broker.settle()
    assert result_of(asked)


def test_a_stream_is_deleted_meanwhile(half: Half, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(half.broker.publisher, "error", told.append)
    half.begin()
    half.broker.delete("S")
    assert "stream S was deleted" in told[0], "the roll-up was not confirmed"
    half.broker.call("STREAM.INFO.other")


def test_an_error_is_that_of_the_entry(half: Half, monkeypatch: pytest.MonkeyPatch) -> None:
    half.begin()

    def broken(*arguments: Any) -> None:
        raise ValueError("no such message")

    monkeypatch.setattr(half.group.state, "_remove", broken)
    group = half.group
    half.broker.step()
    assert f"entry {half.index + 1}" in str(group.failed)
    monkeypatch.undo()


# ---- a follower ---------------------------------------------------------------------------------------------------


def test_replicas_are_equal_wherever_their_slices_end(short: None) -> None:
    story = Replicas()
    story.settle(2000)
    leader = story.leader()
    leader.group.copy.inbox.open_session(ORIGIN)
    story.settle(200)
    brokers: list[Broker] = list(story.brokers.values())
    for number, broker in enumerate(brokers):
        broker.group.state.slice_messages = 1 + number
    for number in range(1, 30):
        leader.group.copy.inbox.offer(forward(number, b"%d" % number), early=False)
        story.settle(50)
    assert len({snapshot_of(broker.group.state) for broker in brokers}) == 1
