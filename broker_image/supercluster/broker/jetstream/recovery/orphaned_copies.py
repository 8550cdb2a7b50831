"""Copies of streams that a recovered map does not know (SF-9): no map ordered their removal, so they are
kept.

When a broker has read the map of its lineage for the first time, it records on its volume the copies whose
stream is not in that map. They are closed, and stay until an administrator decides. A stream that disappears
from the map after that was deleted.
"""

from __future__ import annotations

import json
from typing import Any

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.recovery.stream_lineages import StreamLineages
from supercluster.broker.jetstream.replica.lineage import META_GROUP, is_meta
from supercluster.broker.raft.errors import DiskError


class OrphanedCopies:
    def __init__(
        self,
        env: Environment,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        stream_lineages: StreamLineages,
    ) -> None:
        self._env = env
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._stream_lineages = stream_lineages
        self._lineage = META_GROUP
        """The lineage whose map was read, and the note made."""
        self._groups: list[str] = []
        note = self._env.store.note()
        if note:
            try:
                told = json.loads(note)
                self._lineage, self._groups = str(told["lineage"]), list(map(str, told["groups"]))
            except (ValueError, KeyError, TypeError):
                note = None
        if note is None:
            # Until it is made again, nothing that the map does not know is removed.
            self._env.event(
                META_GROUP,
                "NoteDamaged",
                "the list of kept copies is lost: all copies that the map lacks are kept",
            )

    def takes(self, group_id: str) -> bool:
        if self._map.meta_id == META_GROUP or (
            group_id not in self._groups and self._lineage == self._map.meta_id
        ):
            return False
        self._close(group_id)
        return True

    def map_was_read(self) -> None:
        assert self._map.replica is not None
        if self._lineage == self._map.meta_id or self._map.replica.replica.recovery is None:
            return
        state = self._map.replica.state
        assigned = {found.group for found in state.streams.values()} | state.other_groups.keys()
        registered = self._env.store.registered()
        unknown = [
            group
            for group in registered
            if not is_meta(group) and group not in assigned and not self._stream_lineages.has_successor(group)
        ]
        groups = sorted({*unknown, *(group for group in self._groups if group in registered)})
        try:
            self._env.store.put_note(json.dumps({"lineage": self._map.meta_id, "groups": groups}).encode())
        except DiskError as error:
            self._env.event(
                self._map.meta_id,
                "DiskFailed",
                f"copies that the map does not know could not be noted: {error}",
            )
            return  # Until it is, nothing is removed at all.
        self._lineage, self._groups = self._map.meta_id, groups
        for group in unknown:
            self._env.event(
                group,
                "CopyKept",
                f"lineage {self._map.meta_id} of the map knows no such stream: the copy on {self._env.node} is kept, closed, in "
                f"{self._env.store.directory_of(group)} of the data directory",
            )

    def _close(self, group_id: str) -> None:
        group = self._copies.drop(group_id)
        if group is None:
            return
        served = group.serves
        group.stop()
        group.log.close(clean=group.log.failed is None)
        if served:
            self._leaderships.resign(group_id)

    def to_json(self) -> list[dict[str, Any]]:
        """For people."""
        store = self._env.store
        registered = store.registered()
        return [
            {"group": group, "directory": store.directory_of(group)}
            for group in self._groups
            if group in registered
        ]
