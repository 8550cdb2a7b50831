"""nats-server's configuration grammar: what a text means, and where it is wrong."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.dropin.conf import DEPTH_MAX, ConfError, Value, parse, size_of

FILES = {
    "users.conf": "users: [{user: a}, {user: b}]",
    "braces.conf": "{ x: 1 }",
    "loop.conf": "include loop.conf",
    "bad.conf": "x: 1\n  y: {",
    "uses.conf": "port: $OUTER",
}


def read(file: str, name: str) -> tuple[str, str]:
    if name not in FILES:
        raise FileNotFoundError(2, "No such file or directory", name)
    return f"dir/{name}", FILES[name]


def tree(text: str, **environment: str) -> Value:
    return parse(text, "f.conf", read=read, environment=environment)


def plain(value: Value) -> Any:
    if isinstance(value.data, dict):
        return {name: plain(inner) for name, inner in value.data.items()}
    if isinstance(value.data, list):
        return [plain(inner) for inner in value.data]
    return value.data


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("", {}),
        ("a: 1", {"a": 1}),
        ("a = 1, b 2; c:3\nd\t=\t4", {"a": 1, "b": 2, "c": 3, "d": 4}),
        ("a: 1 # one\n// all of it\nb: nats://h:1 // two", {"a": 1, "b": "nats://h:1"}),
        ("a {b {c: yes}}", {"a": {"b": {"c": True}}}),
        ("a:\n  {b: off}", {"a": {"b": False}}),
        ("a: [1, 2\n 3 # three\n, 'x y']", {"a": [1, 2, 3, "x y"]}),
        ('a: "t\\t\\"q\\" \\x41"', {"a": 't\t"q" A'}),
        ("a: '\\t'", {"a": "\\t"}),
        ('"a b": 1', {"a b": 1}),
        (
            "a: 64MB, b: 1k, c: 2KiB, d: 3g, e: 1ki",
            {"a": 64 << 20, "b": 1000, "c": 2048, "d": 3 * 10**9, "e": 1024},
        ),
        ("a: -1, b: +2, c: 1.5, d: 1x, e: 2s", {"a": -1, "b": 2, "c": 1.5, "d": "1x", "e": "2s"}),
        ("a: 2026-11-22T10:00:00Z", {"a": datetime(2026, 11, 22, 10, tzinfo=UTC)}),
        ("a: (\n one\n two\n)\nb: 1", {"a": " one\n two\n", "b": 1}),
        ("P: 7\na: {b: $P, P: 8, c: $P}", {"P": 7, "a": {"b": 7, "P": 8, "c": 8}}),
        ("l: [1, 2]\nx: $l", {"l": [1, 2], "x": [1, 2]}),
        ("pass: $2a$11$abc", {"pass": "$2a$11$abc"}),
        ('{"a": [1, {"b": null_like}], "c": "d"}', {"a": [1, {"b": "null_like"}], "c": "d"}),
        ("a: 1\na: 2", {"a": 2}),
        ("auth { include users.conf }", {"auth": {"users": [{"user": "a"}, {"user": "b"}]}}),
        ("include 'braces.conf'\ny: 2", {"x": 1, "y": 2}),
        ("OUTER: 9\ninclude uses.conf", {"OUTER": 9, "port": 9}),
    ],
)
def test_a_text_means_what_it_means_to_nats_server(text: str, means: Any) -> None:
    assert plain(tree(text)) == means


def test_the_environment_is_asked_last_and_read_as_a_value() -> None:
    assert plain(tree("a: $P, b: $Q", P="4222", Q="x")) == {"a": 4222, "b": "x"}
    assert plain(tree("P: 1\na: $P", P="2")) == {"P": 1, "a": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n b: {\n", "f.conf:2:5: Parse error: a map that begins here has no end"),
        ("a: [1", "f.conf:1:4: Parse error: a list that begins here has no end"),
        ("a: 'x", "f.conf:1:4: Parse error: a text that begins here has no end"),
        ("a: (x\n", "f.conf:1:4: Parse error: a block that begins here has no end"),
        ("a: $NONE", "f.conf:1:4: Parse error: $NONE is neither"),
        (
            "jetstream:\n  store_dir: /a",
            "f.conf:1:1: Parse error: jetstream has no value; it belongs on the same line",
        ),
        ("\n\na:", "f.conf:3:1: Parse error: a has no value; it belongs on the same line"),
        ("a: 1 b: 2", "f.conf:1:6: Parse error: 'b' stands behind a value"),
        ("}", "f.conf:1:1: Parse error: '}' stands where a key belongs"),
        ('a: "\\q"', "f.conf:1:5: Parse error: \\q is no escape"),
        ('a: "\\xZZ"', "f.conf:1:5: Parse error: \\x needs two"),
        ("x: 1\ninclude none.conf", "f.conf:2:1: Parse error: file none.conf can't be included"),
        ("include bad.conf", "dir/bad.conf:2:6: Parse error: a map that begins here has no end"),
        ("include loop.conf", "files include one another more than"),
        ("a: " + "[" * (DEPTH_MAX + 1), "values are nested more than"),
        ("{a: 1} b", "f.conf:1:8: Parse error: 'b' stands behind the end of the map"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfError) as error:
        tree(text)
    assert said in str(error.value)


@given(st.text(alphabet="ab1:= \n{}[]\"'#/$,;()\\x", max_size=40))
def test_any_text_has_a_meaning_or_an_error(text: str) -> None:
    with suppress(ConfError):
        assert isinstance(tree(text).data, dict)


def test_values_know_where_their_key_stands() -> None:
    found = tree("a: 1\n  b { c: [7] }")
    assert isinstance(found.data, dict)
    inner = found.data["b"]
    assert (inner.line, inner.column) == (2, 3)
    assert isinstance(inner.data, dict)
    assert (inner.data["c"].line, inner.data["c"].column) == (2, 7)


def test_sizes() -> None:
    assert size_of("1") == 1
    assert size_of("1TB") == 1 << 40
    assert size_of("1x") is None
