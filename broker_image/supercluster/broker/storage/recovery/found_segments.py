"""The segments of a directory as they are found: in order, up to the first that cannot follow the one before it."""

from __future__ import annotations

from dataclasses import dataclass, field

from supercluster.broker.raft.entry import HEADER, HEADER_BYTES
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.disk.disk import Disk, File, read_twice
from supercluster.broker.storage.log.group_files import Base
from supercluster.broker.storage.segments.index import SideCar, read_side_car
from supercluster.broker.storage.segments.scan import Damage, scan
from supercluster.broker.storage.segments.segment import (
    INDEX_SUFFIX,
    SEGMENT_HEAD_BYTES,
    SEGMENT_SUFFIX,
    Segment,
    SegmentHead,
    decode_head,
    parse_stem,
)
from supercluster.broker.storage.segments.segments import Segments
from supercluster.broker.storage.segments.term_runs import TermRuns


@dataclass(frozen=True, slots=True)
class FoundDamage:
    """The place at which the log stops being readable."""

    name: str
    index: int
    offset: int
    why: str
    cut_short: bool
    keeps_segment: bool
    """Records before the damage stay; False when the segment has none."""
    is_foreign: bool = False
    """The segment does not continue the one before it: one of them is of another history."""


@dataclass(slots=True)
class FoundSegments:
    base: Base
    segments: Segments
    terms: TermRuns = field(default_factory=TermRuns)
    damage: FoundDamage | None = None
    behind: list[tuple[str, int]] = field(default_factory=list)
    """(name, size) of the segments behind the damage."""

    def drop_below_base(self) -> None:
        """Nothing but what the base has left behind: the log is empty."""
        last = self.segments.last
        while last is not None and last.last_index <= self.base.index:
            self.segments.remove(last)
            self.terms = TermRuns()
            last = self.segments.last

    def last(self, base: Base) -> tuple[int, int]:
        """Term and index of the last entry."""
        last = self.segments.last
        return max((base.term, base.index), (last.last_term, last.last_index) if last is not None else (0, 0))

    def last_index(self, base: Base) -> int:
        last = self.segments.last
        return max(last.last_index, base.index) if last is not None else base.index


def find_segments(
    disk: Disk, directory: str, base: Base, *, trusted_index: int, suspect: int = 0
) -> FoundSegments:
    """Read the segments of `base`'s epoch. Those that end at or before the base are removed: a head drop that a crash
    interrupted. Side-cars are believed for segments that end at or before `trusted_index`, but for the one that begins
    with the entry `suspect`.

    Raises:
        NewerFormatError: a newer version wrote one of them.
        UnreadableError: the disk does not give one of them back.
    """
    found = FoundSegments(base, Segments(disk, directory))
    names = []
    for name in disk.listdir(directory):
        stem = parse_stem(name)
        if stem is not None and stem[0] == base.epoch and name.endswith(SEGMENT_SUFFIX):
            names.append((stem[1], name))
    while len(names) > 1 and names[1][0] <= base.index + 1:
        _remove(disk, directory, names.pop(0)[1])
    for position, (first_index, name) in enumerate(names):
        is_last = position == len(names) - 1
        if found.damage is None:
            trusted = -1 if first_index == suspect else trusted_index
            _take(disk, directory, name, first_index, found, is_last=is_last, trusted_index=trusted)
        if found.damage is not None and found.damage.name != name:
            found.behind.append((name, _size(disk, f"{directory}/{name}")))
    return found


def _size(disk: Disk, path: str) -> int:
    """Of a segment that is going to be set aside. Raises NewerFormatError: what another version wrote is not touched."""
    file = disk.open(path)
    try:
        decode_head(read_twice(file, 0, SEGMENT_HEAD_BYTES), path)
        return file.size()
    finally:
        file.close()


def find_end(disk: Disk, directory: str, found: FoundSegments) -> tuple[int, int] | None:
    """(term, index) of the last record behind the damage; None where that is not sure. A write cut short was never confirmed.

    Raises:
        UnreadableError: the disk does not give it back.
    """
    damage = found.damage
    if damage is None or damage.is_foreign:
        return None
    name, offset = (found.behind[-1][0], 0) if found.behind else (damage.name, damage.offset)
    path = f"{directory}/{name}"
    file = disk.open(path)
    try:
        head = decode_head(read_twice(file, 0, SEGMENT_HEAD_BYTES), path)
        if head is None:
            return None
        at, index = SEGMENT_HEAD_BYTES, head.base_index + 1
        if offset:
            # The damaged record's own length is believed if the next one begins behind it.
            header = read_twice(file, offset, HEADER_BYTES)
            size = HEADER.unpack(header)[0] if len(header) == HEADER_BYTES else 0
            if size < HEADER_BYTES:
                return None
            at, index = offset + size, damage.index + 1
        scanned = scan(file, offset=at, first_index=index, base_term=head.base_term, next_seq=head.next_seq)
    finally:
        file.close()
    if not len(scanned.index) or (scanned.damage is not None and not scanned.damage.cut_short):
        return None
    end = scanned.last_term, index + len(scanned.index) - 1
    return end if end > found.last(found.base) else None


