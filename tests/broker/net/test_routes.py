"""Brokers of a cluster that know each other by address alone: when nobody is lacking, and who may therefore begin the map of streams."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supercluster.broker.net.links import routes
from supercluster.broker.net.links.routes import Routes
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameType, GatewayAddress


class Finder:
    """`Routes` of broker b, and what it was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def nobody_answers(*_: object, **__: object) -> None:
            await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(routes, "introduce", nobody_answers)
        facts = SimpleNamespace(node="b", cluster="C", process="pb")
        mesh = SimpleNamespace(facts=facts, links={}, loop=asyncio.get_running_loop(), route_tls=None)
        self.complete: list[tuple[str, ...]] = []
        self.routes = Routes(
            cast("Any", mesh), cast("Any", None), (), lambda peers: None, self.complete.append
        )

    def comes(self, node: str, *, meta_state: int = 0) -> None:
        """A broker introduces itself."""
        hello = SimpleNamespace(node=node, process=f"p{node}", gateway_url=f"{node}:1", meta_state=meta_state)
        connection = SimpleNamespace(address="x", write_frame=lambda *_: None, flush=lambda: None)
        self.routes.met(cast("Any", connection), cast("Any", hello))

    def answers(self, node: str, *known: str, meta_state: int = 0) -> None:
        """A broker that was asked says whom it knows."""
        body = frames.encode_gateways([GatewayAddress(name, "C", f"{name}:1") for name in known])
        told = asyncio.get_running_loop().create_future()
        hello = SimpleNamespace(node=node, meta_state=meta_state)
        connection = SimpleNamespace(dialled=True, hello=hello, told=told)
        self.routes.introduced(cast("Any", connection), FrameType.GATEWAYS, memoryview(body))
        self.routes._judge()


async def test_who_was_complete_is_so_no_more_when_another_comes_until_that_one_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Finder(monkeypatch)
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
async def test_where_somebody_has_a_map_nobody_begins_one(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    found = Finder(monkeypatch)
    found.routes.start()
    found.comes("a", meta_state=7 if how == "comes" else 0)
    found.answers("a", "b", meta_state=7)
    assert found.complete == [("b",), ()]
    await found.routes.stop()


async def test_a_server_that_only_another_cluster_knows_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finder(monkeypatch)
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
