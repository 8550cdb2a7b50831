"""Frames about the map of streams, most of them for the meta group's leader."""

from __future__ import annotations

from supercluster.broker.jetstream.core.dispatch import Handler
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.map_reader import MapReader


class MapFrames:
    def __init__(self, copies: Copies, map_view: MapView, map_reader: MapReader) -> None:
        self._copies = copies
        self._map = map_view
        self._map_reader = map_reader
        self.handlers: dict[int, Handler] = {
            Frame.MAP_APPLIED: self._on_applied,
            Frame.COPY_LOST: self._on_copy_lost,
            Frame.UNUSABLE: self._on_failed_copies,
            Frame.MOVE_END: self._on_move_end,
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
            leader.on_failed_copies(node, frames.decode_unusable(body), now_ms)
            self._copies.touch(self._map.meta_id)

    def _on_move_end(self, node: str, body: memoryview, now_ms: int) -> None:
        leader = self._copies.map
        if leader is not None:
            leader.move_ended(frames.decode_move_end(body))
            self._copies.touch(self._map.meta_id)
