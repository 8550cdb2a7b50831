"""What the comparison of fields notices."""

from __future__ import annotations

from tests.compat.shapes import Shapes

KNOWN = {
    "kind": {
        "a": "number",
        "b": "object?",
        "b.c": "null|string",
        "metadata": "object?",
        "metadata.*": "string",
    }
}


def problems(document: object, *, kind: str = "kind", is_ours: bool = True) -> list[str]:
    return Shapes(KNOWN).problems(kind, document, is_ours=is_ours)


def test_a_document_with_nats_servers_fields_is_as_it_should_be() -> None:
    assert problems({"a": 1}) == []
    assert problems({"a": 1.5, "b": {"c": None}, "metadata": {"any": "x", "name": "y"}}) == []


def test_an_unknown_field_another_type_and_one_that_is_missing_are_told() -> None:
    assert problems({"a": 1, "d": 2}) == ["kind: nats-server has no field d"]
    assert problems({"a": True}) == ["kind: a is of type boolean; nats-server's is number"]
    assert problems({"a": 1, "b": {}}) == ["kind: b.c is missing; nats-server always has it"]
    assert problems({}, is_ours=False) == [], "nats-server's own may lack what it has had so far"
    assert problems({}, kind="other") == ["other: nats-server was never seen to send that"]


def test_what_is_recorded_is_added_and_a_field_that_lacks_once_is_not_always_there() -> None:
    shapes = Shapes(KNOWN)
    shapes.record("kind", {"b": {"c": "x"}, "e": [{"f": 1}, {}]})
    shapes.record("new", {"a": None})
    assert shapes.merged() == {
        "kind": {**KNOWN["kind"], "a": "number?", "e": "array?", "e[]": "object?", "e[].f": "number?"},
        "new": {"a": "null"},
    }
