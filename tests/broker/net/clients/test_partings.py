"""How a connection is ended that is to go elsewhere: nothing that it sent is lost, and it gets its answers first (SF-16, rule 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.broker.net.test_rebalance import Stocked

from supercluster.broker.net.clients import partings
from supercluster.broker.net.clients.redirect.orders import Order, Phase
from supercluster.broker.net.clients.redirect.scouting import Stage
from supercluster.broker.ports import ClientInfo, Publisher

pytestmark = pytest.mark.covers("SF-16")

GREEN = ("green-0.example:4222",)


class Orders:
    """For all accounts."""

    def __init__(self, phase: Phase = Phase.REDIRECT, tls_urls: tuple[str, ...] = ()) -> None:
        self.order = Order("m1", phase, GREEN, tls_urls)

    def order_of(self, account: str) -> Order:
        return self.order

    def order_for_all(self) -> Order:
        return self.order


class Settling(Stocked):
    """A core that says whose publishes have no verdict."""

    def __init__(self) -> None:
        super().__init__()
        self.unsettled_names: set[str] = set()

    def unsettled(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        return {client for client in clients if getattr(client, "name", None) in self.unsettled_names}


async def one(brokers: Any, **options: Any) -> tuple[Any, Settling]:
    cores: list[Settling] = []

    def make(process: Any) -> Settling:
        core = Settling()
        core.network = process.router
        cores.append(core)
        return core

    (broker,) = await brokers.start(1, make_core=make, **options)
    return broker, cores[0]


async def connected(brokers: Any, broker: Any, name: str = "c") -> Any:
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"protocol":1,"name":"%b"}\r\nPING\r\n' % name.encode())
    await raw.until_line(b"PONG")
    return raw


async def test_a_client_gets_the_answer_that_it_waits_for_before_fin(brokers: Any) -> None:
    broker, core = await one(brokers)
    raw = await connected(brokers, broker)
    raw.send(b"SUB answers 1\r\nPING\r\n")
    await raw.until_line(b"PONG")
    other = await brokers.client(broker, name="other", reconnect_time_wait=0.01)
    redirection = broker.redirection
    redirection.set_orders(Orders())
    (client,) = (found for found in broker.server.clients.values() if found.name == "c")
    await brokers.until(lambda: client.id in redirection.partings, "the client to be asked")
    core.waiting = {"c"}
    while b'"ldm":true' not in await raw.line():
        pass
    await brokers.until(lambda: client.is_stalled, "its socket to be read no more")
    raw.send(b"PUB orders.late 0\r\n\r\n")
    await other.publish("answers", b"yes")
    assert await raw.line() == b"MSG answers 1 3"
    assert await raw.line() == b"yes"
    assert not client.is_leaving
    core.waiting = set()
    assert await raw.to_end() == b"", "then FIN, without an error"
    await brokers.until(lambda: core.orders.taken, "what it had sent meanwhile to be taken")
    await raw.close()


async def test_the_wait_for_answers_is_bounded_and_a_client_that_does_not_close_is_cut_off(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partings, "HUSH_MS", 50)
    broker, core = await one(brokers, limits={"drainMs": 100})
    core.waiting = {"c"}
    raw = await connected(brokers, broker)
    broker.redirection.redirects.reported("", next(iter(broker.redirection.users)), 0)
    broker.redirection.set_orders(Orders(Phase.CLOSED))
    await raw.to_end()
    await brokers.until(lambda: not broker.server.clients, "the client to be cut off")
    assert broker.redirection.partings.cut_off == 1
    await raw.close()


@pytest.mark.covers("SF-22")
@pytest.mark.parametrize("is_bounded", [False, True])
async def test_fin_waits_for_the_verdict_of_each_publish_within_a_bound(
    brokers: Any, monkeypatch: pytest.MonkeyPatch, is_bounded: bool
) -> None:
    """The link with green may be cut: what waits for it would arrive behind what the client sends to green."""
    monkeypatch.setattr(partings, "HUSH_MS", 0)
    if is_bounded:
        monkeypatch.setattr(partings, "SETTLE_MS", 100)
    broker, core = await one(brokers)
    raw = await connected(brokers, broker)
    core.unsettled_names = {"c"}
    asked: list[int] = []

    def unsettled(clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        asked.append(len(clients))
        return core.unsettled(clients)

    monkeypatch.setattr(broker.redirection.partings, "_unsettled", unsettled)
    broker.redirection.set_orders(Orders())
    (client,) = broker.server.clients.values()
    if not is_bounded:
        await brokers.until(lambda: len(asked) > 3, "it to be asked some times")
        assert not client.is_leaving
        core.unsettled_names = set()
    await raw.to_end()
    await raw.close()


async def test_a_client_that_gives_up_on_its_ping_while_it_is_read_no_more_loses_nothing(
    brokers: Any,
) -> None:
    """For up to SETTLE_MS its pings wait. Clients wait for some minutes by default; one that waits less connects anew, to green."""
    broker, core = await one(brokers)
    raw = await connected(brokers, broker)
    core.unsettled_names = {"c"}
    broker.redirection.set_orders(Orders())
    (client,) = broker.server.clients.values()
    await brokers.until(lambda: client.is_stalled, "its socket to be read no more")
    raw.send(b"PUB orders.late 0\r\n\r\nPING\r\n")
    await raw.close()
    core.unsettled_names = set()
    await brokers.until(lambda: not broker.server.clients, "it to be gone")
    assert [subject for subject, _, _ in core.orders.taken] == [b"orders.late"]


async def test_an_account_is_unsettled_until_the_last_publish_of_a_closing_connection_has_its_verdict(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 10."""
    broker, core = await one(brokers)
    said: list[list[str]] = []
    broker.redirection.tell_unsettled = lambda closing: said.append([one.account for one in closing])
    raw = await connected(brokers, broker)
    broker.redirection.set_orders(Orders())
    await raw.to_end()
    core.unsettled_names = {"c"}
    await raw.close()
    await brokers.until(lambda: not broker.server.clients, "the client to be gone")
    assert said[0] == ["$G"]
    count = len(said)
    await brokers.until(lambda: len(said) > count, "it to be said again")
    assert said[-1] == ["$G"]
    core.unsettled_names = set()
    await brokers.until(lambda: said[-1] == [], "the end of it")
    assert broker.redirection.redirects.users.popitem()[1].stage is Stage.TRYING


