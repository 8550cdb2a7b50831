"""The fuzzer's short edition: fixed seeds, so that it does the same each time, and whatever was found before (`make fuzz`)."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.fuzz.run import FINDINGS, rounds_of, shorten
from tests.fuzz.site import run
from tests.fuzz.steps import KINDS, Step, steps
from tests.support.tiers import case

KNOWN = json.loads(FINDINGS.read_text())


@pytest.mark.covers("SF-24", "SF-25")
@pytest.mark.parametrize("brokers", [1, 3])
async def test_nothing_that_ended_badly_once_does_so_again(tmp_path: Path, brokers: int) -> None:
    steps = [step for found in KNOWN if found["brokers"] == brokers for step in found["steps"]]
    assert await run(tmp_path, brokers, [steps]) == ""


@pytest.mark.covers("SF-24", "SF-25", "SF-18")
@pytest.mark.parametrize(
    "seed",
    [
        case(14, id="one-broker", is_short=True),
        case(13, id="three-brokers", is_short=True),
        *(case(seed, id=f"seed-{seed}", is_short=False) for seed in range(20, 30)),
    ],
)
async def test_nothing_that_a_client_a_link_or_a_file_says_stops_a_broker(tmp_path: Path, seed: int) -> None:
    brokers, rounds = rounds_of(seed, rounds=2, count=40)
    assert await run(tmp_path, brokers, rounds) == ""


def test_a_seed_says_what_is_done_and_it_can_be_kept() -> None:
    brokers, rounds = rounds_of(17, rounds=2)
    assert rounds_of(17, rounds=2) == (brokers, rounds)
    assert json.loads(json.dumps(rounds)) == rounds
    found = {step["do"] for step in steps(random.Random(1), 2000)}
    assert len(found) >= len(KINDS) - 2, "calls are made in two ways, and what is published"


async def test_a_finding_is_shortened_to_the_steps_that_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def needs_two(folder: Path, brokers: int, rounds: list[list[Step]]) -> str:
        steps = {step["at"]: step for each in rounds for step in each}
        return "bad" if {1, 6} <= steps.keys() and "d" in steps[6]["frames"] else ""

    monkeypatch.setattr("tests.fuzz.run.run", needs_two)
    found = await shorten(tmp_path, 1, [{"at": at, "frames": list("abcdefg")} for at in range(10)])
    assert [step["at"] for step in found] == [1, 6]
    assert found[1]["frames"] == ["d"]
    assert len(found[0]["frames"]) == 1
