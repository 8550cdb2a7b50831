"""No request and no subscription of one client makes another one's ping wait (SF-29, SF-36)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.stalls.attacks import ATTACKS, LONG, Attack, Attacker
from tests.stalls.pinger import Pings
from tests.support.local_clusters import Broker, Fleet
from tests.support.tiers import case

LIMIT_MS = 250.0
"""On a processor that counts so far in so much time."""
COUNT, COUNT_MS = 3_000_000, 170.0
SLOWNESS_MAX = 4.0


def slowness() -> float:
    """How many times as long as there this processor takes at the moment, at least 1: machines that share one slow each other down."""
    began_ms, total = time.process_time() * 1000, 0
    for number in range(COUNT):
        total += number
    return min(max(1.0, (time.process_time() * 1000 - began_ms) / COUNT_MS), SLOWNESS_MAX)


async def longest_ms(broker: Broker, attack: Attack) -> float:
    """Of a ping while the attack runs."""
    assert broker.process is not None
    async with Attacker.connected(broker.host) as attacker:
        steps = attack(attacker)
        await anext(steps)
        pings = await Pings.begin(broker.host, broker.process.pid)
        await anext(steps, None)
        return await pings.end()


@pytest.mark.e2e
@pytest.mark.covers("SF-36")
@pytest.mark.parametrize(
    "attack", [case(each, id=each.__name__, is_short=each not in LONG) for each in ATTACKS]
)
async def test_a_ping_is_answered_soon_whatever_another_client_does(attack: Attack, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        (broker,) = await fleet.start(1)
        before = slowness()
        found_ms = await longest_ms(broker, attack)
        assert found_ms < LIMIT_MS * max(before, slowness())
    finally:
        await fleet.stop()