def _remove(disk: Disk, directory: str, name: str) -> None:
    disk.unlink(f"{directory}/{name}")
    disk.unlink(f"{directory}/{name.removesuffix(SEGMENT_SUFFIX)}{INDEX_SUFFIX}")


def _take(
    disk: Disk,
    directory: str,
    name: str,
    first_index: int,
    found: FoundSegments,
    *,
    is_last: bool,
    trusted_index: int,
) -> None:
    """Add one segment, or note the damage."""
    previous = found.segments.last
    expected = previous.last_index + 1 if previous is not None else found.base.index + 1
    if first_index > expected:
        found.damage = FoundDamage(
            name, expected, 0, f"entries {expected} to {first_index - 1} are missing", False, False
        )
        return
    path = f"{directory}/{name}"
    file = disk.open(path)
    try:
        size = file.size()
        head = decode_head(read_twice(file, 0, SEGMENT_HEAD_BYTES), path)
        if head is None or head.base_index != first_index - 1 or head.epoch != found.base.epoch:
            # A segment is made when there is something to write into it: only a crash leaves it without a head.
            cut_short = size < SEGMENT_HEAD_BYTES and is_last
            why = "the segment's header is cut short" if cut_short else "the segment's header is damaged"
            found.damage = FoundDamage(name, first_index, 0, why, cut_short, False)
            return
        if previous is not None and (first_index != expected or head.base_term != previous.last_term):
            why = f"it continues entry {first_index - 1} of term {head.base_term}, the log has {expected - 1} of term "
            found.damage = FoundDamage(name, first_index, 0, f"{why}{previous.last_term}", False, False, True)
            return
        segment, damage = _read(disk, directory, name, file, size, head, found.terms, trusted_index)
    finally:
        file.close()
    if damage is not None:
        keeps = segment is not None
        cut_short = damage.cut_short and is_last
        found.damage = FoundDamage(name, damage.index, damage.offset, damage.why, cut_short, keeps)
    if segment is not None:
        segment.full = not is_last
        found.segments.add(segment)
    elif damage is None:
        # A header and nothing else: the append for which it was made did not happen.
        _remove(disk, directory, name)


def _read(
    disk: Disk,
    directory: str,
    name: str,
    file: File,
    size: int,
    head: SegmentHead,
    terms: TermRuns,
    trusted_index: int,
) -> tuple[Segment | None, Damage | None]:
    segment = Segment.empty(head)
    side_car = _side_car(disk, f"{directory}/{name.removesuffix(SEGMENT_SUFFIX)}{INDEX_SUFFIX}")
    if (
        side_car is not None
        and _fits(side_car, head, size)
        and head.base_index + side_car.count <= trusted_index
    ):
        segment.last_index = head.base_index + side_car.count
        segment.last_term = side_car.last_term
        segment.size_bytes = size
        segment.next_seq = side_car.next_seq
        segment.index = None
        segment.sealed = True
        for index, term in side_car.runs:
            terms.note(index, term)
        return segment, None
    scanned = scan(
        file,
        offset=SEGMENT_HEAD_BYTES,
        first_index=segment.first_index,
        base_term=head.base_term,
        next_seq=head.next_seq,
    )
    count = len(scanned.index)
    if not count:
        return None, scanned.damage
    segment.last_index = head.base_index + count
    segment.last_term = scanned.last_term
    segment.size_bytes = scanned.end
    segment.next_seq = scanned.next_seq
    segment.index = scanned.index
    for index, term in scanned.runs:
        terms.note(index, term)
    return segment, scanned.damage


def _side_car(disk: Disk, path: str) -> SideCar | None:
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return read_side_car(file)
    except DiskError:
        return None
    finally:
        file.close()


def _fits(side_car: SideCar, head: SegmentHead, size: int) -> bool:
    return (
        side_car.count > 0
        and side_car.data_bytes == size
        and (side_car.epoch, side_car.first_index) == (head.epoch, head.base_index + 1)
        and (side_car.base_term, side_car.first_seq) == (head.base_term, head.next_seq)
    )
