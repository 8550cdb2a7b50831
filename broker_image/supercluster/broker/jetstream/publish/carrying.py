"""Determines when a stream's leader carries old messages forward (`state/carried.py`), and at which rate.

The log can drop entries only from its beginning, so one old message retains all entries after it, including
those of removed messages and of consumers' operations. A round rewrites all of the stream's messages into new
entries, oldest first, one entry at a time and a bounded number of bytes a second. It begins when the retained
log is several times as large as the stream, so that carrying costs at most a third of the other writes.

A new leader decides again. A round that its predecessor did not finish has moved a part, and that part
counts.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.encoding.sections import Section, packed, section
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.carried import encode_carried

PINNED_SEGMENTS_MIN = 2
"""So many segments' worth of log is not worth a round."""
PINNED_TIMES = 4
"""How many times as much log as messages there has to be."""
CHECK_MS = 2000
# An entry every so often, each of so many messages and bytes at most, out of so many entries: some milliseconds' work.
PART_PAUSE_MS = 50
PART_MESSAGES_MAX = 4096
PART_BYTES_MAX = 1024 * 1024
PART_ENTRIES_MAX = 128


class Carrying:
    """Of one stream's replica, while it leads."""

    def __init__(
        self,
        replica: Replica,
        stream: HeldStream,
        least_index: Callable[[], int | None],
    ) -> None:
        """`least_index` is the first entry that has a message of the stream; None: one of them is not in the log."""
        self._replica = replica
        self._stream = stream
        self._least_index = least_index
        self._next_seq = 0
        self._last_seq = 0
        """The round's; 0: there is none."""
        self._is_under_way = False
        self._at_ms = 0

    def give_up(self) -> None:
        """This replica does not lead any more."""
        self._last_seq, self._is_under_way = 0, False

    def deadline_ms(self) -> int | None:
        """When the next part of a round is due."""
        return self._at_ms if self._last_seq and not self._is_under_way else None

    def put(self, turn: LeaderTurn) -> None:
        """The next messages become a part of this turn's entry, if there are any to carry."""
        proposal, now_ms = turn.proposal, turn.now_ms
        if turn.is_hidden or self._is_under_way or now_ms < self._at_ms or proposal.is_full:
            return
        state = self._stream.state
        if not self._last_seq:
            self._at_ms = now_ms + CHECK_MS
            if not self._is_worth_it():
                return
            self._next_seq, self._last_seq = state.first_seq, state.last_seq
        elif not self._may():
            self._last_seq = 0
            return
        self._at_ms = now_ms + PART_PAUSE_MS
        seqs, times_ns, parts = self._gather()
        if not seqs:
            self._last_seq = 0
            return
        first, self._next_seq = self._next_seq, seqs[-1] + 1
        self._is_under_way = True
        found = section(Section.CARRIED, encode_carried(first, seqs[-1], seqs, times_ns, parts))
        if state.config.compression != "none":
            found = [packed(b"".join(found))]
        proposal.payload += found
        proposal.size += sum(map(len, found))
        proposal.commands.append(self._done)

    def _done(self, result: int | None) -> None:
        self._is_under_way = False
        if result is None:
            self._last_seq = 0

    def _may(self) -> bool:
        """A move compares copies entry by entry: meanwhile messages stay where they are."""
        return self._stream.assignment.move is None and not self._replica.log.is_scarce

    def _is_worth_it(self) -> bool:
        log = self._replica.log
        state = self._stream.state
        least_index = self._least_index() if state.messages else None
        if least_index is None or not self._may():
            return False
        pinned_bytes = log.bytes_behind(least_index - 1)
        if pinned_bytes < max(PINNED_SEGMENTS_MIN * log.segment_bytes, PINNED_TIMES * state.bytes):
            return False
        return log.has_room(state.bytes)

    def _gather(self) -> tuple[list[int], list[int], list[bytes]]:
        """The next messages of the round: sequences, times, and subject, header, payload of each."""
        state = self._stream.state
        seqs: list[int] = []
        times_ns: list[int] = []
        parts: list[bytes] = []
        size = 0
        seq = max(self._next_seq, state.first_seq)
        for _ in range(PART_ENTRIES_MAX):
            seq = state.past(seq)
            if seq > self._last_seq:
                break
            decoded = state.reader.entry_of(seq)
            if decoded is None:
                raise AssertionError(f"{state.config.name}: message {seq} is not in the log")
            end = min(decoded.first_seq + decoded.count, self._last_seq + 1)
            for at in state.deleted.absent(seq, end):
                found = decoded.message(at)
                size += len(found.subject) + len(found.header) + len(found.payload)
                if seqs and (size > PART_BYTES_MAX or len(seqs) >= PART_MESSAGES_MAX):
                    return seqs, times_ns, parts
                if state.has(at):
                    seqs.append(at)
                    times_ns.append(found.time_ns)
                    parts += (found.subject, found.header, found.payload)
            seq = end
        return seqs, times_ns, parts
