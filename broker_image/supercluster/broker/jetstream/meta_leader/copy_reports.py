"""Unusable copies of streams on brokers that are in contact, and since when.

Brokers report their own unusable copies (`node/failed_copies.py`), and the meta group's leader records them
in the map. It records a copy that is reported for long enough. It deletes the record when the broker's report
no longer contains the copy, or when a broker in contact reports nothing, such as a new process. A new leader
goes by the records.

A broker reports a copy that halted (SF-34) with `HALTED` before its group. It is recorded at once and under that
name, so no move takes it for a copy that can be replaced. It counts as a copy of its broker, member or not, and is
not usable. A lower replica count removes it first, and its files stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from supercluster.broker.jetstream.meta.operations import note_failed_copies
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.raft.confchange import node_of

# Told in one frame, and kept in the map of one broker; further ones come when those are exchanged or well.
COPIES_MAX = 1024
# Before the group of a copy that halted. No group's name begins so.
HALTED = "halted "
# What is well again so soon is not worth two entries.
NOTED_MS = 5000
# A broker that is in contact and says nothing of its copies for so long has nothing to say.
SILENT_MS = 10_000


class CopyReports:
    """What all brokers say of their copies, at the meta group's leader: made when it begins to serve."""

    def __init__(self, tail: MapTail, host: MetaHost, now_ms: int) -> None:
        self._tail = tail
        self._host = host
        self._began_ms = now_ms
        self._first_ms: dict[str, dict[str, int]] = {}
        """Node → group → when it was first told of, in a row."""
        self._why: dict[str, Mapping[str, str]] = {}
        self._heard_ms: dict[str, int] = {}
        self._there_ms: dict[str, int] = {}
        """Node → since when it has been in contact, as far as this leader knows."""

    @property
    def is_needed(self) -> bool:
        """Is there anything that changes with time?"""
        return bool(self._first_ms or self._tail.state.failed_copies)

    def on_failed_copies(self, node: str, copies: Mapping[str, str], now_ms: int) -> None:
        """A broker's report: of those that it does not name it says that they are usable."""
        before = self._first_ms.pop(node, {})
        named = dict(islice(copies.items(), COPIES_MAX))
        if named:
            self._first_ms[node] = {group: before.get(group, now_ms) for group in named}
        self._why[node], self._heard_ms[node] = named, now_ms

    def why(self, node: str, group: str) -> str:
        """What the broker said of its copy; empty: nothing, or this leader has not heard it yet."""
        return self._why.get(node, {}).get(group, "")

    def advance(self, now_ms: int, contact: Collection[str]) -> None:
        """Write down what has been so for long enough, and strike what is not so any more. Of a broker that is out of contact
        everything stands as it was."""
        for node in self._there_ms.keys() - set(contact):
            for known in (self._there_ms, self._heard_ms, self._first_ms, self._why):
                known.pop(node, None)
        for node in contact:
            self._there_ms.setdefault(node, now_ms)
        if not self.is_needed:
            return
        end = self._tail.state
        held = {found.group: found for found in end.streams.values()}
        for node, record in list(end.brokers.items()):
            if node not in contact:
                continue
            mine = {
                group
                for group in (*self._first_ms.get(node, ()), *end.failed_copies.get(node, ()))
                if (found := held.get(group.removeprefix(HALTED))) is not None
                and (group.startswith(HALTED) or any(node_of(member) == node for member in found.members))
            }
            changes = self._changes(node, mine, now_ms)
            if not changes:
                continue
            try:
                self._tail.propose(note_failed_copies(record, end.away.get(node, 0), changes))
            except NotAppendedError:
                return  # The next look tries again.
            for group in (group for group, since_ns in changes.items() if since_ns):
                bare, why = group.removeprefix(HALTED), self._why[node][group]
                what = "is unusable" if bare == group else "halted, and stays until a person decides"
                self._host.event(
                    bare, "CopyUnusable", f"the copy of stream {held[bare].name} on {node} {what}: {why}"
                )

    def _changes(self, node: str, mine: Collection[str], now_ms: int) -> dict[str, int]:
        """Group → since when, or 0 for one that is struck. `mine`: the groups that the node is a member of, or has a halted copy of."""
        noted, first = self._tail.state.failed_copies.get(node, {}), self._first_ms.get(node, {})
        heard_ms = self._heard_ms.get(node)
        is_silent = now_ms - max(self._began_ms, self._there_ms[node], heard_ms or 0) >= SILENT_MS
        if is_silent:
            self._first_ms.pop(node, None)
        is_told = heard_ms is not None
        struck = dict.fromkeys(
            (group for group in noted if group not in mine or is_silent or (is_told and group not in first)),
            0,
        )
        time_ns = self._tail.time_ns()
        new = {
            group: max(1, time_ns - (now_ms - since_ms) * 1_000_000)
            for group, since_ms in first.items()
            if group in mine
            and group not in noted
            and not is_silent
            and (group.startswith(HALTED) or now_ms - since_ms >= NOTED_MS)
        }
        room = max(0, COPIES_MAX - len(noted) + len(struck))
        return struck | dict(islice(new.items(), room))
