"""The leader's verdict on each publish, against the state at the end of its log (SF-12;
`publish/log_tail.py`).

The common block is accepted as a whole, without work per message: its broker knows the stream's newest
configuration, its messages have no headers, and the stream does not refuse when full.
`publish/message_admission.py` judges single messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from supercluster.broker.jetstream.encoding.sections import (
    Block,
    Exceptional,
    MessagesSection,
    Verdict,
    VerdictRun,
    decode_block,
    encode_block,
)
from supercluster.broker.jetstream.links.frames import Forward
from supercluster.broker.jetstream.publish.atomic_batches import (
    BATCH_ID,
    Batch,
    BatchError,
    Batches,
    Candidate,
)
from supercluster.broker.jetstream.publish.log_tail import LogTail
from supercluster.broker.jetstream.publish.message_admission import InBatch, MessageAdmission, refused
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.protocol.headers import header_value
from supercluster.broker.raft.entry import Entry


class Answer(Enum):
    """What the leader says to a forward besides taking it."""

    TAKEN = auto()
    KNOWN = auto()
    """All its numbers are in the log: verdicts follow when they are applied, or are there already."""
    AGAIN_FROM = auto()
    """Numbers are missing in front of it: again from `next_number`."""
    OPEN_FIRST = auto()
    """No such session is open."""
    SHUT_OUT = auto()
    """A newer session of that broker is open."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of numbers, and what the leader writes by itself in front of what is stored of them: a flat list of subject,
    header, payload."""

    own: Sequence[bytes]
    section: MessagesSection


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer; with `TAKEN` what to append, in this order."""

    answer: Answer
    next_number: int = 0
    pieces: Sequence[Piece] = ()


