"""Faults of both super-clusters at once, in the moments of a cutover in which nobody may guess what became of it (SF-20)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.broker.jetstream.recovery.test_migrating_copies import Story
from tests.simulator.cutover_plan import BLUE, GREEN
from tests.simulator.cutover_world import WORLD
from tests.simulator.ledger import MAIN

from supercluster.broker.jetstream.config.metadata_keys import FSYNC_KEY
from supercluster.broker.jetstream.meta.migration import Following, StreamStage, next_group
from supercluster.broker.jetstream.state.cut import CutStage


@pytest.mark.parametrize("moment", ["marked", "fenced"])
def test_blue_goes_on_when_its_leader_and_one_of_greens_copies_are_gone_at_once(moment: str) -> None:
    """SF-20: a majority of green's copies shows that there was no hand-over; one that never comes again is not waited for."""
    story = Story()
    load = story.load("blue-1", "ack")
    story.run_ms(500)
    story.migrate()

    def leader() -> str:
        return next((key for key, held in story.copies().items() if held.serves), "")

    def has_come() -> bool:
        key = leader()
        is_fenced = bool(key) and story.copies()[key].state.cut.stage is CutStage.FENCED
        return story.stage() is StreamStage.HANDING if moment == "marked" else is_fenced

    story.until(has_come)
    lost = leader()
    assert lost in story.brokers(BLUE)
    story.stop(lost, power=False)
    story.stop("green-1", power=False)
    if lost == "blue-1":
        story.start(lost)
        load = story.load("blue-1", "ack")
    acked = len(load.acked)
    story.until(lambda: len(load.acked) > acked + 5)
    found = story.found(BLUE).migration
    assert found is not None
    assert (found.stage, found.attempt) == (StreamStage.LEARNING, 2)
    story.start(lost)
    story.start("green-1")
    story.until(story.is_open, 120_000)
    assert len(story.brokers(GREEN)) == 3
    story.finish()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_map_from_before_the_cut_drops_no_copy_that_was_opened(restarts: bool) -> None:
    """SF-9, SF-34: green's map was recovered by force, and what it has is an attempt that blue gave up since."""
    story = Story()
    story.load("blue-1", "ack")
    story.migrate()
    story.until(story.is_open)
    story.until(lambda: len(story.greens()) == 3)
    found = story.found(GREEN)
    source, [group] = found.source_group, story.registered("green-0")
    if restarts:
        story.core("green-0").migrating_copies._close(group)
    older = Following("m0", 1, source, WORLD[BLUE], ())
    before = replace(found, group=next_group(source, "m0", 1), following=older, arrival=None, members=())
    story.core("green-0").migrating_copies._follow(before)
    assert group in story.registered("green-0")
    assert [text for node, reason, text in story.events if (node, reason) == ("green-0", "CopyKept")]
    assert group not in story.core("green-0").copies.groups, (
        "nobody votes with it by a map that does not know it"
    )


@pytest.mark.parametrize("further", [BLUE, GREEN])
def test_an_update_while_green_learns_is_greens_too_and_green_counts_its_own_from_there(further: str) -> None:
    """SF-20: the configuration that counts is the one in the stream's log. Green's map had an older one, whose limits
    take messages away that were confirmed; and blue's numbers of configurations mean nothing to green's map."""
    story = Story()
    small: dict[str, Any] = {
        "name": MAIN,
        "subjects": ["orders.>"],
        "num_replicas": 3,
        "metadata": {FSYNC_KEY: "interval"},
    }
    for number in range(20):
        name = f"OTHER{number}"
        assert story.api(f"{further}-0", f"$JS.API.STREAM.CREATE.{name}", {"name": name, "num_replicas": 1})
        assert story.api(f"{further}-0", f"$JS.API.STREAM.DELETE.{name}", {})
    assert updated(story, "blue-0", small | {"max_msgs": 10})["max_msgs"] == 10
    load = story.load("blue-1", "ack")
    story.migrate()
    story.until(lambda: len(story.greens()) == 3)
    story.stop("green-1", power=False)
    assert updated(story, "blue-0", small | {"max_msgs": 5000})["max_msgs"] == 5000
    acked = len(load.acked)
    story.until(lambda: len(load.acked) > acked + 30)
    story.start("green-1")
    story.until(story.is_open, 120_000)
    found = story.found(GREEN)
    assert found.config.max_msgs == 5000
    story.run_ms(1000)
    assert min(held.state.messages for held in story.greens().values()) >= 30
    assert story.greens().keys() == set(story.brokers(GREEN))
    assert updated(story, "green-0", small | {"max_msgs": 20})["max_msgs"] == 20
    story.until(lambda: {held.state.config.max_msgs for held in story.greens().values()} == {20})


def updated(story: Story, key: str, config: dict[str, Any]) -> dict[str, Any]:
    answer = story.api(key, f"$JS.API.STREAM.UPDATE.{MAIN}", config)
    assert answer is not None
    assert "error" not in answer, answer
    told: dict[str, Any] = answer["config"]
    return told
