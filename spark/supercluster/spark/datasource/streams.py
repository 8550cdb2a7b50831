"""The brokers' information on the streams of a read: their names, and its start and end in each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from supercluster.spark.client import Named, Servers
from supercluster.spark.datasource.options import ReadOptions
from supercluster.spark.datasource.plan import Offsets, OtherCheckpointError
from supercluster.spark.datasource.selection import EARLIEST, LATEST, Position
from supercluster.spark.jetstream import (
    DataRemovedError,
    JetStreamSession,
    StartBeyondEndError,
    StreamMissingError,
    StreamState,
)

STREAMS_MAX = 1_000
"""Each of them is asked before each micro-batch."""


class NothingMatchesError(Exception):
    """No stream has such a name."""

    def __init__(self, pattern: str, names: int) -> None:
        super().__init__(
            f"none of the {names} streams on these brokers matches subscribePattern {pattern!r}, which has to match the whole"
            " name; check the pattern and the user's account"
        )


class TooManyStreamsError(Exception):
    """A pattern matches more than a query can ask about."""

    def __init__(self, pattern: str, names: int) -> None:
        super().__init__(
            f"{names} streams match subscribePattern {pattern!r}, and a query reads at most {STREAMS_MAX}; narrow the pattern, and"
            " read the others in a second query"
        )


@dataclass(frozen=True, slots=True)
class Streams:
    """Of one read, over one session."""

    options: ReadOptions
    session: JetStreamSession

    def states(self, before: Offsets | None = None, *, was_read: bool = False) -> dict[str, StreamState]:
        """Those that are there now.

        Args:
            before: where a query is.
            was_read: the query has read all that are named.

        Raises:
            OtherCheckpointError: the query has read another stream.
            StreamMissingError: a stream that is named, or was read, is not there.
            TooManyStreamsError: the pattern matches more than STREAMS_MAX.
        """
        before, selection = before or {}, self.options.selection
        self.check_own(before)
        if not selection.pattern:
            read = selection.streams if was_read else before
            return self.states_of(selection.streams, is_required=True, read=read)
        found = self.states_of(before, is_required=not self.options.forgets_streams)
        matching = selection.matching(self.session.stream_names())
        if len(matching) > STREAMS_MAX:
            raise TooManyStreamsError(selection.pattern, len(matching))
        joining = [name for name in matching if name not in before]
        # One that goes between the two questions was never read.
        return found | self.states_of(joining, is_required=False)

    def states_of(
        self, names: Iterable[str], *, is_required: bool, read: Iterable[str] | None = None
    ) -> dict[str, StreamState]:
        """Of the streams `names`, all of which were read unless `read` says which."""
        were_read = None if read is None else set(read)
        found = {}
        for name in names:
            try:
                found[name] = self.session.stream_state(name, was_read=were_read is None or name in were_read)
            except StreamMissingError:
                if is_required:
                    raise
        return found

    def check_own(self, names: Iterable[str]) -> None:
        for name in names:
            if not self.options.selection.has(name):
                raise OtherCheckpointError(name, str(self.options.selection))

    def check_any(self, states: Mapping[str, StreamState]) -> None:
        """
        Raises:
            NothingMatchesError: there is nothing to read.
        """
        if not states:
            raise NothingMatchesError(self.options.selection.pattern, len(self.session.stream_names()))

    def first_of(self, state: StreamState) -> int:
        """Where a query begins that has read nothing yet.

        Raises:
            DataRemovedError: a sequence was asked for, and the stream begins behind it.
            StartBeyondEndError: the stream has not come to the sequence, or the clock not to the time, that was asked for.
        """
        starting = self.options.starting
        position = starting.of(state.name)
        wanted = self._sequence_of(position, state)
        is_to_come = isinstance(position, dt.datetime) and position > dt.datetime.now(dt.UTC)
        if is_to_come or wanted > state.last_sequence + 1:
            raise StartBeyondEndError(state.name, position, state.last_sequence, starting.option)
        if wanted < state.first_sequence and self.options.fail_on_data_loss:
            raise DataRemovedError(state.name, wanted, state.first_sequence)
        return max(wanted, state.first_sequence)

    def last_of(self, state: StreamState) -> int:
        """The last sequence of a batch read."""
        return min(self._sequence_of(self.options.ending.of(state.name), state) - 1, state.last_sequence)

    def _sequence_of(self, position: Position, state: StreamState) -> int:
        if isinstance(position, int):
            bounds = {EARLIEST: state.first_sequence, LATEST: state.last_sequence + 1}
            return bounds.get(position, position)
        return self.session.first_since(state, position)


def open_session(options: ReadOptions, *, seed: int | None = None) -> JetStreamSession:
    """To the brokers that options name, or the mounted Secret now. Tasks with other seeds begin at other brokers."""

    def named() -> Named:
        return options.current_addresses(), options.current_credentials(), options.current_tls()

    addresses, credentials, tls = named()
    servers = Servers(addresses, credentials, tls=tls, seed=seed, renew=named)
    return JetStreamSession(servers, patience_seconds=options.patience_seconds)


@contextmanager
def looking_at(options: ReadOptions, *, seed: int | None = None) -> Iterator[Streams]:
    """The streams of a read, while the context lasts."""
    session = open_session(options, seed=seed)
    try:
        yield Streams(options, session)
    finally:
        session.drop()
