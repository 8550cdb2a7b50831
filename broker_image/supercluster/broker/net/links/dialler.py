"""Dials both connections of a link, and the short connections by which brokers introduce themselves."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable
from typing import TypeVar

from supercluster.broker.net.links.door import ANYBODY, Door, Expected
from supercluster.broker.net.links.handshake import NOT_ACCEPTED, Handshakes
from supercluster.broker.net.links.link import Link, LinkConnection, LinkEnvironment
from supercluster.broker.net.links.link_logins import is_accepted
from supercluster.broker.net.links.resolver import Resolver
from supercluster.broker.ports import Channel
from supercluster.broker.protocol.frames import FrameError, Hello
from supercluster.broker.settings.settings import split_address

log = logging.getLogger(__name__)

T = TypeVar("T")

UNEXPECTED = "unexpected error"


class Dialler:
    """Opens connections to other brokers, by any door."""

    def __init__(self, environment: LinkEnvironment, handshakes: Handshakes, resolver: Resolver) -> None:
        self._environment = environment
        self._handshakes = handshakes
        self._resolver = resolver

    async def attempt(self, what: str, dial: Awaitable[T]) -> tuple[T | None, str]:
        """What came of `dial` or `introduce`, or what went wrong."""
        try:
            return await dial, ""
        except (OSError, TimeoutError, FrameError) as error:
            return None, str(error) or type(error).__name__
        except Exception:
            log.exception("%s failed in an unexpected way; it is tried again", what)
            return None, UNEXPECTED

    async def dial(
        self, door: Door, expected: Expected, address: str, name: str, cluster: str, *, replaces: str = ""
    ) -> Link:
        """Open both connections to a broker, which is called `name` of `cluster` here, and shake hands on them. `replaces`: the
        link with it, by its pair, that goes over to them.

        Raises:
            OSError, TimeoutError, FrameError: there is no link; the text says why.
        """
        self._check_faults(name, cluster)
        pair = f"{random.getrandbits(64):016x}"
        opened: list[LinkConnection] = []
        try:
            async with asyncio.timeout(2 * self._environment.handshake_s):
                for channel in (Channel.CONTROL, Channel.BULK):
                    connection = self._handshakes.connection(door, channel, pair, expected, replaces=replaces)
                    opened.append(connection)
                    await self._connect(connection, address)
                    await connection.greeted
        except BaseException:
            for connection in opened:
                connection.close("the attempt to link was given up")
            raise
        control, bulk = opened
        if control.closed or bulk.closed:
            raise ConnectionError("connection lost while linking")
        if not (is_accepted(control) and is_accepted(bulk)):  # They were accepted when they shook hands.
            control.close(NOT_ACCEPTED)
            bulk.close(NOT_ACCEPTED)
            raise ConnectionError(NOT_ACCEPTED)
        return self._handshakes.up(control, bulk)

    async def introduce(
        self, door: Door, address: str, expected: Expected = ANYBODY, name: str = "", cluster: str = ""
    ) -> Hello:
        """Let a broker (called `name` of `cluster` here, or whoever is there) know of this one, and be told whom it knows.

        Raises:
            OSError, TimeoutError, FrameError: nobody answered, or refused; the text says why.
        """
        self._check_faults(name, cluster)
        pair = f"{random.getrandbits(64):016x}"
        connection = self._handshakes.connection(door, Channel.CONTROL, pair, expected, introduces=True)
        try:
            async with asyncio.timeout(2 * self._environment.handshake_s):
                await self._connect(connection, address)
                hello = await connection.greeted
                await connection.told
                return hello
        finally:
            connection.close("the introduction is over")

    def _check_faults(self, node: str, cluster: str) -> None:
        if self._environment.faults.cuts(node, cluster):
            raise TimeoutError("an injected fault cuts it")

    async def _connect(self, connection: LinkConnection, address: str) -> None:
        environment, door = self._environment, connection.door
        tls = door.tls if door.dials_tls else None
        host, port = split_address("address", address)
        resolved = await self._resolver.resolve(host)
        await environment.loop.create_connection(
            lambda: connection,
            resolved,
            port,
            ssl=tls.client if tls is not None else None,
            server_hostname=tls.server_name or connection.expected.tls_name or host
            if tls is not None
            else None,
            ssl_handshake_timeout=environment.handshake_s if tls is not None else None,
        )
