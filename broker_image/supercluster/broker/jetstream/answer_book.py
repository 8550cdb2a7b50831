"""What a leader has answered, and what it is about to: a request that arrives again is not carried out again.

The broker where the client is repeats a request that stays unanswered, since frames are lost with links. A repeat of
one that is under way waits for the same answer; a repeat of one that was answered gets that answer again. Both are
bounded: what was forgotten is carried out anew, as after a change of leader.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto

ANSWERS_MAX = 4096
# Long answers are those of calls that only read; such a call may as well be carried out again.
ANSWER_BYTES_MAX = 4096


class Known(Enum):
    """What the book says of a request."""

    NEW = auto()
    UNDER_WAY = auto()


class AnswerBook:
    """Requests by (node that asks, its number)."""

    def __init__(self) -> None:
        self._under_way: set[tuple[str, int]] = set()
        self._answered: OrderedDict[tuple[str, int], tuple[int, bytes]] = OrderedDict()

    def begin(self, node: str, number: int) -> Known | tuple[int, bytes]:
        """Is it new (and under way from now on), under way, or answered: then (status, payload)?"""
        key = (node, number)
        known = self._answered.get(key)
        if known is not None:
            return known
        if key in self._under_way:
            return Known.UNDER_WAY
        self._under_way.add(key)
        return Known.NEW

    def answered(self, node: str, number: int, status: int, payload: bytes) -> None:
        """It was answered."""
        key = (node, number)
        self._under_way.discard(key)
        if len(payload) <= ANSWER_BYTES_MAX:
            self._answered[key] = (status, payload)
            if len(self._answered) > ANSWERS_MAX:
                self._answered.popitem(last=False)

    def dropped(self, node: str, number: int) -> None:
        """It was sent on to another leader: here it is new again."""
        self._under_way.discard((node, number))

    def forget_node(self, node: str) -> None:
        """The broker is out of contact: nobody there waits for what is under way."""
        self._under_way = {key for key in self._under_way if key[0] != node}
