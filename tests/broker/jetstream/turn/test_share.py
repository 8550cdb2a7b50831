"""What all consumers of a broker are handed out in one turn, and that each has its turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.one_broker import BenchClock, CallMeter, OneBroker

from supercluster.broker.jetstream.turn import share as turn_share

CONSUMERS, STORED, PAYLOAD_BYTES = 6, 400, 1_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    found = OneBroker(tmp_path, CallMeter(), BenchClock(stands_still=True))
    for stream in ("A", "B"):
        found.create(stream)
        found.publish([b"%s.x" % stream.encode()] * STORED, b"p" * PAYLOAD_BYTES)
    yield found
    found.core.close(clean=False)


def consume(broker: OneBroker, stream: str, ack: str) -> list[str]:
    names = [f"{ack}{number}" for number in range(CONSUMERS)]
    for name in names:
        config = {"durable_name": name, "ack_policy": ack}
        broker.call(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
    return names


def delivered(broker: OneBroker, stream: str, name: str) -> int:
    leader = broker.stream(stream).consumers.get(name)
    assert leader is not None
    return leader.state.delivered_sseq


@pytest.mark.covers("SF-29")
@pytest.mark.parametrize("ack", ["explicit", "none"])
@pytest.mark.parametrize("bound", ["MESSAGES_MAX", "BYTES_MAX"])
def test_pulls_of_many_consumers_at_once_share_a_turn(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, ack: str, bound: str
) -> None:
    names = consume(broker, "A", ack)
    most = 2 * STORED if bound == "MESSAGES_MAX" else 2 * STORED * PAYLOAD_BYTES
    monkeypatch.setattr(turn_share, bound, most)
    before, turns = 0, 0
    for name in names:
        broker.pull("A", name, STORED)
    while any(delivered(broker, "A", name) < STORED for name in names):
        broker.step()
        turns += 1
        now = sum(delivered(broker, "A", name) for name in names)
        assert before < now <= before + 3 * STORED, "the bound, and what the last one before it was given"
        before = now
    assert turns >= CONSUMERS // 3
    broker.settle()
    assert broker.network.delivered == CONSUMERS * STORED


@pytest.mark.covers("SF-29")
def test_a_stream_has_its_turn_whatever_another_ones_consumers_take(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {stream: consume(broker, stream, "none") for stream in ("A", "B")}
    monkeypatch.setattr(turn_share, "MESSAGES_MAX", 10)
    for stream, found in names.items():
        for name in found:
            broker.pull(stream, name, STORED)
    for turn in range(1, CONSUMERS + 1):
        broker.step()
        for stream, found in names.items():
            served = [name for name in found if delivered(broker, stream, name) == STORED]
            assert served == found[:turn], f"{stream}: one more in each turn, in the order of their requests"
