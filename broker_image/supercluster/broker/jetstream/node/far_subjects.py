"""Changed subjects of streams that were handed over: green may change them while blue forwards for clients
that stay.

Each broker of green reports such a change to the linked brokers of blue when it applies it, so before green
answers the call. A broker of blue keeps the report in memory beside its map, which keeps the subjects of the
hand-over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import decode_subjects, encode_subjects
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.view import FarCapture, MapView
from supercluster.broker.migration.worlds import world_of

STREAMS_MAX = 65_536
"""Of so many another super-cluster is listened to."""


class FarSubjects:
    """See the module. One per broker."""

    def __init__(self, peers: Peers, map_view: MapView) -> None:
        self._peers = peers
        self._map = map_view
        self._told: dict[str, int] = {}
        """Green: group → version of the configuration that all linked brokers of blue were told."""
        self.changed: Callable[[], None] = lambda: None
        """Blue: called when streams of green capture other subjects."""
        self.handlers: dict[int, Callable[[str, memoryview, int], None]] = {Frame.FAR_SUBJECTS: self._on_told}

    def map_changed(self) -> None:
        """Green: tell blue which streams have another configuration now."""
        came = self._came()
        news = [found for found in came if self._told.get(found.group) != found.version]
        self._told = {found.group: found.version for found in came}
        for node in self._peers.far if news else ():
            self._tell(node, news)

    def up(self, node: str) -> None:
        """Green: a broker of blue is linked."""
        self._tell(node, self._came())

    def _came(self) -> list[Assignment]:
        state = self._map.replica.state if self._map.replica is not None else None
        if state is None:
            return []
        found = (state.streams[key] for key in sorted({*state.other_groups.values()}))
        return [one for one in found if one.arrival is not None and not one.far_world]

    def _tell(self, node: str, streams: Iterable[Assignment]) -> None:
        told = [
            (one.group, one.version, one.config.subjects)
            for one in streams
            if one.arrival is not None and one.arrival.world == world_of(node)
        ]
        state = self._map.replica.state if self._map.replica is not None else None
        if told and state is not None:
            self._peers.post(node, Frame.FAR_SUBJECTS, encode_subjects(state.applied_index, told))

    def _on_told(self, node: str, body: memoryview, now_ms: int) -> None:
        """Blue: it may come before the map here says that the stream has gone."""
        known, world = self._map.far_subjects, world_of(node)
        is_new = False
        index, streams = decode_subjects(body)
        for group, version, subjects in streams:
            before = known.get((world, group))
            if len(known) < STREAMS_MAX if before is None else before.index < index:
                now = known[world, group] = FarCapture(version, index, subjects)
                is_new = is_new or before is None or replace(before, index=index) != now
        if is_new and self._map.index:
            self.changed()
