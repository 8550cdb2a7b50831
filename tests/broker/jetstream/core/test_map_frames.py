"""What green answers to blue's words about hidden streams."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.core.map_frames import MapFrames
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.migration_frames import DROPPED, Drop, Prepare, Prepared
from supercluster.broker.jetstream.meta.migration import next_group
from supercluster.broker.jetstream.meta_leader.stream_request import Decided
from supercluster.broker.migration.worlds import far_name, world_id

WORLD = world_id("blue")
BLUE = far_name("blue-0", WORLD)


DROP = Drop("G", 1, "m1")


def answers(
    outcome: Decided | ApiError | None, asked: Drop | Prepare = DROP, wanted_of: list[Any] | None = None
) -> list[Prepared]:
    """What blue hears when the operation that it asked for has that outcome. `wanted_of`: gets what green's map is asked for."""
    posted: list[Prepared] = []

    def request(wanted: Any) -> None:
        if wanted_of is not None:
            wanted_of.append(wanted)
        respond: Callable[[Any], None] = wanted.respond
        respond(outcome)

    found = SimpleNamespace(account="$G", name="S", following=SimpleNamespace(world=WORLD))
    leader = SimpleNamespace(
        serves=True, state=SimpleNamespace(by_group=lambda group: found), request=request
    )
    copies = SimpleNamespace(map=leader, touch=lambda group: None)

    def post(node: str, frame: int, body: list[bytes]) -> None:
        assert (node, frame) == (BLUE, Frame.PREPARED)
        posted.append(Prepared.decode(b"".join(body)))

    peers = SimpleNamespace(post=post, node="green-0")
    frames = MapFrames(*cast("Any", (peers, copies, SimpleNamespace(meta_id="meta"), None)))
    frame = Frame.DROP if isinstance(asked, Drop) else Frame.PREPARE
    frames.handlers[frame](BLUE, memoryview(b"".join(map(bytes, asked.encode()))), 0)
    return posted


@pytest.mark.covers("BG-9", "SF-20")
def test_only_what_is_dropped_is_called_so() -> None:
    """Blue's migration ends with that word, and nobody tells green again."""
    dropped = [Prepared("G", 1, 0, refusal=DROPPED)]
    assert answers(Decided(cast("Any", None), 3)) == dropped
    assert answers(errors.error(errors.STREAM_NOT_FOUND)) == dropped
    assert answers(errors.error(10023)) == [], "too many requests"
    assert answers(None) == []


@pytest.mark.covers("BG-2")
def test_an_answer_says_which_configuration_it_is_about() -> None:
    group, config = "S.$G.S.1", StreamConfig(name="S", subjects=("s",))
    asked = Prepare("m1", 2, "$G", "S", group, next_group(group, "m1", 2), config, 7, 1, WORLD)
    following = SimpleNamespace(members=("green-0@1",))
    decided = Decided(cast("Any", SimpleNamespace(following=following)), 3)
    wanted: list[Any] = []
    assert answers(decided, asked, wanted) == [Prepared(group, 2, 7, ("green-0@1",))]
    assert wanted[0].following.version == 7, "an older configuration is known by it"
    (refused,) = answers(errors.error(10023), asked)
    assert (refused.version, bool(refused.refusal)) == (7, True)
