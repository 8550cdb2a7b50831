"""Wrong passwords keep nobody else out: neither clients with right ones, nor probes, nor the rest of the broker."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import bcrypt
import pytest

from supercluster.broker.auth.credentials import KNOWN_MAX, Credentials
from supercluster.broker.auth.users import Shown, User
from supercluster.broker.monitor import monitor
from supercluster.broker.net.clients.comparisons import ATTEMPTS_BURST, THREADS, Comparisons

HASHED = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
USERS = {
    "users": [{"user": "app", "password": HASHED}, {"user": "op", "password": HASHED, "role": "operator"}]
}
RIGHT = Shown(user="app", password="right")


class Clock:
    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def machine_ms(self) -> int:
        return self.now_ms


class Harness:
    """Comparisons whose threads are the test: `finish` ends the oldest one that runs."""

    def __init__(self, folder: Path) -> None:
        (folder / "users.json").write_text(json.dumps(USERS))
        self.credentials = Credentials(folder)
        self.credentials.load()
        self.clock = Clock()
        self.running: list[tuple[Callable[[], User | None], asyncio.Future[User | None]]] = []
        self.answers: list[tuple[str, str | None]] = []
        self.gone: set[str] = set()
        loop = asyncio.get_running_loop()
        clock: Any = self.clock
        self.comparisons = Comparisons(loop, clock, self.credentials, run=self._run)

    def _run(self, work: Callable[[], User | None]) -> asyncio.Future[User | None]:
        future: asyncio.Future[User | None] = asyncio.get_running_loop().create_future()
        self.running.append((work, future))
        return future

    def come(self, name: str, address: str, shown: Shown) -> bool:
        return self.comparisons.compare(
            address,
            shown,
            lambda: name not in self.gone,
            lambda user: self.answers.append((name, user.user if user is not None else None)),
        )

    async def finish(self) -> None:
        work, future = self.running.pop(0)
        future.set_result(work())
        await asyncio.sleep(0)


def wrong(number: int) -> Shown:
    return Shown(user="app", password=f"wrong {number}")


async def test_addresses_take_turns(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    taken = [harness.come(f"thief {number}", "10.0.0.1", wrong(number)) for number in range(80)]
    assert taken == [True] * ATTEMPTS_BURST + [False] * (80 - ATTEMPTS_BURST)
    assert harness.come("app", "10.0.0.2", RIGHT)
    for _ in range(2 * THREADS):
        await harness.finish()
    assert ("app", "app") in harness.answers
    assert len(harness.answers) == 2 * THREADS


async def test_who_was_right_once_is_known_and_waits_for_nobody(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.come("first", "10.0.0.1", RIGHT)
    for number in range(10):
        harness.come(f"with the first {number}", "10.0.0.1", RIGHT)
    await harness.finish()
    assert len(harness.answers) == 10, "one comparison was enough for those that waited"
    await harness.finish()
    assert len(harness.answers) == 11
    assert harness.running == []
    assert not harness.credentials.takes_long(RIGHT)
    found = harness.credentials.find(RIGHT)
    assert found is not None
    assert found.user == "app"
    for other in (wrong(1), Shown(user="op", password="right"), Shown(token="right")):
        assert harness.credentials.known(other) is None


async def test_a_changed_file_makes_nobody_known(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.come("first", "10.0.0.1", RIGHT)
    await harness.finish()
    (tmp_path / "users.json").write_text(json.dumps({"users": USERS["users"][1:]}))
    assert harness.credentials.refresh()
    assert harness.credentials.known(RIGHT) is None
    assert harness.credentials.find(RIGHT) is None


async def test_right_passwords_and_clients_that_left_use_up_no_attempts(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for number in range(ATTEMPTS_BURST):
        assert harness.come(f"gone {number}", "10.0.0.1", wrong(number))
        harness.gone.add(f"gone {number}")
    for _ in range(THREADS):
        await harness.finish()
    assert harness.running == []
    assert harness.answers == []
    taken = [harness.come(f"thief {number}", "10.0.0.1", wrong(number)) for number in range(ATTEMPTS_BURST)]
    assert sum(taken) == ATTEMPTS_BURST - THREADS
    harness.clock.now_ms += 3000
    assert harness.come("later", "10.0.0.1", wrong(0)), "an attempt comes back each second"


async def test_what_is_known_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(tmp_path)
    (user, _) = harness.credentials.users
    for number in range(KNOWN_MAX + 10):
        harness.credentials.remember(wrong(number), user)
    assert harness.credentials.known(wrong(9)) is None
    assert harness.credentials.known(wrong(KNOWN_MAX + 9)) == user


def basic(login: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


class Compared:
    """Lists the passwords that came and those that are compared; `hold` keeps the wrong ones from ending."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str | None] = []
        self.given: list[bytes] = []
        self.hold = threading.Event()
        self.hold.set()
        self._really = bcrypt.checkpw
        monkeypatch.setattr(bcrypt, "checkpw", self)
        really_compare = Comparisons.compare

        def compare(comparisons: Comparisons, address: str, shown: Shown, *rest: Any) -> bool:
            self.asked.append(shown.password)
            return really_compare(comparisons, address, shown, *rest)

        monkeypatch.setattr(Comparisons, "compare", compare)

    def __call__(self, given: bytes, hashed: bytes) -> bool:
        self.given.append(given)
        if given != b"right":
            self.hold.wait(60)
        return self._really(given, hashed)


