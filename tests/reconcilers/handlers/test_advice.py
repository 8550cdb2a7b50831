"""A person does what a refused Stream says, to the letter, and has what was wanted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import NS, STREAM, World

from supercluster.reconcilers.ports import Key

SECOND = Key("Stream", NS, "second")


@pytest.fixture
async def world() -> World:
    world = World()
    world.change("Stream", "flights", lambda body: body["spec"].update(WANTED_BEFORE))
    await world.converge()
    return world


WANTED_BEFORE: dict[str, Any] = {"storage": "File", "retention": "Limits"}


def declare(world: World, **spec: Any) -> None:
    world.declare("Stream", "flights", **{"superCluster": "demo", "subjects": ["flights.>"], **spec})


async def remove(world: World, key: Key = STREAM) -> None:
    world.delete(key)
    await world.converge()
    assert (key.kind, key.namespace, key.name) not in world.kube.objects


def refusal(world: World, key: Key = STREAM) -> str:
    found = condition(world.status(key), "Accepted")
    assert found["status"] == "False"
    return str(found["message"])


def is_taken(world: World, key: Key = STREAM) -> bool:
    return bool(condition(world.status(key), "Accepted")["status"] == "True")


async def take_over(world: World) -> None:
    assert "Set spec.adopt to true to take it over with its messages" in refusal(world)
    world.change("Stream", "flights", lambda body: body["spec"].update(adopt=True))


async def take_over_as_it_is(world: World) -> None:
    assert "delete this resource and create it with these and spec.adopt true" in refusal(world)
    await remove(world)
    declare(world, **WANTED_BEFORE, adopt=True)


async def delete_with_the_resource(world: World) -> None:
    assert "with spec.deletionPolicy Delete as well, it can then be deleted" in refusal(world)
    await remove(world)
    declare(world, **WANTED_BEFORE, adopt=True, deletionPolicy="Delete")
    await world.converge()
    await remove(world)
    assert "flights" not in world.brokers.streams
    declare(world, storage="Memory", retention="WorkQueue")


Follow = Callable[[World], Awaitable[None]]


@pytest.mark.covers("SF-23", "OP-5")
@pytest.mark.parametrize(
    ("declared_again", "follow", "told", "becomes"),
    [
        ({}, take_over, "no resource declares it", ("file", "limits")),
        ({"storage": "Memory"}, take_over_as_it_is, "It has storage File, which", ("file", "limits")),
        (
            {"retention": "WorkQueue"},
            take_over_as_it_is,
            "It has retention Limits, which",
            ("file", "limits"),
        ),
        (
            {"storage": "Memory", "retention": "WorkQueue"},
            delete_with_the_resource,
            "It has storage File and retention Limits, which",
            ("memory", "workqueue"),
        ),
    ],
)
async def test_the_advice_about_a_stream_that_was_retained_leads_to_it(
    world: World, declared_again: dict[str, Any], follow: Follow, told: str, becomes: tuple[str, str]
) -> None:
    await remove(world)
    assert "flights" in world.brokers.streams
    declare(world, **declared_again)
    await world.converge()
    assert told in refusal(world)
    await follow(world)
    await world.converge()
    assert is_taken(world)
    config = world.brokers.streams["flights"]
    assert (config["storage"], config["retention"]) == becomes


@pytest.mark.covers("SF-23")
async def test_the_advice_about_a_stream_that_is_not_adopted_leads_to_another_one(world: World) -> None:
    await remove(world)
    declare(world)
    await world.converge()
    assert "delete this resource and create it with another spec.name and other subjects" in refusal(world)
    await remove(world)
    declare(world, name="others", subjects=["others.>"])
    await world.converge()
    assert is_taken(world)
    assert set(world.brokers.streams) == {"flights", "others"}


@pytest.mark.covers("OP-5")
@pytest.mark.parametrize("value", [{"storage": "Memory"}, {"retention": "WorkQueue"}])
async def test_the_advice_about_what_a_stream_keeps_leads_to_an_empty_one(
    world: World, value: dict[str, str]
) -> None:
    """As the API server words it: set spec.deletionPolicy to Delete, delete the resource, and create it with the new value."""
    world.change("Stream", "flights", lambda body: body["spec"].update(deletionPolicy="Delete"))
    await world.converge()
    await remove(world)
    declare(world, **value)
    await world.converge()
    assert is_taken(world)
    assert world.brokers.created == ["flights", "flights"]


@pytest.mark.covers("SF-23")
@pytest.mark.parametrize("which", ["this one", "the older one"])
async def test_the_advice_about_a_stream_that_two_declare_leaves_one(world: World, which: str) -> None:
    older = {"creationTimestamp": "2025-01-01T00:00:00Z"}
    world.change("Stream", "flights", lambda body: body["metadata"].update(older))
    world.declare("Stream", "second", superCluster="demo", subjects=["flights.>"], name="flights")
    await world.converge()
    assert "delete this resource, or delete Stream flights and set spec.adopt to true here" in refusal(
        world, SECOND
    )
    if which == "this one":
        await remove(world, SECOND)
        assert is_taken(world)
        return
    world.change("Stream", "second", lambda body: body["spec"].update(adopt=True))
    await remove(world)
    assert is_taken(world, SECOND)
    assert world.brokers.created == ["flights"]


@pytest.mark.covers("OP-1")
@pytest.mark.parametrize("kind", ["Stream", "Cluster"])
async def test_the_advice_about_an_unknown_super_cluster_leads_out(kind: str) -> None:
    world = World()
    spec = {"Stream": {"subjects": ["second.>"]}, "Cluster": {}}[kind]
    key = Key(kind, NS, "second")
    world.declare(kind, "second", superCluster="dmo", **spec)
    await world.converge()
    assert "create it, or delete this resource and create it with the right name" in refusal(world, key)
    await remove(world, key)
    world.declare(kind, "second", superCluster="demo", **spec)
    await world.converge()
    assert is_taken(world, key)
