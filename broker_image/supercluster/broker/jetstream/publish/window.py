"""Ingest without loss: messages that a broker has taken for a stream and does not know to be committed (SF-10
to SF-16).

There is one window per stream and broker process. It numbers the clients' messages, forwards them to the
stream's leader in blocks, one per turn, and keeps every block until its verdicts arrive. A new leader gets
all blocks without verdicts again, in order. The window is bounded in bytes: when it is full, `take` reports
it and the connection stops reading.

The window knows no sockets and no clock: it returns the frames to send and the acknowledgements to give.

States of the session::

    CLOSED --open sent--> OPENING --opened--> OPEN --leader changes--> OPEN (all unconfirmed blocks again)
    any --a newer session shuts this one out--> CLOSED (only when two processes share a volume's name: a defect)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum, auto
from itertools import takewhile
from typing import Protocol

from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.encoding.sections import SessionKey, VerdictRun, decode_block, encode_block
from supercluster.broker.jetstream.publish.fast_batches import SUFFIX, FastBatches, Fate
from supercluster.broker.jetstream.publish.settlement import (
    BLOCK_BYTES_MAX,
    Outcome,
    WindowBlock,
    merge,
    settle,
)
from supercluster.broker.ports import Publisher
from supercluster.broker.protocol.headers import header_value

ACK_POLICY_HEADER = b"Supercluster-Ack"

# What a message that was given up still takes: its number is kept until a leader knows, and counts, so that the window
# of a stream that stays without a leader is bounded too.
VOID_BYTES = 24

# Numbers that a new lineage lacks (SF-9) are sent as void so many at a time, in blocks of so many.
FILL_MAX = 65536
FILL_BLOCK = 4096

# After this long without a verdict, the window asks again: frames are lost with links, never repeated by them.
RETRY_MS = 300
RETRY_MAX_MS = 2000


class SessionPhase(Enum):
    CLOSED = auto()
    OPENING = auto()
    OPEN = auto()


class Sender(Protocol):
    """How a window reaches the stream's leader, wherever it is."""

    def open_session(self, window: Window) -> bool: ...

    def forward(self, window: Window, block: WindowBlock) -> bool: ...


