"""A broker that is cut off knows of no move that began since, and says so instead of saying that there is none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.moves.world import ACCOUNT, STREAM, MoveWorld

NOT_AVAILABLE = 10008


def admin(world: MoveWorld, node: str, path: str) -> tuple[int, Any]:
    """What a broker answers a GET of the operator's."""
    core = world.nodes[node].core
    assert core is not None
    answers: list[tuple[int, Any]] = []
    if path == "move":
        core.calls.move("GET", ACCOUNT, STREAM, None, lambda status, told: answers.append((status, told)))
    else:
        core.calls.broker("GET", path, lambda status, told: answers.append((status, told)))
    world.want_turn(node)
    assert world.run_until(lambda: bool(answers), 12_000), f"{node} does not answer {path}"
    return answers[0]


def cut_off() -> MoveWorld:
    """alpha is alone; a move and another stream began since."""
    world = MoveWorld(1, east=3, west=3, alpha=1)
    world.begin()
    world.create("east")
    for other in ("east", "west", "meta"):
        world.cut_clusters("alpha", other)
    world.run_ms(15_000)
    world.move(["west-0", "west-1", "west-2"], 1_000)
    answer = world.api("east-0", "$JS.API.STREAM.CREATE.NEW", {"name": "NEW", "subjects": ["new"]})
    assert "error" not in answer
    return world


@pytest.mark.covers("MV-9", "MV-13", "OP-4", "SF-14")
def test_a_broker_that_is_cut_off_says_nothing_of_moves_and_brokers_and_another_one_does() -> None:
    world = cut_off()
    status, told = admin(world, "alpha-0", "move")
    assert (status, told["err_code"]) == (503, NOT_AVAILABLE)
    status, told = admin(world, "east-0", "move")
    assert (status, told["move"]["id"]) == (200, world.assignment().move.id)  # type: ignore[union-attr]
    status, told = admin(world, "alpha-0", "east-0")
    assert (status, told["err_code"]) == (503, NOT_AVAILABLE)
    assert admin(world, "west-0", "east-0")[0] == 200
    world.mend()
    assert world.run_until(lambda: admin(world, "alpha-0", "move")[0] == 200, 10_000)
    assert admin(world, "alpha-0", "move")[1]["move"] is not None


@pytest.mark.covers("CL-4")
def test_what_is_lost_with_clusters_is_told_by_every_broker_with_a_word_on_its_map() -> None:
    world = cut_off()
    status, told = admin(world, "alpha-0", "")
    assert (status, told["mapIsFresh"]) == (200, False)
    assert len(told["lostClusters"]) == 3
    status, told = admin(world, "east-0", "")
    assert (status, told["mapIsFresh"], len(told["lostClusters"])) == (200, True, 1)


@pytest.mark.covers("SF-14")
@pytest.mark.parametrize("call", ["STREAM.INFO.NEW", "STREAM.NAMES", "STREAM.LIST"])
def test_a_broker_that_is_cut_off_does_not_say_that_there_is_no_such_stream(call: str) -> None:
    world = cut_off()
    refused = world.api("alpha-0", f"$JS.API.{call}", None)["error"]
    assert (refused["code"], refused["err_code"]) == (503, NOT_AVAILABLE)
    assert "error" not in world.api("east-0", f"$JS.API.{call}", None)
    assert world.api("east-0", "$JS.API.STREAM.INFO.NONE", None)["error"]["err_code"] == 10059


def test_a_broker_that_is_cut_off_still_finds_the_stream_of_a_subject_by_the_map_that_it_has() -> None:
    world = cut_off()
    assert world.api("alpha-0", "$JS.API.STREAM.NAMES", {"subject": "orders.x"})["streams"] == [STREAM]
    refused = world.api("alpha-0", "$JS.API.STREAM.NAMES", {"subject": "new"})["error"]
    assert refused["err_code"] == NOT_AVAILABLE
