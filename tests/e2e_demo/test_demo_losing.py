"""The demo's loss of a volume: when the stream counts as whole, and what fails it."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.demo.course import causes
from e2e.demo.losing import wanting


def info(leader: str = "b", **replicas: dict[str, Any]) -> dict[str, Any]:
    """STREAM.INFO with the leader and other members."""
    return {
        "cluster": {"leader": leader, "replicas": [{"name": n, **entry} for n, entry in replicas.items()]}
    }


WELL = {"current": True}


@pytest.mark.covers("MR-7")
def test_a_stream_is_whole_when_all_its_members_vote_and_have_everything() -> None:
    assert wanting(info(a=WELL, c=WELL), "a", 3) == ""
    assert wanting(info(leader="a", b=WELL, c=WELL), "a", 3) == ""


@pytest.mark.covers("MR-7")
@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({}, "nobody leads the stream"),
        (info(a={"current": False, "offline": True}, c=WELL), "a is out of contact"),
        (info(c=WELL), "a holds no replica"),
        (info(a={"current": False, "lag": 1204}, c=WELL), "a is back and lacks 1,204 entries of the log"),
        (info(a={**WELL, "observer": True}, c=WELL), "a is back and lacks 0 entries of the log"),
        (info(a=WELL, c={"current": False, "lag": 7}), "c is back and lacks 7 entries of the log"),
        (info(a=WELL), "2 members are in force, and 3 are wanted"),
        (info(a=WELL, c=WELL, d=WELL), "4 members are in force, and 3 are wanted"),
    ],
)
def test_what_keeps_a_stream_from_being_whole_is_named(found: dict[str, Any], text: str) -> None:
    assert wanting(found, "a", 3) == text


def test_a_member_that_is_listed_twice_is_not_two() -> None:
    twice = {"cluster": {"leader": "b", "replicas": [{"name": "a", **WELL}, {"name": "a", **WELL}]}}
    assert wanting(twice, "a", 3) == "3 members are in force, and 3 are wanted"


def test_errors_of_tasks_within_tasks_are_told_one_by_one() -> None:
    inner = ExceptionGroup("inner", [ValueError("a"), KeyError("b")])
    assert [str(each) for each in causes(ExceptionGroup("outer", [inner, OSError("c")]))] == ["a", "'b'", "c"]
