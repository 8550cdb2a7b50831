"""An origin's leader delivers messages to the leaders of streams that source from it, now or when there are
some.

A leader without an answer asks again, at whichever broker leads then; its own log records the messages that
it has taken. Only an origin with interest or work-queue retention records its readers
(`state/source_readers.py`). A request that finds no message waits, and is answered after a bounded time at
the latest, so that the reader knows that the origin is alive.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.encoding.codec import text
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.links.source_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.publish.proposal import Done
from supercluster.broker.jetstream.state.lookup import seq_at
from supercluster.broker.jetstream.state.message_source import MessageBatch
from supercluster.broker.jetstream.state.source_readers import (
    OriginReader,
    encode_reader,
    reader_name,
    stream_and_key,
)
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.jetstream.subjects.filters import compile_filters

# An answer's messages, and how many an ask looks at: some milliseconds of each.
ANSWER_BYTES = 1024 * 1024
ANSWER_MESSAGES = 4096
SCAN_MAX = 8192
# A waiting ask is answered after this, though there is nothing: the asker's sign of life.
HEARTBEAT_MS = 4000
# Asks that wait at one origin. Beyond, the newest is dropped, and asked again.
WAITING_MAX = 4096
# How often it is looked whether those who take from here still do.
READERS_CHECK_MS = 5000
# Bytes that are sent in one turn to all who ask.
TURN_BYTES = 8 * 1024 * 1024


class OriginReads:
    """See the module. `tell(node, told)` is False when the answer could not be sent; `command` appends a section and says
    when it is applied; `is_taken_by(stream, key)` is what the map says of another stream."""

    def __init__(
        self,
        tell: Callable[[str, OriginTold], bool],
        command: Callable[[int, list[bytes | memoryview], Done], None],
        is_taken_by: Callable[[str, str], bool],
    ) -> None:
        self._tell = tell
        self._command = command
        self._is_taken_by = is_taken_by
        self._noting: set[str] = set()
        """Readers that are in the log and not applied."""
        self._check_ms = 0
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
        self._noting.clear()

    def asked(self, node: str, ask: OriginAsk, now_ms: int) -> None:
        """A newer ask takes the place of an older one."""
        key = (node, ask.target, ask.key)
        self._waiting.pop(key, None)
        if key in self._heartbeats or len(self._heartbeats) < WAITING_MAX:
            self._fresh[key] = ask
            self._heartbeats[key] = now_ms + HEARTBEAT_MS

    def serve(self, state: StreamState, source: StreamReader, now_ms: int, *, grown: bool) -> bool:
        """Answer what can be answered. True: there is more for the next turn."""
        if grown and self._waiting:
            for key, (ask, _) in self._waiting.items():
                self._fresh.setdefault(key, ask)
            self._waiting.clear()
        self._look_for_ended(state, now_ms)
        size, later = 0, dict[tuple[str, str, str], OriginAsk]()
        while self._fresh and size < TURN_BYTES:
            key = next(iter(self._fresh))
            ask = self._fresh.pop(key)
            if state.config.retention != "limits" and not self._note_reader(key, ask, state):
                later[key] = ask
                continue
            size += self._serve_one(key, ask, state, source)
        has_more = bool(self._fresh)
        self._fresh |= {key: ask for key, ask in later.items() if key in self._heartbeats}
        for key, (ask, next_seq) in list(self._waiting.items()):
            if now_ms >= self._heartbeats[key]:
                self._answer(key, OriginTold(ask.target, ask.key, ask.number, next_seq - 1, state.last_seq))
        return has_more

    def deadline_ms(self, state: StreamState) -> int | None:
        """When the next heartbeat is due, or a look at who takes from here."""
        found = [self._heartbeats[key] for key in self._waiting]
        if state.readers:
            found.append(self._check_ms)
        return min(found, default=None)

    def _note_reader(self, key: tuple[str, str, str], ask: OriginAsk, state: StreamState) -> bool:
        """Where only what is wanted stays: is it in force that this reader wants what comes, and has what it took?"""
        name = reader_name(ask.stream, ask.key)
        known = state.readers.get(name)
        if known is not None and known.filters == ask.filters and known.up_to >= ask.taken:
            return True
        if known is None and state.config.retention == "workqueue":
            found = OriginReader(ask.filters, 0)
            rivals = [
                f"consumer {c.name}"
                for c in state.consumers.values()
                if found.overlaps(c.config.filter_subjects)
            ]
            rivals += [
                f"stream {stream_and_key(other)[0]}"
                for other, reader in state.readers.items()
                if reader.overlaps(ask.filters)
            ]
            if rivals:
                why = f"{rivals[0]} takes the same messages of work queue {state.config.name}"
                self._answer(key, OriginTold(ask.target, ask.key, ask.number, 0, state.last_seq, refusal=why))
                return False
        if name not in self._noting:
            self._noting.add(name)
            up_to = max(ask.taken, known.up_to if known is not None else 0)
            body = encode_reader(name, OriginReader(ask.filters, up_to))
            self._command(Section.ORIGIN_READER, [body], lambda result: self._noting.discard(name))
        # A reader that is known is served meanwhile: what it takes in addition is noted with its next ask.
        return known is not None and known.filters == ask.filters

    def _look_for_ended(self, state: StreamState, now_ms: int) -> None:
        """Readers whose stream is gone, or takes from here no more, hold nothing back."""
        if now_ms < self._check_ms:
            return
        self._check_ms = now_ms + READERS_CHECK_MS
        for name in state.readers:
            if name not in self._noting and not self._is_taken_by(*stream_and_key(name)):
                self._noting.add(name)

                def ended(result: int | None, name: str = name) -> None:
                    self._noting.discard(name)

                self._command(Section.ORIGIN_READER_END, [text(name)], ended)

    def _serve_one(
        self, key: tuple[str, str, str], ask: OriginAsk, state: StreamState, source: StreamReader
    ) -> int:
        """Bytes that were sent; 0: it waits."""
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


def _read(source: StreamReader, filters: tuple[str, ...], from_seq: int) -> tuple[MessageBatch, int]:
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


def _end(source: StreamReader, from_seq: int, batch: MessageBatch) -> int:
    """Up to where an unfiltered read has seen everything: behind the last message there is none in force, or others come."""
    if not batch.seqs:
        return max(source.last_seq, from_seq - 1)
    return batch.seqs[-1]
