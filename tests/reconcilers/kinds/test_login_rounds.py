"""Whole rounds in which the logins between brokers and the operator's own are exchanged (CL-5)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import SC, KilledError
from tests.reconcilers.kinds.test_user_rounds import BROKERS, Users

from supercluster.reconcilers.observe.targets import broker_target

pytestmark = pytest.mark.covers("CL-5")

FORMER = {"cluster.json": "route", "gateway.json": "gateway"}
DOORS = {"cluster.json": "cluster", "gateway.json": "gateway"}


class Logins(Users):
    """Whose brokers' links follow what they send, when they are made anew."""

    def ask(self, value: str) -> None:
        note = {"supercluster.dev/rotate-credentials": value}
        self.change(
            "SuperCluster", "demo", lambda body: body["metadata"].setdefault("annotations", {}).update(note)
        )

    def file(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.secret("demo-credentials")[name])
        return found

    def accepted(self, name: str) -> list[str]:
        return [each["user"] for each in self.file(name)["accept"]]

    def operators(self) -> list[str]:
        users = self.file("users.json")["users"]
        return [each.get("credential", "") for each in users if each["role"] == "operator"]

    def link(self, *brokers: str, count: int = 2) -> None:
        """Their links are made anew, with what is sent now."""
        for broker in brokers:
            self.brokers.users.links[broker] = {
                door: {self.file(file)["send"]["user"]: count} for file, door in DOORS.items()
            }

    def message(self) -> str:
        return str(condition(self.status(SC), "Progressing")["message"])


@pytest.fixture
async def world() -> Logins:
    world = Logins()
    await world.converge()
    world.load()
    world.link(*BROKERS)
    return world


async def test_nothing_is_exchanged_until_somebody_asks(world: Logins) -> None:
    await world.settle()
    assert world.accepted("cluster.json") == ["route"]
    assert world.brokers.users.asked == 0
    assert "Progressing" not in {each["type"] for each in world.status(SC)["conditions"]}


async def test_logins_are_sent_when_every_broker_accepts_them_and_dropped_when_no_link_has_them(
    world: Logins,
) -> None:
    world.late = {"east-1"}
    world.ask("1")
    await world.settle(3)
    assert world.accepted("cluster.json") == ["route", "route-2"]
    assert world.accepted("gateway.json") == ["gateway", "gateway-2"]
    assert world.file("cluster.json")["send"]["user"] == "route"
    assert world.operators() == ["", "operator.2"]
    assert "east-1" in world.message()
    world.late = set()
    await world.settle(3)
    assert world.file("cluster.json")["send"]["user"] == "route-2"
    assert world.operators() == ["operator.2", ""]
    assert world.accepted("cluster.json") == ["route", "route-2"], "links were made with the former one"
    target = broker_target(world.cache, "demo-ns", "demo")
    assert not isinstance(target, str)
    users = world.file("users.json")["users"]
    assert target.password == next(
        each["password"] for each in users if each.get("credential") == "operator.2"
    )
    world.link("east-0", "east-1")
    await world.settle(3)
    assert world.accepted("gateway.json") == ["gateway", "gateway-2"]
    assert "east-2" in world.message()
    world.link("east-2")
    await world.settle(3)
    assert world.accepted("cluster.json") == ["route-2"]
    assert world.accepted("gateway.json") == ["gateway-2"]
    assert world.operators() == ["operator.2"]
    assert condition(world.status(SC), "Progressing")["status"] == "False"
    world.ask("2")
    await world.settle(4)
    world.link(*BROKERS)
    await world.settle(4)
    assert world.accepted("cluster.json") == ["route-3"]
    assert world.operators() == ["operator.3"]


