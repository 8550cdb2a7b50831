"""The deleted sequences inside a stream.

A bucket whose oldest key never changes adds every update of its other keys here, for ever, so memory must not
grow with them. Sequences are stored per block of 65,536, in the smallest form: two bytes for each of a few, a
bit for each of many, and nothing for a block that is deleted as a whole. Neighbouring blocks of that kind
form one run, however many there are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from supercluster.broker.jetstream.encoding.codec import Reader, blob, u8, u32, u64

STRETCH_BITS = 16
STRETCH = 1 << STRETCH_BITS
_LOW = STRETCH - 1
_BITMAP_BYTES = STRETCH // 8
FEW_MAX = 4096
"""Up to so many a list is smaller than the bits."""
# Bits become a list again only when the list would be much smaller: one that comes and goes changes no form.
_FEW_AGAIN = FEW_MAX // 2
PIECE_STRETCHES = 16
"""In one piece of a snapshot, and of a digest."""


class InteriorDeletes:
    """A set of sequences: rising along `iter`, and quick to say what follows a run of them."""

    __slots__ = ("_count", "_counts", "_ends", "_parts", "_starts")

    def __init__(self, seqs: Iterable[int] = ()) -> None:
        self._count = 0
        self._parts: dict[int, array[int] | bytearray] = {}
        """Stretches that are deleted in part: offsets, or bits."""
        self._counts: dict[int, int] = {}
        """How many each of those has."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Runs of stretches that are deleted as a whole: the first and the last of each."""
        for seq in seqs:
            self.add(seq)

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __contains__(self, seq: int) -> bool:
        part = self._parts.get(seq >> STRETCH_BITS)
        if part is None:
            return bool(self._starts) and self._run_of(seq >> STRETCH_BITS) >= 0
        low = seq & _LOW
        if type(part) is bytearray:
            return bool(part[low >> 3] >> (low & 7) & 1)
        at = bisect_left(part, low)
        return at < len(part) and part[at] == low

    def __iter__(self) -> Iterator[int]:
        """In rising order. It must not be changed meanwhile."""
        for stretch, part in self._in_order():
            first = stretch << STRETCH_BITS
            if isinstance(part, int):
                yield from range(first, (part + 1) << STRETCH_BITS)
            else:
                for low in _offsets(part):
                    yield first + low

    def _in_order(self) -> Iterator[tuple[int, array[int] | bytearray | int]]:
        """Parts, and of runs their last stretch."""
        whole: list[tuple[int, array[int] | bytearray | int]] = [
            *self._parts.items(),
            *zip(self._starts, self._ends, strict=True),
        ]
        whole.sort(key=itemgetter(0))
        return iter(whole)

    def copy(self) -> InteriorDeletes:
        """Another one that stays as this one is now."""
        found = InteriorDeletes()
        found._count = self._count
        found._parts = {stretch: part[:] for stretch, part in self._parts.items()}
        found._counts = dict(self._counts)
        found._starts, found._ends = self._starts[:], self._ends[:]
        return found

    def within(self, first: int, last: int) -> InteriorDeletes:
        """Another one with those from `first` to `last`, and perhaps a stretch more on either side; it stays as this one is now."""
        found, low, high = InteriorDeletes(), first >> STRETCH_BITS, last >> STRETCH_BITS
        stretches = range(low, high + 1) if high - low < len(self._parts) else self._parts
        for stretch in stretches:
            if low <= stretch <= high and (part := self._parts.get(stretch)) is not None:
                found._parts[stretch], found._counts[stretch] = part[:], self._counts[stretch]
        begin, end = bisect_left(self._ends, low), bisect_right(self._starts, high)
        found._starts = [max(start, low) for start in self._starts[begin:end]]
        found._ends = [min(stop, high) for stop in self._ends[begin:end]]
        found._count = sum(found._counts.values()) + sum(
            (stop - start + 1) << STRETCH_BITS for start, stop in zip(found._starts, found._ends, strict=True)
        )
        return found

    # ---- changing -------------------------------------------------------------------------------------------------

    def add(self, seq: int) -> None:
        stretch, low = seq >> STRETCH_BITS, seq & _LOW
        part = self._parts.get(stretch)
        if part is None:
            if self._starts and self._run_of(stretch) >= 0:
                return
            self._parts[stretch] = array("H", (low,))
            self._counts[stretch] = 1
            self._count += 1
            return
        if type(part) is bytearray:
            bit = 1 << (low & 7)
            if part[low >> 3] & bit:
                return
            part[low >> 3] |= bit
        else:
            at = bisect_left(part, low)
            if at < len(part) and part[at] == low:
                return
            part.insert(at, low)
            if len(part) > FEW_MAX:
                self._parts[stretch] = _bitmap(part)
        self._count += 1
        count = self._counts[stretch] + 1
        self._counts[stretch] = count
        if count == STRETCH:
            del self._parts[stretch], self._counts[stretch]
            self._add_whole(stretch)

    def discard(self, seq: int) -> None:
        if seq in self:
            self._remove(seq, seq + 1)

    def take_run(self, seq: int) -> int:
        """Take out the run that begins at `seq`; returns what follows it."""
        end = self.past(seq)
        if end != seq:
            self._remove(seq, end)
        return end

    def clear(self) -> None:
        self._count = 0
        self._parts.clear()
        self._counts.clear()
        self._starts.clear()
        self._ends.clear()

    def _remove(self, first: int, end: int) -> None:
        """Take out first … end - 1, which are all in it."""
        while first < end:
            stretch = first >> STRETCH_BITS
            limit = min(end, (stretch + 1) << STRETCH_BITS)
            run = self._run_of(stretch) if stretch not in self._parts else -1
            if run >= 0:
                last = min(self._ends[run], (end >> STRETCH_BITS) - 1)
                if first & _LOW or last < stretch:
                    self._split(run, stretch, stretch)
                    self._parts[stretch] = bytearray(b"\xff" * _BITMAP_BYTES)
                    self._counts[stretch] = STRETCH
                else:
                    self._split(run, stretch, last)
                    self._count -= (last - stretch + 1) << STRETCH_BITS
                    first = (last + 1) << STRETCH_BITS
                    continue
            self._remove_in(stretch, first & _LOW, limit - (stretch << STRETCH_BITS))
            first = limit

    def _remove_in(self, stretch: int, low: int, end: int) -> None:
        """Offsets low … end - 1 of a part."""
        part = self._parts[stretch]
        count = self._counts[stretch] - (end - low)
        self._count -= end - low
        if not count:
            del self._parts[stretch], self._counts[stretch]
            return
        self._counts[stretch] = count
        if type(part) is bytearray:
            begin, stop = low >> 3, (end + 7) >> 3
            bits = int.from_bytes(part[begin:stop], "little")
            bits &= ~(((1 << (end - low)) - 1) << (low & 7))
            part[begin:stop] = bits.to_bytes(stop - begin, "little")
            if count <= _FEW_AGAIN:
                self._parts[stretch] = array("H", _offsets(part))
        else:
            at = bisect_left(part, low)
            del part[at : at + end - low]

    # ---- runs of whole stretches ----------------------------------------------------------------------------------

    def _run_of(self, stretch: int) -> int:
        """Which run has the stretch; -1: none."""
        at = bisect_right(self._starts, stretch) - 1
        return at if at >= 0 and stretch <= self._ends[at] else -1

    def _add_whole(self, stretch: int) -> None:
        at = bisect_right(self._starts, stretch)
        follows = at > 0 and self._ends[at - 1] == stretch - 1
        precedes = at < len(self._starts) and self._starts[at] == stretch + 1
        if follows and precedes:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif follows:
            self._ends[at - 1] = stretch
        elif precedes:
            self._starts[at] = stretch
        else:
            self._starts.insert(at, stretch)
            self._ends.insert(at, stretch)

    def _split(self, run: int, first: int, last: int) -> None:
        """Take stretches first … last out of a run."""
        left = [(self._starts[run], first - 1), (last + 1, self._ends[run])]
        left = [each for each in left if each[0] <= each[1]]
        self._starts[run : run + 1] = [begin for begin, _ in left]
        self._ends[run : run + 1] = [end for _, end in left]

    # ---- finding --------------------------------------------------------------------------------------------------

    def past(self, seq: int) -> int:
        """The first sequence from `seq` on that is not deleted."""
        while True:
            stretch = seq >> STRETCH_BITS
            part = self._parts.get(stretch)
            if part is None:
                run = self._run_of(stretch) if self._starts else -1
                if run < 0:
                    return seq
                seq = (self._ends[run] + 1) << STRETCH_BITS
                continue
            low = seq & _LOW
            if type(part) is bytearray:
                bits = int.from_bytes(part[low >> 3 :], "little") >> (low & 7)
                low += (~bits & (bits + 1)).bit_length() - 1
            else:
                at = bisect_left(part, low)
                while at < len(part) and part[at] == low:
                    at, low = at + 1, low + 1
            seq = (stretch << STRETCH_BITS) + low
            if low < STRETCH:
                return seq

    def before(self, seq: int) -> int:
        """The last sequence up to `seq` that is not deleted; -1 where there is none."""
        while seq >= 0:
            stretch = seq >> STRETCH_BITS
            part = self._parts.get(stretch)
            if part is None:
                run = self._run_of(stretch) if self._starts else -1
                if run < 0:
                    return seq
                seq = (self._starts[run] << STRETCH_BITS) - 1
                continue
            low = seq & _LOW
            if type(part) is bytearray:
                absent = ~int.from_bytes(part, "little") & ((1 << (low + 1)) - 1)
                low = absent.bit_length() - 1
            else:
                at = bisect_right(part, low) - 1
                while at >= 0 and part[at] == low:
                    at, low = at - 1, low - 1
            seq = (stretch << STRETCH_BITS) + low
            if low >= 0:
                return seq
        return -1

    def absent(self, first: int, end: int) -> Sequence[int]:
        """Those of first … end - 1 that are not deleted."""
        place = self.past(first)
        if place == first and first >> STRETCH_BITS not in self._parts and end <= (first | _LOW) + 1:
            return range(first, end)
        found: list[int] = []
        while place < end:
            found.append(place)
            place = self.past(place + 1)
        return found

    def count_behind(self, seq: int) -> int:
        """How many are greater than `seq`."""
        own = seq >> STRETCH_BITS
        found = sum(count for stretch, count in self._counts.items() if stretch > own)
        for start, end in zip(self._starts, self._ends, strict=True):
            if end >= own:
                found += ((end + 1) << STRETCH_BITS) - max(start << STRETCH_BITS, seq + 1)
        part = self._parts.get(own)
        if part is not None:
            low = seq & _LOW
            if type(part) is bytearray:
                found += (int.from_bytes(part, "little") >> (low + 1)).bit_count()
            else:
                found += len(part) - bisect_right(part, low)
        return found

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def encoded(self) -> Iterator[bytes]:
        """In pieces for `take`, as it is now. Equal sets give equal bytes, whatever form their parts have."""
        found = self.copy()

        def pieces() -> Iterator[bytes]:
            stretches = sorted(found._parts)
            for at in range(0, max(len(stretches), 1), PIECE_STRETCHES):
                yield found._encode(stretches[at : at + PIECE_STRETCHES])
                found._starts, found._ends = [], []

        return pieces() if found else iter(())

    def _encode(self, stretches: Iterable[int]) -> bytes:
        """All runs, and these parts."""
        parts = [u32(len(self._starts))]
        parts += [u64(start) + u64(end) for start, end in zip(self._starts, self._ends, strict=True)]
        for stretch in stretches:
            part = self._parts[stretch]
            few = self._counts[stretch] <= FEW_MAX
            if few and type(part) is bytearray:
                part = array("H", _offsets(part))
            parts.append(
                u64(stretch) + u8(few) + blob(part.tobytes() if isinstance(part, array) else bytes(part))
            )
        return b"".join(parts)

    def take(self, reader: Reader) -> None:
        """Add a piece, behind what is there.

        Raises:
            ValueError: it is none.
        """
        for _ in range(reader.u32()):
            start, end = reader.u64(), reader.u64()
            self._starts.append(start)
            self._ends.append(end)
            self._count += (end - start + 1) << STRETCH_BITS
        while reader.left:
            stretch, few, data = reader.u64(), reader.u8(), bytes(reader.blob())
            if few:
                part = array("H")
                part.frombytes(data)
                self._parts[stretch], count = part, len(part)
            else:
                self._parts[stretch], count = bytearray(data), int.from_bytes(data, "little").bit_count()
            self._counts[stretch] = count
            self._count += count


def _bitmap(offsets: array[int] | bytearray) -> bytearray:
    bits = bytearray(_BITMAP_BYTES)
    for low in offsets:
        bits[low >> 3] |= 1 << (low & 7)
    return bits


def _offsets(part: array[int] | bytearray) -> Iterable[int]:
    if type(part) is not bytearray:
        return part
    return ((at << 3) + bit for at, byte in enumerate(part) if byte for bit in range(8) if byte >> bit & 1)
