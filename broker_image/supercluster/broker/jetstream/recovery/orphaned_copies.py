"""Copies of streams that a recovered map does not know (SF-9): nobody told this broker to remove them, so they are kept.

When a broker has read the map of its lineage for the first time, it notes on its volume which of its copies that map has no
stream for. They are closed, and stay until a person decides. What goes missing from the map after that was deleted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.replica.lineage import META_GROUP, is_meta
from supercluster.broker.raft.errors import DiskError

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore


class OrphanedCopies:
    """See the module."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._lineage = META_GROUP
        """The lineage whose map was read, and the note made."""
        self._groups: list[str] = []
        note = core.store.note()
        if note:
            try:
                told = json.loads(note)
                self._lineage, self._groups = str(told["lineage"]), list(map(str, told["groups"]))
            except (ValueError, KeyError, TypeError):
                note = None
        if note is None:
            # Until it is made again, nothing that the map does not know is removed.
            core.event(
                META_GROUP,
                "NoteDamaged",
                "which copies are kept is not known any more: all that the map lacks are",
            )

    def takes(self, group_id: str) -> bool:
        """Is the copy, whose group the map does not have, one that has to be kept? Then it is closed."""
        core = self._core
        if core.meta_id == META_GROUP or (group_id not in self._groups and self._lineage == core.meta_id):
            return False
        self._close(group_id)
        return True

    def map_was_read(self) -> None:
        """Note what the map does not know, the first time."""
        core = self._core
        assert core.meta is not None
        if self._lineage == core.meta_id or core.meta.replica.recovery is None:
            return
        assigned = {found.group for found in core.meta.state.streams.values()}
        registered = core.store.registered()
        unknown = [
            group
            for group in registered
            if not is_meta(group) and group not in assigned and not core.lineages.has_successor(group)
        ]
        groups = sorted({*unknown, *(group for group in self._groups if group in registered)})
        try:
            core.store.put_note(json.dumps({"lineage": core.meta_id, "groups": groups}).encode())
        except DiskError as error:
            core.event(
                core.meta_id, "DiskFailed", f"copies that the map does not know could not be noted: {error}"
            )
            return  # Until it is, nothing is removed at all.
        self._lineage, self._groups = core.meta_id, groups
        for group in unknown:
            core.event(
                group,
                "CopyKept",
                f"lineage {core.meta_id} of the map knows no such stream: the copy on {core.node} is kept, closed, in "
                f"{core.store.directory_of(group)} of the data directory",
            )

    def _close(self, group_id: str) -> None:
        core = self._core
        group = core.drop_group(group_id)
        if group is None:
            return
        served = group.serves
        group.stop()
        group.log.close(clean=group.log.failed is None)
        if served:
            core.leaderships.resign(group_id)

    def to_json(self) -> list[dict[str, Any]]:
        """For people."""
        store = self._core.store
        registered = store.registered()
        return [
            {"group": group, "directory": store.directory_of(group)}
            for group in self._groups
            if group in registered
        ]
