"""Statuses that a newer operator wrote before it was rolled back: fields, reasons, types of conditions and values of enumerations that
this version does not know keep no resource from being worked on, and conditions of foreign types stay (B3)."""

from __future__ import annotations

import asyncio
import copy
import enum
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import NS
from tests.reconcilers.kinds.test_migration_rounds import OVER, Cutover
from tests.support.tiers import examples

from supercluster.api.common import Resource
from supercluster.api.conditions import ConditionType
from supercluster.reconcilers.kinds.reconcilers import RECONCILERS
from supercluster.reconcilers.ports import Key

pytestmark = pytest.mark.covers("OP-4")

FOREIGN = {
    "type": "FromTheFuture",
    "status": "Perhaps",
    "reason": "NotYetKnown",
    "message": "written by a newer operator",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
NEW = "FromTheFuture"
NAMES = {"Stream": "flights", "Cluster": "east", "SuperCluster": "demo", "Migration": "over"}
KEYS = {kind: Key(kind, NS, NAMES.get(kind, "mine")) for kind in RECONCILERS}


class AllKinds(Cutover):
    """A resource of each kind."""

    def __init__(self) -> None:
        super().__init__()
        program = {"image": "counts:1", "mainFile": "local:///app/count.py"}
        goal: dict[str, Any] = {"superCluster": "demo", "stream": "mine", "destination": {"cluster": "west"}}
        self.declare("Cluster", "west", superCluster="demo")
        self.declare("ReplicaPolicy", "mine", superCluster="demo", selector={"namePattern": "*"})
        self.declare("StreamMove", "mine", **goal, approval="Manual")
        self.declare("User", "mine", superCluster="demo")
        self.declare("StreamPipeline", "mine", superCluster="demo", **program)
        self.begin(approval="Manual")
        self.brokers.streams["mine"] = {"name": "mine", "subjects": ["mine"], "num_replicas": 3}


async def _converged() -> AllKinds:
    world = AllKinds()
    for _ in range(4):
        for kind, _, name in list(world.kube.objects):
            if kind in RECONCILERS:
                await world.round(Key(kind, NS, name))
        world.start_pods()
        await world.clock.advance(31_000)
    return world


BASE = asyncio.run(_converged())


def enumerations(model: type[BaseModel], value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Paths to values of a status that have to be one of a list of words."""
    for field in model.model_fields.values():
        key = field.alias or ""
        if isinstance(value, Mapping) and key in value:
            yield from _in(field.annotation, value[key], (*path, key))


def _in(annotation: Any, value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if get_origin(annotation) is Literal or (
        isinstance(annotation, type) and issubclass(annotation, enum.Enum)
    ):
        yield path
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from enumerations(annotation, value, path)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            for argument in get_args(annotation):
                yield from _in(argument, each, (*path, index))
    else:
        for argument in get_args(annotation):
            yield from _in(argument, value, path)


def put(status: Any, path: tuple[Any, ...], value: Any) -> None:
    for at in path[:-1]:
        status = status[at]
    status[path[-1]] = value


def status_model(kind: str) -> type[BaseModel]:
    return cast("type[BaseModel]", RECONCILERS[kind].kind.model.model_fields["status"].annotation)


def aged(draw: st.DrawFn, kind: str, status: Any) -> None:
    """Make a status one of a newer operator."""
    for entry in status["conditions"]:
        if draw(st.booleans()):
            entry["reason"] = NEW
    for path in list(enumerations(status_model(kind), status, ())):
        if draw(st.booleans()):
            put(status, path, NEW)
    for part in (status, *(each for each in status.values() if isinstance(each, dict))):
        part["fromTheFuture"] = {"is": "unknown"}
    status["conditions"].insert(draw(st.integers(0, len(status["conditions"]))), dict(FOREIGN))


@pytest.mark.parametrize("kind", RECONCILERS)
@settings(max_examples=examples(20, 400), deadline=None)
@given(data=st.data())
def test_a_status_of_a_newer_operator_is_read_worked_on_and_kept(kind: str, data: st.DataObject) -> None:
    world, key = copy.deepcopy(BASE), KEYS[kind]
    before = copy.deepcopy(world.status(key))

    @st.composite
    def change(draw: st.DrawFn) -> None:
        world.change(kind, key.name, lambda body: aged(draw, kind, body["status"]))

    data.draw(change())
    world.restart()
    asyncio.run(world.round(key))
    after = world.status(key)
    assert [each for each in after["conditions"] if each["type"] == NEW] == [FOREIGN]
    assert after["fromTheFuture"] == {"is": "unknown"}
    assert {each["type"] for each in before["conditions"]} <= {each["type"] for each in after["conditions"]}
    for type_ in (ConditionType.READY, ConditionType.ACCEPTED):
        reasons = [each["reason"] for each in after["conditions"] if each["type"] == type_]
        assert not {"InvalidObject", NEW} & {*reasons}
    assert not world.cache.unreadable(NS, "demo")


@pytest.mark.parametrize("kind", RECONCILERS)
def test_what_can_not_be_read_is_dropped_and_the_rest_is_read(kind: str) -> None:
    body = copy.deepcopy(BASE.kube.objects[kind, NS, KEYS[kind].name])
    model = cast("type[Resource]", RECONCILERS[kind].kind.model)
    for path in enumerations(status_model(kind), body["status"], ()):
        changed = copy.deepcopy(body)
        put(changed["status"], path, NEW)
        found = model.model_validate(changed).to_object()["status"]
        whole = model.model_validate(body).to_object()["status"]
        assert NEW not in str(found), path
        assert {name for name in whole if whole[name] != found.get(name)} <= {path[0]}


@pytest.mark.covers("MV-13", "OP-4")
@pytest.mark.parametrize("ended", [False, True])
async def test_a_move_in_an_unknown_phase_is_not_begun_again(ended: bool) -> None:
    world = copy.deepcopy(BASE)
    times = {"startedAt": "2026-01-01T00:00:00Z", **({"endedAt": "2026-01-01T00:10:00Z"} if ended else {})}

    def age(body: dict[str, Any]) -> None:
        body["spec"] |= {"approved": True}
        body["status"] |= {"phase": NEW, **times}

    world.change("StreamMove", "mine", age)
    for _ in range(3):
        await world.round(Key("SuperCluster", NS, "demo"))
        await world.round(KEYS["StreamMove"])
    assert world.brokers.moves.started == []
    phase = world.status(KEYS["StreamMove"])["phase"]
    assert phase == (NEW if ended else "Running")


async def test_a_migration_that_ended_in_an_unknown_phase_is_at_rest() -> None:
    world = copy.deepcopy(BASE)
    changes = {"phase": NEW, "endedAt": "2026-01-01T00:00:00Z"}
    world.change("Migration", "over", lambda body: body["status"].update(changes))
    world.change("Migration", "over", lambda body: body["spec"].update(approved=True))
    await world.round(OVER)
    assert world.brokers.migrations.started == []
    assert world.status(OVER)["phase"] == NEW


async def test_a_spec_that_can_not_be_read_is_refused_and_foreign_conditions_stay() -> None:
    world = copy.deepcopy(BASE)

    def age(body: dict[str, Any]) -> None:
        body["spec"]["deletionPolicy"] = NEW
        body["status"]["conditions"].append(dict(FOREIGN))

    world.change("Cluster", "east", age)
    await world.round(KEYS["Cluster"])
    status = world.status(KEYS["Cluster"])
    assert condition(status, "Accepted")["reason"] == "InvalidObject"
    assert FOREIGN in status["conditions"]
