"""Clients that are here when a reload changes users, on ours and on nats-server."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import bcrypt
import pytest
from tests.broker.dropin.running import OURS, Server, both
from tests.compat.raw import RawClient
from tests.support.local_clusters import fresh_address, until

pytestmark = [pytest.mark.e2e]

VIOLATION = "-ERR 'Authorization Violation'"


class Reloaded:
    """A server whose configuration is read again, and its clients."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clients: dict[str, RawClient] = {}

    async def start(self, command: tuple[str, ...], text: str) -> None:
        self._write(text)
        await self.server.start(*command)
        await self.server.ready()

    async def reload(self, text: str) -> None:
        self._write(text)
        before = self._reloads()
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGHUP)

        async def is_reloaded() -> bool:
            return self._reloads() > before

        await until(is_reloaded, "the file to be read again")

    def _reloads(self) -> int:
        return self.server.log.read_text().count("Reloaded server configuration")

    async def client(self, name: str, said: str = "", **options: str) -> RawClient:
        found = self.clients[name] = await RawClient.open(self.server.host)
        await found.connect(**(options or {"user": name, "pass": "p"}))
        found.send(said)
        await found.ping()
        return found

    def _write(self, text: str) -> None:
        self.server.write('server_name: NAME\nlisten: "HOST:4222"\n' + text)


@pytest.fixture
async def reloaded(tmp_path: Path) -> AsyncIterator[Reloaded]:
    found = Reloaded(Server(tmp_path, "s1", fresh_address()))
    yield found
    for client in found.clients.values():
        await client.close()
    await found.server.kill()


def one_user(permissions: str) -> str:
    return f"authorization {{ users [{{user: u, password: p{permissions}}}, {{user: free, password: p}}] }}"


async def errors(client: RawClient, count: int) -> list[str]:
    found = sorted([await client.line() for _ in range(count)])  # nats-server goes through them in any order.
    await client.ping()
    return found


@both
@pytest.mark.covers("CL-5")
async def test_who_may_do_less_stays_and_loses_what_is_not_allowed_any_more(
    reloaded: Reloaded, command: tuple[str, ...]
) -> None:
    await reloaded.start(command, one_user(""))
    user = await reloaded.client("u", "SUB a.> 1\r\nSUB a.no 2\r\nSUB z.x g 3\r\nSUB z.y 4\r\nUNSUB 4 9\r\n")
    free = await reloaded.client("free")
    less = ', permissions: {publish: "a.>", subscribe: {allow: "a.>", deny: "a.no"}}'
    await reloaded.reload(one_user(less))
    begin = "-ERR 'Permissions Violation for Subscription to"
    assert await errors(user, 3) == [
        f'{begin} "a.no" (sid "2")\'',
        f'{begin} "z.x" using queue "g" (sid "3")\'',
        f'{begin} "z.y" (sid "4")\'',
    ]
    free.send("PUB a.no 1\r\nx\r\nPUB z.x 1\r\nx\r\nPUB z.y 1\r\nx\r\nPUB a.yes 1\r\ny\r\n")
    await user.expect("MSG a.yes 1 1", "y")
    user.send("PUB z.x 1\r\nx\r\n")
    await user.expect("-ERR 'Permissions Violation for Publish to \"z.x\"'")
    user.send("SUB z.y 5\r\n")
    await user.expect("-ERR 'Permissions Violation for Subscription to \"z.y\"'")
    await user.ping()


@both
@pytest.mark.covers("CL-5")
async def test_who_may_do_more_does_so_on_the_same_connection(
    reloaded: Reloaded, command: tuple[str, ...]
) -> None:
    await reloaded.start(command, one_user(', permissions: {publish: none, subscribe: {deny: "a.no"}}'))
    user = await reloaded.client("u", "SUB a.> 1\r\n")
    await reloaded.reload(one_user(""))
    user.send("PUB a.no 1\r\nx\r\nSUB z 2\r\nPUB z 1\r\ny\r\n")
    await user.expect("MSG a.no 1 1", "x", "MSG z 2 1", "y")
    await user.ping()


@both
@pytest.mark.covers("CL-5")
async def test_who_is_gone_or_moved_ends_without_a_word_and_who_shows_the_wrong_is_told(
    reloaded: Reloaded, command: tuple[str, ...]
) -> None:
    users = "accounts {{ A {{ users [{}] }}, B {{ users [{}] }} }}"
    there = [f"{{user: {name}, password: p}}" for name in ("stays", "moves", "ends")]
    changing = ["{user: changed, password: p}", "{user: elsewhere, password: p}"]
    await reloaded.start(command, users.format(", ".join(there + changing), "{user: b, password: p}"))
    for name in ("stays", "moves", "ends", "changed", "elsewhere"):
        await reloaded.client(name)
    left = f"{there[0]}, {{user: changed, password: q}}"
    by_websocket = "{user: elsewhere, password: p, allowed_connection_types: [WEBSOCKET]}"
    await reloaded.reload(users.format(f"{left}, {by_websocket}", f"{{user: b, password: p}}, {there[1]}"))
    assert await reloaded.clients["moves"].closed() == []
    assert await reloaded.clients["ends"].closed() == []
    assert await reloaded.clients["changed"].closed() == [VIOLATION]
    assert await reloaded.clients["elsewhere"].closed() == [VIOLATION]
    await reloaded.clients["stays"].ping()


@both
async def test_a_changed_token_and_a_first_one_are_asked_for(
    reloaded: Reloaded, command: tuple[str, ...]
) -> None:
    await reloaded.start(command, "authorization { token: t1 }")
    before = await reloaded.client("t", auth_token="t1")
    await reloaded.reload("authorization { token: t2 }")
    assert await before.closed() == [VIOLATION]


async def test_whoever_shows_nothing_comes_again_as_who_that_is_now(reloaded: Reloaded) -> None:
    """nats-server takes no such change over."""
    users = "authorization { users [{user: u, password: p}, {user: v, password: p}] }\n"
    await reloaded.start(OURS, users + "no_auth_user: u")
    nobody = await reloaded.client("nobody", lang="test")
    user = await reloaded.client("u")
    await reloaded.reload(users + "no_auth_user: v")
    assert await nobody.closed() == []
    await user.ping()


@both
@pytest.mark.covers("CL-5")
async def test_who_showed_a_password_that_is_hashed_now_stays(
    reloaded: Reloaded, command: tuple[str, ...]
) -> None:
    users = "authorization {{ users [{{user: same, password: {}}}, {{user: other, password: {}}}] }}"
    await reloaded.start(command, users.format("p", "p"))
    for name in ("same", "other"):
        await reloaded.client(name)
    hashes = [f'"{bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()}"' for password in (b"p", b"q")]
    await reloaded.reload(users.format(*hashes))
    assert await reloaded.clients["other"].closed() == [VIOLATION]
    await reloaded.clients["same"].ping()
