"""The brokers in contact with this one: their own descriptions, the time-out for each, and how to send them
frames.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links.far_groups import FarGroups
from supercluster.broker.jetstream.links.frames import Body
from supercluster.broker.own_time import patience_ms
from supercluster.broker.ports import Channel, Network, PeerInfo
from supercluster.broker.protocol.frames import VERSION

OWN_FRAMES_MAX = 65536
"""Frames that a broker sent to itself and that wait within a turn."""


class Peers:
    def __init__(self, env: Environment, network: Network) -> None:
        self._env = env
        self.node = env.node
        self.network = network
        self.linked: dict[str, PeerInfo] = {}
        """Brokers of this super-cluster."""
        self.far: dict[str, PeerInfo] = {}
        """Linked brokers of other super-clusters, by their far names. They are in no map, have no place and no room here."""
        self.far_groups = FarGroups(env.settings.world)
        self.own_frames: deque[tuple[int, memoryview]] = deque()
        """What this broker sent to itself: taken in the next pass of the same turn."""
        self._stalls: dict[str, int] = {}

    # ---- who is there ---------------------------------------------------------------------------------------------

    def link_up(self, peer: PeerInfo) -> bool:
        """A broker is linked. True: it is another process than the one that was linked last, or none was."""
        before = self.linked.get(peer.node)
        self.linked[peer.node] = peer
        return before is None or before.process != peer.process

    def link_down(self, node: str) -> None:
        """The broker is lost."""
        self.linked.pop(node, None)
        self._stalls.pop(node, None)

    def far_up(self, peer: PeerInfo) -> bool:
        """A broker of another super-cluster is linked. True: it is another process than the one that was linked last, or none was."""
        known = self.far.get(peer.node)
        self.far[peer.node] = peer
        return known is None or known.process != peer.process

    def far_down(self, node: str) -> None:
        """The broker of another super-cluster is lost."""
        self.far.pop(node, None)
        self._stalls.pop(node, None)

    def names(self) -> list[str]:
        """Linked brokers of this super-cluster."""
        return list(self.linked)

    def names_for(self, group_id: str) -> list[str]:
        """Linked brokers that may know something of the group: also those of other super-clusters, where they share it."""
        return [*self.linked, *self.far] if self.far_groups.is_shared(group_id) else list(self.linked)

    def is_linked(self, node: str) -> bool:
        """Is the broker linked, or this one?"""
        return node in self.linked or node == self.node or node in self.far

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        """Own node and linked ones: node → (cluster, incarnation)."""
        contact = {peer.node: (peer.cluster, peer.incarnation) for peer in self.linked.values()}
        contact[self.node] = (self._env.settings.cluster, self._env.store.incarnation)
        return contact

    # ---- what they said -------------------------------------------------------------------------------------------

    def version_of(self, node: str) -> int | None:
        """The frame version of a broker in contact, this one included."""
        if node == self.node:
            return VERSION
        peer = self.linked.get(node) or self.far.get(node)
        return peer.version if peer is not None else None

    def process_count_of(self, node: str) -> int:
        """The number of the process of a broker in contact on its volume, this one included; 0: it did not say."""
        if node == self.node:
            return self._env.store.process_count
        peer = self.linked.get(node)
        return peer.process_count if peer is not None else 0

    def tags_of(self, node: str) -> tuple[str, ...]:
        """What a broker in contact says of its place."""
        if node == self.node:
            return self._env.settings.tags
        peer = self.linked.get(node)
        return peer.tags if peer is not None else ()

    def on_tags(self, node: str, tags: tuple[str, ...]) -> bool:
        """A linked broker has other tags from now on. False: it is not linked."""
        peer = self.linked.get(node)
        if peer is not None:
            self.linked[node] = replace(peer, tags=tags)
        return peer is not None

    def on_stall(self, node: str, stall_ms: int) -> None:
        """A linked broker, or this one, stood still for so long at most, lately."""
        if self.is_linked(node):
            self._stalls[node] = stall_ms

    def patience_ms(self, node: str) -> int:
        """By how much longer the broker may be silent: it, or this one, stood still now and then."""
        return patience_ms(max(self._stalls.get(node, 0), self._stalls.get(self.node, 0)))

    # ---- frames ---------------------------------------------------------------------------------------------------

    def post(self, node: str, frame: int, body: Body) -> bool:
        """Send a frame to a broker; to this one it waits for the next pass of the same turn. False: it was dropped."""
        if node != self.node:
            return self.network.send(node, frame, body, Channel.CONTROL)
        if len(self.own_frames) >= OWN_FRAMES_MAX:
            return False
        self.own_frames.append((frame, memoryview(body[0] if len(body) == 1 else b"".join(body))))
        return True
