"""A replica's side of a comparison of copies: it hashes its ranges, a bounded number of bytes at a time.

Every replica has one, leader or not. It keeps only the current page, and for the newest marks the hash of the
state at each. While a comparison runs, entries that are still to be hashed are not dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from hashlib import blake2b

from supercluster.broker.jetstream.encoding.codec import blob, text, u64
from supercluster.broker.jetstream.links.comparison_frames import Answered, HashesAsked, HashesTold
from supercluster.broker.jetstream.state.digest import digesting
from supercluster.broker.jetstream.state.source_positions import encode_positions
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.turn.slices import Job
from supercluster.broker.moves.range_hash import PAGE_RANGES, EntryHasher, RangeHash, first_seq_of
from supercluster.broker.ports import StreamLog

# Bytes that are hashed in one go, and how long the loop is given in between: some milliseconds of each.
HASH_BYTES = 1024 * 1024
HASH_PAUSE_MS = 1
# Who asked and does not go on asking has died or found what it wanted: segments are dropped again.
HOLD_MS = 10_000
_MARKS_MAX = 4


def hashing(state: StreamState) -> Generator[int, None, bytes]:
    """A job that returns the hash of what replicas must agree on besides their entries, as it is when this is called: bounds,
    counts, sessions, and consumers with their positions. What is counted here, `state_digest` has the contents of."""
    numbers = (
        *(
            state.first_seq,
            state.last_seq,
            state.messages,
            state.bytes,
            state.last_time_ns,
            state.config_version,
        ),
        *(state.num_deleted, len(state.subjects), len(state.message_ids), len(state.consumers)),
    )
    digest = blake2b(b"".join(map(u64, numbers)), digest_size=16)
    digest.update(state.sessions.encode())
    if state.readers:
        digest.update(state.readers.encode())
    if state.origins:
        digest.update(encode_positions(state.origins))
    view = state.consumers.view()

    def consumers() -> Generator[int, None, bytes]:
        try:
            for name in view.names:
                digest.update(text(name) + blob(view[name].snapshot()))
                yield 50 + view[name].rows // 5
        finally:
            view.close()
        return digest.digest()

    return consumers()


@dataclass(slots=True)
class _Mark:
    """The state as of an entry: its hash, and the digest of what it holds; empty while they are being made."""

    messages: int
    head: bytes = b""
    contents: bytes = b""


class _Work:
    """Hashes of one copy for one asker, from some range on."""

    def __init__(self, ask: HashesAsked, tell: Callable[[HashesTold], None]) -> None:
        self.ask = ask
        self.tell = tell
        self.page_from = ask.from_range
        self.hasher = EntryHasher(ask.floor_seq, ask.from_range)
        self.found: list[RangeHash] = []
        self.next_index = 0
        self.read_all = False
        self.rests = False
        """The page was told; the next one is to be asked for."""
        self.last_told: HashesTold | None = None
        self.asked_ms = 0


class RangeHasher:
    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._marks: dict[int, _Mark] = {}
        self._work: _Work | None = None
        self._next_ms = 0

    def marked(self, index: int, state: StreamState) -> Job:
        """An entry that sets a mark was applied: a job that hashes the state as of it."""
        mark = self._marks[index] = _Mark(state.messages)
        while len(self._marks) > _MARKS_MAX:
            del self._marks[min(self._marks)]
        head, contents = hashing(state), digesting(state)

        def job() -> Job:
            mark.head = yield from head
            mark.contents = yield from contents

        return job()

    def state_at(self, mark: int) -> bytes:
        """Hash and digest of the state; empty: it is not known (any more)."""
        found = self._marks.get(mark)
        if found is None or not found.contents:
            return b""
        return found.head + found.contents

    def messages_at(self, mark: int) -> int:
        """Messages that the stream held then: a part of what the hash of the state is made of."""
        found = self._marks.get(mark)
        return found.messages if found is not None else 0

    def ask(self, ask: HashesAsked, tell: Callable[[HashesTold], None], now_ms: int) -> None:
        """Somebody wants a page. One asker is served at a time, the one of the newest comparison: a frame of an earlier one
        that was long on its way, or of a leader that was deposed, would take the work from it."""
        work = self._work
        if work is not None and ask.order < work.ask.order:
            return
        same = work is not None and (work.ask.number, work.ask.mark, work.ask.floor_seq) == (
            ask.number,
            ask.mark,
            ask.floor_seq,
        )
        if not same or work is None:
            work = self._work = _Work(ask, tell)
        elif work.last_told is not None and work.last_told.from_range == ask.from_range:
            work.tell(work.last_told)  # The answer was lost.
        elif work.page_from != ask.from_range:
            work = self._work = _Work(ask, tell)
        elif work.rests:
            work.rests = False
        work.asked_ms = now_ms
        self._next_ms = min(self._next_ms, now_ms)

    def keep_from_index(self, now_ms: int) -> int | None:
        """The first entry that is still to be hashed."""
        work = self._work
        if work is None or now_ms - work.asked_ms >= HOLD_MS:
            return None
        return work.next_index or self._log.index_of_seq(self._start_seq(work))

    @staticmethod
    def _start_seq(work: _Work) -> int:
        return max(work.ask.floor_seq, first_seq_of(work.ask.from_range))

    def _is_busy(self, applied_index: int) -> bool:
        work = self._work
        return work is not None and not work.rests and applied_index >= work.ask.mark

    @property
    def _is_marking(self) -> bool:
        """Is a state not hashed to its end?"""
        return not all(found.contents for found in self._marks.values())

    def deadline_ms(self, applied_index: int) -> int | None:
        return self._next_ms if self._is_busy(applied_index) else None

    def advance(self, state: StreamState, applied_index: int, now_ms: int) -> None:
        """Hash on, and tell what is complete. Entries are read when they are applied: what a mark stands for is there."""
        work = self._work
        if now_ms < self._next_ms or work is None or not self._is_busy(applied_index):
            return
        self._next_ms = now_ms + HASH_PAUSE_MS
        if self._is_marking:
            return  # The last page is told with it.
        start = state.gaps.past(self._start_seq(work))
        if not work.next_index:
            if start <= state.carried.last_seq:
                self._lacks_head(work, state.carried.last_seq + 1)
                return
            if start > state.last_seq:
                self._answer(work, Answered.END)
                return
            index = self._log.index_of_seq(start)
            if index is None:
                self._lacks_head(work, max(state.first_seq, start + 1, self._log.first_seq))
                return
            work.next_index = index
        if not work.read_all and len(work.found) < PAGE_RANGES and not self._read_on(work):
            self._lacks_head(work, max(state.first_seq, start + 1))
            return
        is_end = work.read_all and len(work.found) <= PAGE_RANGES
        if is_end or len(work.found) >= PAGE_RANGES:
            self._answer(work, Answered.END if is_end else Answered.PAGE)

    def _lacks_head(self, work: _Work, first_seq: int) -> None:
        self._answer(work, Answered.LACKS_HEAD, first_seq=first_seq)
        self._work = None

    def _read_on(self, work: _Work) -> bool:
        """False: what comes next was dropped while nobody asked for longer than it is held."""
        entries = self._log.entries(work.next_index, work.ask.mark, HASH_BYTES)
        work.found += work.hasher.take(entries)
        if entries:
            work.next_index = entries[-1].index + 1
        if work.next_index > work.ask.mark:
            work.found += work.hasher.finish()
            work.read_all = True
        return bool(entries) or work.read_all

    def _answer(self, work: _Work, status: Answered, first_seq: int = 0) -> None:
        page, work.found = work.found[:PAGE_RANGES], work.found[PAGE_RANGES:]
        state = self.state_at(work.ask.mark) if status is Answered.END else b""
        told = HashesTold(
            work.ask.group, work.ask.member, work.ask.number, work.page_from, status, first_seq, state, page
        )
        if page:
            work.page_from = page[-1].number + 1
        work.rests = True
        work.last_told = told
        work.tell(told)
