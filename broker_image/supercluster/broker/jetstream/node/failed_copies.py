"""Unusable copies on a broker that is itself in contact: its disk refuses the log, or the copy can't be
opened (MR-2).

The stream map records when the copy failed, as it does for lost brokers. The broker reports its copies
itself, since a stream's leader gets no messages from the copies of a silent group (RP-3). It repeats all of
them in one frame (`meta_leader/copy_reports.py` receives it), and keeps trying to open them
(`node/copy_manager.py`). A copy that was reopened counts as usable when it has not failed for a while: one
whose disk fails at every write is open for a moment at each try.

A copy that contradicts another halts (SF-26), and the volume has a mark of it from then on. Nobody replaces it
and nobody deletes its files, until a person removes the mark (SF-34). The broker reports it under another name.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.copy_reports import COPIES_MAX, HALTED
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.raft.errors import DiskError, FaultError, HistoryError, ReplicaError

REPORT_EVERY_MS = 2000
# A copy that was opened anew is usable when it has not failed for so long.
SETTLED_MS = 10_000
WHY_CHARACTERS_MAX = 300


class FailedCopies:
    """Those of one broker."""

    def __init__(
        self, env: Environment, peers: Peers, copies: Copies, map_view: MapView, leaderships: Leaderships
    ) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._why: dict[str, str] = {}
        self._advice: dict[str, str] = {}
        self._halted: set[str] = set()
        """Those of `_why` that contradict another copy."""
        self._marked = {group for group in env.store.registered() if self._has_mark(group, unsaid=False)}
        """Those that the volume has a mark of, as of the last look."""
        self.faults_total = 0
        """How often the broker's own code raised in a stream's group (SF-25)."""
        self._well_ms: dict[str, int] = {}
        """Those that are open again, and since when."""
        self._is_owing = False
        """The last report named some."""
        self._due_ms = 0

    def failed(self, group_id: str, error: ReplicaError | None) -> None:
        """An error took the copy out of its group, or (None) it could not be opened, for a reason that may be known."""
        self._well_ms.pop(group_id, None)
        if error is None:
            self._why.setdefault(group_id, "it could not be opened")
            return
        self.faults_total += isinstance(error, FaultError)
        if isinstance(error, HistoryError):
            self._halted.add(group_id)
            self._mark()
            self._due_ms = 0
        self._why[group_id] = str(error)[:WHY_CHARACTERS_MAX]
        self._advice[group_id] = error.advice(group_id) if isinstance(error, FaultError) else ""

    @property
    def groups(self) -> list[str]:
        """Whose copies are of no use, or were until a moment ago."""
        return sorted(self._why)

    def text_of(self, group_id: str) -> str:
        """Why that copy is of no use, and the command that shows the entry it halted at."""
        return "; ".join(filter(None, (self._why[group_id], self._advice.get(group_id))))

    def is_halted(self, group_id: str) -> bool:
        """Do the copy's files stay, whatever the map says?

        Raises:
            DiskError: the disk does not say, or did not take the mark.
        """
        if group_id in self._halted:
            self._env.store.halt(group_id)
        found = self._env.store.is_halted(group_id)
        if found:
            self._marked.add(group_id)
        return found

    def halted(self) -> list[dict[str, Any]]:
        """For people."""
        store = self._env.store
        return [{"group": group, "directory": store.directory_of(group)} for group in sorted(self._marked)]

    def _mark(self) -> None:
        """Those that have no mark yet, and see which marks are there: a person may have removed one."""
        for group_id in self._halted - self._marked:
            try:
                self._env.store.halt(group_id)
            except DiskError as error:
                self._env.event(group_id, "DiskFailed", f"that its copy halted could not be noted: {error}")
        self._marked = {
            group
            for group in self._marked | self._halted
            if self._has_mark(group, unsaid=group in self._marked)
        }

    def _has_mark(self, group_id: str, *, unsaid: bool) -> bool:
        """`unsaid`: where the disk does not say."""
        try:
            return self._env.store.is_halted(group_id)
        except DiskError:
            return unsaid

    def forget(self, group_id: str) -> None:
        """The copy is not needed any more."""
        for known in (self._why, self._advice, self._well_ms):
            known.pop(group_id, None)
        self._halted.discard(group_id)

    def tick(self, now_ms: int) -> None:
        """Tell the meta group's leader, again, for the word may be lost and the leader another one."""
        due_ms = self.deadline_ms()
        if due_ms is None or now_ms < due_ms:
            return
        self._due_ms = now_ms + REPORT_EVERY_MS
        self._look(now_ms)
        self._mark()
        leader = self._leaderships.leader_of(self._map.meta_id)
        if leader is None:
            return
        told = {f"{HALTED}{group}": self._why.get(group, "it halted") for group in sorted(self._marked)}
        kept = self._marked | self._halted
        told |= {group: why for group, why in sorted(self._why.items()) if group not in kept}
        told = dict(islice(told.items(), COPIES_MAX))
        if self._peers.post(leader, Frame.FAILED_COPIES, frames.encode_failed_copies(told)):
            self._is_owing = bool(told)

    def _look(self, now_ms: int) -> None:
        for group_id in list(self._why):
            group = self._copies.groups.get(group_id)
            if group is None or group.failed is not None:
                self._well_ms.pop(group_id, None)
            elif now_ms - self._well_ms.setdefault(group_id, now_ms) >= SETTLED_MS:
                self.forget(group_id)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._due_ms if self._why or self._marked or self._is_owing else None
