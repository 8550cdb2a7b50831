"""The segments of a log, in order: it finds the one with an entry or a sequence, with few files open and few
indexes loaded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress

from supercluster.broker.ports import LogSegment
from supercluster.broker.raft.entry import (
    HEADER,
    HEADER_BYTES,
    NEVER_FORGOTTEN,
    CorruptRecordError,
    Entry,
    decode_entry,
)
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Disk, File, read_twice
from supercluster.broker.storage.segments.index import EntryIndex, encode_side_car, read_index, read_side_car
from supercluster.broker.storage.segments.scan import scan
from supercluster.broker.storage.segments.segment import (
    INDEX_SUFFIX,
    SEGMENT_HEAD_BYTES,
    SEGMENT_SUFFIX,
    Segment,
    SegmentHead,
    encode_head,
)

# Sealed segments that have a descriptor, or their index in memory, at one time. Readers go along the log, so few do.
_OPEN_MAX = 4
_LOADED_MAX = 4
_READ_BYTES_MAX = 4 * 1024 * 1024
# Read at once to look at the heads of entries.
_HEADS_BYTES = 64 * 1024


class DamagedError(Exception):
    """A record that was good once cannot be read back."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Segments:
    """A list of segments without gaps; the last one may be appended to."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.all: list[Segment] = []
        self._lasts: list[int] = []  # last index of all but the last segment, for bisection
        self._opened: OrderedDict[int, Segment] = OrderedDict()
        self._loaded: OrderedDict[int, Segment] = OrderedDict()
        self._asked: tuple[Segment, int, int] | None = None

    def __len__(self) -> int:
        return len(self.all)

    @property
    def last(self) -> Segment | None:
        return self.all[-1] if self.all else None

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all)

    def bytes_behind(self, index: int) -> int:
        """Bytes of the entries behind `index`."""
        position = bisect_left(self._lasts, index + 1)
        if position >= len(self.all) or index >= self.all[-1].last_index:
            return 0
        segment, whole = self.all[position], self.all[position + 1 :]
        found = sum(each.size_bytes - SEGMENT_HEAD_BYTES for each in whole)
        if index < segment.first_index:
            return found + segment.size_bytes - SEGMENT_HEAD_BYTES
        if segment.index is not None:
            return found + segment.size_bytes - segment.extent(segment.index, index)[1]
        left, held = segment.last_index - index, segment.last_index - segment.first_index + 1
        return found + (segment.size_bytes - SEGMENT_HEAD_BYTES) * left // held

    def path(self, segment: Segment, suffix: str = SEGMENT_SUFFIX) -> str:
        return f"{self._directory}/{segment.stem}{suffix}"

    def add(self, segment: Segment) -> None:
        if self.all:
            self._lasts.append(self.all[-1].last_index)
        self.all.append(segment)

    def create(self, head: SegmentHead) -> Segment:
        """A new last segment. Raises DiskError, and then leaves none."""
        segment = Segment.empty(head)
        path = self.path(segment)
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write(0, (encode_head(head),))
        except DiskError:
            file.close()
            self._disk.unlink(path)
            raise
        segment.file = file
        self.add(segment)
        return segment

    # ---- finding --------------------------------------------------------------------------------------------------

    def holding(self, index: int) -> Segment | None:
        position = bisect_left(self._lasts, index)
        if position >= len(self.all):
            return None
        segment = self.all[position]
        return segment if segment.first_index <= index <= segment.last_index else None

    def index_of_seq(self, seq: int) -> int | None:
        position = bisect_right(self.all, seq, key=_first_seq) - 1
        if position < 0 or seq >= self.all[position].next_seq:
            return None
        segment = self.all[position]
        found = self.loaded(segment).position_of_seq(seq)
        return segment.first_index + found if found is not None else None

    def of_seq(self, seq: int) -> LogSegment | None:
        position = bisect_right(self.all, seq, key=_first_seq) - 1
        if position < 0 or seq >= self.all[position].next_seq:
            return None
        found = self.all[position]
        index, ends = self.loaded(found), (found.first_seq, found.next_seq, found.size_bytes, found.full)
        return LogSegment(self.path(found), found.first_index, *ends, index.offsets, index.seqs)

    # ---- reading --------------------------------------------------------------------------------------------------

    def loaded(self, segment: Segment) -> EntryIndex:
        """The segment's index, read again when it was put away."""
        if segment.index is not None:
            if segment.first_index in self._loaded:
                self._loaded.move_to_end(segment.first_index)
            return segment.index
        index = self._read_index(segment)
        segment.index = index
        self._loaded[segment.first_index] = segment
        if len(self._loaded) > _LOADED_MAX:
            self._loaded.popitem(last=False)[1].index = None
        return index

    def _read_index(self, segment: Segment) -> EntryIndex:
        path = self.path(segment, INDEX_SUFFIX)
        if self._disk.exists(path):
            file = self._disk.open(path)
            try:
                head = read_side_car(file)
                index = read_index(file, head) if head is not None else None
            except DiskError:
                index = None
            finally:
                file.close()
            if index is not None and len(index) == segment.last_index - segment.first_index + 1:
                return index
        self._asked = segment, 0, segment.size_bytes
        found = scan(
            self.opened(segment),
            offset=SEGMENT_HEAD_BYTES,
            first_index=segment.first_index,
            base_term=segment.base_term,
            next_seq=segment.first_seq,
        )
        if found.damage is not None:
            raise DamagedError(self.path(segment), found.damage.why)
        return found.index

    def opened(self, segment: Segment) -> File:
        """The segment's file; a sealed one's may be closed when others are opened."""
        if segment.file is None:
            segment.file = self._disk.open(self.path(segment))
            self._opened[segment.first_index] = segment
            if len(self._opened) > _OPEN_MAX:
                self._close(self._opened.popitem(last=False)[1])
        elif segment.first_index in self._opened:
            self._opened.move_to_end(segment.first_index)
        return segment.file

    def release(self, segment: Segment) -> None:
        """It is sealed and durable: its descriptor and its index are taken again when somebody reads it."""
        if segment.file is not None and segment.first_index not in self._opened:
            self._close(segment)
        if segment.first_index not in self._loaded:
            segment.index = None

    def _close(self, segment: Segment) -> None:
        file, segment.file = segment.file, None
        if file is not None:
            file.close()

    def read(self, first: int, last: int, bytes_max: int, *, at_least_one: bool = True) -> list[Entry]:
        """Entries from `first` on out of one segment, checked; none when not even that one fits and none has to be."""
        segment = self.holding(first)
        if segment is None:
            return []
        index = self.loaded(segment)
        last = min(last, segment.last_index)
        begin, end = segment.extent(index, first)
        if end - begin > bytes_max and not at_least_one:
            return []
        bytes_max = min(max(bytes_max, 1), _READ_BYTES_MAX)
        if last > first:
            position = bisect_right(index.offsets, begin + bytes_max, first - segment.first_index + 1) - 1
            reach = segment.first_index + position - 1
            if segment.size_bytes <= begin + bytes_max:
                reach = segment.last_index
            last = max(first, min(last, reach))
            end = segment.extent(index, last)[1]
        data = self._data(segment, begin, end - begin)
        entries: list[Entry] = []
        offset = 0
        try:
            for expected in range(first, last + 1):
                entry = decode_entry(data, offset)
                if entry.index != expected:
                    raise CorruptRecordError(offset, f"index {entry.index}, expected {expected}")
                entries.append(entry)
                offset += len(entry.record)
        except CorruptRecordError as error:
            raise DamagedError(self.path(segment), f"offset {begin + error.offset}: {error.why}") from error
        return entries

    def _data(self, segment: Segment, offset: int, size: int) -> bytes:
        self._asked = segment, offset, size
        return read_twice(self.opened(segment), offset, size)

    @property
    def asked_last(self) -> int:
        """The first entry of the segment that was read last; 0: none was."""
        return self._asked[0].first_index if self._asked is not None else 0

    def gives_back(self) -> bool:
        """Can what was asked for last be read?"""
        with suppress(DiskError):
            return self._asked is None or bool(self._data(*self._asked))
        return False

    def unforgotten(self, first: int, last: int) -> Iterator[int]:
        """Indexes of CONFIG and DURABLE entries from `first` to `last`, and of records that are cut off. Only the heads are read.

        Raises:
            DamagedError, DiskError: a segment is damaged, or cannot be read.
        """
        for segment in self.all:
            if segment.last_index < first or segment.first_index > last:
                continue
            held = self.loaded(segment)
            begin = max(first - segment.first_index, 0)
            end = min(last - segment.first_index + 1, len(held))
            data, data_at = b"", 0
            for position in range(begin, end):
                if held.counts[position]:
                    continue  # Neither kind adds a message.
                at = held.offsets[position]
                if at + HEADER_BYTES > data_at + len(data):
                    data, data_at = self._data(segment, at, _HEADS_BYTES), at
                header = data[at - data_at : at - data_at + HEADER_BYTES]
                if len(header) < HEADER_BYTES or HEADER.unpack(header)[-1] in NEVER_FORGOTTEN:
                    yield segment.first_index + position

    def write_again(self, segment: Segment, index: int) -> None:
        """Write a segment's bytes from an entry on once more, as they are read back. The process before may have died of
        an fsync that failed: what it had written then is in the page cache, counts as clean, and no fsync would carry
        it to the disk any more."""
        file = self.opened(segment)
        offset = 0
        if index > segment.first_index:
            offset = segment.extent(self.loaded(segment), index)[0]
        while offset < segment.size_bytes:
            data = read_twice(file, offset, min(_READ_BYTES_MAX, segment.size_bytes - offset))
            if not data:
                raise DiskError(
                    f"the file ends at {offset}, {segment.size_bytes} bytes were there", self.path(segment)
                )
            file.write(offset, (data,))
            offset += len(data)

    def activate(self, segment: Segment) -> None:
        """The last segment is going to be appended to: its file and index stay. A side-car that a clean stop wrote does
        not fit any more as soon as the file grows; `cut` removes it before the file shrinks."""
        self.loaded(segment)
        self.opened(segment)
        self._loaded.pop(segment.first_index, None)
        self._opened.pop(segment.first_index, None)
        segment.sealed = False

    # ---- changing -------------------------------------------------------------------------------------------------

    def write_side_car(self, segment: Segment, runs: list[tuple[int, int]]) -> None:
        data = encode_side_car(self.loaded(segment), segment.facts, runs)
        file = self._disk.open(self.path(segment, INDEX_SUFFIX), create=True)
        try:
            file.truncate(0)
            file.write(0, (data,))
        finally:
            file.close()

    def forget(self, segment: Segment) -> None:
        """Close it and take it out of the bookkeeping; the caller takes it off the list."""
        self._opened.pop(segment.first_index, None)
        self._loaded.pop(segment.first_index, None)
        self._close(segment)

    def remove(self, segment: Segment) -> None:
        """Delete the first or the last segment."""
        position = self.all.index(segment)
        assert position in (0, len(self.all) - 1), "only the ends of a log are removed"
        self._disk.unlink(self.path(segment))
        self._disk.unlink(self.path(segment, INDEX_SUFFIX))
        self.forget(segment)
        del self.all[position]
        self._lasts = [each.last_index for each in self.all[:-1]]

    def cut(self, segment: Segment, index: int, term: int) -> None:
        """Truncate the last segment behind the entry `index` of `term`, durably, and let it be appended to again."""
        entry_index = self.loaded(segment)
        self._loaded.pop(segment.first_index, None)
        keep = index - segment.first_index + 1
        assert 0 < keep <= len(entry_index)
        end = segment.extent(entry_index, index)[1]
        next_seq = entry_index.seqs[keep - 1] + entry_index.counts[keep - 1]
        file = self.opened(segment)
        self._opened.pop(segment.first_index, None)
        self._disk.unlink(self.path(segment, INDEX_SUFFIX))
        file.truncate(end)
        file.fdatasync()
        entry_index.truncate(keep)
        segment.size_bytes = segment.synced_bytes = end
        segment.last_index = index
        segment.last_term = term
        segment.next_seq = next_seq
        segment.full = segment.sealed = False

    def close(self) -> None:
        """Nothing counts as durable by it, so what the disk says to it is of no use."""
        for segment in self.all:
            with suppress(DiskError):
                self.forget(segment)


def _first_seq(segment: Segment) -> int:
    return segment.first_seq