async def test_eighty_wrong_logins_do_not_keep_a_right_one_out(
    brokers: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (broker,) = await brokers.start(credentials={"users.json": USERS})
    compared = Compared(monkeypatch)
    compared.hold.clear()
    thieves = []
    async with contextlib.AsyncExitStack() as at_the_end:
        for number in range(80):
            reader, writer = await asyncio.open_connection(
                broker.place.host, broker.client_port, local_addr=("127.0.0.9", 0)
            )
            at_the_end.callback(writer.close)
            writer.write(b'CONNECT {"user":"app","pass":"wrong %d"}\r\nPING\r\n' % number)
            thieves.append(reader)
        put_off = 80 - ATTEMPTS_BURST
        await brokers.until(lambda: broker.server.counts.auth_failures == put_off, "those beyond the share")
        right = await brokers.raw(broker)
        at_the_end.push_async_callback(right.close)
        right.send(b'CONNECT {"user":"app","pass":"right"}\r\nPING\r\n')
        await brokers.until(lambda: "right" in compared.asked, "the right password to come")
        compared.hold.set()
        await right.until_line(b"PONG")
        place = compared.given.index(b"right")
        assert place <= 2 * THREADS, "it was compared behind those that ran, not behind all"
        ends = [await reader.read() for reader in thieves]
        assert sum(b"Authorization Violation" in end for end in ends) == ATTEMPTS_BURST
        assert "right" not in caplog.text
        assert caplog.text.count("wrong or missing credentials") <= 21, "the log has its ration"


async def test_probes_are_answered_while_a_hundred_wrong_logins_wait_at_the_admin_calls(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broker,) = await brokers.start(credentials={"users.json": USERS})
    compared = Compared(monkeypatch)
    compared.hold.clear()
    url = f"http://{broker.place.host}:{broker.monitor_port}"
    connector = aiohttp.TCPConnector(limit=0, local_addr=("127.0.0.9", 0))
    async with aiohttp.ClientSession(connector=connector) as thief, aiohttp.ClientSession() as probe:

        async def try_once(number: int) -> int:
            async with thief.get(f"{url}/admin/rebalance", headers=basic(f"op:wrong {number}")) as answer:
                return answer.status

        tries = [asyncio.ensure_future(try_once(number)) for number in range(50)]
        await brokers.until(lambda: len(compared.given) == THREADS, "comparisons to run")
        await brokers.until(lambda: sum(one.done() for one in tries) == 50 - ATTEMPTS_BURST, "the others")
        for kind in ("live", "startup", "ready"):
            async with probe.get(f"{url}/healthz?probe={kind}") as answer:
                assert answer.status == 200
        async with probe.get(f"{url}/varz") as answer:
            assert answer.status == 200
        compared.hold.set()
        statuses = await asyncio.gather(*tries)
        assert (statuses.count(401), statuses.count(429)) == (ATTEMPTS_BURST, 50 - ATTEMPTS_BURST)
        async with probe.get(f"{url}/admin/rebalance", headers=basic("op:right")) as answer:
            assert answer.status == 200


async def test_probes_are_outside_of_the_bound_of_requests(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broker,) = await brokers.start()
    monkeypatch.setattr(monitor, "REQUESTS_MAX", 0)
    url = f"http://{broker.place.host}:{broker.monitor_port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/varz") as answer:
            assert answer.status == 503
        async with session.get(f"{url}/healthz?probe=live") as answer:
            assert answer.status == 200
