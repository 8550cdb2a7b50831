"""Which consumers have something to do: those that a stored message is for and that wait for one, and those whose time has come.

A stream may have ten thousand consumers of which few are concerned by a message: none of the others is looked at (RP-3).
Consumers with the same filters stand together; the filters are found by the subject, and of each set of filters only
the consumers that wait are known.
"""

from __future__ import annotations

from collections.abc import Iterable

from supercluster.broker.jetstream.deadlines import Deadlines
from supercluster.broker.protocol.sublist import Sublist

Filters = tuple[str, ...]


class ReadyConsumers:
    """The consumers of one stream, by name."""

    def __init__(self) -> None:
        self._filters: dict[str, Filters] = {}
        self._by_filters: dict[Filters, set[str]] = {}
        self._waiting: dict[Filters, dict[str, None]] = {}
        self._subjects: Sublist[Filters] = Sublist()
        self._deadlines = Deadlines()

    def put(self, name: str, filters: Filters) -> None:
        """A consumer is there, or has other filters; none: all subjects."""
        filters = filters or (">",)
        if self._filters.get(name) == filters:
            return
        self.drop(name)
        self._filters[name] = filters
        names = self._by_filters.setdefault(filters, set())
        if not names:
            for item in filters:
                self._subjects.insert(item.encode(), b"", filters)
        names.add(name)

    def drop(self, name: str) -> None:
        """A consumer is gone."""
        self._deadlines.set(name, None)
        filters = self._filters.pop(name, None)
        if filters is None:
            return
        self._waiting.get(filters, {}).pop(name, None)
        names = self._by_filters[filters]
        names.discard(name)
        if not names:
            del self._by_filters[filters]
            self._waiting.pop(filters, None)
            for item in filters:
                self._subjects.remove(item.encode(), b"", filters)

    def note(self, name: str, *, waits: bool, deadline_ns: int | None) -> None:
        """Would the consumer hand out a message that is stored now, and when has it something to do otherwise?"""
        self._deadlines.set(name, deadline_ns)
        filters = self._filters[name]
        if waits:
            self._waiting.setdefault(filters, {})[name] = None
        else:
            self._waiting.get(filters, {}).pop(name, None)

    def all_waiting(self) -> list[str]:
        """Everybody who waits for messages."""
        return [name for names in self._waiting.values() for name in names]

    def waiting_for(self, subjects: Iterable[bytes]) -> dict[str, None]:
        """Who waits for messages of these subjects."""
        found: dict[str, None] = {}
        for subject in subjects:
            for filters in self._subjects.match(subject).plain:
                found.update(self._waiting.get(filters, {}))
        return found

    def due(self, now_ns: int) -> list[str]:
        """Whose time has come; they have none until it is noted anew."""
        return self._deadlines.due(now_ns)

    def next_ns(self) -> int | None:
        """When the next one's time comes."""
        return self._deadlines.next_ms()
