"""What green answers to blue's words about hidden streams."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.core.map_frames import MapFrames
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import DROPPED, Drop, Prepared
from supercluster.broker.jetstream.meta_leader.stream_request import Decided
from supercluster.broker.migration.worlds import far_name, world_id

WORLD = world_id("blue")
BLUE = far_name("blue-0", WORLD)


def answers(outcome: Decided | ApiError | None) -> list[str]:
    """What blue hears of a DROP whose operation has that outcome."""
    posted: list[str] = []

    def request(wanted: Any) -> None:
        respond: Callable[[Any], None] = wanted.respond
        respond(outcome)

    found = SimpleNamespace(account="$G", name="S", following=SimpleNamespace(world=WORLD))
    leader = SimpleNamespace(
        serves=True, state=SimpleNamespace(by_group=lambda group: found), request=request
    )
    copies = SimpleNamespace(map=leader, touch=lambda group: None)

    def post(node: str, frame: int, body: list[bytes]) -> None:
        assert (node, frame) == (BLUE, Frame.PREPARED)
        posted.append(Prepared.decode(b"".join(body)).refusal)

    peers = SimpleNamespace(post=post)
    frames = MapFrames(*cast("Any", (peers, copies, SimpleNamespace(meta_id="meta"), None)))
    frames.handlers[Frame.DROP](BLUE, memoryview(b"".join(map(bytes, Drop("G", 1, "m1").encode()))), 0)
    return posted


@pytest.mark.covers("BG-9", "SF-20")
def test_only_what_is_dropped_is_called_so() -> None:
    """Blue's migration ends with that word, and nobody tells green again."""
    assert answers(Decided(cast("Any", None), 3)) == [DROPPED]
    assert answers(errors.error(errors.STREAM_NOT_FOUND)) == [DROPPED]
    assert answers(errors.error(10023)) == [], "too many requests"
    assert answers(None) == []
