"""A broker's knowledge of the others besides its links: their room and tags, and reports of streams' leaders.

The meta group's leader places copies by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links.frames import Frame, decode_load, decode_tags, encode_tags
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.leaderless_moves import LeaderlessMoves
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.capacity_reports import CapacityReports
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.placement.stream_facts import FACTS_SUBJECT, FACTS_WAIT_MS, StreamFacts
from supercluster.broker.ports import ClientInfo


class Neighbours:
    def __init__(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        requests: PendingRequests,
    ) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._requests = requests
        self.leaderless = LeaderlessMoves()
        self.load = CapacityReports(
            self._env.node,
            self.own_room,
            self._peers.post,
            lambda: self._leaderships.leader_of(self._map.meta_id),
        )

    def own_room(self) -> Room:
        store = self._env.store
        return Room(store.room_bytes(memory=False), store.room_bytes(memory=True))

    def room_of(self, node: str) -> Room | None:
        """What may still be stored on a broker; None while it has not said."""
        return self.load.room_of(node, self._env.clock.monotonic_ms())

    def on_load(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.LOAD: another broker says what may be stored there."""
        self.load.took(node, Room(*decode_load(body)), now_ms)

    def change_tags(self, tags: tuple[str, ...]) -> None:
        """This broker says something else of its place from now on. Copies that were placed by the old tags stay."""
        self._env.settings = replace(self._env.settings, tags=tags)
        for peer in self._peers.linked:
            self._peers.post(peer, Frame.TAGS, encode_tags(tags))
        self._copies.touch(self._map.meta_id)

    def on_tags(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.TAGS: another broker does."""
        if self._peers.on_tags(node, decode_tags(body)):
            self._copies.touch(self._map.meta_id)

    def ask_stream(self, found: Assignment, then: Callable[[StreamFacts | None], None]) -> None:
        """Ask the stream's leader for what a move depends on."""

        def answered(answer: bytes | None) -> None:
            then(StreamFacts.from_answer(answer) if answer is not None else None)

        asker = ClientInfo(found.account, "", is_operator=True)
        now_ms = self._env.clock.monotonic_ms()
        self._requests.send(
            found.group,
            asker,
            FACTS_SUBJECT,
            b"",
            b"",
            b"",
            now_ms,
            on_answer=answered,
            wait_ms=FACTS_WAIT_MS,
        )

    def link_up(self) -> None:
        """Somebody may not know this broker's room."""
        self.load.tell_soon()

    def link_down(self, node: str) -> None:
        """Nothing is known of its room any more."""
        self.load.forget(node)
