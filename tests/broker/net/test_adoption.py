"""Plain passwords that become hashes: who showed the same password keeps the connection."""

from __future__ import annotations

import threading
from typing import Any

import bcrypt
import pytest
from tests.broker.net.conftest import until
from tests.broker.net.test_shown_credentials import OPERATOR, entry, hashed, shown, write

from supercluster.broker.net.clients import adoption, comparisons

VIOLATION = b"-ERR 'Authorization Violation'\r\n"


class Held:
    """Keeps all comparisons from ending until `go`, and notes on which threads they are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.threads: list[threading.Thread] = []
        self._really = bcrypt.checkpw
        monkeypatch.setattr(bcrypt, "checkpw", self)

    def __call__(self, given: bytes, configured: bytes) -> bool:
        self.threads.append(threading.current_thread())
        assert self.go.wait(60)
        return self._really(given, configured)


async def plain(brokers: Any, *more: Any) -> Any:
    (broker,) = await brokers.start(credentials={"users.json": {"users": [entry("p"), *more, OPERATOR]}})
    return broker


async def come(brokers: Any, broker: Any, password: str = "p") -> Any:
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"user":"app","pass":"%s"}\r\nPING\r\n' % password.encode())
    await raw.until_line(b"PONG")
    return raw


@pytest.mark.covers("CL-5")
async def test_who_showed_the_password_that_is_hashed_now_stays_under_the_new_entry(brokers: Any) -> None:
    broker = await plain(brokers)
    client = await brokers.client(broker, user="app", password="p")
    (connection,) = broker.server.clients.values()
    await client.subscribe("denied")
    await client.flush()
    denied = {"subscribe": {"deny": ["denied"]}}
    write(broker, entry(hashed("other"), "u.1"), entry(hashed("p"), "u.2", permissions=denied))
    await until(lambda: connection.credential.credential == "u.2", "the new label")
    await client.flush()
    assert (client.is_connected, client.stats["reconnects"]) == (True, 0)
    assert not connection.subscriber.subscriptions, "the permissions of now are in force"
    assert (await shown(broker))["app", "u.2"]["connections"] == 1
    await brokers.client(broker, user="app", password="p")


@pytest.mark.covers("CL-5")
async def test_who_showed_another_password_is_cut_off(brokers: Any) -> None:
    broker = await plain(brokers)
    raw = await come(brokers, broker)
    write(broker, entry(hashed("other"), "u.1"))
    assert await raw.to_end() == VIOLATION
    await raw.close()


@pytest.mark.covers("CL-5")
async def test_clients_stay_until_one_comparison_on_a_thread_has_answered_for_all(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await plain(brokers)
    write(broker, entry("p", "u.0"))
    await until(lambda: broker.credentials.users[0].credential == "u.0", "a label")
    held = Held(monkeypatch)
    clients = [await come(brokers, broker) for _ in range(20)]
    write(broker, entry(hashed("p"), "u.1"))
    await until(lambda: bool(held.threads), "the comparison to begin")
    for raw in clients:
        raw.send(b"PING\r\n")
        await raw.until_line(b"PONG")
    found = await shown(broker)
    before, after = found["app", "u.0"], found["app", "u.1"]
    assert (before["inForce"], before["connections"], before["idleMs"]) == (False, 20, 0)
    assert (after["inForce"], after["connections"], after["idleMs"]) == (True, 0, None)
    held.go.set()
    await until(
        lambda: {one.credential.credential for one in broker.server.clients.values()} == {"u.1"}, "the labels"
    )
    assert len(held.threads) == 1
    assert held.threads[0] is not threading.main_thread()
    for raw in clients:
        await raw.close()


@pytest.mark.covers("CL-5")
async def test_users_that_change_again_meanwhile_are_those_that_count(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await plain(brokers)
    held = Held(monkeypatch)
    raw = await come(brokers, broker)
    write(broker, entry(hashed("other"), "u.1"))
    await until(lambda: bool(held.threads), "the comparison to begin")
    write(broker, entry(hashed("p"), "u.2"))
    await until(lambda: broker.credentials.users[0].credential == "u.2", "the second change")
    held.go.set()
    (connection,) = broker.server.clients.values()
    await until(lambda: connection.credential.credential == "u.2", "the new label")
    raw.send(b"PING\r\n")
    await raw.until_line(b"PONG")
    held.go.clear()
    write(broker, {"user": "somebody", "password": "else"})
    assert await raw.to_end() == b"", "a user that is gone"
    await raw.close()


@pytest.mark.covers("CL-5")
async def test_a_user_that_goes_while_it_is_compared_is_cut_off_at_once(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await plain(brokers)
    held = Held(monkeypatch)
    raw = await come(brokers, broker)
    write(broker, entry(hashed("p"), "u.1"))
    await until(lambda: bool(held.threads), "the comparison to begin")
    write(broker)
    assert await raw.to_end() == b""
    await raw.close()
    held.go.set()


@pytest.mark.covers("CL-5")
async def test_without_an_answer_in_time_clients_have_to_come_again(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "WAIT_S", 0.05)
    broker = await plain(brokers)
    held = Held(monkeypatch)
    raw = await come(brokers, broker)
    write(broker, entry(hashed("p"), "u.1"))
    assert await raw.to_end() == b""
    await raw.close()
    held.go.set()
    again = await come(brokers, broker)
    await again.close()


@pytest.mark.covers("CL-5")
async def test_with_too_many_others_waiting_clients_have_to_come_again(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await plain(brokers)
    raw = await come(brokers, broker)
    monkeypatch.setattr(comparisons, "WAITING_MAX", 0)
    write(broker, entry(hashed("p"), "u.1"))
    assert await raw.to_end() == b""
    await raw.close()


@pytest.mark.covers("CL-5")
async def test_the_user_of_another_account_or_role_is_not_the_same(brokers: Any) -> None:
    broker = await plain(brokers, entry("q", account="B"))
    raw, other = await come(brokers, broker), await come(brokers, broker, "q")
    write(broker, entry(hashed("p"), "u.1", account="B"), entry(hashed("q"), "u.2", role="operator"))
    assert await raw.to_end() == b"", "its user is gone: the role is another one"
    assert await other.to_end() == VIOLATION, "the one of its account has another password"
    for one in (raw, other):
        await one.close()


@pytest.mark.covers("CL-5")
async def test_more_users_than_the_share_of_an_address_are_taken_over_at_once(brokers: Any) -> None:
    count = 2 * comparisons.ATTEMPTS_BURST
    users = [{"user": f"u{number}", "password": f"p{number}"} for number in range(count)]
    broker = await plain(brokers, *users)
    clients = [await brokers.client(broker, user=one["user"], password=one["password"]) for one in users]
    write(broker, *({"user": one["user"], "password": hashed(one["password"])} for one in users))
    await until(
        lambda: all(one.credential.password.startswith("$2b$") for one in broker.server.clients.values()),
        "all to be adopted",
    )
    assert len(broker.server.clients) == count
    assert {client.stats["reconnects"] for client in clients} == {0}
