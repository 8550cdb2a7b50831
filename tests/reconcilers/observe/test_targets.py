"""Where brokers are asked."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tests.reconcilers.handlers.test_rounds import NS, World

from supercluster.reconcilers.observe.targets import broker_target, each_broker
from supercluster.reconcilers.ports import BrokerTarget


def move_to(pod: Any, address: str) -> None:
    pod["status"]["podIP"] = address


async def test_pods_with_addresses_of_ipv6_have_urls_with_a_port() -> None:
    """O22."""
    world = World()
    await world.converge()
    for number in range(3):
        world.change("Pod", f"east-{number}", partial(move_to, address=f"fd00::{number + 1}"))
    world.kube.show(world.cache)
    target = broker_target(world.cache, NS, "demo")
    assert isinstance(target, BrokerTarget)
    each = each_broker(world.cache, NS, "demo")
    assert not isinstance(each, str)
    single = [url for one in each.values() for url in one.monitors]
    assert single == list(target.monitors)
    for urls, port in ((target.servers, 4222), (target.monitors, 8222)):
        parts = [urlsplit(url) for url in urls]
        assert [(part.hostname, part.port) for part in parts] == [(f"fd00::{n}", port) for n in (1, 2, 3)]
