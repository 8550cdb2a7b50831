"""A broker that stops waits for its links' sockets, and not for long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from supercluster.broker.net.links import open_sockets
from supercluster.broker.net.links.open_sockets import OpenSockets


class Socket:
    """One that closes when it is given up, if it `yields`."""

    def __init__(self, sockets: OpenSockets, *, yields: bool = True) -> None:
        self.sockets = sockets
        self.yields = yields
        self.aborted = 0
        sockets.made(self)

    def abort(self) -> None:
        self.aborted += 1
        if self.yields:
            self.sockets.lost(self)


async def test_nothing_is_waited_for_where_nothing_is_open() -> None:
    async with asyncio.timeout(open_sockets.CLOSE_S / 2):
        await OpenSockets().closed()


async def test_what_closes_by_itself_is_waited_for() -> None:
    sockets = OpenSockets()
    found = [Socket(sockets), Socket(sockets)]
    waiting = asyncio.create_task(sockets.closed())
    for each in found:
        await asyncio.sleep(0)
        assert not waiting.done()
        sockets.lost(each)
    await waiting
    assert not any(each.aborted for each in found)


@pytest.mark.parametrize("yields", [True, False])
async def test_what_does_not_close_is_given_up(monkeypatch: pytest.MonkeyPatch, yields: bool) -> None:
    monkeypatch.setattr(open_sockets, "CLOSE_S", 0.01)
    sockets = OpenSockets()
    found = Socket(sockets, yields=yields)
    await sockets.closed()
    assert found.aborted == 1


async def test_a_stopped_broker_has_no_socket_open_whatever_is_unsent(brokers: Any) -> None:
    stopping, other = await brokers.start(2)
    link = other.mesh.links["east-0"]
    for connection in (link.control, link.bulk):
        connection._transport.pause_reading()
    stopping.mesh.links["east-1"].control._transport.write(b"\0" * (32 << 20))
    await brokers.stop_one(stopping)
    assert not stopping.mesh.sockets._open
