"""Calls on a stream's name that come to blue while the stream is handed over: they wait, and end on green (rule 14, BG-4, BG-8)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.jetstream.recovery.test_migrating_copies import Story
from tests.simulator.cutover_plan import BLUE
from tests.simulator.ledger import MAIN

from supercluster.broker.jetstream.meta.migration import StreamStage

pytestmark = pytest.mark.covers("BG-4", "BG-8")

API = "$JS.API."
CONFIG: dict[str, Any] = {"name": MAIN, "subjects": ["orders.>"], "num_replicas": 3}
CONSUMER = {"stream_name": MAIN, "config": {"durable_name": "late", "ack_policy": "explicit"}}


@pytest.fixture
def handing() -> Story:
    """The mark is in blue's map, and green has not opened the stream."""
    story = Story()
    assert story.migrate()[0] == 202
    story.until(lambda: story.stage() is StreamStage.HANDING)
    return story


@pytest.mark.parametrize("key", ["blue-0", "blue-1", "blue-2"])
def test_an_update_is_greens(handing: Story, key: str) -> None:
    config = {**CONFIG, "description": "new", "metadata": dict(handing.found(BLUE).config.metadata)}
    answer = handing.api(key, f"{API}STREAM.UPDATE.{MAIN}", config)
    assert answer is not None
    assert answer.get("config", {}).get("description") == "new", answer
    assert handing.is_open()
    there = handing.api("green-0", f"{API}STREAM.INFO.{MAIN}", None)
    assert there is not None
    assert there["config"]["description"] == "new"


@pytest.mark.parametrize("key", ["blue-0", "blue-1", "blue-2"])
def test_a_delete_is_greens_and_the_stream_does_not_come_back(handing: Story, key: str) -> None:
    answer = handing.api(key, f"{API}STREAM.DELETE.{MAIN}", None)
    assert answer is not None
    assert answer.get("success"), answer
    for other in ("green-0", key):
        told = handing.api(other, f"{API}STREAM.INFO.{MAIN}", None)
        assert told is not None
        assert told["error"]["err_code"] == 10059, (other, told)


def test_a_create_of_its_name_finds_the_stream_on_green(handing: Story) -> None:
    other = {**CONFIG, "subjects": ["elsewhere"]}
    answer = handing.api("blue-1", f"{API}STREAM.CREATE.{MAIN}", other)
    assert answer is not None
    assert answer.get("error", {}).get("err_code") == 10058, answer
    assert handing.is_open()


@pytest.mark.parametrize("key", ["blue-0", "blue-1", "blue-2"])
def test_a_consumer_that_is_made_meanwhile_is_made_on_green(handing: Story, key: str) -> None:
    answer = handing.api(key, f"{API}CONSUMER.CREATE.{MAIN}.late", CONSUMER)
    assert answer is not None
    assert answer.get("name") == "late", answer
    handing.until(
        lambda: (
            "error" not in (handing.api("green-1", f"{API}CONSUMER.INFO.{MAIN}.late", None) or {"error": 1})
        )
    )
