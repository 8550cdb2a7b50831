"""Three simulated brokers with many streams, whose ticks and frames are counted."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.simulator.world import World

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import Channel, ClientInfo
from supercluster.broker.storage.log.sync_pace import QUIET_MS

CLIENT = ClientInfo("$G", "app", is_operator=False)
STREAMS = 12


class Silent:
    """A publisher that wants no answers."""

    def pause(self, stream: str) -> None: ...

    def resume(self, stream: str) -> None: ...

    def error(self, text: str) -> None: ...


class Brokers:
    """A world whose ticks and frames are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **config: object) -> None:
        self.world = World(7)
        self.published = 0
        self.ticks: Counter[str] = Counter()
        self.frames: list[tuple[str, str, int, bytes]] = []
        tick, send = Replica.tick, self.world.send

        def counted_tick(replica: Replica, now_ms: int) -> bool:
            self.ticks[replica.id.split(".")[-2] if "." in replica.id else replica.id] += 1
            return tick(replica, now_ms)

        def counted_send(frm: str, to: str, frame_type: int, body: bytes, *rest: Channel) -> bool:
            if frame_type != Frame.LOAD:  # One now and then for a broker, however many groups it has.
                self.frames.append((frm, to, frame_type, body))
            return send(frm, to, frame_type, body, *rest)

        monkeypatch.setattr(Replica, "tick", counted_tick)
        monkeypatch.setattr(self.world, "send", counted_send)
        for name in self.world.names:
            self.world.start(name)
        assert self.world.run_until(lambda: all(core.accepts_clients for core in self.cores), 10_000)
        for number in range(STREAMS):
            self.create(f"s{number}", **config)
        self.fall_silent()

    @property
    def cores(self) -> list[BrokerCore]:
        return [node.core for node in self.world.nodes.values() if node.core is not None]

    def call(self, subject: str, body: object) -> dict[str, object]:
        answers: list[dict[str, object]] = []
        self.world.on_reply(b"_R", lambda header, payload: answers.append(json.loads(payload)))
        self.cores[0].on_api(CLIENT, subject.encode(), b"_R", b"", json.dumps(body).encode())
        self.world.want_turn("n0")
        assert self.world.run_until(lambda: bool(answers), 10_000)
        assert "error" not in answers[0], answers[0]
        return answers[0]

    def create(self, name: str, **config: object) -> None:
        wanted = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3, **config}
        self.call(f"$JS.API.STREAM.CREATE.{name}", wanted)

    def publish(self, name: str) -> None:
        """One message, until every copy of the stream has it."""
        self.published += 1
        window = self.cores[0].capture("$G", f"{name}.x".encode())
        assert window is not None
        assert window.take(Silent(), f"{name}.x".encode(), b"", b"", b"p:%d" % self.published)
        self.world.want_turn("n0")
        seq = self.copies(name)[0].state.last_seq + 1
        assert self.world.run_until(lambda: all(g.state.last_seq == seq for g in self.copies(name)), 5_000)

    def copies(self, name: str) -> list[StreamReplica]:
        found = [g for core in self.cores for g in core.groups.values() if isinstance(g, StreamReplica)]
        return [group for group in found if group.assignment.name == name]

    def is_silent(self) -> bool:
        groups = [group for core in self.cores for group in core.groups.values()]
        return all(
            group.raft.quiesced
            and group.checkpoints.deadline_ms() is None
            and group.log.deadline_ms() is None
            for group in groups
        )

    def fall_silent(self) -> None:
        """A log that was used owes something for a while."""
        assert self.world.run_until(self.is_silent, 10_000 + QUIET_MS)
        self.let_pass(1_000)
        self.ticks.clear()
        self.frames.clear()

    def let_pass(self, ms: float) -> None:
        self.world.run(self.world.now_us / 1000 + ms)
