"""Brokers of a cluster that know each other by address alone: when nobody is lacking, and who may therefore begin the map of streams."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supercluster.broker.net.links.routes import Routes
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import GatewayAddress


class Finder:
    """`Routes` of broker b, and what it was told."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        nobody_answers: Any = SimpleNamespace(introduce=lambda *_: loop.create_future())
        facts: Any = SimpleNamespace(node="b", cluster="C", process="pb")
        door: Any = None
        self.complete: list[tuple[str, ...]] = []
        self.routes = Routes(
            loop, nobody_answers, door, facts, {}, (), lambda peers: None, self.complete.append
        )

    def comes(self, node: str, *, meta_state: int = 0) -> None:
        """A broker introduces itself."""
        hello = SimpleNamespace(node=node, process=f"p{node}", gateway_url=f"{node}:1", meta_state=meta_state)
        self.routes.met(cast("Any", hello), "x")

    def answers(self, node: str, *known: str, meta_state: int = 0) -> None:
        """A broker that was asked says whom it knows."""
        body = frames.encode_gateways([GatewayAddress(name, "C", f"{name}:1") for name in known])
        hello = SimpleNamespace(node=node, meta_state=meta_state)
        self.routes.introduced(cast("Any", hello), memoryview(body))
        self.routes._judge()


async def test_who_was_complete_is_so_no_more_when_another_comes_until_that_one_has_answered() -> None:
    found = Finder()
    found.routes.start()
    assert found.complete == [("b",)]
    found.comes("a")
    assert found.complete[1:] == [()]
    found.answers("a", "b", "c")
    assert found.complete[1:] == [()], "c has not answered"
    found.answers("c", "a", "b")
    assert found.complete[2:] == [("a", "b", "c")]
    await found.routes.stop()


@pytest.mark.parametrize("how", ["comes", "answers"])
async def test_where_somebody_has_a_map_nobody_begins_one(how: str) -> None:
    found = Finder()
    found.routes.start()
    found.comes("a", meta_state=7 if how == "comes" else 0)
    found.answers("a", "b", meta_state=7)
    assert found.complete == [("b",), ()]
    await found.routes.stop()


async def test_a_server_that_only_another_cluster_knows_is_lacking() -> None:
    found = Finder()
    found.routes.start()
    found.routes.heard("far", ["b", "a"])
    assert found.routes.strangers == {"a"}
    assert found.complete == [("b",), ()]
    found.comes("a")
    found.answers("a", "b")
    assert found.complete[2:] == [("a", "b")]
    found.routes.heard("far", ["b", "x"])
    found.routes.teller_lost("far")
    assert found.complete[3:] == [(), ("a", "b")]
    await found.routes.stop()
