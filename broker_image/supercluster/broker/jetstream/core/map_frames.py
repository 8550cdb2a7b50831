"""Frames about the map of streams, most of them for the meta group's leader."""

from __future__ import annotations

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.core.dispatch import Handler
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import DROPPED, Drop, Prepare, Prepared
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.migration import Following
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.stream_request import Decided, Fallen, StreamRequest
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.map_reader import MapReader
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import ClientInfo


class MapFrames:
    def __init__(self, peers: Peers, copies: Copies, map_view: MapView, map_reader: MapReader) -> None:
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._map_reader = map_reader
        self.handlers: dict[int, Handler] = {
            Frame.MAP_APPLIED: self._on_applied,
            Frame.COPY_LOST: self._on_copy_lost,
            Frame.FAILED_COPIES: self._on_failed_copies,
            Frame.MOVE_END: self._on_move_end,
            Frame.MIGRATION_STEP: self._on_migration_step,
            Frame.PREPARE: self._on_prepare,
            Frame.DROP: self._on_drop,
        }

    def _on_applied(self, node: str, body: memoryview, now_ms: int) -> None:
        self._map_reader.on_map_index(node, frames.decode_number(body))
        self._copies.touch(self._map.meta_id)

    def _on_copy_lost(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, member = frames.decode_texts(body, 2)
        leader = self._copies.map
        if leader is not None and leader.serves:
            leader.copy_lost(node, group_id, member, now_ms)
            self._copies.touch(self._map.meta_id)

    def _on_failed_copies(self, node: str, body: memoryview, now_ms: int) -> None:
        leader = self._copies.map
        if leader is not None and leader.serves:
            leader.on_failed_copies(node, frames.decode_failed_copies(body), now_ms)
            self._copies.touch(self._map.meta_id)

    def _on_move_end(self, node: str, body: memoryview, now_ms: int) -> None:
        leader = self._copies.map
        if leader is not None:
            leader.move_ended(frames.decode_move_end(body))
            self._copies.touch(self._map.meta_id)

    # ---- another super-cluster ------------------------------------------------------------------------------------

    def _on_migration_step(self, node: str, body: memoryview, now_ms: int) -> None:
        leader = self._copies.map
        if leader is not None:
            leader.migrations.on_step(MigrationStep.decode(body))
            self._copies.touch(self._map.meta_id)

    def _on_prepare(self, node: str, body: memoryview, now_ms: int) -> None:
        """Every broker of green gets it, and the one that leads the map answers."""
        asked, leader = Prepare.decode(body), self._copies.map
        if leader is None or not leader.serves or not asked.world or world_of(node) != asked.world:
            return

        def respond(outcome: Decided | MovePlan | ApiError | Fallen) -> None:
            if isinstance(outcome, ApiError):
                told = Prepared(asked.group, asked.attempt, asked.version, refusal=outcome.description)
            elif isinstance(outcome, Decided) and outcome.assignment.following is not None:
                members = outcome.assignment.following.members
                told = Prepared(asked.group, asked.attempt, asked.version, members)
            else:
                return  # Blue asks again, whoever leads then.
            self._peers.post(node, Frame.PREPARED, told.encode())

        following = Following(
            *(asked.migration, asked.attempt, asked.group, asked.world, (), asked.cluster, asked.version)
        )
        leader.request(
            StreamRequest(
                "follow",
                ClientInfo(asked.account, "", is_operator=True),
                asked.stream,
                asked.config,
                respond,
                asked_at=self._peers.node,
                group=asked.next_group,
                following=following,
                created_ns=asked.created_ns,
            )
        )
        self._copies.touch(self._map.meta_id)

    def _on_drop(self, node: str, body: memoryview, now_ms: int) -> None:
        told, leader = Drop.decode(body), self._copies.map
        if leader is None or not leader.serves:
            return
        dropped = Prepared(told.group, told.attempt, 0, refusal=DROPPED).encode()
        found = leader.state.by_group(told.group)
        if found is None or found.following is None or found.following.world != world_of(node):
            self._peers.post(node, Frame.PREPARED, dropped)
            return
        following = Following(told.migration, told.attempt, told.group, found.following.world, ())

        def respond(outcome: Decided | MovePlan | ApiError | Fallen) -> None:
            # Any other refusal is of this moment alone, such as that of a leader with too many requests: blue asks again.
            is_gone = isinstance(outcome, ApiError) and outcome.err_code == errors.STREAM_NOT_FOUND
            if isinstance(outcome, Decided) or is_gone:
                self._peers.post(node, Frame.PREPARED, dropped)

        leader.request(
            StreamRequest(
                "unfollow",
                ClientInfo(found.account, "", is_operator=True),
                found.name,
                None,
                respond,
                following=following,
            )
        )
        self._copies.touch(self._map.meta_id)
