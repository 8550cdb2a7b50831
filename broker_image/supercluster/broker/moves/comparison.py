"""Compares copies of a stream, on the asking side: it asks each member for pages of hashes (`range_hash.py`),
and compares them with its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from supercluster.broker.moves.range_hash import RangeHash, chained

# An ask that is not answered is repeated after this.
ASK_AGAIN_MS = 1000
# The hash of a state; a digest of its contents follows.
_STATE_BYTES = 16


@dataclass(slots=True)
class _Member:
    """One copy that is compared."""

    ranges: int = 0
    """How many of the ranges were compared."""
    held: list[RangeHash] = field(default_factory=list)
    """Of the page that was answered last: what has no own hash yet to be compared with."""
    page_from: int = 0
    asked_ms: int | None = None
    unanswered_since_ms: int | None = None
    """When it was first asked for the page."""
    told_all: bool = False
    state: bytes = b""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send me the hashes of your ranges from this one on."""

    member: str
    from_range: int


class Comparison:
    """The comparison of one leader's copy with others', up to one mark. It knows no time but what it is told."""

    def __init__(
        self, number: int, mark: int, floor_seq: int, first_range: int, *, chain: bytes = b"", ranges: int = 0
    ) -> None:
        """`chain` and `ranges` are of what an earlier comparison settled before `first_range`."""
        self.number = number
        """Tells this comparison's answers from those of others."""
        self.mark = mark
        """Index of the entry up to which ranges, and at which states, are compared."""
        self.floor_seq = floor_seq
        self.first_range = first_range
        self.difference = ""
        self.differs = ""
        """Who differs."""
        self.floor_moved = 0
        """Not 0: somebody has nothing before this sequence any more; the comparison has to start anew from it."""
        self.mark_lost = False
        """Somebody does not know its state at the mark any more: a new mark is needed."""
        self._chain_before = chain
        self._ranges_before = ranges
        self.own_ranges: list[RangeHash] = []
        self.knows_own = False
        """Were all own ranges told?"""
        self._state = b""
        self._members: dict[str, _Member] = {}

    # ---- own side -------------------------------------------------------------------------------------------------

    def own(self, ranges: Sequence[RangeHash]) -> None:
        self.own_ranges += ranges
        for name in self._members:
            self._compare(name)

    def own_end(self, state: bytes) -> None:
        """All own ranges were told; `state` is the hash of the own state at the mark."""
        self.knows_own = True
        self._state = state
        for name in self._members:
            self._compare(name)

    # ---- the others -----------------------------------------------------------------------------------------------

    def with_members(self, members: Iterable[str]) -> None:
        """Compare with these; what is known of others is forgotten."""
        wanted = frozenset(members)
        for name in sorted(wanted - self._members.keys()):
            self._members[name] = _Member(page_from=self.first_range)
        for name in self._members.keys() - wanted:
            del self._members[name]

    def asks(self, now_ms: int) -> list[Ask]:
        """Who is to be asked now, for which page."""
        due: list[Ask] = []
        for name, member in self._members.items():
            if member.told_all or member.held or self.difference:
                continue
            if member.asked_ms is None or now_ms - member.asked_ms >= ASK_AGAIN_MS:
                member.asked_ms = now_ms
                if member.unanswered_since_ms is None:
                    member.unanswered_since_ms = now_ms
                due.append(Ask(name, member.page_from))
        return due

    def rested(self, for_ms: int) -> None:
        """Nobody was asked for so long, since the copies had to catch up first: it is not they who let others wait."""
        for member in self._members.values():
            if member.unanswered_since_ms is not None:
                member.unanswered_since_ms += for_ms

    def unanswered_ms(self, now_ms: int) -> dict[str, int]:
        """Members that have not answered the newest ask → for how long."""
        return {
            name: now_ms - member.unanswered_since_ms
            for name, member in self._members.items()
            if member.unanswered_since_ms is not None and not self.difference
        }

    def answered(
        self, name: str, from_range: int, ranges: Sequence[RangeHash], *, is_end: bool, state: bytes
    ) -> None:
        """A page of a member's hashes; with the last one, the hash of its state at the mark (empty: it does not know)."""
        member = self._members.get(name)
        if member is None or member.told_all or member.held or from_range != member.page_from:
            return  # A repeated or late answer.
        member.asked_ms = member.unanswered_since_ms = None
        member.held = list(ranges)
        if ranges:
            member.page_from = ranges[-1].number + 1
        if is_end:
            member.told_all = True
            member.state = state
            self.mark_lost |= not state
        self._compare(name)

    def lacks_head(self, name: str, first_seq: int) -> None:
        """A member has nothing before `first_seq` any more."""
        if name in self._members:
            self.floor_moved = max(self.floor_moved, first_seq, self.floor_seq + 1)

    def _compare(self, name: str) -> None:
        member = self._members[name]
        while member.held and member.ranges < len(self.own_ranges) and not self.difference:
            found = self.own_ranges[member.ranges].differs_from(member.held[0])
            if found:
                self._differ(name, f"differs in {found}")
            member.ranges += 1
            del member.held[0]
        if self.difference or not self.knows_own:
            return
        if member.held or (member.told_all and member.ranges < len(self.own_ranges)):
            self._differ(name, f"has another number of ranges than the {len(self.own_ranges)} here")
        elif member.told_all and member.state and member.state != self._state:
            mine, theirs = self._state[:_STATE_BYTES], member.state[:_STATE_BYTES]
            what = "its state"
            if mine == theirs:
                mine, theirs = self._state[_STATE_BYTES:], member.state[_STATE_BYTES:]
                what = "its deleted sequences, message ids or subjects"
            self._differ(
                name, f"differs in {what} at entry {self.mark} ({mine.hex()} here, {theirs.hex()} there)"
            )

    def _differ(self, name: str, how: str) -> None:
        self.differs, self.difference = name, f"{name} {how}"

    # ---- what came of it ------------------------------------------------------------------------------------------

    @property
    def equal(self) -> frozenset[str]:
        """Members that have the same ranges, and the same state at the mark."""
        if not self.knows_own or self.difference:
            return frozenset()
        return frozenset(
            name
            for name, member in self._members.items()
            if member.told_all
            and not member.held
            and member.ranges == len(self.own_ranges)
            and member.state == self._state
        )

    @property
    def members(self) -> tuple[str, ...]:
        """Who is compared."""
        return tuple(self._members)

    def complete_ranges(self) -> tuple[int, bytes, int, int]:
        """(how many, their chained hash, their sequences, number of the first range that may still grow): the part that
        a later comparison need not repeat."""
        complete = self.own_ranges[:-1]
        chain = self._chain_before
        for found in complete:
            chain = chained(chain, found)
        growing = self.own_ranges[-1].number if self.own_ranges else self.first_range
        return self._ranges_before + len(complete), chain, sum(found.count for found in complete), growing
