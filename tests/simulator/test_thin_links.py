"""Links that carry little, told as stories of whole brokers."""

from __future__ import annotations

import json
from functools import partial

import pytest
from tests.simulator.publishers import ACCOUNT, SimPublisher
from tests.simulator.world import Faults, World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import Channel, ClientInfo

CREATE = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "storage": "file"}
MESSAGES, MESSAGE_BYTES = 64, 64 * 1024


def stream_of(core: BrokerCore) -> StreamReplica:
    return next(group for group in core.groups.values() if isinstance(group, StreamReplica))


@pytest.mark.covers("SF-29", "RP-2")
def test_what_a_replica_lacks_crosses_a_thin_link_once() -> None:
    world = World(1)
    for name in world.names:
        world.start(name)
    cores = {name: node.core for name, node in world.nodes.items() if node.core is not None}
    assert world.run_until(lambda: all(core.accepts_clients for core in cores.values()), 5000)
    answers: list[bytes] = []
    world.on_reply(b"_R", lambda header, payload: answers.append(payload))
    info = ClientInfo(ACCOUNT, "app", is_operator=False)
    cores["n0"].on_api(info, b"$JS.API.STREAM.CREATE.S", b"_R", b"", json.dumps(CREATE).encode())
    world.want_turn("n0")
    assert world.run_until(partial(bool, answers), 10_000)
    world.stop("n2", power=False)
    publisher = SimPublisher("p", "plain", "S", "n0", MESSAGES, 1.0)
    for number in range(MESSAGES):
        window = cores["n0"].capture(ACCOUNT, b"s.a")
        assert window is not None
        assert window.take(publisher, b"s.a", b"", b"", (b"p:%d" % number).ljust(MESSAGE_BYTES))
        world.want_turn("n0")
        world.run(world.now_us / 1000 + 10)
    assert world.run_until(lambda: stream_of(cores["n1"]).state.last_seq == MESSAGES, 10_000)
    world.faults = Faults(bulk_bytes_per_ms=1000.0)
    world.sent_bytes.clear()
    world.start("n2")

    def is_whole() -> bool:
        core = world.nodes["n2"].core
        return core is not None and any(
            isinstance(group, StreamReplica) and group.state.last_seq == MESSAGES
            for group in core.groups.values()
        )

    assert world.run_until(is_whole, 60_000)
    assert world.sent_bytes[Channel.BULK] < 1.5 * MESSAGES * MESSAGE_BYTES
