"""A message that is stored concerns few of a stream's consumers: the others are not looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from supercluster.broker.jetstream.consumer.ready_set import ReadySet

pytestmark = pytest.mark.covers("RP-3")

CONSUMERS = 10_000


class Counted(dict[str, None]):
    """Counts who is looked at."""

    looked_at = 0

    def keys(self) -> Any:
        Counted.looked_at += len(self)
        return super().keys()

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            Counted.looked_at += 1
            yield name


def ready(count: int, filters: str) -> ReadySet:
    found = ReadySet()
    for number in range(count):
        found.put(f"c{number}", (filters.format(number),))
        found.note(f"c{number}", waits=True, holds=False, deadline_ns=None)
    return found


def test_a_message_finds_the_consumer_that_it_is_for_among_ten_thousand() -> None:
    found = ready(CONSUMERS, "s.{}.>")
    found._waiting = {key: Counted(names) for key, names in found._waiting.items()}
    Counted.looked_at = 0
    assert list(found.waiting_for([b"s.77.x"])) == ["c77"]
    assert list(found.waiting_for([b"t.77.x"])) == []
    assert Counted.looked_at == 1


def test_who_does_not_wait_costs_nothing() -> None:
    found = ready(CONSUMERS, ">")
    for number in range(1, CONSUMERS):
        found.note(f"c{number}", waits=False, holds=False, deadline_ns=None)
    found._waiting = {key: Counted(names) for key, names in found._waiting.items()}
    Counted.looked_at = 0
    assert list(found.waiting_for([b"s"])) == ["c0"]
    assert found.all_waiting() == ["c0"]
    assert Counted.looked_at == 2


def test_a_consumer_with_several_filters_is_found_by_each() -> None:
    found = ReadySet()
    found.put("c", ("a.*", "b"))
    found.note("c", waits=True, holds=False, deadline_ns=None)
    assert list(found.waiting_for([b"a.1", b"b", b"c"])) == ["c"]
    found.put("c", ("c",))
    assert list(found.waiting_for([b"c"])) == [], "it has to be noted anew"
    found.note("c", waits=True, holds=False, deadline_ns=None)
    assert list(found.waiting_for([b"a.1", b"b"])) == []
    assert list(found.waiting_for([b"c"])) == ["c"]


def test_who_is_gone_is_not_found_and_has_no_deadline() -> None:
    found = ReadySet()
    for name in ("c", "d"):
        found.put(name, ())
        found.note(name, waits=True, holds=False, deadline_ns=5)
    found.drop("c")
    assert list(found.waiting_for([b"x"])) == ["d"]
    assert found.due(5) == ["d"]
    assert found.next_ns() is None
    found.drop("d")
    assert list(found.waiting_for([b"x"])) == []


def test_only_whose_time_has_come_is_due() -> None:
    found = ready(CONSUMERS, "s.{}")
    for number in range(CONSUMERS):
        found.note(f"c{number}", waits=True, holds=False, deadline_ns=1000 + number)
    assert found.next_ns() == 1000
    assert found.due(1001) == ["c0", "c1"]
    assert found.next_ns() == 1002


def test_a_removed_message_concerns_those_of_its_subject_that_hold_something() -> None:
    found = ready(CONSUMERS, "s.{}.>")
    for number in (1, 2):
        found.note(f"c{number}", waits=False, holds=True, deadline_ns=None)
    assert list(found.holding(b"s.1.x")) == ["c1"]
    assert list(found.holding(b"s.3.x")) == []
    assert list(found.concerned(b"s.3.x")) == ["c3"]
    found.note("c1", waits=False, holds=False, deadline_ns=None)
    found.put("c2", ("t.2",))
    assert [list(found.holding(subject)) for subject in (b"s.1.x", b"s.2.x", b"t.2")] == [[], [], []]
    found.drop("c2")
    assert list(found.concerned(b"t.2")) == []
