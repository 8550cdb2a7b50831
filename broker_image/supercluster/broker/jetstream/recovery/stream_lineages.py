"""Handles a broker's copy of a stream that was recovered by force (SF-9).

The chosen copy goes on as the first member of the new lineage. Every other copy is closed, and entries that
the new lineage lacks are kept in a file.

Every step may be repeated: a step that a crash interrupted is completed when the map is available again.
"""

from __future__ import annotations

import json

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.config.metadata_keys import fsync_of
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.stream_recovery import Recovery
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.copy_manager import CopyManager
from supercluster.broker.jetstream.recovery.durable_map import DurableMap
from supercluster.broker.jetstream.recovery.log_records import records_of
from supercluster.broker.jetstream.replica.lineage import has_later, is_same_stream, lineage_of
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.confchange import Membership, membership_of
from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.raft.errors import DiskError

# A copy that could not be put aside, for want of room, is tried again at this pace; so is whether one may go.
RETRY_MS = 5000


class StreamLineages:
    """Copies of older lineages on one broker."""

    def __init__(
        self,
        env: Environment,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        copy_manager: CopyManager,
    ) -> None:
        self._env = env
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._copy_manager = copy_manager
        self._aside: dict[str, int] = {}
        """Groups whose copies are kept for a while, and when to look at each again."""
        self._kept: set[str] = set()
        """Those of them whose ends are in files, or that have none."""
        self._durable_map = DurableMap(map_view)

    def takes(self, group_id: str) -> bool:
        found = self._successor(group_id)
        if found is None or found.recovery is None:
            self._forget(group_id)
            return False
        if group_id in self._env.store.registered():
            try:
                self._deal_with(group_id, found, found.recovery)
            except DiskError as error:
                self._env.event(group_id, "DiskFailed", f"the copy waits for its new lineage: {error}")
                self._aside[group_id] = self._env.clock.monotonic_ms() + RETRY_MS
        return True

    def is_ready(self, found: Assignment) -> bool:
        """May the stream's group be opened here? Not when this volume has joined a later lineage, whose files may be the same:
        the map on the disk may be older than that. And the chosen broker begins a lineage with the copy that was chosen,
        never empty, and not before the older group is forgotten."""
        store, recovery = self._env.store, found.recovery
        registered = store.registered()
        if has_later(found.group, registered):
            return False
        if recovery is None or recovery.source not in registered or not self._is_mine(recovery):
            return True
        self.takes(recovery.source)
        registered = store.registered()
        return found.group in registered and recovery.source not in registered

    def _is_mine(self, recovery: Recovery) -> bool:
        return recovery.member.startswith(f"{self._env.node}@{self._env.store.incarnation}.")

    def has_successor(self, group_id: str) -> bool:
        """Does the map have a later lineage of the group's stream?"""
        return self._successor(group_id) is not None

    def _successor(self, group_id: str) -> Assignment | None:
        meta = self._map.replica
        if meta is None:
            return None
        streams = meta.state.streams.values()
        return next(
            (
                found
                for found in streams
                if is_same_stream(found.group, group_id) and lineage_of(found.group) > lineage_of(group_id)
            ),
            None,
        )

    def _deal_with(self, group_id: str, found: Assignment, recovery: Recovery) -> None:
        if group_id not in self._kept or group_id in self._copies.groups:
            self._durable_map.keep()
        if group_id == recovery.source and self._is_mine(recovery):
            self._adopt(group_id, found, recovery)
        else:
            self._put_aside(group_id, found, recovery)

    def _log_of(self, group_id: str, found: Assignment) -> StreamLog | None:
        """The old copy's log, with nobody working on it any more; None: it is lost."""
        self._leaderships.forget(group_id)
        group = self._copies.drop(group_id)
        if group is not None:
            group.stop()
            return group.log
        opened = self._env.store.open(
            group_id, memory=False, fsync=fsync_of(found.config.metadata), create=False
        )
        if opened.lost:
            opened.log.close(clean=False)
            return None
        return opened.log

    # ---- the chosen copy ------------------------------------------------------------------------------------------

    def _adopt(self, group_id: str, found: Assignment, recovery: Recovery) -> None:
        """Whatever the log has is the new lineage's, whose only member so far is this one."""
        group = self._copies.drop(group_id) if found.group in self._env.store.registered() else None
        if group is not None:  # By a map that was older than what this volume had done already.
            group.stop()
            group.log.close(clean=group.log.failed is None)
        if found.group not in self._env.store.registered():
            log = self._log_of(group_id, found)
            if log is None:
                self._env.event(
                    group_id,
                    "RecordLost",
                    f"{self._env.node} lost its copy of {found.name}, which the stream was to go on from: force another one",
                )
                return
            _begin_lineage(log, recovery.member)
            self._env.store.register(found.group, recovery.member, home=group_id)
            log.close(clean=True)
            self._env.event(
                found.group,
                "LineageStarted",
                f"stream {found.name} goes on from this copy, as {recovery.member}, by recovery {recovery.id}",
            )
        self._forget(group_id)
        self._env.store.forget(group_id)  # Its files are the new group's.

    # ---- the others -----------------------------------------------------------------------------------------------

    def _put_aside(self, group_id: str, found: Assignment, recovery: Recovery) -> None:
        """Closed at once; its end is kept in a file, and all of it until the stream is whole again: should the chosen
        broker be lost too, the stream can still go on from here."""
        now_ms = self._env.clock.monotonic_ms()
        if group_id not in self._kept or group_id in self._copies.groups:
            log = self._log_of(group_id, found)
            if log is not None:
                try:
                    self._keep_tail(log, group_id, found, recovery)
                finally:
                    log.close(clean=log.failed is None)
            self._kept.add(group_id)
        if self._may_go(found, recovery) and self._copy_manager.may_remove(group_id):
            self._forget(group_id)
            self._env.event(group_id, "CopyDropped", f"{found.name} is whole again in its new lineage")
            self._copy_manager.remove_copy(group_id)
            return
        self._aside[group_id] = now_ms + RETRY_MS

    def _may_go(self, found: Assignment, recovery: Recovery) -> bool:
        age_ns = self._env.clock.now_ns() - recovery.at_ns
        is_whole = found.move is None and len(found.members) >= found.config.num_replicas
        return self._map.is_fresh and is_whole and age_ns >= self._env.settings.retired_grace_ms * 1_000_000

    def _keep_tail(self, log: StreamLog, group_id: str, found: Assignment, recovery: Recovery) -> None:
        first, last = max(recovery.common_index, log.base_index) + 1, log.last_index
        if first > last:
            return
        if self._env.store.has_tail(group_id, last, log.last_term):
            return  # Kept before: two logs of a group that end with the same entry have the same before it.
        head = {
            "stream": found.name,
            "account": found.account,
            "group": group_id,
            "member": self._env.store.registered().get(group_id, ""),
            "recovery": recovery.id,
            "first_index": first,
            "last_index": last,
        }
        path = self._env.store.keep_tail(
            group_id, last, log.last_term, json.dumps(head).encode() + b"\n", records_of(log, first, last)
        )
        self._env.event(
            group_id,
            "TailKept",
            f"entries {first} to {last} of the copy of {found.name} on {self._env.node}, which the new lineage may lack, are in "
            f"{path} of the data directory",
        )

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        for group_id, at_ms in list(self._aside.items()):
            if now_ms >= at_ms:
                self._aside[group_id] = now_ms + RETRY_MS
                if self._map.replica is not None and self._map.replica.is_behind:
                    continue  # What it shows is an older lineage's map: nothing is done by that any more.
                found = self._successor(group_id)
                if found is not None:
                    self._copy_manager.follow_map([found.group, group_id])
                elif self._map.is_fresh:
                    # The stream was deleted meanwhile; or the map is another one, which has it as it was before.
                    self._forget(group_id)
                    self._copy_manager.look_at(group_id)

    def _forget(self, group_id: str) -> None:
        self._aside.pop(group_id, None)
        self._kept.discard(group_id)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return min(self._aside.values(), default=None)


def _begin_lineage(log: StreamLog, member: str) -> None:
    """A membership of that member alone behind the log's end, durably, in a term that nobody has used."""
    last = log.entry(log.last_index)
    if (
        last is not None
        and last.kind == EntryKind.CONFIG
        and Membership.decode(last.payload).all_voters == (member,)
    ):
        log.sync()
        return  # Done before, and nobody came to say so.
    term = max(log.load_vote()[0], log.last_term) + 1
    index = log.last_index + 1
    membership = membership_of((member,), index=index)
    log.save_vote(term, "")
    log.append(
        [make_entry(index=index, term=term, kind=EntryKind.CONFIG, time_ns=0, payload=membership.encode())]
    )
    log.sync()
    log.settle()
