"""A message's own time to live (header Nats-TTL), and the stored messages that have one.

The leader parses the header when it judges a message, and every replica parses it again when it stores the
message. The state knows when each such message is due, by the leader time of its entry. The leader removes it
by an entry (SF-13; `publish/expiry.py`).
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator
from itertools import chain

from supercluster.broker.bounds import I64_MAX, TIME_NS_MAX, whole_number
from supercluster.broker.jetstream.encoding.codec import Reader, blob, u64
from supercluster.broker.protocol.durations import SECOND_NS, parse_duration_ns
from supercluster.broker.protocol.headers import header_value

TTL = b"Nats-TTL"
NEVER = -1
"""Such a message outlives the stream's max_age too."""
# Void entries that the heap may hold beside one per message before it is made anew.
_VOID_MAX = 1024
# Messages in one part of a snapshot: some milliseconds' work.
PART_ROWS = 4096


def ttl_seconds(header: bytes) -> int | None:
    """What the header asks for: whole seconds, NEVER, 0 without a TTL; None when it is no valid one."""
    value = header_value(header, TTL) if TTL in header else None
    return read_ttl(value) if value else 0


def read_ttl(value: bytes) -> int | None:
    """A TTL's text: a number of seconds, a duration of at least one second, or `never`; None when it is none."""
    if value.lower() == b"never":
        return NEVER
    if value.isdigit():
        return whole_number(value, I64_MAX) or None
    duration_ns = parse_duration_ns(value)
    return duration_ns // SECOND_NS if duration_ns is not None and duration_ns >= SECOND_NS else None


class MessageTtls:
    """When which messages are due, and which never are. Part of the replicated state."""

    def __init__(self) -> None:
        self._due_ns: dict[int, int] = {}
        self.never: set[int] = set()
        # (due, sequence), with entries of messages that are gone.
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._due_ns) + len(self.never)

    def add(self, seq: int, seconds: int, time_ns: int) -> None:
        """The message at `seq`, stored at that leader time, has a TTL."""
        if seconds == NEVER:
            self.never.add(seq)
        elif seconds > 0:
            self._put(seq, min(time_ns + seconds * SECOND_NS, TIME_NS_MAX))

    def _put(self, seq: int, due_ns: int) -> None:
        self._due_ns[seq] = due_ns
        heapq.heappush(self._heap, (due_ns, seq))

    def discard(self, seq: int) -> None:
        """The message is gone."""
        if self._due_ns.pop(seq, None) is None:
            self.never.discard(seq)
        elif len(self._heap) > 2 * len(self._due_ns) + _VOID_MAX:
            self._heap = [(due_ns, seq) for seq, due_ns in self._due_ns.items()]
            heapq.heapify(self._heap)

    def next_ns(self) -> int | None:
        """When the first message is due; None when none ever is."""
        heap = self._heap
        while heap and self._due_ns.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ns: int, most: int) -> list[int]:
        """Sequences of messages that are due, in rising order; those due first where there are more than `most`."""
        found: list[tuple[int, int]] = []
        while len(found) < most:
            next_ns = self.next_ns()
            if next_ns is None or next_ns > now_ns:
                break
            found.append(heapq.heappop(self._heap))
        for entry in found:
            heapq.heappush(self._heap, entry)
        return sorted(seq for _, seq in found)

    # ---- snapshots, digests -----------------------------------------------------------------------------------------

    def parts(self) -> Iterator[bytes]:
        """What copies are compared by, as it is now."""
        seqs, due, never = list(self._due_ns), list(self._due_ns.values()), list(self.never)
        timed = (u64(seq) + u64(due_ns) for seq, due_ns in zip(seqs, due, strict=True))
        return chain(timed, map(u64, never))

    def encoded(self) -> Iterator[bytes]:
        """All of it as it is now, in parts for `take`."""
        seqs, due, never = list(self._due_ns), list(self._due_ns.values()), sorted(self.never)

        def parts() -> Iterator[bytes]:
            for at in range(0, max(len(seqs), len(never)), PART_ROWS):
                columns = (each[at : at + PART_ROWS] for each in (seqs, due, never))
                yield b"".join(blob(array("Q", column).tobytes()) for column in columns)

        return parts()

    def take(self, reader: Reader) -> None:
        """Add a part: messages behind those that are there."""
        seqs, due, never = (reader.column_in_blob("Q") for _ in range(3))
        for seq, due_ns in zip(seqs, due, strict=True):
            self._put(seq, due_ns)
        self.never.update(never)
