"""A stream is assigned to a broker whose disk has no room for its beginning, told as a story of whole brokers."""

from __future__ import annotations

import json
from functools import partial

import pytest
from tests.simulator.world import World

from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo

CREATE = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "storage": "file"}


def copies(world: World) -> list[str]:
    """The brokers that hold a working copy of a stream."""
    return [
        name
        for name, node in world.nodes.items()
        for group in (node.core.groups.values() if node.core is not None else ())
        if isinstance(group, StreamReplica) and group.failed is None
    ]


@pytest.mark.covers("SF-18")
@pytest.mark.parametrize("room_bytes", [0, 200, 1_000, 3_000])
def test_a_copy_that_had_no_room_is_begun_when_there_is_some(room_bytes: int) -> None:
    world = World(1)
    for name in world.names:
        world.start(name)
    cores = [node.core for node in world.nodes.values() if node.core is not None]
    assert world.run_until(lambda: all(core.accepts_clients for core in cores), 5000)
    full = world.nodes["n2"].store.disk
    full.capacity_bytes = full.used_bytes + room_bytes
    answers: list[bytes] = []
    world.on_reply(b"_R", lambda header, payload: answers.append(payload))
    info = ClientInfo("$G", "app", is_operator=False)
    cores[0].on_api(info, b"$JS.API.STREAM.CREATE.S", b"_R", b"", json.dumps(CREATE).encode())
    world.want_turn("n0")
    assert world.run_until(partial(bool, answers), 10_000)
    assert "error" not in json.loads(answers[0]), "two of three brokers have room: the stream is there"
    full.capacity_bytes = 1 << 50
    assert world.run_until(lambda: len(copies(world)) == 3, 10_000), (
        "without a restart, and without a new map"
    )
    world.run(world.now_us / 1000 + 3000)
    leader = next(
        core for core in cores for group in core.groups.values() if group.serves and group.id != "meta"
    )
    group = next(g for g in leader.groups.values() if isinstance(g, StreamReplica))
    assert all(progress.match == group.log.last_index for progress in group.raft.progress.values())
