"""Green's answer to blue's preflight. The leader of green's map judges each stream as if blue asked to
prepare it, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.links.preflight_frames import (
    AskedStream,
    Objection,
    PreflightAsk,
    PreflightTold,
)
from supercluster.broker.jetstream.meta.migration import Following
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader
from supercluster.broker.jetstream.meta_leader.names_on_green import NameUnknownError
from supercluster.broker.jetstream.meta_leader.stream_request import StreamRequest
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import ClientInfo
from supercluster.broker.version import VERSION

# No attempt is later than the one that is only thought of.
_ATTEMPT = 1 << 62
_CODES = {
    errors.STREAM_NAME_IN_USE: "NameTaken",
    10065: "SubjectsTaken",
    10005: "Capacity",
    10074: "Capacity",
    errors.MEMORY_RESOURCES: "Capacity",
    errors.STORAGE_RESOURCES: "Capacity",
}


class PreflightAnswers:
    """Of one broker."""

    def __init__(self, env: Environment, peers: Peers, copies: Copies, map_view: MapView) -> None:
        self._env = env
        self._map = map_view
        self._peers = peers
        self._copies = copies

    def on_ask(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.PREFLIGHT."""
        leader = self._copies.map
        if leader is None or not leader.serves:
            return  # Every broker of green is asked.
        asked = PreflightAsk.decode(body)
        objections = tuple(self._objections(leader, asked, world_of(node)))
        told = PreflightTold(asked.number, self._env.clock.now_ns(), VERSION, objections)
        self._peers.post(node, Frame.PREFLIGHT_TOLD, told.encode())

    def _objections(self, leader: MapLeader, asked: PreflightAsk, world: str) -> Iterator[Objection]:
        most = self._env.settings.payload_bytes_max
        if asked.payload_bytes_max > most:
            yield Objection(
                "Limits",
                "",
                f"blue takes messages of {asked.payload_bytes_max} bytes, and green of {most} at most (limits.maxPayloadBytes)",
            )
        rooms = leader.rooms("file")
        if rooms and asked.file_bytes > sum(rooms.values()):
            yield Objection(
                "Capacity",
                "",
                f"the streams take {asked.file_bytes} bytes with all replicas, and green's brokers have room for {sum(rooms.values())}",
            )
        for stream in asked.streams:
            present = self._map.find(stream.account, stream.name)
            if present is not None and present.far_world:
                text = f"stream {stream.name} was handed over from there, which keeps its record: there is no way back yet"
                yield Objection("HandedOver", f"{stream.account}/{stream.name}", text)
                continue
            refused = leader.refusal_of(_request(asked, stream, world, self._env.node))
            subject = f"{stream.account}/{stream.name}"
            if isinstance(refused, NameUnknownError):
                yield Objection(refused.unknown.code, subject, refused.unknown.message)
            elif refused is not None:
                code = _CODES.get(refused.err_code, "Limits")
                yield Objection(code, subject, f"stream {stream.name}: {refused.description}")


def _request(asked: PreflightAsk, stream: AskedStream, world: str, asked_at: str) -> StreamRequest:
    def respond(outcome: object) -> None:
        raise AssertionError("what is only judged is answered by its return value")

    return StreamRequest(
        "follow",
        ClientInfo(stream.account, "", is_operator=True),
        stream.name,
        stream.config,
        respond,
        asked_at=asked_at,
        group=stream.group,
        following=Following(asked.migration, _ATTEMPT, stream.group, world, (), stream.cluster),
        created_ns=stream.created_ns,
    )
