"""`supercluster rebalance`: whom it asks, how often, and what it says (CL-7)."""

from __future__ import annotations

import base64
import json
from typing import Any, cast

import pytest

from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.rebalance import ROUNDS_MAX, RebalanceError, Wish, find, rebalance
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import BrokerTarget, Json

pytestmark = pytest.mark.covers("CL-7")


class Admin(BrokerAdmin):
    """Brokers whose clients go where the test says; a run is over when it was looked at once."""

    def __init__(self, **clients: int) -> None:
        super().__init__()
        self.clients = clients
        self.goes_to: list[str] = []
        """Where all that a broker asks next go; that they come back when nothing is said."""
        self.why = ""
        self.running: set[str] = set()
        self.asked: list[tuple[str, int, int]] = []

    def targets(self) -> dict[str, BrokerTarget]:
        return {name: BrokerTarget("ns", "demo", (), "operator", "s", (name,)) for name in self.clients}

    async def clients_of(self, target: BrokerTarget) -> Json:
        (name,) = target.monitors
        running = name in self.running
        self.running.discard(name)
        wanted = [count for asked, count, _ in self.asked if asked == name]
        last = {"asked": 1, "wanted": wanted[-1], "why": self.why} if wanted else None
        count = self.clients[name]
        return {"clients": count, "movable": count, "running": {} if running else None, "last": last}

    async def let_clients_go(self, target: BrokerTarget, count: int, per_s: int) -> Json:
        (name,) = target.monitors
        self.asked.append((name, count, per_s))
        self.running.add(name)
        if self.goes_to:
            self.clients[name] -= count
            self.clients[self.goes_to.pop(0)] += count
        return {}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supercluster.app.commands.rebalance.POLL_S", 0.0)


async def test_it_is_planned_again_until_brokers_have_as_many_each() -> None:
    admin, said = Admin(a=30, b=0, c=0), list[str]()
    admin.goes_to = ["b", "c"]
    assert await rebalance(admin, admin.targets(), Wish("east", 7), said.append)
    assert admin.asked == [("a", 20, 7), ("b", 10, 7)], "all went to the same one first"
    assert admin.clients == {"a": 10, "b": 10, "c": 10}
    assert said[0].splitlines()[1].split() == ["a", "30", "20", "10"]
    assert "no client is asked to leave" in said[-1]


async def test_a_dry_run_asks_nobody() -> None:
    admin, said = Admin(a=30, b=0), list[str]()
    assert await rebalance(admin, admin.targets(), Wish("east", 7, dry_run=True), said.append)
    assert (admin.asked, len(said)) == ([], 1)


async def test_clients_that_come_back_every_time_end_it_after_a_few_rounds() -> None:
    admin, said = Admin(a=30, b=0), list[str]()
    admin.why = "30 were asked, and as many came back"
    assert await rebalance(admin, admin.targets(), Wish("east", 7), said.append)
    assert len(admin.asked) == ROUNDS_MAX
    assert "a: 1 of 15 were asked: 30 were asked, and as many came back" in said


async def test_it_takes_no_longer_than_it_may() -> None:
    admin = Admin(a=30, b=0)
    assert not await rebalance(admin, admin.targets(), Wish("east", 7, timeout_s=0.0), lambda text: None)


class Kube:
    """An API server with these objects."""

    def __init__(self, *objects: Json) -> None:
        self.objects = objects

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        return next((o for o in self.objects if (o["kind"], o["metadata"]["name"]) == (kind, name)), None)

    async def list(self, api_version: str, kind: str, namespace: str, selector: str) -> Json:
        assert selector == "supercluster.dev/cluster=east"
        return {"items": [found for found in self.objects if found["kind"] == kind]}


def pod(name: str, ready: str = "True") -> Json:
    status = {"podIP": "127.0.0.9", "conditions": [{"type": "Ready", "status": ready}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns"},
        "status": status,
    }


def secret(*users: Json) -> Json:
    content = base64.b64encode(json.dumps({"users": list(users)}).encode()).decode()
    return {"kind": "Secret", "metadata": {"name": "demo-credentials"}, "data": {"users.json": content}}


CLUSTER = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "east", "namespace": "ns", "uid": "u", "generation": 1},
    "spec": {"superCluster": "demo"},
}
OPERATOR = {"user": "operator", "password": "p", "role": "operator"}


async def found(*objects: Any) -> dict[str, BrokerTarget]:
    return await find(cast("KubeClient", Kube(*objects)), "ns", "east")


async def test_brokers_are_found_by_their_pods_and_asked_as_the_operator() -> None:
    targets = await found(CLUSTER, secret(OPERATOR), pod("east-0"), pod("east-1"))
    assert list(targets) == ["east-0", "east-1"]
    target = targets["east-0"]
    assert (target.monitors, target.user, target.password) == (("http://127.0.0.9:8222",), "operator", "p")


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ((), "there is no Cluster east in namespace ns"),
        ((CLUSTER,), "Secret demo-credentials has no user operator"),
        ((CLUSTER, secret(OPERATOR)), "not ready: there is none"),
        ((CLUSTER, secret(OPERATOR), pod("east-0"), pod("east-1", "False")), "not ready: east-1"),
    ],
)
async def test_what_is_missing_is_named(objects: tuple[Json, ...], words: str) -> None:
    with pytest.raises(RebalanceError, match=words):
        await found(*objects)
