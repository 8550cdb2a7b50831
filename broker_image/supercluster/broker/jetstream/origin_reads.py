"""An origin's leader: gives other streams' leaders the messages that they ask for, now or when there are some.

Nothing here is replicated. Who asked and gets no answer asks again, the leader that there is then; what it has taken is in
its own log. An ask that finds nothing waits, and is answered at the latest after a while, so that the asker knows that the
origin is there.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.filters import compile_filters
from supercluster.broker.jetstream.lookup import seq_at
from supercluster.broker.jetstream.message_source import MessageBatch
from supercluster.broker.jetstream.origin_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.source import StreamSource
from supercluster.broker.jetstream.stream import StreamState

# An answer's messages, and how many an ask looks at: some milliseconds of each.
ANSWER_BYTES = 1024 * 1024
ANSWER_MESSAGES = 4096
SCAN_MAX = 8192
# A waiting ask is answered after this, though there is nothing: the asker's sign of life.
HEARTBEAT_MS = 4000
# Asks that wait at one origin. Beyond, the newest is dropped, and asked again.
WAITING_MAX = 4096
# Bytes that are sent in one turn to all who ask.
TURN_BYTES = 8 * 1024 * 1024


class OriginReads:
    """See the module. `tell(node, told)` is False when the answer could not be sent."""

    def __init__(self, tell: Callable[[str, OriginTold], bool]) -> None:
        self._tell = tell
        self._fresh: dict[tuple[str, str, str], OriginAsk] = {}
        """Asks that were not looked at, by who asked and for what."""
        self._waiting: dict[tuple[str, str, str], tuple[OriginAsk, int]] = {}
        """Those that found nothing, with their next sequence, and the time of their heartbeat."""
        self._heartbeats: dict[tuple[str, str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._fresh or self._waiting)

    def clear(self) -> None:
        """This replica does not lead any more: they ask the next leader."""
        self._fresh.clear()
        self._waiting.clear()
        self._heartbeats.clear()

    def asked(self, node: str, ask: OriginAsk, now_ms: int) -> None:
        """A newer ask takes the place of an older one."""
        key = (node, ask.target, ask.key)
        self._waiting.pop(key, None)
        if key in self._heartbeats or len(self._heartbeats) < WAITING_MAX:
            self._fresh[key] = ask
            self._heartbeats[key] = now_ms + HEARTBEAT_MS

    def serve(self, state: StreamState, source: StreamSource, now_ms: int, *, grown: bool) -> bool:
        """Answer what can be answered. True: there is more for the next turn."""
        if grown and self._waiting:
            for key, (ask, _) in self._waiting.items():
                self._fresh.setdefault(key, ask)
            self._waiting.clear()
        size = 0
        while self._fresh and size < TURN_BYTES:
            key = next(iter(self._fresh))
            size += self._serve_one(key, self._fresh.pop(key), state, source)
        for key, (ask, next_seq) in list(self._waiting.items()):
            if now_ms >= self._heartbeats[key]:
                self._answer(key, OriginTold(ask.target, ask.key, ask.number, next_seq - 1, state.last_seq))
        return bool(self._fresh)

    def deadline_ms(self) -> int | None:
        """When the next heartbeat is due."""
        return min((self._heartbeats[key] for key in self._waiting), default=None)

    def _serve_one(
        self, key: tuple[str, str, str], ask: OriginAsk, state: StreamState, source: StreamSource
    ) -> int:
        """Bytes that were sent; 0: it waits."""
        if state.config.retention != "limits":
            why = f"origin {state.config.name} has retention {state.config.retention}"
            self._answer(key, OriginTold(ask.target, ask.key, ask.number, 0, state.last_seq, refusal=why))
            return 0
        from_seq = ask.from_seq or _start(ask, state)
        batch, up_to = _read(source, ask.filters, from_seq)
        if not batch.seqs and up_to < from_seq and ask.from_seq:
            self._waiting[key] = (ask, from_seq)
            return 0
        parts = [
            part
            for triple in zip(batch.subjects, batch.headers, batch.payloads, strict=True)
            for part in triple
        ]
        self._answer(
            key,
            OriginTold(
                ask.target, ask.key, ask.number, up_to, state.last_seq, batch.seqs, batch.times, parts
            ),
        )
        return sum(map(len, parts))

    def _answer(self, key: tuple[str, str, str], told: OriginTold) -> None:
        """What is not sent is asked for again."""
        self._waiting.pop(key, None)
        self._heartbeats.pop(key, None)
        self._tell(key[0], told)


def _start(ask: OriginAsk, state: StreamState) -> int:
    """Where a stream begins that has taken nothing of this origin."""
    if ask.start_seq:
        return max(ask.start_seq, state.first_seq)
    if ask.start_time_ns:
        return seq_at(state, ask.start_time_ns)
    return state.first_seq


def _read(source: StreamSource, filters: tuple[str, ...], from_seq: int) -> tuple[MessageBatch, int]:
    """The next messages that are meant, and up to where that is all; that may be `from_seq - 1`."""
    wanted = compile_filters(filters)
    if wanted is None:
        batch = source.read(from_seq, ANSWER_MESSAGES, ANSWER_BYTES)
        return batch, _end(source, from_seq, batch)
    seq, looked_at, size, known = from_seq, 0, 0, dict[bytes, bool]()
    seqs: list[int] = []
    times: list[int] = []
    subjects: list[bytes] = []
    headers: list[bytes] = []
    payloads: list[bytes | memoryview] = []
    kept = MessageBatch(seqs, subjects, headers, payloads, times)
    while seq <= source.last_seq and looked_at < SCAN_MAX and size < ANSWER_BYTES:
        found = source.next_matching(filters, seq)
        if found is None:
            return kept, source.last_seq
        seq = max(seq, found)
        batch = source.read(seq, min(ANSWER_MESSAGES, SCAN_MAX - looked_at), ANSWER_BYTES - size)
        for at, subject in enumerate(batch.subjects):
            fits = known.get(subject)
            if fits is None:
                fits = known[subject] = wanted(subject)
            if fits:
                seqs.append(batch.seqs[at])
                subjects.append(subject)
                headers.append(batch.headers[at])
                payloads.append(batch.payloads[at])
                times.append(batch.times[at])
                size += len(subject) + len(batch.headers[at]) + len(batch.payloads[at])
        looked_at += len(batch)
        seq = _end(source, seq, batch) + 1
    return kept, seq - 1


def _end(source: StreamSource, from_seq: int, batch: MessageBatch) -> int:
    """Up to where an unfiltered read has seen everything: behind the last message there is none in force, or others come."""
    if not batch.seqs:
        return max(source.last_seq, from_seq - 1)
    return batch.seqs[-1]
