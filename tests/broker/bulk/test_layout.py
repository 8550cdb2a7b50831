"""The frames of the bulk port, and the parameters of its requests."""

from __future__ import annotations

import json

import pytest
from tests.broker.bulk.reading import HEAD, frames

from supercluster.broker.auth.users import User
from supercluster.broker.bulk import layout
from supercluster.broker.bulk.request import Asked, WrongParameterError, asked_by, may_read
from supercluster.broker.protocol.permissions import Permissions, Rules


def test_a_frame_is_as_the_decision_has_it() -> None:
    assert layout.head(1, 4, 7, 9, 16, 3) == HEAD.pack(1, 4, 1, 7, 9, 16, 3)
    assert layout.HEAD_BYTES == 32
    assert layout.sum_of(b"\xff" * 8 + b"\x02" + b"\0" * 7) == 1


@pytest.mark.parametrize("lineage", ["", "x", "xyz12345"])
def test_the_end_frame_has_whole_words(lineage: str) -> None:
    ((head, body),) = frames(layout.end_frame(5, {"first": 5, "lineage": lineage}))
    assert (head[0], head[4], len(body) % 8) == (2, 5, 0)
    assert json.loads(body) == {"first": 5, "lineage": lineage}


def test_parameters_that_are_wrong_are_named() -> None:
    assert asked_by({}) == Asked(1, 2**64 - 1, layout.COLUMNS, "")
    found = asked_by({"first": "5", "last": "9", "columns": "payload,sequence", "lineage": "x"})
    assert found == Asked(5, 9, ("payload", "sequence"), "x")
    for name, text in (
        *(("first", wrong) for wrong in ("0", "-1", "x", "", "1" * 21, "²", "18446744073709551616")),
        *(("columns", wrong) for wrong in ("", "stream", "time,time", "time,")),
        ("last", "0"),
        ("kolumns", "time"),
    ):
        with pytest.raises(WrongParameterError, match=name):
            asked_by({name: text})
    with pytest.raises(WrongParameterError, match="last"):
        asked_by({"first": "5", "last": "4"})


def test_who_may_get_every_message_may_read() -> None:
    def user(**rules: tuple[bytes, ...]) -> User:
        return User("$G", "client", permissions=Permissions(publish=Rules(**rules)))

    assert may_read(None, "orders")
    assert may_read(User("$G", "client"), "orders")
    assert may_read(user(allow=(b"$JS.API.STREAM.MSG.GET.*",)), "orders")
    assert not may_read(user(allow=(b"$JS.API.CONSUMER.>",)), "orders")
    assert not may_read(user(allow=(b"$JS.API.STREAM.MSG.GET.other",)), "orders")
    assert not may_read(user(deny=(b"$JS.API.STREAM.MSG.GET.orders",)), "orders")
    assert not may_read(user(deny=(b"$JS.API.>",)), "orders")
