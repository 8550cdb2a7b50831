"""The readable parts of a copy's files, however damaged: every whole record, and whole checkpoints.

`supercluster-broker salvage` uses it. Files are only read, wherever they are below the folders: the log, its
quarantine, a copy of either. Only checksums are checked here: of two records at one index the term decides.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from errno import EIO
from itertools import pairwise
from pathlib import Path

from isal.isal_zlib import crc32

from supercluster.broker.bounds import RECORD_BYTES_MAX
from supercluster.broker.raft.entry import HEADER, HEADER_BYTES, CorruptRecordError, Entry, decode_entry
from supercluster.broker.storage.log.checkpoint import CHECKPOINT_SUFFIX, decode_checkpoint
from supercluster.broker.storage.segments.segment import (
    SEGMENT_HEAD_BYTES,
    SEGMENT_SUFFIX,
    decode_head,
    parse_stem,
)

_INDEX = struct.Struct("<Q")
_INDEX_AT = 8
# Behind a damaged record one of the next so many is looked for.
_AHEAD_MAX = 256
_CHUNK_BYTES = 4 * 1024 * 1024
# What the disk does not give back is passed over in pieces of this size, and reads as zeros.
_BLOCK_BYTES = 4096


class _File:
    """A file that is read from its beginning on, whatever the disk makes of parts of it."""

    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self._file = path.open("rb", buffering=0)
        self._note = note
        self.size = os.fstat(self._file.fileno()).st_size
        self._at, self._chunk = 0, b""

    def read(self, at: int, size: int) -> bytes:
        """Fewer bytes only at the end."""
        if at < self._at or at + size > self._at + len(self._chunk):
            self._at, self._chunk = at, self._load(at, max(size, _CHUNK_BYTES))
        return self._chunk[at - self._at : at - self._at + size]

    def _load(self, at: int, size: int) -> bytes:
        size = max(min(size, self.size - at), 0)
        try:
            return os.pread(self._file.fileno(), size, at)
        except OSError:
            return b"".join(
                self._block(place, min(_BLOCK_BYTES, at + size - place))
                for place in range(at, at + size, _BLOCK_BYTES)
            )

    def _block(self, at: int, size: int) -> bytes:
        try:
            return os.pread(self._file.fileno(), size, at)
        except OSError as error:
            self._note(f"{self._file.name}: bytes {at} to {at + size - 1}: {error.strerror}")
            return bytes(size)

    def find(self, pattern: bytes, at: int) -> int:
        """The first place from `at` on; -1: there is none."""
        while at + len(pattern) <= self.size:
            found = self.read(at, min(_CHUNK_BYTES, self.size - at)).find(pattern)
            if found >= 0:
                return at + found
            at += _CHUNK_BYTES - len(pattern) + 1
        return -1

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class Readable:
    """`records` has (term, file, offset) of each index."""

    records: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    checkpoints: dict[int, bytes] = field(default_factory=dict)
    """The newest two by index, from all files."""
    notes: list[str] = field(default_factory=list)
    """What could not be read."""
    bytes_read: int = 0
    paths: list[Path] = field(default_factory=list)
    _open: tuple[int, _File] | None = None

    def entry(self, index: int) -> Entry:
        """One of `records`. Raises OSError."""
        _, number, offset = self.records[index]
        file = self.opened(number)
        size = HEADER.unpack(file.read(offset, HEADER_BYTES))[0]
        try:
            return decode_entry(file.read(offset, size))
        except CorruptRecordError as error:
            raise OSError(
                EIO, "what was readable a moment ago is not any more", self.paths[number]
            ) from error

    def opened(self, number: int) -> _File:
        """One file is open at a time."""
        if self._open is None or self._open[0] != number:
            self.close()
            self._open = number, _File(self.paths[number], self.notes.append)
        return self._open[1]

    def missing(self) -> list[tuple[int, int]]:
        """Stretches of indexes between the first and the last record that no file has."""
        return [
            (before + 1, after - 1) for before, after in pairwise(sorted(self.records)) if after > before + 1
        ]

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


def read_copies(
    folders: Iterable[Path], progress: Callable[[int, int], None] = lambda done, all_: None
) -> Readable:
    """`progress` hears of bytes read and of all there are. Of several folders (copies of one group on other brokers), what any
    of them has is taken.

    Raises:
        OSError: a file cannot be opened.
    """
    paths = sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()})
    chosen = [path for path in paths if SEGMENT_SUFFIX in path.name or CHECKPOINT_SUFFIX in path.name]
    size = sum(path.stat().st_size for path in chosen)
    found, ends = Readable(), dict[str, int]()
    try:
        # A piece that was cut off a segment is read behind it: then the index that it begins with is known.
        for path in sorted(chosen, key=lambda path: (path.name, path)):
            if path.name.endswith(".tmp"):
                continue
            if CHECKPOINT_SUFFIX in path.name:
                _take_checkpoint(found, path)
            elif path.stat().st_size:
                _take_segment(found, path, ends)
            found.bytes_read += path.stat().st_size
            progress(found.bytes_read, size)
    except BaseException:
        found.close()
        raise
    return found


def _take_checkpoint(found: Readable, path: Path) -> None:
    try:
        read = decode_checkpoint(path.read_bytes())
    except OSError as error:
        found.notes.append(f"{path} cannot be read: {error.strerror}")
        return
    if read is None:
        found.notes.append(f"{path} is damaged")
        return
    found.checkpoints[read[0]] = read[1]
    for index in sorted(found.checkpoints)[:-2]:
        del found.checkpoints[index]


def _take_segment(found: Readable, path: Path, ends: dict[str, int]) -> None:
    stem = parse_stem(path.name)
    number, name = len(found.paths), path.name.partition(".")[0]
    found.paths.append(path)
    file = found.opened(number)
    expected = ends.get(name, stem[1] - 1 if stem is not None else 0) + 1
    is_piece = f"{SEGMENT_SUFFIX}.from-" in path.name
    if not is_piece and decode_head(file.read(0, SEGMENT_HEAD_BYTES), str(path)) is None:
        found.notes.append(f"{path}: its header is damaged")
    at = 0 if is_piece else SEGMENT_HEAD_BYTES
    for offset, index, term in _records(file, at, expected, lambda why: found.notes.append(f"{path}: {why}")):
        known = found.records.get(index)
        if known is None or known[0] < term:
            found.records[index] = term, number, offset
        ends[name] = max(index, ends.get(name, 0))


def _record(file: _File, at: int) -> tuple[int, int, int] | None:
    """(size, index, term) of the record there; None: it is damaged."""
    header = file.read(at, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    size, crc, index, term, *_ = HEADER.unpack(header)
    if not HEADER_BYTES <= size <= min(file.size - at, RECORD_BYTES_MAX):
        return None
    return (size, index, term) if crc32(memoryview(file.read(at, size))[8:]) == crc else None


def _records(
    file: _File, at: int, expected: int, note: Callable[[str], None]
) -> Iterator[tuple[int, int, int]]:
    """(offset, index, term) of each whole record."""
    while at < file.size:
        found = _record(file, at)
        if found is not None:
            size, index, term = found
            yield at, index, term
            expected, at = index + 1, at + size
            continue
        behind = _behind(file, at + 1, expected)
        if behind is None:
            note(f"from offset {at} on nothing is readable ({file.size - at} bytes)")
            return
        note(f"offset {at}: a damaged record; read again from offset {behind}")
        at = behind


def _behind(file: _File, at: int, expected: int) -> int | None:
    """Where the next whole record begins, by the index that it has to have."""
    for index in range(expected, expected + _AHEAD_MAX):
        pattern = _INDEX.pack(index)
        place = file.find(pattern, at + _INDEX_AT)
        while place >= 0:
            if _record(file, place - _INDEX_AT) is not None:
                return place - _INDEX_AT
            place = file.find(pattern, place + 1)
    return None
