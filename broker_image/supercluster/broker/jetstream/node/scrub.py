"""Reads the logs of one broker again, slowly, so that a bit that turned over is found while other copies have the
record (SF-4).

Clients read few old messages, and a sealed segment is read by nobody else. A copy that has a damaged record is
opened anew without it, keeps its vote by the end that its log had, and takes the record from its leader
(`recovery-of-a-log.md`).
"""

from __future__ import annotations

from collections import deque
from functools import partial

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.replica.replica import Replica

# A piece is read this often; its size follows from the bytes a second.
PIECE_MS = 250
# All is read again once in so long, and later where there is more than can be read in it.
PASS_MS = 24 * 60 * 60 * 1000
# A broker without groups looks again so much later.
LOOK_MS = 60_000


class Scrub:
    """Of one broker. Does nothing where the settings say 0 bytes a second."""

    def __init__(self, env: Environment, copies: Copies) -> None:
        self._piece_bytes = env.settings.scrub_bytes_per_s * PIECE_MS // 1000
        self._copies = copies
        self._left: deque[str] = deque()
        """Groups that were not read in this pass, the current one first."""
        self._next_index = 0
        """Of the current group; 0: its first entry."""
        now_ms = env.clock.monotonic_ms()
        self._pass_ms = now_ms
        """When the next pass may begin."""
        self._due_ms = now_ms + PIECE_MS

    def tick(self, now_ms: int) -> None:
        """Read a piece when its time has come."""
        if not self._piece_bytes or now_ms < self._due_ms:
            return
        if not self._left:
            self._left.extend(self._copies.groups)
            self._pass_ms = now_ms + (PASS_MS if self._left else LOOK_MS)
        replica = self._copies.groups.get(self._left[0]) if self._left else None
        if self._left and (replica is None or not self._reads_on(replica)):
            self._left.popleft()
            self._next_index = 0
        self._due_ms = now_ms + PIECE_MS if self._left else max(now_ms + PIECE_MS, self._pass_ms)

    def _reads_on(self, replica: Replica) -> bool:
        """Is there more to read of it?"""
        log = replica.log
        if replica.failed is not None or not log.may_ever_open_anew:
            return False  # It is out of its group, or in memory.
        first = max(self._next_index, log.base_index + 1)
        if first > log.last_index:
            return False
        self._next_index = log.last_index + 1
        return replica.guarded(partial(self._read, replica, first))

    def _read(self, replica: Replica, first: int) -> None:
        read = replica.log.entries(first, replica.log.last_index, self._piece_bytes)
        if read:
            self._next_index = read[-1].index + 1

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._due_ms if self._piece_bytes else None
