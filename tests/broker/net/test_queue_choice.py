"""Which member of a queue group gets a message: chosen by the randomness that is handed in, brokers by their members."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.broker.net.router import Router
from supercluster.broker.protocol.sublist import GroupMatch

pytestmark = pytest.mark.covers("CL-2")


class Drawn:
    """Randomness that is known beforehand."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def random(self) -> float:
        return self.values.pop(0)


def router(*drawn: float) -> Router:
    turn: Any = None  # Nothing is written here.
    return Router(turn, Drawn(*drawn))


def test_brokers_are_drawn_by_the_number_of_their_members() -> None:
    group: GroupMatch[Any] = GroupMatch(b"q")
    group.remote = {"a": 1, "b": 3}
    found = router(0.0, 0.2499, 0.25, 0.6, 0.9999)
    assert [found._node_of(group) for _ in range(5)] == ["a", "a", "b", "b", "b"]


def test_the_only_broker_is_not_drawn() -> None:
    group: GroupMatch[Any] = GroupMatch(b"q")
    group.remote = {"a": 7}
    assert router()._node_of(group) == "a"


def test_members_are_drawn_alike() -> None:
    members: list[Any] = ["one", "two", "three"]
    found = router(0.0, 0.34, 0.9999)
    assert [found._one_of(members) for _ in range(3)] == members
    assert router()._one_of(members[:1]) is members[0], "nothing is drawn for one"
