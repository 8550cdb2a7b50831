"""The consumers of one stream on every replica; removals of messages are applied to a consumer when it is
accessed.

A removal concerns few consumers, so it is recorded once. An accessed consumer is first brought to the state
that it would have if every removal had been applied at once: no removed message is pending, and at the end of
every entry no consumer is before the stream's first sequence. Both rules only ever raise positions, so
applying them late gives the same state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream.state.consumer import ConsumerState

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

# All consumers are brought up to date when as many removals are noted as there are consumers, and no fewer than this: that
# costs each removal a look at one consumer.
_NOTED_MIN = 1024
# Consumers, and what one of them waits for, in one part of a snapshot: some milliseconds' work.
PART_CONSUMERS = 48
PART_ROWS = 4096


class ConsumerStates(dict[str, ConsumerState]):
    """By name. `in`, `len` and iteration over names are those of a dict; whoever takes a state out gets it up to date."""

    def __init__(self) -> None:
        super().__init__()
        self._gone: list[int] = []
        """Removed from within the stream, since all were up to date."""
        self._gone_at: dict[int, int] = {}
        """Where in that list a sequence is."""
        self._begins_at = 0
        """Where the stream began at the end of the last entry."""
        self._seen: dict[str, tuple[int, int]] = {}
        """By name, how much of both a consumer has been told."""
        self._views: list[ConsumersView] = []

    # ---- what the stream says -------------------------------------------------------------------------------------

    def removed(self, seq: int, *, is_first: bool) -> None:
        """The stream removed one message. Its first ones are told by where it begins."""
        if is_first or not self:
            return
        self._gone_at[seq] = len(self._gone)
        self._gone.append(seq)
        if len(self._gone) > max(_NOTED_MIN, len(self)):
            self._all()
            self._gone.clear()
            self._gone_at.clear()
            self._seen = {name: (0, seen[1]) for name, seen in self._seen.items()}

    def begins_at(self, first_seq: int) -> None:
        """An entry is over, and the stream begins here since."""
        self._begins_at = first_seq

    # ---- what others ask ------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> ConsumerState:
        state = super().__getitem__(name)
        seen = self._seen[name]
        now = (len(self._gone), self._begins_at)
        if seen != now:
            self._note(name)
            self._seen[name] = now
            if seen[1] != now[1]:
                keep_up(state, self._begins_at)
            if state.pending:
                state.drop_gone(self._gone_of(state, seen[0]))
        return state

    def _gone_of(self, state: ConsumerState, seen: int) -> list[int]:
        """What is pending there and was removed since: by whichever is less to look through."""
        pending, gone_at = state.pending, self._gone_at
        if len(pending) < len(self._gone) - seen:
            return [seq for seq in pending if gone_at.get(seq, -1) >= seen]
        return [seq for seq in self._gone[seen:] if seq in pending]

    def to_change(self, name: str) -> ConsumerState | None:
        """For whoever changes it, which views have to hear of before."""
        self._note(name)
        found: ConsumerState | None = self.get(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        return self[name]

    def values(self) -> dict_values[str, ConsumerState]:
        self._all()
        return super().values()

    def items(self) -> dict_items[str, ConsumerState]:
        self._all()
        return super().items()

    def _all(self) -> None:
        for name in self:
            self[name]

    def as_it_is(self, name: str) -> ConsumerState | None:
        """Without bringing it up to date: to ask about a message that the stream has."""
        return super().get(name)

    def __setitem__(self, name: str, state: ConsumerState) -> None:
        self._note(name)
        super().__setitem__(name, state)
        self._seen[name] = (len(self._gone), self._begins_at)

    def __delitem__(self, name: str) -> None:
        self._note(name)
        super().__delitem__(name)
        del self._seen[name]

    def pop(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        state = self[name]
        del self[name]
        return state

    def clear(self) -> None:
        for name in self:
            self._note(name)
        super().clear()
        self._seen.clear()

    # ---- views ----------------------------------------------------------------------------------------------------

    def view(self) -> ConsumersView:
        """All consumers as they are now, until the view is closed."""
        self._all()
        view = ConsumersView(self)
        self._views.append(view)
        return view

    def _note(self, name: str) -> None:
        """This one is about to change."""
        for view in self._views:
            view.note(name)

    def leave(self, view: ConsumersView) -> None:
        """Nobody reads the view any more."""
        if view in self._views:
            self._views.remove(view)


class ConsumersView:
    """See `ConsumerStates.view`."""

    def __init__(self, states: ConsumerStates) -> None:
        self._states = states
        self.names = sorted(states)
        self._left = set(self.names)
        """Those that are not noted."""
        self._before: dict[str, ConsumerState] = {}

    def note(self, name: str) -> None:
        """This one is about to change."""
        if name in self._left:
            self._left.remove(name)
            state = self._states.as_it_is(name)
            assert state is not None
            self._before[name] = state.copy()

    def __getitem__(self, name: str) -> ConsumerState:
        state = self._before.get(name) or self._states.as_it_is(name)
        assert state is not None
        return state

    def parts(self) -> Iterator[list[bytes]]:
        """Snapshots of consumers, for `take_consumer`: several of each part, and of a consumer that waits for much several parts
        behind each other."""
        part: list[bytes] = []
        rows = 0
        for name in self.names:
            at = 0
            while at == 0 or at < self[name].rows:
                taken = min(self[name].rows - at, PART_ROWS)
                if part and (rows + taken > PART_ROWS or len(part) >= PART_CONSUMERS):
                    yield part
                    part, rows = [], 0
                part.append(self[name].snapshot(at, at + PART_ROWS))
                rows += taken
                at += PART_ROWS
        if part:
            yield part

    def close(self) -> None:
        """The states need not note changes any more."""
        self._states.leave(self)


def take_consumer(states: ConsumerStates, found: ConsumerState) -> None:
    """Put a consumer as one part of a view has it: the first of its parts, or what goes on with it."""
    before = states.get(found.name)
    if before is None:
        states[found.name] = found
    else:
        before.go_on_with(found)


def keep_up(state: ConsumerState, first_seq: int) -> None:
    """The consumer neither stands nor waits for anything before `first_seq`."""
    before = first_seq - 1
    if (
        state.delivered_sseq < before
        or state.ack_floor_sseq < before
        or next(iter(state.pending), first_seq) < first_seq
    ):
        state.drop_below(first_seq)