class _Pieces:
    """Puts the pieces of a block together, number by number."""

    def __init__(self, forward: Forward, first_number: int, first_seq: int) -> None:
        self._forward = forward
        self._number = first_number
        self._seq = first_seq
        self.found: list[Piece] = []
        self._begin()

    def _begin(self) -> None:
        self._own: list[bytes] = []
        self._parts: list[bytes] = []
        self._exceptions: list[Exceptional] = []
        self._stored = 0

    def stored(self, message: Candidate) -> None:
        """The next number is stored at the next sequence."""
        self._parts += (message.subject, message.header, message.payload)
        self._stored += 1

    def other(self, verdict: Exceptional, own: Sequence[bytes] = ()) -> None:
        """The next number has this verdict, and these messages are stored for it."""
        if own and self._stored:
            self.end_piece()
        self._own += own
        self._exceptions.append(replace(verdict, offset=len(self._parts) // 3))
        self._parts += (b"", b"", b"")

    def end_piece(self) -> None:
        count = len(self._parts) // 3
        if not count:
            return
        self._seq += len(self._own) // 3
        run = VerdictRun(self._number, count, self._seq, tuple(self._exceptions))
        confirmed = min(self._forward.confirmed, run.last_number)
        section = MessagesSection(self._forward.session, confirmed, run, encode_block(self._parts))
        self.found.append(Piece(self._own, section))
        self._number += count
        self._seq += self._stored
        self._begin()


class Admission:
    """Judges forwards at the end of the log. One per term of leadership."""

    def __init__(self, state: StreamState, uncommitted: Iterable[Entry]) -> None:
        self.end = LogTail(state, uncommitted)
        self.config_sent = state.config_version
        """The newest configuration that is in the log, or in the entry that is being put together."""
        self.batches = Batches()
        self.messages = MessageAdmission(self.end)

    def take(self, forward: Forward, now_ns: int, *, room: bool = True) -> Taken:
        """Judge the next numbers of a session. The caller appends the pieces in the same turn, in this order.

        Raises:
            WireError: the block is not one.
        """
        session = self.end.session(forward.session)
        if session is None:
            return Taken(Answer.OPEN_FIRST if self.end.may_open(forward.session) else Answer.SHUT_OUT)
        next_number = session.last_number + 1
        if forward.first_number > next_number:
            return Taken(Answer.AGAIN_FROM, next_number)
        block = decode_block(forward.block)
        if forward.first_number + block.count <= next_number:
            return Taken(Answer.KNOWN, next_number)
        raw = forward.block
        if forward.first_number < next_number:
            raw = encode_block(block.parts()[3 * (next_number - forward.first_number) :])
            block = decode_block(raw)
        if room and self._plain(forward, block):
            run = VerdictRun(next_number, block.count, self.end.next_seq)
            self.end.note_block(block)
            self.end.next_seq += block.count
            confirmed = min(forward.confirmed, run.last_number)
            pieces = [Piece((), MessagesSection(forward.session, confirmed, run, raw))]
        else:
            pieces = self._judge_each(forward, block, next_number, now_ns, room=room)
        session.last_number = pieces[-1].section.run.last_number
        return Taken(Answer.TAKEN, next_number, pieces)

    def _plain(self, forward: Forward, block: Block) -> bool:
        """Can the whole block be taken without a look at each message?"""
        # An empty subject marks a number that its taker gave up (SF-15).
        is_newest = forward.config_version == self.end.config_version
        return is_newest and self.messages.takes_whole(block) and all(block.lengths[0::3])

    def _judge_each(
        self, forward: Forward, block: Block, first_number: int, now_ns: int, *, room: bool
    ) -> list[Piece]:
        parts, end = block.parts(), self.end
        pieces = _Pieces(forward, first_number, end.next_seq)
        for at in range(0, len(parts), 3):
            subject, header, payload = parts[at : at + 3]
            message = Candidate(subject, header, payload)
            found = self.messages.admit(message)
            if found is None and BATCH_ID in header and header_value(header, BATCH_ID):
                self._take_part(message, pieces, now_ns, room=room)
                continue
            seq = end.next_seq
            found = found or self.messages.judge(message, seq, now_ns, room=room)
            if found is not None:
                pieces.other(found)
                continue
            self._note(message)
            if message.said:
                own = (message.subject, message.header, message.payload)
                pieces.other(Exceptional(0, Verdict.WORDED, 0, seq, message.said), own)
            else:
                pieces.stored(message)
        pieces.end_piece()
        return pieces.found

    def _note(self, message: Candidate) -> None:
        self.end.note_stored(message.subject, message.header, message.payload, self.end.next_seq)
        self.end.next_seq += 1

    def _take_part(self, message: Candidate, pieces: _Pieces, now_ns: int, *, room: bool) -> None:
        """A message of an atomic batch: held, or the one that commits it."""
        try:
            batch = self.batches.add(message, now_ns, allowed=self.end.config.allow_atomic)
        except BatchError as error:
            pieces.other(refused(error.code, 0, error.text))
            return
        if batch is None:
            pieces.other(Exceptional(0, Verdict.STAGED))
            return
        found = self._commit(batch, now_ns, room=room)
        if found is not None:
            pieces.other(found)
            return
        messages = batch.messages
        name = json.dumps(batch.id.decode("utf-8", "replace"), ensure_ascii=False).encode()
        said = b'"batch":%s,"count":%d' % (name, len(messages))
        own = [part for one in messages for part in (one.subject, one.header, one.payload)]
        pieces.other(Exceptional(0, Verdict.WORDED, 0, self.end.next_seq - 1, said), own)

    def _commit(self, batch: Batch, now_ns: int, *, room: bool) -> Exceptional | None:
        """All of the batch's messages are stored from `next_seq` on, or none is and this is why."""
        before = InBatch()
        with self.end.all_or_nothing() as keep:
            for message in batch.messages:
                found = self.messages.judge(message, self.end.next_seq, now_ns, room=room, batch=before)
                if found is not None:
                    return found
                self._note(message)
                before.count += 1
                before.subjects.add(message.subject)
            keep()
        return None
