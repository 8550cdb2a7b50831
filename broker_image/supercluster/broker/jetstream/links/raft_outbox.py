"""The outgoing Raft messages of all groups: one frame per broker, link and turn (RP-3)."""

from __future__ import annotations

from collections.abc import Iterator

from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.ports import Channel
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.messages import Append, Heartbeat, InstallSnapshot, Message, encode

FRAME_BYTES = 4 * 1024 * 1024
"""A frame is full with so many bytes. A turn may have as much to say to a broker as all groups together lack there."""

_Mail = tuple[str, list[bytes | memoryview]]
_Queues = dict[str, list[_Mail]]


class RaftOutbox:
    """What one turn has to say, per broker and link."""

    def __init__(self, peers: Peers) -> None:
        self._linked, self._far = peers.linked, peers.far
        self._far_groups = peers.far_groups
        self._network = peers.network
        self._queues: dict[Channel, _Queues] = {Channel.CONTROL: {}, Channel.BULK: {}}

    def add(self, group: str, message: Message) -> None:
        """Queue a message for the end of the turn, to a broker that is linked.

        The leader says which appends and heartbeats go over the bulk link: a small append must not pass large ones before it."""
        node = self._far_groups.broker_of(group, node_of(message.to))
        if node not in self._linked and node not in self._far:
            return
        bulk = isinstance(message, InstallSnapshot) or (
            isinstance(message, Append | Heartbeat) and message.by_bulk
        )
        queues = self._queues[Channel.BULK if bulk else Channel.CONTROL]
        queues.setdefault(node, []).append((group, encode(message)))

    def flush(self) -> None:
        """The turn is over."""
        for channel, queues in self._queues.items():
            for node, messages in queues.items():
                for some in _in_frames(messages):
                    self._network.send(node, Frame.RAFT, frames.encode_raft(some), channel)
            queues.clear()


def _in_frames(messages: list[_Mail]) -> Iterator[list[_Mail]]:
    """The messages in their order, as many at a time as a frame takes."""
    some: list[_Mail] = []
    size = 0
    for message in messages:
        if some and size >= FRAME_BYTES:
            yield some
            some, size = [], 0
        some.append(message)
        size += sum(map(len, message[1]))
    if some:
        yield some
