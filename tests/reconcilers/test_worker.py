"""Workers under virtual time: wake-ups, patience, back-off, isolation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.reconcilers.fakes import VirtualClock, settle

from supercluster.reconcilers.ports import Key, KubeError
from supercluster.reconcilers.worker import Outcome, Pace, Workers

ONE, TWO = Key("Stream", "ns", "one"), Key("Stream", "ns", "two")
PACE = Pace(resync_ms=5_000, jitter=0.2, backoff_first_ms=200, backoff_max_ms=30_000, concurrency_max=2)


class Bench:
    """Workers whose rounds the test scripts."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.rounds: list[tuple[int, str]] = []
        self.outcomes: dict[str, list[Outcome | Exception]] = {}
        self.gate: asyncio.Event | None = None
        self.running = 0
        self.running_max = 0
        self.workers = Workers(self.reconcile, self.clock, lambda: 0.5, PACE)

    async def reconcile(self, key: Key) -> Outcome:
        self.rounds.append((self.clock.ms, key.name))
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            script = self.outcomes.get(key.name) or [Outcome()]
            outcome = script.pop(0) if len(script) > 1 else script[0]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        finally:
            self.running -= 1

    def times(self, name: str) -> list[int]:
        return [at for at, who in self.rounds if who == name]


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.workers.stop()


async def test_nothing_is_worked_on_before_the_lease_is_ours(bench: Bench) -> None:
    bench.workers.wake(ONE)
    await bench.clock.advance(60_000)
    assert bench.rounds == []
    bench.workers.start()
    await settle()
    assert bench.times("one") == [60_000]


async def test_a_quiet_resource_is_looked_at_at_its_interval(bench: Bench) -> None:
    bench.workers.start()
    bench.workers.wake(ONE)
    await bench.clock.advance(15_000)
    assert bench.times("one") == [0, 5_000, 10_000, 15_000]


async def test_an_event_is_taken_up_at_once_and_many_are_one_round(bench: Bench) -> None:
    bench.workers.start()
    bench.workers.wake(ONE)
    await bench.clock.advance(1_000)
    for _ in range(10):
        bench.workers.wake(ONE)
    await settle()
    assert bench.times("one") == [0, 1_000]


async def test_an_event_during_a_round_means_another_round_and_never_two_at_once(bench: Bench) -> None:
    bench.gate = asyncio.Event()
    bench.workers.start()
    bench.workers.wake(ONE)
    await settle()
    bench.workers.wake(ONE)
    await settle()
    assert len(bench.rounds) == 1
    bench.gate.set()
    await settle()
    assert len(bench.rounds) == 2
    assert bench.running_max == 1


async def test_a_failing_resource_waits_longer_each_time_and_holds_up_no_other(bench: Bench) -> None:
    bench.outcomes["one"] = [ValueError("broken")]
    bench.workers.start()
    bench.workers.wake(ONE)
    bench.workers.wake(TWO)
    await bench.clock.advance(10_000)
    gaps = [after - before for before, after in zip(bench.times("one"), bench.times("one")[1:], strict=False)]
    assert gaps == [250, 450, 850, 1_650, 3_250]
    assert bench.times("two") == [0, 5_000, 10_000]
    assert bench.workers.failing == 1


async def test_what_failed_in_part_is_looked_at_again_as_soon_as_the_rest_asks_for(bench: Bench) -> None:
    bench.outcomes["one"] = [Outcome(recheck_after_ms=1_000, failed=True)]
    bench.workers.start()
    bench.workers.wake(ONE)
    await bench.clock.advance(20_000)
    gaps = [after - before for before, after in zip(bench.times("one"), bench.times("one")[1:], strict=False)]
    assert gaps[:3] == [250, 450, 850]
    assert set(gaps[3:]) == {1_050}


async def test_back_off_is_bounded_and_forgotten_after_a_success(bench: Bench) -> None:
    bench.outcomes["one"] = [*[Outcome(failed=True)] * 12, Outcome()]
    bench.workers.start()
    bench.workers.wake(ONE)
    await bench.clock.advance(600_000)
    gaps = [after - before for before, after in zip(bench.times("one"), bench.times("one")[1:], strict=False)]
    assert max(gaps) == 30_050
    assert gaps[-1] == 5_000
    assert bench.workers.failing == 0


async def test_a_flood_of_events_does_not_turn_failures_into_a_busy_loop(bench: Bench) -> None:
    bench.outcomes["one"] = [Outcome(failed=True)]
    bench.workers.start()
    for _ in range(100):
        bench.workers.wake(ONE)
        await bench.clock.advance(1)
    assert len(bench.rounds) <= 3


async def test_a_resource_that_is_gone_has_no_worker_and_may_come_back(bench: Bench) -> None:
    bench.outcomes["one"] = [Outcome(gone=True), Outcome()]
    bench.workers.start()
    bench.workers.wake(ONE)
    await settle()
    assert len(bench.workers) == 0
    bench.workers.wake(ONE)
    await settle()
    assert len(bench.workers) == 1


async def test_a_shorter_recheck_is_honoured_and_a_longer_one_is_not(bench: Bench) -> None:
    bench.outcomes["one"] = [Outcome(recheck_after_ms=100), Outcome(recheck_after_ms=60_000)]
    bench.workers.start()
    bench.workers.wake(ONE)
    await bench.clock.advance(5_100)
    assert bench.times("one") == [0, 100, 5_100]


async def test_rounds_at_the_same_time_are_bounded(bench: Bench) -> None:
    bench.gate = asyncio.Event()
    bench.workers.start()
    for number in range(10):
        bench.workers.wake(Key("Stream", "ns", f"s{number}"))
    await settle()
    assert bench.running_max == 2
    bench.gate.set()
    await settle()
    assert len(bench.rounds) == 10


@pytest.mark.parametrize(("draw", "gap"), [(0.0, 4_000), (1.0, 6_000)])
async def test_rounds_are_spread_by_the_jitter(draw: float, gap: int) -> None:
    made = Bench()
    made.workers = Workers(made.reconcile, made.clock, lambda: draw, PACE)
    made.workers.start()
    made.workers.wake(ONE)
    await made.clock.advance(gap)
    assert made.times("one") == [0, gap]
    await made.workers.stop()


async def test_what_the_api_server_refuses_is_logged_in_its_words_without_a_traceback(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """O34: a status that is refused, every round."""
    bench.outcomes = {
        "one": [KubeError(422, "Invalid", "status.streams must be an integer")],
        "two": [ValueError("a mistake of ours")],
    }
    bench.workers.start()
    bench.workers.wake(ONE)
    bench.workers.wake(TWO)
    await settle()
    told = {str(getattr(record, "resource", "")): record for record in caplog.records}
    assert told[str(ONE)].exc_info is None
    assert "must be an integer" in str(getattr(told[str(ONE)], "error", ""))
    assert told[str(TWO)].exc_info is not None
