"""A stream's consumers by their filters: those that a subject concerns are found without visiting the others
(RP-3).

Consumers with the same filters form one group, and the groups are found by the subject.
"""

from __future__ import annotations

from collections.abc import Iterable

from supercluster.broker.protocol.sublist import Sublist

Filters = tuple[str, ...]


class FilterIndex:
    """The consumers of one stream, by name."""

    def __init__(self) -> None:
        self._filters: dict[str, Filters] = {}
        self._names: dict[Filters, dict[str, None]] = {}
        self._subjects: Sublist[Filters] = Sublist()

    def put(self, name: str, filters: Filters) -> None:
        """A consumer is there, or has other filters; none: all subjects."""
        filters = filters or (">",)
        if self._filters.get(name) == filters:
            return
        self.drop(name)
        self._filters[name] = filters
        names = self._names.setdefault(filters, {})
        if not names:
            for item in filters:
                self._subjects.insert(item.encode(), b"", filters)
        names[name] = None

    def drop(self, name: str) -> None:
        """A consumer is gone."""
        filters = self._filters.pop(name, None)
        if filters is None:
            return
        names = self._names[filters]
        del names[name]
        if not names:
            del self._names[filters]
            for item in filters:
                self._subjects.remove(item.encode(), b"", filters)

    def filters_of(self, name: str) -> Filters | None:
        """What a consumer filters by; None when it is not there."""
        return self._filters.get(name)

    def filters_for(self, subject: bytes) -> Iterable[Filters]:
        """The filters that match a subject, some of them more than once."""
        return self._subjects.match(subject).plain

    def names(self, filters: Filters) -> dict[str, None]:
        """Who has just these filters."""
        return self._names[filters]
