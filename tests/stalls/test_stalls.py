"""No request and no subscription of one client makes another one's ping wait (SF-29, SF-36)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.stalls import pinger
from tests.stalls.attacks import ATTACKS, LONG, Attack, Attacker
from tests.support.local_clusters import Broker, Fleet
from tests.support.tiers import case

LIMIT_MS = 250.0


async def longest_ms(broker: Broker, attack: Attack) -> float:
    """Of a ping while the attack runs."""
    assert broker.process is not None
    async with Attacker.connected(broker.host) as attacker:
        steps = attack(attacker)
        await anext(steps)
        pings = await asyncio.create_subprocess_exec(
            *(sys.executable, pinger.__file__, broker.host, "4222", str(broker.process.pid)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert pings.stdout is not None
        assert await pings.stdout.readline() == b"ready\n"
        await anext(steps, None)
        told, _ = await pings.communicate(b"\n")
    return float(told.split()[0])


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
