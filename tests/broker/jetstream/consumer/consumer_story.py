"""A stream in a dictionary, a consumer on its leader, and the replicated state behind it, for stories and properties."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from typing import Any

from tests.broker.jetstream.publish.stream_story import result_of

from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.consumer.leader import ConsumerLeader
from supercluster.broker.jetstream.consumer.pull import Delivery
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_start import start_position
from supercluster.broker.jetstream.state.message_source import MessageBatch
from supercluster.broker.jetstream.state.subject_index import SubjectIndex
from supercluster.broker.jetstream.subjects.filters import compile_filters

SECOND = 1_000_000_000
MS = 1_000_000


class Source:
    """A stream's committed messages, in a dictionary."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[bytes, bytes, bytes, int]] = {}
        self.index = SubjectIndex()
        self.last_seq = 0
        self.reads = 0
        self.keeps_until_acknowledged = False

    @property
    def first_seq(self) -> int:
        return min(self.messages, default=self.last_seq + 1)

    def store(
        self, subject: str, payload: bytes = b"pppppppppp", header: bytes = b"", time_ns: int = 7
    ) -> int:
        self.last_seq += 1
        self.messages[self.last_seq] = (subject.encode(), header, payload, time_ns)
        self.index.add(subject.encode(), self.last_seq)
        return self.last_seq

    def remove(self, seq: int) -> bytes:
        subject = self.messages.pop(seq)[0]
        self.index.remove(subject, seq)
        return subject

    def read(self, from_seq: int, count_max: int, bytes_max: int) -> MessageBatch:
        self.reads += 1
        seqs: list[int] = []
        size = 0
        for seq in sorted(self.messages):
            if seq < from_seq:
                continue
            size += len(self.messages[seq][2])
            if seqs and (len(seqs) >= count_max or size > bytes_max):
                break
            seqs.append(seq)
        found = [self.messages[seq] for seq in seqs]
        return MessageBatch(
            seqs, [m[0] for m in found], [m[1] for m in found], [m[2] for m in found], [m[3] for m in found]
        )

    def skip(self, fits: Callable[[bytes], bool], from_seq: int, count_max: int) -> tuple[int, int]:
        skipped = 0
        for seq in sorted(seq for seq in self.messages if seq >= from_seq):
            if skipped == count_max or fits(self.messages[seq][0]):
                return seq, skipped
            skipped += 1
        return self.last_seq + 1, skipped

    def next_matching(self, filters: Sequence[str], from_seq: int) -> int | None:
        return self.index.next_matching(filters, from_seq)

    def count_at_once(self, filters: Sequence[str], after_seq: int) -> int | None:
        return self.pending_count(filters, after_seq)

    def gone_from(self, seq: int) -> Sequence[tuple[int, bytes]] | None:
        return None

    def counted(self, filters: Sequence[str], after_seq: int) -> Generator[int, None, int]:
        yield 1
        return self.pending_count(filters, after_seq)

    def pending_count(self, filters: Sequence[str], after_seq: int) -> int:
        wanted = compile_filters(filters)
        return sum(
            1 for seq, m in self.messages.items() if seq > after_seq and (wanted is None or wanted(m[0]))
        )


class Story:
    """A stream, a consumer on its leader, and the replicated state that follows it entry by entry."""

    def __init__(self, source: Source, **config: Any) -> None:
        self.source = source
        self.now_ns = 0
        self.gone: set[bytes] = set()
        parsed = read_consumer({"name": "c", "durable_name": "c", **config})
        behind = source.last_seq + 1
        start = result_of(
            start_position(
                parsed,
                first_seq=source.first_seq,
                last_seq=source.last_seq,
                subjects=source.index,
                seq_at_time=lambda t: next(
                    (s for s, m in sorted(source.messages.items()) if m[3] >= t), behind
                ),
            )
        )
        self.committed = ConsumerState(
            name="c",
            config=parsed,
            created_ns=1,
            start_seq=start.start_seq,
            last_seqs=start.last_seqs,
            stream_last_seq=source.last_seq,
        )
        self.leader = ConsumerLeader("S", self.committed, 0)

    def has_interest(self, inbox: bytes) -> bool:
        return inbox not in self.gone

    def at(self, now_ns: int) -> Story:
        self.now_ns = now_ns
        return self

    def ask(self, inbox: str = "in", **request: Any) -> list[str]:
        payload = json.dumps(request).encode() if request else b""
        said = self.leader.on_pull(payload, inbox.encode(), self.now_ns, self.has_interest)
        return shown(said) + self.pump()

    def pump(self) -> list[str]:
        return shown(self.leader.pump(self.source, self.now_ns, self.has_interest))

    def ack(self, seq: int, payload: bytes = b"", reply: str = "") -> list[str]:
        return shown(self.leader.on_ack(seq, payload, reply.encode(), self.now_ns, self.has_interest))

    def removed(self, seq: int) -> None:
        """The stream removes a message."""
        is_first = seq == self.source.first_seq
        subject = self.source.remove(seq)
        self.committed.drop_gone([seq] if seq in self.committed.pending else [])
        self.leader.on_removed(seq)
        if not is_first:
            self.leader.uncount(seq, subject)

    def commit(self) -> list[str]:
        """Commit what the leader proposes; returns the acknowledgement replies that are free to go now."""
        outbox = self.leader.take_ops()
        if outbox is None:
            return []
        self.committed.apply(outbox.ops, last_seq=self.source.last_seq)
        assert self.committed.snapshot() == self.leader.state.snapshot()
        return [reply.decode() for reply in outbox.replies]

    def new_leader(self) -> None:
        """The leader is deposed: what it had not committed is forgotten."""
        self.leader = ConsumerLeader("S", self.committed, self.now_ns)


def shown(deliveries: list[Delivery]) -> list[str]:
    """`inbox<subject delivered.sseq.cseq.pending`, or the status line with its headers."""
    lines = []
    for delivery in deliveries:
        for subject, reply, header, _ in delivery.items:
            inbox = delivery.inbox.decode()
            if reply:
                tokens = reply.decode().split(".")
                assert tokens[:4] == ["$JS", "ACK", "S", "c"]
                lines.append(f"{inbox}<{subject.decode()} {'.'.join(tokens[4:7])}.{tokens[8]}")
            else:
                assert subject == delivery.inbox
                first, *rest = header.decode().removesuffix("\r\n\r\n").split("\r\n")
                lines.append(f"{inbox}<{first.removeprefix('NATS/1.0 ')}" + "".join(f" {r}" for r in rest))
    return lines
