"""A leader's answers, and the requests that it is working on: a request that arrives twice is not carried out
twice.

The client's broker repeats an unanswered request, since frames are lost with links. A repetition of a running
request waits for its answer; a repetition of an answered request gets the same answer. Both are bounded: a
request that was forgotten is carried out again, as after a change of leader.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto

ANSWERS_MAX = 4096
# Long answers are those of calls that only read; such a call may as well be carried out again.
ANSWER_BYTES_MAX = 4096


class Known(Enum):
    """What the cache says of a request."""

    NEW = auto()
    UNDER_WAY = auto()


Asked = tuple[str, str, int]
"""A request: the node that asks, the incarnation of its volume, its number there."""


class AnswerCache:
    """What is known of each request."""

    def __init__(self) -> None:
        self._under_way: set[Asked] = set()
        self._answered: OrderedDict[Asked, tuple[int, bytes]] = OrderedDict()

    def begin(self, asked: Asked) -> Known | tuple[int, bytes]:
        """Is it new (and under way from now on), under way, or answered: then (status, payload)?"""
        known = self._answered.get(asked)
        if known is not None:
            return known
        if asked in self._under_way:
            return Known.UNDER_WAY
        self._under_way.add(asked)
        return Known.NEW

    def answered(self, asked: Asked, status: int, payload: bytes) -> None:
        self._under_way.discard(asked)
        if len(payload) <= ANSWER_BYTES_MAX:
            self._answered[asked] = (status, payload)
            if len(self._answered) > ANSWERS_MAX:
                self._answered.popitem(last=False)

    def dropped(self, asked: Asked) -> None:
        """It was sent on to another leader: here it is new again."""
        self._under_way.discard(asked)

    def forget_node(self, node: str) -> None:
        """The broker is out of contact: nobody there waits for what is under way."""
        self._under_way = {asked for asked in self._under_way if asked[0] != node}