@pytest.mark.covers("SF-22")
async def test_the_account_of_a_client_that_leaves_by_itself_is_unsettled_if_its_publishes_are(
    brokers: Any,
) -> None:
    """INFO has told it of green, so it goes there without being asked: when its connection breaks, or it gives up on a ping."""
    broker, core = await one(brokers)
    said: list[list[str]] = []
    broker.redirection.tell_unsettled = lambda closing: said.append([one.account for one in closing])
    raws = {name: await connected(brokers, broker, name) for name in ("idle", "c")}
    broker.redirection.set_orders(Orders(Phase.ANNOUNCE))
    core.unsettled_names = {"c"}
    await raws["idle"].close()
    await brokers.until(
        lambda: len(broker.server.clients) == 1 and not len(broker.redirection.partings),
        "the idle one to be gone",
    )
    assert said == [], "it had published nothing"
    await raws["c"].close()
    await brokers.until(lambda: said, "it to be said")
    assert said[0] == ["$G"]
    core.unsettled_names = set()
    await brokers.until(lambda: said[-1] == [], "the end of it")


@pytest.mark.covers("SF-22")
async def test_an_account_is_unsettled_from_just_before_fin_and_no_sooner(brokers: Any) -> None:
    """Nobody goes to green before FIN: until then others of the account need not wait there."""
    broker, core = await one(brokers)
    raw = await connected(brokers, broker)
    core.unsettled_names = {"c"}
    (client,) = broker.server.clients.values()
    said: list[tuple[list[str], bool]] = []
    broker.redirection.tell_unsettled = lambda closing: said.append(
        ([one.account for one in closing], client.is_leaving)
    )
    broker.redirection.set_orders(Orders())
    await brokers.until(lambda: client.is_stalled, "its socket to be read no more")
    assert said == []
    core.unsettled_names = set()
    await raw.to_end()
    assert said[0] == (["$G"], False), "before FIN"
    await raw.close()
    await brokers.until(lambda: said[-1][0] == [], "the end of it")


@pytest.mark.covers("SF-22")
async def test_a_client_that_does_not_read_its_fin_holds_up_others_on_green_for_a_moment_only(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not left, so nothing that it publishes can be too late."""
    monkeypatch.setattr(partings, "CLOSES_MS", 50)
    broker, _ = await one(brokers)
    raw = await connected(brokers, broker)
    said: list[int] = []
    broker.redirection.tell_unsettled = lambda closing: said.append(len(closing))
    broker.redirection.set_orders(Orders())
    await brokers.until(lambda: said[-1:] == [0], "the end of it")
    assert len(broker.server.clients) == 1, "it has its connection still"
    assert said[0] == 1
    await raw.close()


@pytest.mark.covers("SF-22")
@pytest.mark.parametrize("is_stalled", [True, False])
async def test_a_client_is_closing_for_as_long_as_its_fin_may_be_behind_what_it_sent_before(
    brokers: Any, monkeypatch: pytest.MonkeyPatch, is_stalled: bool
) -> None:
    """Rule 10: it may have read FIN and be on green, while blue does not read it, or still reads what it had sent."""
    monkeypatch.setattr(partings, "CLOSES_MS", 50)
    broker, core = await one(brokers)
    raw = await connected(brokers, broker)
    (client,) = broker.server.clients.values()
    said: list[tuple[int, int]] = []
    broker.redirection.tell_unsettled = lambda closing: said.append((len(closing), len(core.orders.taken)))
    behind_fin: list[int] = []
    step = broker.redirection.partings.step

    def watched(now_ms: int) -> None:
        step(now_ms)
        if client.is_leaving and not client.closed and not behind_fin[9:]:
            behind_fin.append(now_ms)
            if not is_stalled:
                raw.send(b"PUB orders.late 0\r\n\r\n")

    monkeypatch.setattr(broker.redirection.partings, "step", watched)
    broker.redirection.set_orders(Orders())
    await brokers.until(lambda: client.is_stalled, "its socket to be read no more")
    sent = 10
    if is_stalled:
        client.stall("green-0")
        sent = 2000
        raw.send(b"PUB orders.late 0\r\n\r\n" * sent)
    await raw.to_end()
    await brokers.until(lambda: behind_fin[9:], "the tenth step behind FIN")
    assert behind_fin[-1] - behind_fin[0] > 2 * partings.CLOSES_MS
    await raw.close()
    client.unstall("green-0")
    await brokers.until(lambda: said[-1][0] == 0, "the end of it")
    assert next(taken for count, taken in said if count == 0) == sent