class Window:
    """One stream's window on one broker."""

    def __init__(
        self,
        group: str,
        account: str,
        stream: str,
        session: SessionKey,
        *,
        bytes_max: int,
        wait_ms: int,
        ack_policy: str,
        notify: set[str],
        domain: str = "",
    ) -> None:
        self.group = group
        self.account = account
        self.stream = stream
        self.session = session
        self.config_version = 0
        self.ack_policy = ack_policy
        within = f',"domain":"{domain}"' if domain else ""
        self.ack_prefix = f'{{"stream":"{stream}"{within},"seq":'.encode()
        self.passed_on: Callable[[Iterable[Publisher]], None] | None = None
        """Of a stream that another super-cluster has: hears who published each message that goes there."""
        self.fast: FastBatches | None = None
        """Batches of publishers that are acknowledged every so many messages."""
        self.phase = SessionPhase.CLOSED
        self.confirmed = 0
        self.dirty = False
        self._notify = notify
        self.refused_total = 0
        self._bytes_max = bytes_max
        self._wait_ms = wait_ms
        self._next_number = 1
        self.size_bytes = 0
        """Bytes held, taken and not known to be committed."""
        self._parts: list[bytes] = []
        self._replies: list[bytes] = []
        self._publishers: list[Publisher] = []
        self._early: list[int] = []
        self._new_bytes = 0
        self._blocks: deque[WindowBlock] = deque()
        self._paused: dict[int, Publisher] = {}
        self._behind: dict[int, tuple[Publisher, dict[Window, int]]] = {}
        """Publishers that have messages for this stream in another one's window: up to which number of that (SF-3)."""
        self._early_acked = 0
        self._now_ms = 0
        self._progress_ms = 0
        self._retry_at_ms: int | None = None
        self._retry_ms = RETRY_MS

    # ---- taking ---------------------------------------------------------------------------------------------------

    def take(
        self,
        publisher: Publisher,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        *,
        is_moved: bool = False,
    ) -> bool:
        """Take one message. False: the window is full, or earlier ones of the publisher are still in another stream's; the caller
        holds the message and stops reading. What comes out of another window (`is_moved`) had its room there."""
        if not is_moved and (
            self.size_bytes >= self._bytes_max or (self._behind and id(publisher) in self._behind)
        ):
            self._paused[id(publisher)] = publisher
            publisher.pause(self.stream)
            return False
        fast = self.fast if reply.endswith(SUFFIX) else None
        if fast is not None:
            fate = fast.judge(publisher, reply, now_ms=self._now_ms)
            if fate is not Fate.TAKE:
                return fate is Fate.DROP
            fast.taken(reply, has_header=bool(header))
        policy = self.ack_policy if fast is None else "commit"
        if header and reply and fast is None:
            asked = header_value(header, ACK_POLICY_HEADER)
            if asked == b"none":
                reply = b""
            elif asked:
                policy = "append" if asked == b"append" else "commit"
        if self.ack_policy == "none" and fast is None:
            reply = b""
        elif reply and policy == "append":
            self._early.append(len(self._replies))
        size = len(subject) + len(header) + len(payload) + 64
        self.size_bytes += size
        self._new_bytes += size
        self._parts += (subject, header, payload)
        self._replies.append(reply)
        self._publishers.append(publisher)
        if not self.dirty:
            self.dirty = True
            self._notify.add(self.group)
        return True

    # ---- subjects that come from another stream ---------------------------------------------------------------------

    @property
    def last_taken(self) -> int:
        """The number of the last message that was taken, numbered or not."""
        return self._next_number - 1 + len(self._replies)

    def unsettled(self) -> Iterator[tuple[Publisher, bytes]]:
        """(publisher, subject) of all that nothing is known of yet."""
        for block in self._blocks:
            if block.publishers:
                first = max(0, self.confirmed + 1 - block.first_number)
                subjects = decode_block(block.data).parts()[0::3]
                yield from zip(block.publishers[first:], subjects[first:], strict=True)
        yield from zip(self._publishers, self._parts[0::3], strict=True)

    def has_settled(self, number: int) -> bool:
        """Is it known, or given up, what becomes of all up to that number?"""
        return number < self._next_number and not any(
            block.publishers for block in self._blocks if block.first_number <= number
        )

    def put_behind(self, publisher: Publisher, other: Window, number: int) -> None:
        """Take nothing of the publisher until the other window has settled that number."""
        self._behind.setdefault(id(publisher), (publisher, {}))[1][other] = number

    def let_pass(self, is_over: Callable[[Window, int], bool]) -> bool:
        """Offer again what publishers hold whose earlier messages are settled. False: others still wait."""
        for key, (publisher, others) in list(self._behind.items()):
            for other, number in list(others.items()):
                if is_over(other, number):
                    del others[other]
            if not others:
                del self._behind[key]
                if self._paused.pop(key, None) is not None:
                    publisher.resume(self.stream)
        return not self._behind

    def offer_again(self) -> None:
        """Other subjects are this stream's now: what is held for it may be for another."""
        for publisher in list(self._paused.values()):
            publisher.resume(self.stream)

    def _resume(self) -> None:
        paused, self._paused = self._paused, {}
        for publisher in paused.values():
            publisher.resume(self.stream)

    @property
    def unconfirmed(self) -> int:
        """Messages held."""
        return self._next_number - 1 - self.confirmed + len(self._replies)

    def seal(self, now_ms: int) -> list[WindowBlock]:
        """Number what was taken since the last turn: new blocks, in order."""
        self._now_ms = now_ms
        if self.fast is not None:
            self.fast.sweep(now_ms)
        sealed: list[WindowBlock] = []
        start, total = 0, len(self._replies)
        while start < total:
            end, size = total, self._new_bytes
            if self._new_bytes > BLOCK_BYTES_MAX:
                end, size = self._cut(start)
            block = WindowBlock(
                self._next_number,
                end - start,
                encode_block(self._parts[3 * start : 3 * end] if (start or end < total) else self._parts),
                self._replies[start:end],
                self._publishers[start:end],
                size,
                now_ms,
                frozenset(at - start for at in self._early if start <= at < end),
            )
            self._next_number += block.count
            self._new_bytes -= size
            self._blocks.append(block)
            sealed.append(block)
            start = end
        if sealed:
            if self.passed_on is not None:
                self.passed_on(self._publishers)
            self._parts, self._replies, self._publishers, self._early = [], [], [], []
            self._new_bytes = 0
            if self._retry_at_ms is None:
                self._retry_at_ms = now_ms + self._retry_ms
                self._progress_ms = now_ms
        self.dirty = False
        return sealed

    def _cut(self, start: int) -> tuple[int, int]:
        """The end of a block that starts at message `start` and stays below the limit, and its bytes."""
        size, at = 0, start
        parts = self._parts
        while at < len(self._replies):
            one = len(parts[3 * at]) + len(parts[3 * at + 1]) + len(parts[3 * at + 2]) + 64
            if size and size + one > BLOCK_BYTES_MAX:
                break
            size += one
            at += 1
        return at, size

    # ---- sending --------------------------------------------------------------------------------------------------

    def flush(self, sender: Sender, now_ms: int) -> None:
        """Send what was taken in this turn."""
        sealed = self.seal(now_ms)
        if self.phase is SessionPhase.OPEN:
            for block in sealed:
                if not sender.forward(self, block):
                    return
        elif self.phase is SessionPhase.CLOSED and sealed:
            self._open(sender)

    def _open(self, sender: Sender) -> None:
        if sender.open_session(self):
            self.phase = SessionPhase.OPENING

    def opened(self, sender: Sender, now_ms: int) -> None:
        """The leader says that the session is open."""
        if self.phase is not SessionPhase.OPEN:
            self.phase = SessionPhase.OPEN
            self.send_again(sender, now_ms)

    def send_again(self, sender: Sender, now_ms: int, from_number: int = 0) -> None:
        """Forward every block that is not confirmed, in order: to a new leader, or because it asked."""
        self.seal(now_ms)
        merge(self._blocks)
        self._retry_at_ms = now_ms + self._retry_ms if self._blocks else None
        if 0 < from_number <= self.confirmed and self.phase is SessionPhase.OPEN:
            self._fill(sender, from_number, now_ms)
        if self.phase is not SessionPhase.OPEN:
            if self._blocks:
                self._open(sender)
            return
        for block in self._blocks:
            if block.last_number >= from_number and not sender.forward(self, block):
                return

    def _fill(self, sender: Sender, number: int, now_ms: int) -> None:
        """The stream was recovered by force (SF-9), and its new lineage lacks numbers whose verdicts this broker had: they
        are sent as void, for their messages were answered for and are not here any more. The next ones are asked for
        again."""
        last = min(self.confirmed, number + FILL_MAX - 1)
        while number <= last:
            count = min(FILL_BLOCK, last - number + 1)
            data = encode_block([b""] * (3 * count))
            if not sender.forward(self, WindowBlock(number, count, data, [], [], 0, now_ms, frozenset())):
                return
            number += count

    def leader_changed(self, sender: Sender, now_ms: int) -> None:
        self._retry_ms = RETRY_MS
        if self.phase is SessionPhase.OPENING:
            self.phase = SessionPhase.CLOSED
        self.send_again(sender, now_ms)

    def reopen(self, sender: Sender, now_ms: int) -> None:
        """The leader does not know the session: open it again (it was never committed), then send."""
        self.phase = SessionPhase.CLOSED
        self.send_again(sender, now_ms)

    def tick(self, sender: Sender, now_ms: int) -> None:
        """Ask again when verdicts are overdue, twice as patient each time."""
        if self._retry_at_ms is None or now_ms < self._retry_at_ms:
            return
        self._retry_ms = min(self._retry_ms * 2, RETRY_MAX_MS)
        if self.phase is SessionPhase.OPENING:
            self.phase = SessionPhase.CLOSED
        self.send_again(sender, now_ms)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._retry_at_ms

    # ---- verdicts -------------------------------------------------------------------------------------------------

    def verdicts(self, run: VerdictRun, now_ms: int) -> Outcome:
        """Committed verdicts arrived. Those known already are passed over; a gap asks for all again."""
        outcome = Outcome()
        if run.last_number <= self.confirmed:
            return outcome
        if run.first_number > self.confirmed + 1:
            outcome.ask_again = True
            return outcome
        run = run.tail(self.confirmed + 1)
        if not self._blocks or run.last_number > self._blocks[-1].last_number:
            raise WireError(f"{self.stream}: a verdict on number {run.last_number}, which was never sent")
        self.size_bytes -= settle(self._blocks, run, self._early_acked, outcome)
        self.refused_total += len(outcome.refused)
        self.confirmed = run.last_number
        self._progress_ms = now_ms
        self._retry_ms = RETRY_MS
        self._retry_at_ms = now_ms + RETRY_MS if self._blocks else None
        if self._paused and self.size_bytes < self._bytes_max // 2:
            self._resume()
        return outcome

    def appended(self, run: VerdictRun) -> Outcome:
        """The leader has appended these numbers: answers for those that asked for no more (RP-5)."""
        outcome = Outcome()
        if run.exceptions or run.first_number > max(self._early_acked, self.confirmed) + 1:
            return outcome
        run = run.tail(max(self._early_acked, self.confirmed) + 1)
        if run.count <= 0:
            return outcome
        for block in self._blocks:
            if block.first_number > run.last_number:
                break
            for at in sorted(block.early):
                number = block.first_number + at
                if run.first_number <= number <= run.last_number and block.replies[at]:
                    outcome.acks.append((block.replies[at], run.first_seq + number - run.first_number))
        self._early_acked = max(self._early_acked, run.last_number)
        return outcome

    # ---- giving up ------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[tuple[bytes, Publisher]]:
        """Give up what no leader has taken for `wait_ms` (SF-15): (reply, publisher) of each message given up.

        Its numbers stay used: they are sent as void, so that a leader which has them keeps its verdict, and one which
        has not stores nothing.
        """
        if not self._blocks or now_ms - self._progress_ms < self._wait_ms:
            return []
        given_up: list[tuple[bytes, Publisher]] = []
        for block in self._blocks:
            if block.publishers and now_ms - block.taken_ms >= self._wait_ms:
                given_up += self._unanswered(block)
                self._void(block)
        self.refused_total += len(given_up)
        if given_up:
            self._resume()
        return given_up

    def be_patient(self, now_ms: int) -> None:
        """Whoever waits begins to wait now."""
        self._progress_ms = now_ms

    def _unanswered(self, block: WindowBlock) -> list[tuple[bytes, Publisher]]:
        """(reply, publisher) of those that nothing was said to yet."""
        first = max(0, self.confirmed + 1 - block.first_number)
        return [
            (block.replies[at], block.publishers[at])
            for at in range(first, len(block.publishers))
            if at not in block.early or block.first_number + at > self._early_acked
        ]

    def awaiting_answers(self, publishers: Collection[Publisher]) -> set[Publisher]:
        """Of these, who was promised an acknowledgement and has none yet."""
        pairs = [*zip(self._replies, self._publishers, strict=True)]
        pairs += [pair for block in self._blocks for pair in self._unanswered(block)]
        return {publisher for reply, publisher in pairs if reply and publisher in publishers}

    def sent(self) -> Iterator[Publisher]:
        """Who published each message that was numbered and has no verdict yet, whether one was asked for or not."""
        for block in self._blocks:
            yield from block.publishers[max(0, self.confirmed + 1 - block.first_number) :]

    def waiting(self) -> Iterator[Publisher]:
        """And those of this turn."""
        yield from self.sent()
        yield from self._publishers

    def unsettled_of(self, publishers: Collection[Publisher]) -> set[Publisher]:
        """Of these, whose messages have no verdict yet."""
        return set(self.waiting()) & set(publishers)

    def overdue_of(self, publishers: Collection[Publisher], since_ms: int) -> set[Publisher]:
        """Of these, whose messages were taken by then and have no verdict yet."""
        blocks = takewhile(lambda block: block.taken_ms <= since_ms, self._blocks)
        return {publisher for block in blocks for publisher in block.publishers} & set(publishers)

    def _void(self, block: WindowBlock) -> None:
        block.early = frozenset()
        block.data = encode_block([b""] * (3 * block.count))
        block.replies = [b""] * block.count
        block.publishers = []
        size = VOID_BYTES * block.count
        self.size_bytes -= block.size_bytes - size
        block.size_bytes = size

    def withdraw(self) -> list[tuple[Publisher, bytes, bytes, bytes, bytes]]:
        """The stream begins anew: (publisher, subject, reply, header, payload) of all that nothing was said to yet,
        in order, to be taken again by its new window."""
        self.seal(0)
        left: list[tuple[Publisher, bytes, bytes, bytes, bytes]] = []
        for block in self._blocks:
            parts = decode_block(block.data).parts()
            for at in range(max(0, self.confirmed + 1 - block.first_number), len(block.publishers)):
                if at in block.early and block.first_number + at <= self._early_acked:
                    continue
                subject, header, payload = parts[3 * at : 3 * at + 3]
                left.append((block.publishers[at], subject, block.replies[at], header, payload))
        self._blocks.clear()
        self.size_bytes = 0
        return left

    def close(self) -> list[tuple[bytes, Publisher]]:
        """The stream was deleted: everything is freed; (reply, publisher) of what was not confirmed."""
        self.seal(0)
        left = [pair for block in self._blocks for pair in self._unanswered(block)]
        self._blocks.clear()
        self.size_bytes = 0
        self._resume()
        self._retry_at_ms = None
        return left
