"""Settles a window's blocks by the leader's verdicts, one by one, from the oldest on.

A run of verdicts means that consecutive numbers were stored under consecutive sequences, except for the ones
that it names. A publisher that was answered at the leader's append is not answered twice (RP-5), and messages
that were given up get no answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from supercluster.broker.jetstream.encoding.sections import (
    Exceptional,
    Verdict,
    VerdictRun,
    decode_block,
    join_blocks,
)
from supercluster.broker.ports import Publisher

# A block is at most this large, so that one slow link's frame does not stand in front of others for long.
BLOCK_BYTES_MAX = 1024 * 1024

# Blocks that were taken in the same stretch of this length are sent again as one.
MERGED_MS = 100


@dataclass(slots=True)
class WindowBlock:
    """Numbers first_number … of one forward. The lists run in parallel, one item per message."""

    first_number: int
    count: int
    data: bytes
    replies: list[bytes]
    publishers: list[Publisher]
    size_bytes: int
    taken_ms: int
    early: frozenset[int] = frozenset()
    """Offsets of those that want an answer when the leader has appended them (RP-5)."""

    @property
    def last_number(self) -> int:
        return self.first_number + self.count - 1

    def is_followed_by(self, other: WindowBlock) -> bool:
        """Can the next block be sent with this one? What was given up has no publishers and stays by itself."""
        return bool(self.publishers and other.publishers) and (
            self.taken_ms // MERGED_MS == other.taken_ms // MERGED_MS
        )


def merge(blocks: deque[WindowBlock]) -> None:
    """Make few blocks of many: each turn of the loop made one, and behind a long cut a leader would stand still for as
    many frames. Once its stretch of time is over, a block is merged the same way however often it is sent."""
    runs: list[list[WindowBlock]] = []
    size = 0
    for block in blocks:
        if not runs or size + block.size_bytes > BLOCK_BYTES_MAX or not runs[-1][-1].is_followed_by(block):
            runs.append([])
            size = 0
        runs[-1].append(block)
        size += block.size_bytes
    if len(runs) < len(blocks):
        merged = [_joined(run) for run in runs]
        blocks.clear()
        blocks.extend(merged)


def _joined(run: list[WindowBlock]) -> WindowBlock:
    if len(run) == 1:
        return run[0]
    first = run[0]
    return WindowBlock(
        first.first_number,
        sum(block.count for block in run),
        join_blocks([block.data for block in run]),
        [reply for block in run for reply in block.replies],
        [publisher for block in run for publisher in block.publishers],
        sum(block.size_bytes for block in run),
        run[-1].taken_ms,
        frozenset(block.first_number - first.first_number + at for block in run for at in block.early),
    )


@dataclass(slots=True)
class Outcome:
    """What verdicts mean to clients: `acks` are (reply, sequence); the others are for the caller to word."""

    acks: list[tuple[bytes, int]] = field(default_factory=list)
    duplicates: list[tuple[bytes, int]] = field(default_factory=list)
    worded: list[tuple[bytes, int, bytes]] = field(default_factory=list)
    """(reply, sequence, what the acknowledgement says besides)"""
    staged: list[bytes] = field(default_factory=list)
    """Replies that are owed an empty message."""
    refused: list[tuple[bytes, Publisher, Exceptional]] = field(default_factory=list)
    rerouted: list[tuple[Publisher, bytes, bytes, bytes, bytes]] = field(default_factory=list)
    """(publisher, subject, reply, header, payload), in order"""
    ask_again: bool = False


def settle(blocks: deque[WindowBlock], run: VerdictRun, early_acked: int, outcome: Outcome) -> int:
    """Settle the run's numbers, which the blocks begin with; blocks that are done leave. `early_acked` is the
    last number that an append was told of. Returns the bytes that became free."""
    exceptions = {run.first_number + item.offset: item for item in run.exceptions}
    number, seq = run.first_number, run.first_seq
    freed = 0
    while number <= run.last_number:
        block = blocks[0]
        start = number - block.first_number
        end = min(block.count, run.last_number - block.first_number + 1)
        if not exceptions:
            _settle_stored(block, start, end, seq, early_acked, outcome)
            seq += end - start
        else:
            seq = _settle_each(block, start, end, seq, exceptions, early_acked, outcome)
        number = block.first_number + end
        if end == block.count:
            blocks.popleft()
            freed += block.size_bytes
    return freed


def _settle_stored(
    block: WindowBlock, start: int, end: int, seq: int, early_acked: int, outcome: Outcome
) -> None:
    number = block.first_number + start
    if number <= early_acked:
        skipped = min(end - start, early_acked - number + 1)
        late = [
            (block.replies[at], seq + at - start)
            for at in range(start, start + skipped)
            if block.replies[at] and at not in block.early
        ]
        outcome.acks += late
        start, seq = start + skipped, seq + skipped
    replies = block.replies if (start == 0 and end == block.count) else block.replies[start:end]
    outcome.acks += [(reply, at) for at, reply in enumerate(replies, seq) if reply]


def _settle_each(
    block: WindowBlock,
    start: int,
    end: int,
    seq: int,
    exceptions: dict[int, Exceptional],
    early_acked: int,
    outcome: Outcome,
) -> int:
    parts: list[bytes] | None = None
    for at in range(start, end):
        number = block.first_number + at
        item = exceptions.get(number)
        if not block.publishers:
            seq += item is None
            continue  # Given up: nobody waits for it any more.
        reply, publisher = block.replies[at], block.publishers[at]
        if item is None:
            if reply and not (number <= early_acked and at in block.early):
                outcome.acks.append((reply, seq))
            seq += 1
        elif item.verdict == Verdict.DUPLICATE:
            if reply:
                outcome.duplicates.append((reply, item.seq))
        elif item.verdict == Verdict.REROUTE:
            parts = parts or decode_block(block.data).parts()
            subject, header, payload = parts[3 * at : 3 * at + 3]
            outcome.rerouted.append((publisher, subject, reply, header, payload))
        elif item.verdict == Verdict.REFUSED:
            outcome.refused.append((reply, publisher, item))
        elif item.verdict == Verdict.WORDED and reply:
            outcome.worded.append((reply, item.seq, item.text))
        elif item.verdict == Verdict.STAGED and reply:
            outcome.staged.append(reply)
    return seq
