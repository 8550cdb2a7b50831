"""No request and no subscription of one client makes another one's ping wait (SF-29, SF-36)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stalls.attacks import ATTACKS, LONG, Attack, Attacker
from tests.stalls.pinger import Pings
from tests.support.local_clusters import Broker, Fleet
from tests.support.tiers import case

LIMIT_MS = 250.0


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
        assert await longest_ms(broker, attack) < LIMIT_MS
    finally:
        await fleet.stop()
