"""The publish numbers of each session that a stream has, and the verdict on each (SF-10, SF-11).

A broker numbers the publishes that it takes densely, in a session of its own per stream. The state here is
replicated: every replica knows the last number of every broker and, until the broker confirms them, the
verdicts. A number keeps its first verdict across changes of leader. State is dropped by confirmation or by a
newer session of the same broker. It is never dropped by time, nor because a broker is declared gone: it may
come back with messages whose verdicts it does not know. Its size is bounded by the brokers' windows; a broker
that is gone leaves its last number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile

from supercluster.broker.jetstream.encoding.codec import Reader, text, u32, u64
from supercluster.broker.jetstream.encoding.sections import (
    SessionKey,
    VerdictRun,
    decode_run,
    decode_session,
    encode_run,
    encode_session,
)
from supercluster.broker.migration.worlds import far_name, world_of

# Incarnations of one broker's volume that are remembered as gone. A frame of one older than that can't be alive.
RETIRED_MAX = 16


@dataclass(slots=True)
class SessionState:
    """The newest session of one broker."""

    key: SessionKey
    last_number: int = 0
    confirmed: int = 0
    runs: deque[VerdictRun] = field(default_factory=deque)
    retired: list[str] = field(default_factory=list)

    def record(self, run: VerdictRun, confirmed: int) -> None:
        """Take the verdicts on the next numbers, and drop those that the sender knows."""
        if run.first_number != self.last_number + 1:
            raise AssertionError(f"{self.key}: number {run.first_number} after {self.last_number}")
        last = self.runs[-1] if self.runs else None
        is_plain = last is not None and not last.exceptions and not run.exceptions
        if last is not None and is_plain and last.first_seq + last.count == run.first_seq:
            self.runs[-1] = VerdictRun(last.first_number, last.count + run.count, last.first_seq)
        else:
            self.runs.append(run)
        self.last_number = run.last_number
        self.confirm(confirmed)

    def confirm(self, confirmed: int) -> None:
        if confirmed <= self.confirmed:
            return
        self.confirmed = min(confirmed, self.last_number)
        runs = self.runs
        while runs and runs[0].last_number <= self.confirmed:
            runs.popleft()
        if runs and runs[0].first_number <= self.confirmed:
            runs[0] = runs[0].tail(self.confirmed + 1)

    def verdicts(self, number: int, count: int) -> list[VerdictRun]:
        """Verdicts on `count` numbers from `number` on, as far as they are known here; the last run may go beyond them."""
        first = bisect_left(self.runs, number, key=lambda run: run.last_number)
        later = islice(self.runs, first, None)
        return [run.tail(number) for run in takewhile(lambda run: run.first_number < number + count, later)]


class PublishSessions:
    """All sessions of a stream, by the broker's name."""

    def __init__(self) -> None:
        self._by_node: dict[str, SessionState] = {}

    def __len__(self) -> int:
        return len(self._by_node)

    def current(self, key: SessionKey) -> SessionState | None:
        """The state of that very session, None when another one (or none) of the broker is in force."""
        state = self._by_node.get(key.node)
        return state if state is not None and state.key == key else None

    def shut_out(self, key: SessionKey) -> bool:
        """Is that session older than one which was opened since?"""
        state = self._by_node.get(key.node)
        if state is None or state.key == key:
            return False
        if state.key.incarnation == key.incarnation:
            return key.counter < state.key.counter
        return key.incarnation in state.retired

    def open(self, key: SessionKey) -> bool:
        """Open a session; it shuts out older ones of that broker. False when it is shut out itself."""
        state = self._by_node.get(key.node)
        if state is not None and state.key == key:
            return True
        if self.shut_out(key):
            return False
        retired = list(state.retired) if state is not None else []
        if state is not None and state.key.incarnation != key.incarnation:
            retired = [*retired, state.key.incarnation][-RETIRED_MAX:]
        self._by_node[key.node] = SessionState(key, retired=retired)
        return True

    def from_world(self, world: str) -> None:
        """The sessions that are here are of that super-cluster's brokers, whose names another one's may have too."""
        found = {}
        for node, state in self._by_node.items():
            if not world_of(node):
                node = far_name(node, world)
                state.key = replace(state.key, node=node)
            found[node] = state
        self._by_node = found

    def states(self) -> list[SessionState]:
        return list(self._by_node.values())

    def encode(self) -> bytes:
        parts = [u32(len(self._by_node))]
        for node in sorted(self._by_node):
            state = self._by_node[node]
            parts += [encode_session(state.key), u64(state.last_number), u64(state.confirmed)]
            parts.append(u32(len(state.runs)))
            parts += [encode_run(run) for run in state.runs]
            parts.append(u32(len(state.retired)))
            parts += [text(item) for item in state.retired]
        return b"".join(parts)

    @classmethod
    def decode(cls, reader: Reader) -> PublishSessions:
        table = cls()
        for _ in range(reader.u32()):
            key = decode_session(reader)
            state = SessionState(key, reader.u64(), reader.u64())
            state.runs.extend(decode_run(reader) for _ in range(reader.u32()))
            state.retired = [reader.text() for _ in range(reader.u32())]
            table._by_node[key.node] = state
        return table
