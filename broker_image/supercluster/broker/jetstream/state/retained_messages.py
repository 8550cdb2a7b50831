"""Retention of a stream's messages for their readers: its consumers, and streams that source from it.

Under interest retention a message stays while a reader still needs it, under work-queue retention until it
was acknowledged once. Every removal is reported to the consumers, and to the leader's volatile side. All but
that last is part of the replicated state (SF-13).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Protocol

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_states import ConsumerStates, keep_up
from supercluster.broker.jetstream.state.interest_retention import InterestRetention
from supercluster.broker.jetstream.state.log_reader import Message
from supercluster.broker.jetstream.state.messages import LOOKED_AT_PER_REMOVED, StoredMessages
from supercluster.broker.jetstream.state.source_readers import OriginReader, OriginReaders
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.ports import StreamLog


class Removed(Protocol):
    """Hears that one message was removed, the stream's first or another."""

    def __call__(self, seq: int, subject: bytes, *, is_first: bool) -> None: ...


class RetainedMessages(StoredMessages):
    """The messages of one stream, and who is to have them."""

    def __init__(self, config: StreamConfig, log: StreamLog) -> None:
        super().__init__(config, log)
        self.readers = OriginReaders()
        """Other streams that take messages from this one, which keeps only what is wanted."""
        self.consumers = ConsumerStates()
        self._wanted_by: InterestRetention | None = None
        """Under interest retention, from when it is first asked."""
        self.on_removed: Removed | None = None
        """For the leader's volatile side."""

    def _put_consumer(self, request: dict[str, Any], time_ns: int) -> None:
        config = ConsumerConfig.from_json(request["config"])
        name = str(request["name"])
        present = self.consumers.to_change(name)
        if present is not None:
            present.update_config(config)
            if self._wanted_by is not None:
                self._wanted_by.put(name)
            return
        if request.get("update"):
            return  # It went before the change of it was applied.
        self._add_consumer(
            ConsumerState(
                name=name,
                config=config,
                created_ns=time_ns,
                start_seq=int(request["start_seq"]),
                stream_last_seq=self.last_seq,
                last_seqs=tuple(request.get("last_seqs") or ()),
            )
        )

    def _add_consumer(self, state: ConsumerState) -> None:
        self.consumers[state.name] = state
        keep_up(state, self.first_seq)
        if self._wanted_by is not None:
            self._wanted_by.put(state.name)

    def _delete_consumer(self, name: str) -> Generator[int, None, bool]:
        gone = self.consumers.pop(name, None)
        if gone is not None and self._wanted_by is not None:
            self._wanted_by.drop(name)
        if gone is not None and self.config.retention == "interest":
            yield from self._removing_unwanted()
        return gone is not None

    def _apply_consumer_ops(self, name: str, ops: bytes) -> Job:
        consumer = self.consumers.to_change(name)
        if consumer is None:
            return  # It was deleted by an earlier section; what its leader still had to say is void.
        start_seq = consumer.start_seq
        acknowledged = consumer.apply(ops, last_seq=self.last_seq)
        keep_up(consumer, self.first_seq)
        if consumer.start_seq != start_seq and self.config.retention == "interest":
            yield from self._removing_unwanted()  # A reset may have left messages to nobody.
        if self.config.retention != "limits":
            yield from self._removing_taken(acknowledged)

    def _removing_taken(self, seqs: Iterable[int]) -> Job:
        """A reader needs these no more: they go, unless another one needs them."""
        for at, seq in enumerate(seqs, 1):
            if self.config.retention == "workqueue" or not self._wanted(seq):
                self.remove(seq)
            if at % self.slice_messages == 0:
                yield self.slice_messages

    def _wanted(self, seq: int) -> bool:
        """Under interest retention: does any consumer still have to acknowledge `seq`?"""
        message = self.message(seq)
        if message is None:
            return False
        if self._wanted_by is None:
            self._wanted_by = InterestRetention(self.consumers)
        return self._wanted_by.wants(seq, message.subject) or self.readers.wants(seq, message.subject)

    def _reader_took(self, name: str, reader: OriginReader) -> Job:
        before = self.readers.get(name)
        self.readers[name] = reader
        if before is None or self.config.retention == "limits":
            return
        taken = range(max(before.up_to + 1, self.first_seq), min(reader.up_to, self.last_seq) + 1)
        for at in range(0, len(taken), self.slice_messages):
            some = taken[at : at + self.slice_messages]
            yield from self._removing_taken(seq for seq in some if self._is_about(reader, seq))
            yield len(some)

    def _is_about(self, reader: OriginReader, seq: int) -> bool:
        message = self.message(seq)
        return message is not None and reader.is_about(message.subject)

    def _drop_reader(self, name: str) -> Job:
        gone = self.readers.pop(name, None)
        if gone is not None and self.config.retention == "interest":
            yield from self._removing_unwanted()

    def _remove_unwanted(self, first: int, last: int) -> None:
        """Interest retention: what no consumer waits for does not stay."""
        for seq in range(max(first, self.first_seq), last + 1):
            if self.has(seq) and not self._wanted(seq):
                self.remove(seq)

    def _removing_unwanted(self) -> Job:
        """The same of the whole stream, looking only at messages that some wait for and others do not: what is before any
        position goes, and what is behind one without filters stays."""
        wanted_from = decided_from = self.last_seq + 1
        for state in self.consumers.values():
            wanted_from = min(wanted_from, state.next_sseq, next(iter(state.pending), wanted_from))
            if not state.config.filter_subjects:
                decided_from = min(decided_from, state.next_sseq)
        for reader in self.readers.values():
            wanted_from = min(wanted_from, reader.up_to + 1)
            if not reader.filters:
                decided_from = min(decided_from, reader.up_to + 1)
        if wanted_from > self.first_seq:
            yield from self._removing_up_to(wanted_from - 1)
        yield from self._removing_undecided(decided_from - 1)

    def _removing_undecided(self, last: int) -> Job:
        """Up to there, what nobody waits for: entry by entry, and a subject is asked about once."""
        if self._wanted_by is None:
            self._wanted_by = InterestRetention(self.consumers)
        wanted_from = self._wanted_by.positions()
        pending: set[int] = set().union(*(state.pending for state in self.consumers.values()))
        seq = self.first_seq
        while (seq := self.past(seq)) <= last:
            decoded = self.reader.entry_of(seq)
            if decoded is None:
                seq += 1
                continue
            end = min(decoded.first_seq + decoded.count, last + 1, seq + self.slice_messages)
            removed = 0
            subjects = decoded.subjects[seq - decoded.first_seq : end - decoded.first_seq]
            for place, subject in zip(range(seq, end), subjects, strict=True):
                is_wanted = place >= wanted_from(subject) or place in pending or not self.has(place)
                if not is_wanted and not (self.readers and self.readers.wants(place, subject)):
                    self._remove(decoded.message(place))
                    removed += 1
            yield removed + (end - seq) // LOOKED_AT_PER_REMOVED
            seq = end

    def _removed(self, message: Message) -> None:
        is_first = message.seq == self.first_seq
        self.consumers.removed(message.seq, is_first=is_first)
        if self._wanted_by is not None:
            self._wanted_by.removed(message.seq)
        if self.on_removed is not None:
            self.on_removed(message.seq, message.subject, is_first=is_first)

    def _remove_all(self) -> None:
        super()._remove_all()
        if self._wanted_by is not None:
            self._wanted_by.all_removed()

    def empty(self) -> Job:
        """Take out every message without touching what else the state knows (`Replica.emptied_state`)."""
        self._remove_all()
        for name in self.consumers:
            consumer = self.consumers.to_change(name)
            assert consumer is not None
            units = 1 + len(consumer.pending) // 2
            consumer.drop_below(self.first_seq)
            yield units
