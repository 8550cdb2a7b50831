"""Brokers of blue add up which clients are still to go, and agree on when they are asked (BG-5, BG-8, BG-12)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.meta.migration import Green, Migration
from supercluster.broker.jetstream.node.far_clients import FRESH_MS, REPORT_MS, FarClients
from supercluster.broker.ports import PeerInfo
from supercluster.broker.protocol.client_reports import (
    AccountClients,
    ClientReport,
    decode_report,
    encode_report,
)
from supercluster.broker.runtime.redirects import MapOrders

pytestmark = pytest.mark.covers("BG-5", "BG-8", "BG-12")

WORLD = "3fa9c21b"
STRICT = Migration("m1", Green("green"), WORLD)
BRIDGES = Migration("m1", Green("green"), WORLD, bridges=True)


@dataclass
class Brokers:
    """blue-0 and what it sends; blue-1 is linked, and both are in the map."""

    now_ms: int = 1000
    sent: list[tuple[str, int, bytes]] = field(default_factory=list)
    migration: Migration = BRIDGES

    def __post_init__(self) -> None:
        stream = SimpleNamespace(
            account="A", is_shown=True, far_world=WORLD, migration=SimpleNamespace(id="m1", world=WORLD)
        )
        self.state: Any = SimpleNamespace(
            brokers={"blue-0": None, "blue-1": None},
            migrations={"m1": self.migration},
            streams={("A", "S"): stream},
            migrating={("A", "S")},
        )
        far = PeerInfo(f"green-0%{WORLD}", "green", "v0", "p0", "green-0:4222", 0, 1)
        env: Any = SimpleNamespace(
            node="blue-0", clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms), settings=None
        )
        peers: Any = SimpleNamespace(linked={"blue-1": None}, far={far.node: far}, post=self._post)
        self.peers = peers
        view: Any = SimpleNamespace(replica=SimpleNamespace(state=self.state))
        self.part = FarClients(env, peers, view)
        self.part.linked = lambda: frozenset({WORLD})
        self.changes = 0
        self.part.orders_changed = self._changed

    def _post(self, node: str, frame: int, body: list[bytes]) -> bool:
        self.sent.append((node, frame, b"".join(body)))
        return True

    def _changed(self) -> None:
        self.changes += 1

    def hear(
        self, row: AccountClients, *, account: str = "A", linked: bool = True, asks: bool = False
    ) -> None:
        report = ClientReport(frozenset({WORLD} if linked else ()), {account: row})
        body = memoryview(encode_report(report, asks=asks))
        self.part.handlers[Frame.CLIENTS]("blue-1", body, self.now_ms)

    def tick(self, ms: int = 0) -> None:
        self.now_ms += ms
        self.part.tick(self.now_ms)


@pytest.fixture
def blue() -> Brokers:
    found = Brokers()
    found.part.map_changed()
    return found


def test_what_greens_port_takes_is_what_its_linked_brokers_say(blue: Brokers) -> None:
    """One that takes a client is enough: it is told of that one alone."""
    assert blue.part.takes("another") == (True, True), "nobody has said"
    assert blue.part.takes(WORLD) == (False, True)
    more = PeerInfo(f"green-1%{WORLD}", "green", "v0", "p0", "green-1:4222", 0, 1, client_tls=True)
    blue.peers.far[more.node] = replace(more, client_plain=False)
    assert blue.part.takes(WORLD) == (True, True)
    del blue.peers.far[f"green-0%{WORLD}"]
    assert blue.part.takes(WORLD) == (True, False)


def test_while_a_migration_is_in_the_map_each_broker_reports_every_second(blue: Brokers) -> None:
    blue.part.report = lambda: ClientReport(accounts={"A": AccountClients(2)})
    blue.tick()
    [(node, frame, body)] = blue.sent
    assert (node, frame) == ("blue-1", Frame.CLIENTS)
    assert decode_report(body) == (blue.part.report(), False)
    blue.tick(REPORT_MS - 1)
    assert len(blue.sent) == 1
    blue.tick(1)
    assert len(blue.sent) == 2
    blue.state.migrations.clear()
    blue.part.map_changed()
    assert blue.part.deadline_ms() is None


def test_a_broker_that_is_asked_answers_at_once(blue: Brokers) -> None:
    blue.hear(AccountClients(), asks=True)
    assert [(node, decode_report(body)[1]) for node, _, body in blue.sent] == [("blue-1", False)]
    blue.part.ask()
    assert decode_report(blue.sent[-1][2])[1]


def test_a_broker_that_has_not_spoken_may_have_clients(blue: Brokers) -> None:
    blue.tick()
    assert blue.part.left(BRIDGES) == "blue-1 has not said which clients it has"
    blue.hear(AccountClients())
    assert blue.part.left(BRIDGES) == ""
    blue.now_ms += FRESH_MS + 1
    assert blue.part.silent() == ["blue-0", "blue-1"]


def test_who_waits_is_left_and_who_stays_is_where_the_migration_bridges_nobody(blue: Brokers) -> None:
    blue.tick()
    blue.hear(AccountClients(3, staying=1, failing=("bob",)))
    assert blue.part.left(BRIDGES) == "2 clients are still to go to the other super-cluster (bob)"
    blue.hear(AccountClients(1, staying=1, staying_names=("old",)))
    assert blue.part.left(BRIDGES) == ""
    assert blue.part.left(STRICT) == "1 clients are still to go to the other super-cluster (old)"


def test_clients_of_other_accounts_are_not_waited_for(blue: Brokers) -> None:
    blue.tick()
    blue.hear(AccountClients(3), account="B")
    assert blue.part.left(Migration("m2", Green("green"), WORLD, account="A")) == ""
    assert blue.part.clients_of(BRIDGES).connections == 3


def test_clients_are_asked_when_all_brokers_say_that_they_are_linked(blue: Brokers) -> None:
    assert [order.asks for order in blue.part.orders.values()] == [False]
    blue.tick()
    blue.hear(AccountClients(), linked=False)
    assert [order.asks for order in blue.part.orders.values()] == [False]
    blue.hear(AccountClients())
    assert [order.asks for order in blue.part.orders.values()] == [True]
    assert (blue.part.orders["m1"].urls, blue.changes) == (("green-0:4222",), 2)
    blue.peers.far.clear()
    blue.part.far_changed()
    assert blue.part.orders["m1"].urls == ("green-0:4222",)


@pytest.mark.parametrize(
    ("tls", "plain", "urls"),
    [
        (False, True, (("green-0:4222",), ())),
        (True, False, ((), ("green-0:4222",))),
        (True, True, (("green-0:4222",), ("green-0:4222",))),
    ],
)
def test_clients_are_told_of_ports_that_take_them(
    blue: Brokers, *, tls: bool, plain: bool, urls: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """Rule 21: one with TLS would send its password in plain, or never come to green."""
    (node, found), *_ = blue.peers.far.items()
    blue.peers.far[node] = replace(found, client_tls=tls, client_plain=plain)
    blue.part.far_changed()
    order = blue.part.orders["m1"]
    assert (order.urls, order.tls_urls) == urls
    shown = MapOrders(lambda: blue.part.orders, lambda: "SYS").order_of("A")
    assert shown is not None
    assert (shown.urls, shown.tls_urls) == urls
