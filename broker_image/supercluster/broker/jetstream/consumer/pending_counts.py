"""The count of remaining messages for consumers with filters, taken for all of them in one pass over the log.

A new leader, or a consumer that begins far behind, needs the count before the first delivery, since each
delivery reports it to the client. Counting for one consumer after the other would take as many passes as
there are consumers. One pass over a large stream is longer than a turn, so it is a job (`turn/slices.py`).
Messages that are stored meanwhile are added, and removed ones are subtracted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from supercluster.broker.jetstream.state.messages import StoredMessages
from supercluster.broker.jetstream.subjects.filter_index import FilterIndex, Filters
from supercluster.broker.jetstream.turn.slices import Job

LOOKED_AT_MAX = 512
"""Messages of one entry that are counted in one go."""
SLICE_UNITS = 1500
"""Of a slice, about; a subject is asked for its filters, a message is only counted."""
_MESSAGES_PER_UNIT = 4
_SUBJECT_UNITS = 5


@dataclass(slots=True)
class PendingCount:
    """Of one consumer: `found` messages behind `after` match its filters, when all are counted."""

    name: str
    filters: Filters
    after: int
    found: int = 0
    before: int = 0
    """What matched up to `after`, as far as it was looked at."""


class PendingCounts:
    """See the module. `run` does it once."""

    def __init__(self, state: StoredMessages, wanted: Iterable[PendingCount]) -> None:
        self._state = state
        self.wanted = sorted(wanted, key=lambda count: count.after)
        self.up_to = 0
        """All messages up to here are counted."""
        self._by_filters = FilterIndex()
        for count in self.wanted:
            self._by_filters.put(count.name, count.filters)
        self._totals: Counter[Filters] = Counter()
        self._gone: defaultdict[Filters, list[int]] = defaultdict(list)
        """Messages that were counted and removed since."""

    def _filters_for(self, subject: bytes) -> set[Filters]:
        return set(self._by_filters.filters_for(subject))

    def removed(self, seq: int, subject: bytes) -> None:
        """The stream lost a message."""
        if seq <= self.up_to:
            for filters in self._filters_for(subject):
                self._gone[filters].append(seq)

    def run(self) -> Job:
        state, wanted, totals = self._state, self.wanted, self._totals
        at = units = 0
        seq = wanted[0].after + 1 if wanted else state.last_seq + 1
        while True:
            seq = state.past(max(seq, state.first_seq))
            while at < len(wanted) and wanted[at].after < seq:
                wanted[at].before = totals[wanted[at].filters]
                at += 1
            if seq > state.last_seq:
                break
            decoded = state.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            end = min(decoded.first_seq + decoded.count, seq + LOOKED_AT_MAX)
            if at < len(wanted):
                end = min(end, wanted[at].after + 1)
            units += self._count(decoded.subjects, decoded.first_seq, seq, end)
            seq = end
            if units >= SLICE_UNITS:
                yield units
                units = 0
        for count in wanted[at:]:
            count.before = totals[count.filters]
        self.up_to = max(self.up_to, state.last_seq)
        for seqs in self._gone.values():
            seqs.sort()
        for count in wanted:
            gone = self._gone.get(count.filters, ())
            count.found = totals[count.filters] - count.before - len(gone) + bisect_right(gone, count.after)

    def _count(self, subjects: list[bytes], first_seq: int, seq: int, end: int) -> int:
        """Messages from `seq` to before `end`, of an entry that begins at `first_seq`. Returns how long it takes."""
        some = subjects[seq - first_seq : end - first_seq]
        if self._state.deleted:
            present = self._state.deleted.absent(seq, end)
            if len(present) < len(some):
                some = [subjects[place - first_seq] for place in present]
        found = Counter(some)
        for subject, number in found.items():
            for filters in self._filters_for(subject):
                self._totals[filters] += number
        self.up_to = end - 1
        return 1 + (end - seq) // _MESSAGES_PER_UNIT + len(found) * _SUBJECT_UNITS
