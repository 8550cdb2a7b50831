"""The consumers that have work: those that a stored or removed message concerns, and those with a due
deadline.

A message concerns few of a stream's possibly ten thousand consumers, and the others cost nothing (RP-3). For
each set of filters the set knows only the consumers that wait for messages or acknowledgements.
"""

from __future__ import annotations

from collections.abc import Iterable

from supercluster.broker.jetstream.replica.deadlines import Deadlines
from supercluster.broker.jetstream.state.log_reader import MessageReader
from supercluster.broker.jetstream.subjects.filter_index import FilterIndex, Filters
from supercluster.broker.raft.entry import Entry

# Of more subjects in one turn nobody asks which consumers they are for: all that wait are served.
SUBJECTS_MAX = 4096

ByFilters = dict[Filters, dict[str, None]]


class ReadySet:
    """The consumers of one stream, by name."""

    def __init__(self) -> None:
        self._by_filters = FilterIndex()
        self._waiting: ByFilters = {}
        self._holding: ByFilters = {}
        self._deadlines = Deadlines()

    def put(self, name: str, filters: Filters) -> None:
        """A consumer is there, or has other filters; none: all subjects. It has to be noted anew then."""
        if self._by_filters.filters_of(name) != (filters or (">",)):
            self._forget(name)
            self._by_filters.put(name, filters)

    def drop(self, name: str) -> None:
        """A consumer is gone."""
        self._deadlines.set(name, None)
        self._forget(name)
        self._by_filters.drop(name)

    def _forget(self, name: str) -> None:
        filters = self._by_filters.filters_of(name)
        if filters is not None:
            _set(self._waiting, filters, name, is_in=False)
            _set(self._holding, filters, name, is_in=False)

    def note(self, name: str, *, waits: bool, holds: bool, deadline_ns: int | None) -> None:
        """Would the consumer hand out a message that is stored now, does it have messages whose acknowledgement it waits
        for, and when has it something to do otherwise?"""
        self._deadlines.set(name, deadline_ns)
        filters = self._by_filters.filters_of(name)
        assert filters is not None, f"consumer {name} is noted and was never put"
        _set(self._waiting, filters, name, is_in=waits)
        _set(self._holding, filters, name, is_in=holds)

    def all_waiting(self) -> list[str]:
        """Everybody who waits for messages."""
        return [name for names in self._waiting.values() for name in names]

    def waiting_for(self, subjects: Iterable[bytes]) -> dict[str, None]:
        """Who waits for messages of these subjects."""
        return self._found(self._waiting, subjects)

    def holding(self, subject: bytes) -> dict[str, None]:
        """Who may wait for the acknowledgement of a message of this subject."""
        return self._found(self._holding, (subject,))

    @property
    def any_holds(self) -> bool:
        """Does anybody wait for an acknowledgement?"""
        return bool(self._holding)

    def concerned(self, subject: bytes) -> dict[str, None]:
        """Everybody whose filters match."""
        found: dict[str, None] = {}
        for filters in self._by_filters.filters_for(subject):
            found.update(self._by_filters.names(filters))
        return found

    def _found(self, known: ByFilters, subjects: Iterable[bytes]) -> dict[str, None]:
        found: dict[str, None] = {}
        for subject in subjects:
            for filters in self._by_filters.filters_for(subject):
                names = known.get(filters)
                if names:
                    found.update(names)
        return found

    def due(self, now_ns: int) -> list[str]:
        """Whose time has come; they have none until it is noted anew."""
        return self._deadlines.due(now_ns)

    def next_ns(self) -> int | None:
        """When the next one's time comes."""
        return self._deadlines.next_ms()


def _set(known: ByFilters, filters: Filters, name: str, *, is_in: bool) -> None:
    if is_in:
        known.setdefault(filters, {})[name] = None
        return
    names = known.get(filters)
    if names is not None:
        names.pop(name, None)
        if not names:
            del known[filters]


class StoredSubjects:
    """The subjects of what was stored since the last turn, of one stream's leader: consumers that wait for it are found by them."""

    def __init__(self) -> None:
        self._subjects: set[bytes] = set()
        self._are_all_known = True
        self.any_stored = False
        """Were messages stored, perhaps such as nobody has a verdict for?"""

    def note(self, entry: Entry, reader: MessageReader, *, are_consumers: bool) -> None:
        """An entry with messages was applied. Without consumers it is not decoded for their sake."""
        self.any_stored = True
        stored = reader.entry_of(entry.first_seq) if are_consumers else None
        if stored is not None and len(self._subjects) < SUBJECTS_MAX:
            self._subjects.update(stored.parts[::3])
        else:
            self._are_all_known = False

    def take(self) -> set[bytes] | None:
        """The turn has come. None: they may be any."""
        found = self._subjects if self._subjects and self._are_all_known else None
        self._subjects, self._are_all_known, self.any_stored = set(), True, False
        return found
