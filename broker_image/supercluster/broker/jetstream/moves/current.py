"""The move that a stream's leader carries out: the one in the map, or the remains of a move that the map does
not know.

`moves/mover.py` carries out the move. Each new leader begins anew, with its predecessor's notes in the
stream's log.
"""

from __future__ import annotations

from supercluster.broker.jetstream.moves.leftover import Leftovers
from supercluster.broker.jetstream.moves.mover import Mover
from supercluster.broker.jetstream.moves.moving_stream import MovingStream
from supercluster.broker.raft.confchange import node_of


class CurrentMove:
    """Of one stream's replica. While it does not lead there is none."""

    def __init__(self, moving: MovingStream) -> None:
        self._moving = moving
        self._replica, self._stream, self._host = moving.replica, moving.stream, moving.host
        self.mover: Mover | None = None
        self._leftovers = Leftovers()

    def follow(self, now_ms: int) -> None:
        """The map shows a move, another one, or none; or this replica leads from now on."""
        move = (self._stream.assignment.move or self._leftovers.move) if self._replica.serves else None
        if self.mover is not None and (move is None or move.id != self.mover.move.id):
            self.mover.close()
            self.mover = None
        if move is None:
            return
        if self.mover is None:
            self.mover = Mover(self._moving, move, now_ms)
        else:
            self.mover.set_move(move)
        self._host.touch(self._replica.id)

    def wake(self) -> None:
        """What the move may have waited for is applied."""
        if self.mover is not None:
            self.mover.wake()
            self._host.touch(self._replica.id)

    def takes_in(self, member: str) -> bool:
        """A copy is open: is it a target's, which the move takes in?"""
        if self.mover is None or not self.mover.names_node(node_of(member)):
            return False
        self.mover.asked_to_join(member)
        return True

    def advance(self, now_ms: int) -> None:
        """In the turn of a serving leader: take the move's next step. Is there something of one that the map does not know?"""
        fresh = self._host.map.is_fresh
        if self._leftovers.look(
            self._replica.raft.membership, self._stream.assignment, now_ms, is_fresh=fresh
        ):
            self._tell_leftover()
            self.follow(now_ms)
        if self.mover is not None:
            self.mover.advance(now_ms)

    def stop(self) -> None:
        """This replica does not lead any more."""
        if self.mover is not None:
            self.mover.close()
            self.mover = None
        self._leftovers = Leftovers()

    def deadline_ms(self) -> int | None:
        """When there is something to do about it."""
        move_ms = self.mover.deadline_ms() if self.mover is not None else None
        if self._leftovers.since_ms is None:
            return move_ms
        leftover_ms = self._leftovers.deadline_ms()
        return min((at for at in (move_ms, leftover_ms) if at is not None), default=None)

    def _tell_leftover(self) -> None:
        left = self._leftovers.move
        if left is not None:
            where = "goes back to" if left.cancelled else "goes on to"
            members = ", ".join(left.origin if left.cancelled else left.targets)
            text = f"the map knows no move of stream {self._stream.assignment.name}, whose group {where} {members}"
            self._host.event(self._replica.id, "MoveLost", text)
