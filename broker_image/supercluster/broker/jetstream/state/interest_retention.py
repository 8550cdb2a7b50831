"""Interest in each message of a stream with interest retention, derived from the consumers alone.

A message is looked up among the consumers whose filters match its subject. If these are many, one that wants
the message is remembered as its witness and checked first, so the others acknowledge it without a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_states import ConsumerStates
from supercluster.broker.jetstream.subjects.filter_index import FilterIndex, Filters

# Behind every sequence.
NEVER_SEQ = 1 << 64
# Subjects that are remembered while many messages are asked about.
_SUBJECTS_MAX = 65_536
# As many are simply asked one after the other.
_FEW = 8
# Spreads sequences over those to choose a witness from.
_SPREAD = 0x9E3779B1


class InterestRetention:
    """For one stream's consumers."""

    def __init__(self, states: ConsumerStates) -> None:
        self._states = states
        self._by_filters = FilterIndex()
        self._witnesses: dict[int, ConsumerState] = {}
        self._given: dict[int, dict[str, None]] = {}
        """Who was given a message under filters that may have been others."""
        for name in states:
            self.put(name)

    def put(self, name: str) -> None:
        """A consumer came or was changed."""
        state = self._states[name]
        filters = state.config.filter_subjects
        if self._by_filters.filters_of(name) != (filters or (">",)):
            self._by_filters.put(name, filters)
            for seq in state.pending:
                self._given.setdefault(seq, {})[name] = None

    def drop(self, name: str) -> None:
        """A consumer went."""
        self._by_filters.drop(name)

    def removed(self, seq: int) -> None:
        """The message is gone."""
        self._witnesses.pop(seq, None)
        self._given.pop(seq, None)

    def all_removed(self) -> None:
        """All messages are gone."""
        self._witnesses.clear()
        self._given.clear()

    def wants(self, seq: int, subject: bytes) -> bool:
        """Will any consumer be given the message that is there at `seq`, or wait for its acknowledgement?"""
        witness = self._witnesses.get(seq)
        if (
            witness is not None
            and self._states.as_it_is(witness.name) is witness
            and witness.wants(seq, subject)
        ):
            return True
        if seq in self._given and self._is_pending(seq):
            return True
        states = self._concerned(subject)
        if any(state.wants(seq, subject) for state in islice(states, _FEW)):
            return True
        found = [state for state in states if state.wants(seq, subject)]
        if not found:
            self._witnesses.pop(seq, None)
            return False
        # Any will do. Whichever order they acknowledge in, it is rarely the one that comes next.
        self._witnesses[seq] = found[(seq * _SPREAD >> 7) % len(found)]
        return True

    def positions(self) -> Callable[[bytes], int]:
        """For many messages at once, while no consumer changes: from which sequence on those of a subject are still to be
        delivered to somebody. What was delivered and waits for its acknowledgement is not asked about."""
        by_filters: dict[Filters, int] = {}
        by_subject: dict[bytes, int] = {}

        def first_of(filters: Filters) -> int:
            if filters not in by_filters:
                names = self._by_filters.names(filters)
                by_filters[filters] = min(self._states[name].next_sseq for name in names)
            return by_filters[filters]

        def first(subject: bytes) -> int:
            found = by_subject.get(subject)
            if found is None:
                if len(by_subject) >= _SUBJECTS_MAX:
                    by_subject.clear()
                matching = self._by_filters.filters_for(subject)
                found = by_subject[subject] = min(map(first_of, matching), default=NEVER_SEQ)
            return found

        return first

    def _is_pending(self, seq: int) -> bool:
        """With any of those that were given it? Who has it no more is not asked again."""
        given = self._given[seq]
        for name in list(given):
            state = self._states.as_it_is(name)
            if state is not None and seq in state.pending:
                return True
            del given[name]
        del self._given[seq]
        return False

    def _concerned(self, subject: bytes) -> Iterator[ConsumerState]:
        for filters in self._by_filters.filters_for(subject):
            for name in self._by_filters.names(filters):
                state = self._states.as_it_is(name)
                if state is not None:
                    yield state
