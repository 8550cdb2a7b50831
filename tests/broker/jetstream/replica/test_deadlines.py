"""The heap of the groups' deadlines says what a search through all of them would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.replica.deadlines import VOID_MAX, Deadlines

pytestmark = pytest.mark.covers("RP-3")

KEYS = "abcde"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 40))),
        st.tuples(st.just("pass"), st.integers(0, 12)),
    ),
    max_size=60,
)


def test_a_lowered_deadline_takes_effect() -> None:
    found = Deadlines()
    found.set("a", 500)
    found.set("b", 300)
    found.set("a", 20)
    assert found.next_ms() == 20
    assert found.due(20) == ["a"]
    assert found.next_ms() == 300


def test_a_deadline_that_was_put_off_is_not_due() -> None:
    found = Deadlines()
    found.set("a", 20)
    found.set("a", 500)
    assert found.due(499) == []
    assert found.next_ms() == 500
    assert found.due(500) == ["a"]


def test_what_is_due_is_handed_out_once_until_it_is_set_anew() -> None:
    found = Deadlines()
    found.set("a", 20)
    assert found.due(30) == ["a"]
    assert found.due(30) == []
    assert found.next_ms() is None
    found.set("a", 20)
    assert found.due(30) == ["a"]


def test_a_key_without_a_deadline_is_never_due() -> None:
    found = Deadlines()
    found.set("a", 20)
    found.set("a", None)
    assert found.next_ms() is None
    assert found.due(1 << 60) == []
    assert len(found) == 0


def test_deadlines_that_are_lowered_again_and_again_do_not_pile_up() -> None:
    found = Deadlines()
    for key in KEYS:
        for number in range(10_000):
            found.set(key, 1_000_000)
            found.set(key, number)
            found.due(number)
    assert len(found._heap) <= 2 * len(KEYS) + VOID_MAX + 1


@given(STEPS)
def test_it_agrees_with_a_search_through_all(steps: list[tuple[object, ...]]) -> None:
    found, model, now_ms = Deadlines(), dict[str, int](), 0
    for step in steps:
        if step[0] == "set":
            _, key, at_ms = step
            assert isinstance(key, str)
            assert at_ms is None or isinstance(at_ms, int)
            found.set(key, at_ms)
            model.pop(key, None)
            if at_ms is not None:
                model[key] = at_ms
        else:
            assert isinstance(step[1], int)
            now_ms += step[1]
            due = found.due(now_ms)
            expected = sorted((at_ms, key) for key, at_ms in model.items() if at_ms <= now_ms)
            assert due == [key for _, key in expected]
            for key in due:
                del model[key]
        assert found.next_ms() == min(model.values(), default=None)
        assert len(found) == len(model)
