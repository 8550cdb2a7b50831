"""The cut of a stream: its stage between its old super-cluster (blue) and its new one (green).

Five sections of the stream's log change it. Their effect depends on the state alone, so that all replicas
agree::

    none --FENCED--> FENCED --HANDED--> HANDED --OPENED--> OPEN
      ^---UNFENCED-----'                  |---REFUSED---> REFUSED
      ^---UNFENCED, which says that green has refused----'

A section that does not fit the stage has no effect. FENCED, UNFENCED and HANDED are blue's; OPENED and
REFUSED are green's, in the group that goes on with blue's log. OPEN stays as evidence, until a next migration
fences the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from supercluster.broker.jetstream.encoding.codec import Reader, WireError, blob, text, u8, u32, u64
from supercluster.broker.jetstream.encoding.sections import Section

# A group has a few members; a longer list is no list of them.
MEMBERS_MAX = 64


class CutStage(IntEnum):
    """What the last section that fitted has made of the stream."""

    NONE = 0
    FENCED = 1
    HANDED = 2
    OPEN = 3
    REFUSED = 4


@dataclass(frozen=True, slots=True)
class Fence:
    """Section FENCED: the migration and its attempt, green's world, and its members under their far names."""

    migration: str
    attempt: int
    world: str
    members: tuple[str, ...]

    def encode(self) -> bytes:
        head = text(self.migration) + u64(self.attempt) + text(self.world)
        return head + u32(len(self.members)) + b"".join(map(text, self.members))

    @classmethod
    def decode(cls, reader: Reader) -> Fence:
        """
        Raises:
            WireError: it is none.
        """
        migration, attempt, world, count = reader.text(), reader.u64(), reader.text(), reader.u32()
        if count > MEMBERS_MAX:
            raise WireError(f"a fence with {count} members")
        return cls(migration, attempt, world, tuple(reader.text() for _ in range(count)))


@dataclass(frozen=True, slots=True)
class Unfenced:
    """Section UNFENCED. `is_refused`: green has committed its refusal of that attempt, so it counts behind HANDED too."""

    attempt: int
    is_refused: bool

    def encode(self) -> bytes:
        return u64(self.attempt) + u8(self.is_refused)

    @classmethod
    def decode(cls, reader: Reader) -> Unfenced:
        return cls(reader.u64(), bool(reader.u8()))


@dataclass(frozen=True, slots=True)
class Handed:
    """Section HANDED: the digest of blue's state at the fence."""

    attempt: int
    digest: bytes

    def encode(self) -> bytes:
        return u64(self.attempt) + blob(self.digest)

    @classmethod
    def decode(cls, reader: Reader) -> Handed:
        return cls(reader.u64(), bytes(reader.blob()))


@dataclass(frozen=True, slots=True)
class Opened:
    """Section OPENED: `world` is blue's."""

    attempt: int
    digest: bytes
    world: str

    def encode(self) -> bytes:
        return u64(self.attempt) + blob(self.digest) + text(self.world)

    @classmethod
    def decode(cls, reader: Reader) -> Opened:
        return cls(reader.u64(), bytes(reader.blob()), reader.text())


def encode_refused(attempt: int) -> bytes:
    """Section REFUSED."""
    return u64(attempt)


@dataclass(frozen=True, slots=True)
class Cut:
    """The attempt that the stage belongs to, and where it was reached."""

    stage: CutStage = CutStage.NONE
    migration: str = ""
    attempt: int = 0
    world: str = ""
    """Green's."""
    members: tuple[str, ...] = ()
    """Green's, under their far names."""
    digest: bytes = b""
    """Of the state at the fence, from HANDED on."""
    last_seq: int = 0
    """The stream's at the fence."""
    fenced_index: int = 0
    """The entry FENCED."""
    fenced_ns: int = 0
    """Leader time at the fence."""
    handed_index: int = 0
    """The entry HANDED, and its term: a copy of green goes on behind it."""
    handed_term: int = 0

    @property
    def is_closed(self) -> bool:
        """Does the stream take nothing in?"""
        return self.stage in (CutStage.FENCED, CutStage.HANDED, CutStage.REFUSED)

    def encode(self) -> bytes:
        """Empty before any fence."""
        if self == NO_CUT:
            return b""
        fence = Fence(self.migration, self.attempt, self.world, self.members)
        numbers = (self.last_seq, self.fenced_index, self.fenced_ns, self.handed_index, self.handed_term)
        return u8(self.stage) + fence.encode() + blob(self.digest) + b"".join(map(u64, numbers))

    @classmethod
    def decode(cls, reader: Reader) -> Cut:
        """
        Raises:
            WireError: it is none.
        """
        number = reader.u8()
        if number not in set(CutStage):
            raise WireError(f"a cut in stage {number}")
        fence, digest = Fence.decode(reader), bytes(reader.blob())
        numbers = (reader.u64(), reader.u64(), reader.u64(), reader.u64(), reader.u64())
        return cls(
            CutStage(number), fence.migration, fence.attempt, fence.world, fence.members, digest, *numbers
        )


NO_CUT = Cut()


@dataclass(frozen=True, slots=True)
class At:
    """The entry that a section stands in, and the stream's last sequence and leader time there."""

    index: int
    term: int
    last_seq: int
    time_ns: int


def _fenced(cut: Cut, reader: Reader, at: At) -> Cut:
    fence = Fence.decode(reader)
    if cut.is_closed:
        return cut
    return Cut(
        CutStage.FENCED,
        *(fence.migration, fence.attempt, fence.world, fence.members),
        last_seq=at.last_seq,
        fenced_index=at.index,
        fenced_ns=at.time_ns,
    )


def _unfenced(cut: Cut, reader: Reader, at: At) -> Cut:
    found = Unfenced.decode(reader)
    ends = cut.stage is CutStage.FENCED or (cut.stage is CutStage.HANDED and found.is_refused)
    return NO_CUT if ends and cut.attempt == found.attempt else cut


def _handed(cut: Cut, reader: Reader, at: At) -> Cut:
    found = Handed.decode(reader)
    if cut.stage is not CutStage.FENCED or cut.attempt != found.attempt:
        return cut
    return replace(
        cut, stage=CutStage.HANDED, digest=found.digest, handed_index=at.index, handed_term=at.term
    )


def _opened(cut: Cut, reader: Reader, at: At) -> Cut:
    found = Opened.decode(reader)
    if cut.stage is not CutStage.HANDED or (cut.attempt, cut.digest) != (found.attempt, found.digest):
        return cut
    return replace(cut, stage=CutStage.OPEN)


def _refused(cut: Cut, reader: Reader, at: At) -> Cut:
    attempt = reader.u64()
    if cut.stage is not CutStage.HANDED or cut.attempt != attempt:
        return cut
    return replace(cut, stage=CutStage.REFUSED)


_EFFECTS: dict[int, Callable[[Cut, Reader, At], Cut]] = {
    Section.FENCED: _fenced,
    Section.UNFENCED: _unfenced,
    Section.HANDED: _handed,
    Section.OPENED: _opened,
    Section.REFUSED: _refused,
}
CUT_SECTIONS = frozenset(_EFFECTS)


def after(cut: Cut, kind: int, body: bytes | memoryview, at: At) -> Cut:
    """The cut behind a section of `CUT_SECTIONS`; the same object where the section has no effect.

    Raises:
        WireError: the section is not as its writer makes it.
    """
    return _EFFECTS[kind](cut, Reader(body), at)