async def test_the_operators_former_login_stays_while_somebody_shows_it(world: Logins) -> None:
    world.ask("1")
    world.brokers.users.connections[("east-0", "$G/operator")] = 1
    await world.settle(3)
    world.link(*BROKERS)
    await world.settle(3)
    assert world.operators() == ["operator.2", ""]
    del world.brokers.users.connections[("east-0", "$G/operator")]
    world.brokers.users.idle_ms[("east-0", "$G/operator")] = 1_000
    await world.settle(3)
    assert world.operators() == ["operator.2", ""]
    world.brokers.users.idle_ms[("east-0", "$G/operator")] = 31_000
    await world.settle(3)
    assert world.operators() == ["operator.2"]


async def test_an_exchange_is_taken_back_before_and_behind_its_second_step(world: Logins) -> None:
    world.late = {"east-1"}
    world.ask("1")
    await world.settle(3)
    world.ask("cancel")
    await world.settle(3)
    assert world.accepted("cluster.json") == ["route"]
    assert world.operators() == [""]
    world.late = set()
    world.ask("2")
    await world.settle(3)
    world.link("east-0")
    assert world.file("cluster.json")["send"]["user"] == "route-2"
    world.ask("cancel")
    await world.settle(3)
    assert world.file("cluster.json")["send"]["user"] == "route"
    assert world.accepted("cluster.json") == ["route", "route-2"], "east-0 has links with it"
    world.link("east-0")
    await world.settle(3)
    assert world.accepted("cluster.json") == ["route"]
    assert world.operators() == [""]


async def test_no_secret_of_a_login_is_said(world: Logins) -> None:
    world.ask("1")
    await world.settle(4)
    metadata = world.kube.objects[("Secret", "demo-ns", "demo-credentials")]["metadata"]
    said = json.dumps([world.status(SC), metadata, [str(each) for each in world.kube.events]])
    assert "secret-" not in said


async def test_an_operator_that_is_killed_at_any_call_ends_the_exchange() -> None:
    """Each broker accepts what any other sends, at any moment."""
    for call in range(40):
        world = Logins()
        await world.converge()
        world.load()
        world.link(*BROKERS)
        world.ask("1")
        for step in range(5):
            if step == call % 5:
                world.die_at_call(call // 5)
            with suppress(KilledError):
                await world.settle(1)
            if step == call % 5:
                world.kube.fail = world.brokers.fail = lambda _: None
                world.restart()
            assert world.file("cluster.json")["send"]["user"] in world.accepted("cluster.json"), (call, step)
            world.load()
            world.link(*BROKERS)
        await world.settle(5)
        world.link(*BROKERS)
        await world.settle(4)
        assert world.accepted("cluster.json") == ["route-2"], call
        assert world.operators() == ["operator.2"], call


async def test_a_login_that_somebody_took_out_is_named(world: Logins) -> None:
    from base64 import b64encode

    world.late = {"east-1"}
    world.ask("1")
    await world.settle(3)
    file = world.file("cluster.json")
    file["accept"] = file["accept"][:1]
    data = {"cluster.json": b64encode(json.dumps(file).encode()).decode()}
    world.change("Secret", "demo-credentials", lambda body: body["data"].update(data))
    world.late = set()
    await world.settle(3)
    said = json.dumps(world.status(SC)["conditions"])
    assert "cluster.json: accept has no login route-2 any more" in said
    world.ask("cancel")
    await world.settle(3)
    assert world.accepted("cluster.json") == ["route"]
    assert world.operators() == [""]


async def test_a_former_login_that_somebody_took_out_holds_nothing_up(world: Logins) -> None:
    from base64 import b64encode

    world.ask("1")
    await world.settle(3)
    file = world.file("cluster.json")
    assert file["send"]["user"] == "route-2"
    file["accept"] = [each for each in file["accept"] if each["user"] == "route-2"]
    data = {"cluster.json": b64encode(json.dumps(file).encode()).decode()}
    world.change("Secret", "demo-credentials", lambda body: body["data"].update(data))
    world.link(*BROKERS)
    await world.settle(4)
    assert world.accepted("cluster.json") == ["route-2"]
    assert world.operators() == ["operator.2"]
