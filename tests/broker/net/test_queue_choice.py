"""Which member of a queue group gets a message: chosen by the randomness that is handed in, brokers by their members."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.broker.net.routing.queue_choice import QueueChoice

pytestmark = pytest.mark.covers("CL-2")


def choice(*drawn: float) -> QueueChoice:
    """With randomness that is known beforehand."""
    return QueueChoice(iter(drawn).__next__)


def test_brokers_are_drawn_by_the_number_of_their_members() -> None:
    found = choice(0.0, 0.2499, 0.25, 0.6, 0.9999)
    assert [found.broker({"a": 1, "b": 3}) for _ in range(5)] == ["a", "a", "b", "b", "b"]


def test_the_only_broker_is_not_drawn() -> None:
    assert choice().broker({"a": 7}) == "a"


def test_members_are_drawn_alike() -> None:
    members: list[Any] = ["one", "two", "three"]
    found = choice(0.0, 0.34, 0.9999)
    assert [found.member(members) for _ in range(3)] == members
    assert choice().member(members[:1]) is members[0], "nothing is drawn for one"
