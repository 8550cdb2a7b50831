"""A new stream's first leader: soon, on any broker unless one is preferred."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.broker.jetstream.core.many_streams import STREAMS, Brokers

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.config.metadata_keys import PREFERRED_LEADER_KEY
from supercluster.broker.jetstream.node.copy_manager import FIRST_ELECTION_MS

pytestmark = pytest.mark.covers("RP-1")

TIMEOUT_MS = CoreSettings("n", "c", ()).election_timeout_ms


def test_nobody_waits_for_a_time_out_to_lead_a_new_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    for number in range(8):
        before_ms = brokers.world.now_us / 1000
        brokers.create(f"new{number}")
        assert FIRST_ELECTION_MS < brokers.world.now_us / 1000 - before_ms < TIMEOUT_MS


def test_new_streams_are_led_by_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    names = [f"s{number}" for number in range(STREAMS)]
    for number in range(2 * STREAMS):
        names.append(f"new{number}")
        brokers.create(names[-1])
    led = Counter(group.host.node for name in names for group in brokers.copies(name) if group.serves)
    assert sum(led.values()) == len(names)
    assert set(led) == {"n0", "n1", "n2"}


def test_the_preferred_broker_leads_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    for number in range(6):
        brokers.create(f"new{number}", metadata={PREFERRED_LEADER_KEY: "n2"})
        assert [g.host.node for g in brokers.copies(f"new{number}") if g.serves] == ["n2"]
