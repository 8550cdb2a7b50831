"""The subjects of a stream that hold a schedule, and their due times, as part of the replicated state
(`publish/scheduling.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from supercluster.broker.jetstream.encoding.codec import Reader, blob, u32, u64
from supercluster.broker.jetstream.encoding.cron import PatternError, Schedule, ZoneError, parse_schedule
from supercluster.broker.jetstream.encoding.timestamps import parse_time
from supercluster.broker.protocol.headers import header_value

SCHEDULE, ZONE = b"Nats-Schedule", b"Nats-Schedule-Time-Zone"
SCHEDULER, NEXT, PURGE = b"Nats-Scheduler", b"Nats-Schedule-Next", b"purge"
# Void entries that the heap may hold beside one per schedule before it is made anew.
_VOID_MAX = 1024
# Schedules in one part of a snapshot: some milliseconds' work.
PART_ROWS = 2048


def schedule_of(header: bytes) -> Schedule | None:
    """The schedule that a message is; None when it is none.

    Raises:
        PatternError: it could never be due.
        ZoneError: its time zone has a name that can't be one.
    """
    pattern = header_value(header, SCHEDULE)
    if not pattern:
        return None
    zone = header_value(header, ZONE)
    try:
        return parse_schedule(pattern.decode(), zone.decode() if zone is not None else None)
    except UnicodeDecodeError:
        raise PatternError("it is no text") from None


class Schedules:
    """Subjects with a schedule: the sequence of its message, and when it is due (0: its leader finds that out, by the tables
    of time zones that it has)."""

    def __init__(self) -> None:
        self._by_subject: dict[bytes, tuple[int, int]] = {}
        self._heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._by_subject)

    def get(self, subject: bytes) -> tuple[int, int] | None:
        """Sequence and due time."""
        return self._by_subject.get(subject)

    # ---- what is stored ---------------------------------------------------------------------------------------------

    def stored(self, subject: bytes, header: bytes, seq: int, time_ns: int) -> int:
        """A message was stored. Returns the sequence of a schedule's message that it ends; 0: none."""
        schedule = _read(header) if SCHEDULE in header else None
        if schedule is not None:
            self._put(subject, seq, 0 if schedule.zone else schedule.after(time_ns))
            return 0
        self._by_subject.pop(subject, None)
        scheduler = header_value(header, SCHEDULER) if SCHEDULER in header else None
        found = self._by_subject.get(scheduler) if scheduler else None
        if scheduler is None or found is None:
            return 0
        told = header_value(header, NEXT) or b""
        if told == PURGE:
            return found[0]
        try:
            self._put(scheduler, found[0], parse_time(told.decode()))
        except ValueError:
            pass  # Nobody's business but a client's: the schedule goes on as it was.
        return 0

    def plain(self, subjects: Iterable[bytes]) -> None:
        """Messages without headers were stored: no schedules any more."""
        for subject in subjects:
            self._by_subject.pop(subject, None)

    def discard(self, subject: bytes, seq: int) -> None:
        """A message is gone."""
        found = self._by_subject.get(subject)
        if found is not None and found[0] == seq:
            del self._by_subject[subject]

    def _put(self, subject: bytes, seq: int, due_ns: int) -> None:
        self._by_subject[subject] = (seq, due_ns)
        heapq.heappush(self._heap, (due_ns, subject))
        if len(self._heap) > 2 * len(self._by_subject) + _VOID_MAX:
            self._file_anew()

    def _file_anew(self) -> None:
        self._heap = [(due_ns, subject) for subject, (_, due_ns) in self._by_subject.items()]
        heapq.heapify(self._heap)

    def found_out(self, body: bytes | memoryview) -> None:
        """A leader says when schedules are due whose time zones only it may know (`encode_due`)."""
        reader = Reader(body)
        while reader.left:
            subject, seq, due_ns = bytes(reader.blob()), reader.u64(), reader.u64()
            found = self._by_subject.get(subject)
            if found is not None and found[0] == seq:
                self._put(subject, seq, due_ns)

    # ---- what is due ------------------------------------------------------------------------------------------------

    def _is_void(self, due_ns: int, subject: bytes) -> bool:
        found = self._by_subject.get(subject)
        return found is None or found[1] != due_ns

    def next_ns(self) -> int | None:
        """When the first one is due; None: there is none."""
        heap = self._heap
        while heap and self._is_void(*heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ns: int, most: int) -> list[tuple[int, bytes]]:
        """(due, subject) of those that are due, the first ones first."""
        found: list[tuple[int, bytes]] = []
        while len(found) < most:
            next_ns = self.next_ns()
            if next_ns is None or next_ns > now_ns:
                break
            found.append(heapq.heappop(self._heap))
        for entry in found:
            heapq.heappush(self._heap, entry)
        return list(dict.fromkeys(found))

    # ---- snapshots, digests -----------------------------------------------------------------------------------------

    def parts(self) -> Iterator[bytes]:
        """What copies are compared by, as it is now."""
        subjects, values = list(self._by_subject), list(self._by_subject.values())
        rows = zip(subjects, values, strict=True)
        return (u64(seq) + u64(due_ns) + subject for subject, (seq, due_ns) in rows)

    def encoded(self) -> Iterator[bytes]:
        """All of it as it is now, in parts for `take`."""
        subjects, values = list(self._by_subject), list(self._by_subject.values())

        def parts() -> Iterator[bytes]:
            for at in range(0, len(subjects), PART_ROWS):
                end = min(at + PART_ROWS, len(subjects))
                rows = zip(subjects[at:end], values[at:end], strict=True)
                yield u32(end - at) + b"".join(blob(name) + u64(seq) + u64(due) for name, (seq, due) in rows)

        return parts()

    def take(self, reader: Reader) -> None:
        """Add a part."""
        for _ in range(reader.u32()):
            subject = bytes(reader.blob())
            self._put(subject, reader.u64(), reader.u64())


def encode_due(subject: bytes, seq: int, due_ns: int) -> bytes:
    return blob(subject) + u64(seq) + u64(due_ns)


def _read(header: bytes) -> Schedule | None:
    try:
        return schedule_of(header)
    except (PatternError, ZoneError):
        return (
            None  # It was stored while the stream had no schedules, or by a leader that knew more patterns.
        )
