"""What a stream delivers to a subject reaches one member of each queue group, over all brokers (CL-2)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.net.routing.delivery_plan import parts_of
from supercluster.broker.protocol.frames import QUEUES_PER_MESSAGE_MAX, Item
from supercluster.broker.protocol.sublist import GroupMatch, Match

pytestmark = pytest.mark.covers("CL-2", "CL-6")

Heard = Counter[tuple[str, bytes]]
"""(who, payload) → times."""


def items(count: int) -> list[Item]:
    return [(b"s", b"", b"", b"%d" % number) for number in range(count)]


async def listener(brokers: Any, broker: Any, heard: Heard, who: str, queue: str = "") -> Any:
    async def take(message: Any) -> None:
        heard[who, message.data] += 1

    client = await brokers.client(broker)
    await client.subscribe("to", queue=queue, cb=take)
    await client.flush()
    return client


async def told(brokers: Any, here: Any, *there: tuple[Any, bytes]) -> None:
    """`here` knows of these brokers' members of these groups (empty: of plain subscribers)."""

    def knows() -> bool:
        match = here.router.account("$G").sublist.match(b"to")
        members = {(node, group.name) for group in match.groups for node in group.remote}
        found = members | {(node, b"") for node in match.nodes}
        return all((broker.place.name, queue) in found for broker, queue in there)

    await brokers.until(knows, "word of the others' subscriptions")


async def delivered(brokers: Any, here: Any, heard: Heard, wanted: list[str], count: int = 50) -> None:
    """`wanted` hear every message once, and no more comes behind them."""
    here.router.deliver("$G", b"to", items(count))
    here.router.deliver("$G", b"to", [(b"s", b"", b"", b"end")])
    payloads = [b"%d" % number for number in range(count)] + [b"end"]
    everything = {(who, payload): 1 for who in wanted for payload in payloads}
    await brokers.until(lambda: heard.total() >= len(everything), "all deliveries")
    for client in brokers.clients:
        await client.flush()  # What the brokers have sent to it was read before the answer.
    assert heard == everything


async def test_a_member_here_is_enough_where_another_broker_gets_the_messages_for_plain_subscribers(
    brokers: Any,
) -> None:
    here, there = await brokers.start(2)
    heard: Heard = Counter()
    await listener(brokers, here, heard, "crew", "crew")
    await listener(brokers, there, heard, "crew", "crew")
    await listener(brokers, there, heard, "plain")
    await told(brokers, here, (there, b"crew"), (there, b""))
    await delivered(brokers, here, heard, ["crew", "plain"])


async def test_a_group_with_members_at_two_brokers_that_get_the_messages_anyway_is_served_by_one(
    brokers: Any,
) -> None:
    here, one, two = await brokers.start(3)
    heard: Heard = Counter()
    for broker in (one, two):
        await listener(brokers, broker, heard, "crew", "crew")
        await listener(brokers, broker, heard, f"plain of {broker.place.name}")
    await told(brokers, here, (one, b"crew"), (two, b"crew"), (one, b""), (two, b""))
    await delivered(brokers, here, heard, ["crew", "plain of east-1", "plain of east-2"])


async def test_two_groups_with_members_elsewhere_are_each_served_once(brokers: Any) -> None:
    here, one, two = await brokers.start(3)
    heard: Heard = Counter()
    for broker, group in ((one, "a"), (two, "a"), (two, "b"), (one, "c")):
        await listener(brokers, broker, heard, group, group)
    await told(brokers, here, (one, b"a"), (two, b"a"), (two, b"b"), (one, b"c"))
    await delivered(brokers, here, heard, ["a", "b", "c"])


async def test_a_far_broker_with_plain_subscribers_leaves_a_group_to_its_near_member(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 2, "west": 1})
    (here, near), (far,) = clusters["east"], clusters["west"]
    heard: Heard = Counter()
    await listener(brokers, near, heard, "near crew", "crew")
    await listener(brokers, far, heard, "far crew", "crew")
    await listener(brokers, far, heard, "plain")
    await told(brokers, here, (near, b"crew"), (far, b""))
    await delivered(brokers, here, heard, ["near crew", "plain"])


NODES = ("a", "b", "c", "d")


@st.composite
def matches(draw: Any) -> Match[str]:
    groups = []
    for number in range(draw(st.integers(0, 4))):
        group: GroupMatch[str] = GroupMatch(b"g%d" % number)
        group.local = draw(st.lists(st.just("here"), max_size=1))
        group.remote = draw(
            st.dictionaries(st.sampled_from(NODES), st.integers(1, 3), min_size=not group.local)
        )
        groups.append(group)
    return Match([], set(draw(st.lists(st.sampled_from(NODES)))), groups)


@given(matches(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_each_message_goes_to_each_group_once_and_over_each_link_at_most_once(
    match: Match[str], count: int, rng: Any
) -> None:
    found = parts_of(match, items(count), lambda members: rng.choice(sorted(members)))
    crossed = Counter((part.node, item) for part in found for item in part.items)
    assert all(times == 1 for times in crossed.values())
    plain = Counter((part.node, item) for part in found if part.plain for item in part.items)
    assert plain == {(node, item): 1 for node in match.nodes for item in items(count)}
    groups = Counter((name, item) for part in found for name in part.groups for item in part.items)
    elsewhere = [group for group in match.groups if not group.local]
    assert groups == {(group.name, item): 1 for group in elsewhere for item in items(count)}
    for part in found:
        assert part.plain or part.groups
        for group in elsewhere:
            assert group.name not in part.groups or part.node in group.remote


async def test_a_message_finds_all_of_more_groups_than_a_frame_names_at_once(brokers: Any) -> None:
    here, there = await brokers.start(2)
    heard: Counter[bytes] = Counter()

    async def take(message: Any) -> None:
        heard[message.data] += 1

    client = await brokers.client(there)
    count = 2 * QUEUES_PER_MESSAGE_MAX + 1
    for number in range(count):
        await client.subscribe("to", queue=f"q{number}", cb=take)
    await client.subscribe("to", cb=take)
    await client.flush()
    await told(brokers, here, (there, b"q%d" % (count - 1)), (there, b""))
    publisher = await brokers.client(here, allow_reconnect=False)
    await publisher.publish("to", b"x")
    await publisher.flush()
    await brokers.until(lambda: heard[b"x"] >= count + 1, "a member of each group, and the plain one")
    await client.flush()
    assert heard == {b"x": count + 1}
