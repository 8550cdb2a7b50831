"""What Spark does to a sink, from seeds: each row of a batch becomes one message, whatever is stopped, repeated, lost or killed."""

from __future__ import annotations

import json
from collections import Counter
from zlib import crc32

import pytest
from tests.simulator.sink_life import SinkLife
from tests.simulator.sink_world import SinkWorld
from tests.support.tiers import ALL

from supercluster.broker.jetstream.encoding.sections import encode_block
from supercluster.broker.jetstream.stream import sink_release


@pytest.mark.covers("SP-1")
def test_every_row_is_one_message_whoever_repeats_what(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows_max in ("PART_ROWS_MAX", "WHOLE_ROWS_MAX"):
        monkeypatch.setattr(sink_release, rows_max, 3)
    stopped = refused = whole = second_writes = 0
    for seed in range(2000 if ALL else 100):
        life = SinkLife(seed)
        life.run()
        stopped += sum(query.stopped for query in life.queries)
        refused += sum(bool(query.refused) for query in life.queries)
        whole += sum(not query.refused for query in life.queries)
        second_writes += sum(query.second_writes for query in life.queries)
    assert second_writes > 10, "no run wrote twice to the stream"
    assert stopped > 30, "no batch was repeated"
    assert refused > 5, "no checkpoint was lost"
    assert whole > 10


@pytest.mark.covers("SP-1", "SF-17", "SF-31")
def test_rows_outlive_brokers_leaders_and_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows_max in ("PART_ROWS_MAX", "WHOLE_ROWS_MAX"):
        monkeypatch.setattr(sink_release, rows_max, 2)
    in_release, heads_gone = Counter[str](), 0
    for seed in range(100 if ALL else 6):
        world = SinkWorld(seed)
        world.run()
        in_release.update(world.in_release)
        heads_gone += sum(copy.log.base_index > 0 for copy in world.copies().values())
    assert heads_gone, "no log was dropped behind rows that were released"
    assert all(in_release[kind] for kind in ("kill", "power", "still", "stepdown", "move")), in_release


@pytest.mark.covers("SF-31")
def test_staged_rows_stay_until_their_messages_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SinkWorld(2, queries=1, rows=300)
    follower = next(copy for copy in world.copies().values() if not copy.serves)
    monkeypatch.setattr(follower.log, "sync_due", lambda now_ms: False)
    monkeypatch.setattr(follower.log, "next_sync_ms", lambda: None)
    world.run(trouble=False)
    # Calls that are late come while the writer is known, which refuses them.
    world.world.run(world.world.now_us / 1000 + 6_000)
    for name in ("q0", "nobody"):
        world.asks("SINK.FORGET.S", json.dumps({"writer": name}).encode())
    world.world.run(world.world.now_us / 1000 + 10_000)
    leader = world.leader
    assert leader is not None
    assert leader.log.base_index > 0
    assert not follower.state.sink
    assert follower.log.base_index == 0


@pytest.mark.covers("SF-17")
def test_the_log_is_kept_from_the_first_staged_row_however_few_messages_are_left() -> None:
    world = SinkWorld(2, queries=1, rows=300)
    block = encode_block([b"s.late", b"", b"late:1"])
    head = {"writer": "late", "batch": 0, "token": "t", "block": 1, "crc": crc32(block)}
    world.asks("SINK.STAGE.S", json.dumps(head).encode() + b"\n" + block)
    staged = next(iter(world.copies().values())).state.sink.first_index()
    assert staged is not None
    world.run(trouble=False)
    parts = [{"token": "t", "rows": 1, "crc": crc32(block)}]
    for copy in world.copies().values():
        assert copy.state.messages <= 60
        assert copy.log.base_index < staged
    commit = {"writer": "late", "batch": 0, "offsets_hash": "o", "parts": parts, "run": "r", "write": "w"}
    world.asks("SINK.COMMIT.S", json.dumps(commit).encode())
    world.world.run(world.world.now_us / 1000 + 1000)
    for copy in world.copies().values():
        assert copy.state.sink.first_index() is None
