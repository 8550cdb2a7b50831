"""The comparison of copies, on a moving stream's leader: asks the members, hashes its own copy, and keeps the
outcome.

`supercluster.broker.moves.comparison.Comparison` decides whether copies are equal. This module handles the
frames and the marks, and starts again if a log's head was dropped or a mark forgotten.
"""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.jetstream.links.comparison_frames import (
    Answered,
    HashesAsked,
    HashesTold,
    encode_ask,
)
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.moves.moving_stream import MovingStream
from supercluster.broker.moves.comparison import ASK_AGAIN_MS, Comparison
from supercluster.broker.moves.note import Note
from supercluster.broker.moves.range_hash import chained
from supercluster.broker.raft.confchange import node_of

# A comparison that had to start anew so often does not come to an end: the move is taken back.
STARTS_MAX = 50


class MoveComparison:
    def __init__(self, moving: MovingStream, now_ms: int) -> None:
        self._moving = moving
        self._replica, self._stream, self._host = moving.replica, moving.stream, moving.host
        self._comparison: Comparison | None = None
        self._joint = False
        self._goes_on = False
        """Does it begin where the comparison before the joint membership ended?"""
        self._floor_seq = 0
        self._starts = 0
        self.number = (self._replica.raft.term << 16) + 1
        """Of the newest comparison: larger than those of earlier leaders."""
        self._own_from: int | None = None
        self._own_asked_ms = self._own_since_ms = 0
        """When this replica's own page was asked for last, and first."""
        self._went_on_ms = now_ms
        self._before = Note("")
        """What is hashed with; None until it is known who is compared."""

    def is_for(self, *, joint: bool) -> bool:
        return self._comparison is not None and self._joint == joint

    @property
    def is_stale(self) -> bool:
        """Does it have to start anew, with a new mark?"""
        found = self._comparison
        return found is not None and bool(found.floor_moved or found.mark_lost)

    @property
    def difference(self) -> str:
        if self._starts > STARTS_MAX:
            return f"the comparison was started {self._starts} times and was never completed"
        return self._comparison.difference if self._comparison is not None else ""

    def equal(self, *, joint: bool) -> frozenset[str]:
        """Who compared equal, in this shape of the membership."""
        if self._comparison is None or not self.is_for(joint=joint):
            return frozenset()
        return self._comparison.equal

    def start(self, mark: int, note: Note, now_ms: int, *, joint: bool) -> None:
        """Compare up to an entry that was just appended. What an earlier comparison settled is not repeated in the
        joint membership, which was entered because of it."""
        if self._comparison is not None and self._joint == joint:
            self._floor_seq = max(self._floor_seq, self._comparison.floor_moved)
            self._starts += 1
        self._joint = joint
        self._before = note
        self.number += 1
        tail = self._goes_on = joint and note.ranges > 0
        first_range = note.next_range if tail else 0
        floor = max(self._floor_seq, self._stream.state.first_seq)
        self._comparison = Comparison(
            self.number,
            mark,
            floor,
            first_range,
            chain=bytes.fromhex(note.chain) if tail else b"",
            ranges=note.ranges if tail else 0,
        )
        self._own_from = None

    def go_on(self, members: tuple[str, ...], now_ms: int) -> None:
        """Ask whoever is to be asked."""
        found = self._comparison
        if found is None or self.is_stale or self._replica.applied_index < found.mark:
            return
        rested_ms, self._went_on_ms = now_ms - self._went_on_ms, now_ms
        if rested_ms > ASK_AGAIN_MS:
            found.rested(rested_ms)
            self._own_since_ms += rested_ms
        found.with_members(members)
        if self._own_from is None:
            self._own_from = found.first_range
            self._ask_myself(now_ms)
        elif not found.knows_own and now_ms - self._own_asked_ms >= ASK_AGAIN_MS:
            self._ask_myself(now_ms, again=True)  # So its head is held, too, while it hashes.
        for ask in found.asks(now_ms):
            body = encode_ask(self._ask(ask.member, ask.from_range))
            self._host.post(node_of(ask.member), Frame.MOVE_HASHES, body)

    def _ask(self, member: str, from_range: int) -> HashesAsked:
        found = self._comparison
        assert found is not None
        return HashesAsked(self._replica.id, member, found.number, found.mark, found.floor_seq, from_range)

    def unanswered_ms(self, now_ms: int) -> dict[str, int]:
        """Members that have not told the hashes they were asked for, this one among them → for how long."""
        found = self._comparison
        if found is None or self.is_stale or found.difference:
            return {}
        waits = found.unanswered_ms(now_ms)
        if self._own_from is not None and not found.knows_own:
            waits[self._replica.member] = now_ms - self._own_since_ms
        return waits

    def _ask_myself(self, now_ms: int, *, again: bool = False) -> None:
        assert self._own_from is not None
        self._own_asked_ms = now_ms
        if not again:
            self._own_since_ms = now_ms
        ask = self._ask(self._replica.member, self._own_from)
        self._moving.range_hasher.ask(ask, self.on_hashes, now_ms)

    def on_hashes(self, told: HashesTold) -> None:
        """Hashes of a member, or of this replica."""
        found = self._comparison
        if found is None or told.number != found.number:
            return
        is_end = told.status is Answered.END
        if told.status is Answered.LACKS_HEAD:
            found.with_members((*found.members, told.member))
            found.lacks_head(told.member, told.first_seq)
        elif told.member != self._replica.member:
            found.answered(told.member, told.from_range, told.ranges, is_end=is_end, state=told.state)
        elif told.from_range == self._own_from:
            found.own(told.ranges)
            if told.ranges:
                self._own_from = told.ranges[-1].number + 1
            if is_end:
                found.own_end(told.state)
            else:
                self._ask_myself(self._host.clock.monotonic_ms())

    def noted(self, note: Note) -> Note:
        """The note with what this comparison found. Asked for twice, it says the same."""
        found, before = self._comparison, self._before
        if found is None:
            return note.plain()
        results = {**note.results, **dict.fromkeys(sorted(found.equal), "equal")}
        if self.difference:
            results[found.differs or "comparison"] = self.difference.removeprefix(f"{found.differs} ")
        ranges, chain, sequences, growing = found.complete_ranges()
        own = found.own_ranges
        # Nothing is compared after the joint membership: the last range counts as it is. But the next leader may have to
        # compare again, if this one does not get to leave; so it is kept apart from what need not be repeated.
        end = own[-1] if self._joint and own else None
        last = own[-1].first_seq + own[-1].count - 1 if own else note.last_seq
        return replace(
            note.plain(),
            difference=self.difference,
            ranges=ranges,
            chain=chain.hex(),
            sequences=sequences + (before.sequences if self._goes_on else 0),
            first_seq=before.first_seq or (own[0].first_seq if own else 0),
            next_range=growing,
            last_seq=last,
            live_messages=self._moving.range_hasher.messages_at(found.mark) or before.live_messages,
            end_sequences=end.count if end is not None else 0,
            end_chain=chained(chain, end).hex() if end is not None else "",
            results=results,
        )
