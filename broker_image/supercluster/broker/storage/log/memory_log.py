"""The log of a stream with memory storage: `ports.StreamLog` without a disk.

It never survives its process: a member whose process restarted comes back under a new identity (SF-4). Segments exist
as marks only, at the same places at which a `FileLog` would begin one, so that checkpoints and head drops behave alike.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from supercluster.broker.ports import Ticket
from supercluster.broker.raft.entry import Entry, EntryKind
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.segments.segment import SEGMENT_HEAD_BYTES


class MemoryLog:
    """Implements `ports.StreamLog`."""

    may_open_anew = may_ever_open_anew = False

    def __init__(self, options: LogOptions | None = None) -> None:
        self._options = options or LogOptions()
        self._base = (0, 0)
        self._entries: list[Entry] = []
        self._seqs = array("Q")
        self._starts = array("Q")
        """Bytes that were appended before each entry, ever."""
        self._next_start = 0
        self._next_seq = 1
        self._ends: list[int] = []  # last indexes of full segments
        self._segment_bytes = 0
        self._bytes = 0
        self._checkpoints: dict[int, tuple[int, bytes]] = {}
        self._vote = (0, "")
        self.commit_index = 0
        self.frees_room: Callable[[Entry], bool] = lambda entry: False

    # ---- Raft's view ----------------------------------------------------------------------------------------------

    @property
    def base_index(self) -> int:
        return self._base[0]

    @property
    def base_term(self) -> int:
        return self._base[1]

    @property
    def last_index(self) -> int:
        return self._base[0] + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self._base[1]

    @property
    def persisted_index(self) -> int:
        return self.last_index

    def term(self, index: int) -> int | None:
        if index == self._base[0]:
            return self._base[1]
        entry = self.entry(index)
        return entry.term if entry is not None else None

    def append(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        if entries[0].index != self.last_index + 1:
            raise ValueError(
                f"append of entry {entries[0].index} behind entry {self.last_index} leaves a gap"
            )
        size = 0
        for entry in entries:
            self._entries.append(entry)
            self._seqs.append(entry.first_seq if entry.count else self._next_seq)
            self._starts.append(self._next_start + size)
            if entry.count:
                self._next_seq = entry.first_seq + entry.count
            size += len(entry.record)
        self._took(size)
        self._next_start += size
        self._segment_bytes += size
        if self._segment_bytes + SEGMENT_HEAD_BYTES >= self._options.segment_bytes:
            self._ends.append(self.last_index)
            self._segment_bytes = 0

    def truncate_after(self, index: int) -> None:
        if index >= self.last_index:
            return
        if index < max(self._base[0], self.commit_index):
            raise ValueError(
                f"entries behind {index} are to be dropped, but {self.commit_index} is committed"
            )
        keep = index - self._base[0]
        self._took(-sum(len(entry.record) for entry in self._entries[keep:]))
        self._next_seq, self._next_start = self._seqs[keep], self._starts[keep]
        del self._entries[keep:]
        del self._seqs[keep:]
        del self._starts[keep:]
        while self._ends and self._ends[-1] > index:
            self._ends.pop()
        begin = self._ends[-1] - self._base[0] if self._ends else 0
        self._segment_bytes = sum(len(entry.record) for entry in self._entries[max(begin, 0) :])
        for checkpoint in [each for each in self._checkpoints if each > index]:
            del self._checkpoints[checkpoint]

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        if first <= self._base[0]:
            return []
        found: list[Entry] = []
        size = 0
        for position in range(first - self._base[0] - 1, min(last - self._base[0], len(self._entries))):
            entry = self._entries[position]
            size += len(entry.record)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def entry(self, index: int) -> Entry | None:
        position = index - self._base[0] - 1
        return self._entries[position] if 0 <= position < len(self._entries) else None

    def memberships(self, first: int, last: int) -> list[Entry]:
        begin = max(first - self._base[0] - 1, 0)
        stretch = self._entries[begin : max(last - self._base[0], 0)]
        return [entry for entry in stretch if entry.kind == EntryKind.CONFIG]

    @property
    def first_seq(self) -> int:
        return self._seqs[0] if self._seqs else self._next_seq

    @property
    def segment_bytes(self) -> int:
        return self._options.segment_bytes

    @property
    def durable_checkpoint(self) -> int:
        return self._newest()

    def want_durable(self, index: int) -> None:
        """Nothing is."""

    def lose(self, why: str) -> DiskError:
        raise AssertionError(f"a log in memory is never recovered: {why}")

    def index_of_seq(self, seq: int) -> int | None:
        position = bisect_right(self._seqs, seq) - 1
        if position < 0 or seq > self._entries[position].last_seq or not self._entries[position].count:
            return None
        return self._base[0] + position + 1

    # ---- checkpoints and the head ---------------------------------------------------------------------------------

    def segment_of_seq(self, seq: int) -> None:
        return None

    def checkpoint_at(self, index: int) -> bool:
        position = bisect_left(self._ends, index)
        return position < len(self._ends) and self._ends[position] == index and index > self._newest()

    def _newest(self) -> int:
        return max(self._checkpoints, default=-1)

    def save_checkpoint(self, index: int, state: bytes) -> None:
        term = self.term(index)
        if term is None:
            raise ValueError(f"checkpoint at {index}, the log holds {self.base_index} to {self.last_index}")
        old = self._checkpoints.get(index)
        self._checkpoints[index] = (term, state)
        self._took(len(state) - (len(old[1]) if old is not None else 0))
        indexes = sorted(self._checkpoints)
        keep = {self._base[0], *indexes[-2:]}
        seen: set[int] = set()
        for each in indexes:
            boundary = bisect_left(self._ends, each + 1)
            if each > self._base[0] and boundary > 0 and boundary not in seen:
                seen.add(boundary)
                keep.add(each)
        self._forget([each for each in indexes if each not in keep])

    def begin_checkpoint(self, index: int, pieces: Sequence[bytes]) -> None:
        self.save_checkpoint(index, b"".join(pieces))

    def begin_base(self, base_index: int, base_term: int, pieces: Sequence[bytes]) -> None:
        """`install_base` takes it."""

    def finish_checkpoint(self, ticket: Ticket) -> None:
        """Nothing is ever on its way."""

    def drop_checkpoint(self) -> None:
        """Nothing is ever on its way."""

    def _forget(self, indexes: list[int]) -> None:
        for index in indexes:
            self._took(-len(self._checkpoints.pop(index)[1]))

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        newest = self._newest()
        return (newest, self._checkpoints[newest][1]) if newest >= 0 else None

    def base_state(self) -> bytes | None:
        found = self._checkpoints.get(self._base[0])
        return found[1] if found is not None else None

    def _new_base(self, keep_from_index: int) -> int | None:
        if not self._ends or self._ends[0] > self.commit_index:
            return None
        usable = [index for index in self._checkpoints if self._ends[0] <= index < keep_from_index]
        return max(usable, default=None)

    def can_drop_head(self, keep_from_index: int) -> bool:
        return self._new_base(keep_from_index) is not None

    def drop_head(self, keep_from_index: int) -> int:
        new_base = self._new_base(keep_from_index)
        if new_base is None:
            return self._base[0]
        term = self.term(new_base)
        assert term is not None
        count = new_base - self._base[0]
        self._took(-sum(len(entry.record) for entry in self._entries[:count]))
        del self._entries[:count]
        del self._seqs[:count]
        del self._starts[:count]
        self._base = (new_base, term)
        self._ends = [end for end in self._ends if end > new_base]
        self._forget([index for index in self._checkpoints if index < new_base])
        return new_base

    def reset(self, base_index: int, base_term: int) -> None:
        self._took(-self._bytes)
        self._checkpoints = {}
        self._entries = []
        self._seqs, self._starts = array("Q"), array("Q")
        self._next_seq, self._next_start = 1, 0
        self._ends = []
        self._segment_bytes = 0
        self._base = (base_index, base_term)
        self.commit_index = base_index

    def install_base(self, base_index: int, base_term: int, state: bytes) -> None:
        self.reset(base_index, base_term)
        self.save_checkpoint(base_index, state)

    # ---- the rest -------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """What is written is as durable as it gets."""

    def begin_vote(self, term: int, vote: str) -> None:
        self.save_vote(term, vote)

    def finish_vote(self, ticket: Ticket) -> None:
        """Nothing is ever on its way."""

    def save_vote(self, term: int, vote: str) -> None:
        self._vote = (term, vote)

    def load_vote(self) -> tuple[int, str]:
        return self._vote

    def settle(self) -> None:
        """Nothing is ever found: the log begins with its process."""

    def note_commit(self, index: int) -> None:
        self.commit_index = max(self.commit_index, min(index, self.last_index))

    def bytes_on_disk(self) -> int:
        return self._bytes

    def bytes_behind(self, index: int) -> int:
        position = max(index - self._base[0], 0)
        return self._next_start - self._starts[position] if position < len(self._starts) else 0

    def _took(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._options.space is not None:
            self._options.space.took(size_bytes)

    def has_room(self, size_bytes: int) -> bool:
        space = self._options.space
        return space is None or space.has_room(size_bytes)

    @property
    def is_scarce(self) -> bool:
        space = self._options.space
        return space is not None and space.is_scarce

    def tick(self, now_ms: int) -> int:
        return self.last_index

    def deadline_ms(self) -> int | None:
        return None

    @property
    def failed(self) -> DiskError | None:
        """Memory does not fail."""
        return None

    def close(self, *, clean: bool) -> None:
        """What is in memory only goes, whatever comes after."""
        self.reset(0, 0)

    def destroy(self) -> None:
        self.reset(0, 0)
