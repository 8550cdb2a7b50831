"""Direct gets that mirrors answer for their origins: over a super-cluster, and while the origin is out of reach."""

from __future__ import annotations

import pytest
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError
from tests.broker.cluster.test_super_cluster import remotes
from tests.support.local_clusters import Broker, Fleet, until

GET = "$JS.API.DIRECT.GET.ORDERS"


async def who_answers(fleet: Fleet, broker: Broker, times: int = 5) -> set[str]:
    client = await fleet.client(broker)
    found = set[str]()
    for _ in range(times):
        answer = await client.request(GET, b'{"seq":1}', timeout=5)
        assert answer.headers is not None
        assert answer.headers["Nats-Subject"] == "orders"
        found.add(answer.headers["Nats-Stream"])
    return found


async def mirror_in(js: JetStreamContext, cluster: str) -> None:
    await js.add_stream(name="COPY", mirror={"name": "ORDERS"}, placement={"cluster": cluster})

    async def caught_up() -> bool:
        return (await js.stream_info("COPY")).state.messages == 1

    await until(caught_up, "the mirror's message")


@pytest.mark.covers("CL-2", "CL-6")
async def test_the_nearest_of_a_stream_and_its_mirror_answers_direct_gets(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 1, "west": 1})
    (east,), (west,) = clusters.values()
    js = await fleet.js(east)
    await js.add_stream(
        name="ORDERS", subjects=["orders"], allow_direct=True, placement={"cluster": "east"}, num_replicas=1
    )
    await js.publish("orders", b"one")
    await mirror_in(js, "west")

    async def told() -> bool:
        return await who_answers(fleet, west, 1) == {"COPY"}

    await until(told, "an answer of the mirror")
    assert await who_answers(fleet, east) == {"ORDERS"}
    assert await who_answers(fleet, west) == {"COPY"}
    client = await fleet.client(west)
    # What the mirror does not have, the origin is asked for.
    await js.delete_msg("COPY", 1)
    answer = await client.request(GET, b'{"seq":1}', timeout=5)
    assert (answer.headers or {})["Nats-Stream"] == "ORDERS"


@pytest.mark.covers("CL-6", "MV-5")
async def test_a_mirror_answers_while_its_origin_is_out_of_reach(fleet: Fleet) -> None:
    clusters = await fleet.start_clusters({"east": 1, "west": 1})
    (east,), (west,) = clusters.values()
    js = await fleet.js(east)
    await js.add_stream(
        name="ORDERS", subjects=["orders"], allow_direct=True, placement={"cluster": "east"}, num_replicas=1
    )
    await js.publish("orders", b"one")
    await mirror_in(js, "west")
    await fleet.cut([east], [west])

    async def apart() -> bool:
        return not await remotes(west)

    await until(apart, "the loss of the link")
    assert await who_answers(fleet, west) == {"COPY"}
    with pytest.raises(NotFoundError):
        await (await fleet.js(west)).get_msg("ORDERS", 2, direct=True)
    await js.publish("orders", b"two")
    await fleet.heal()

    async def joined() -> bool:
        answer = await (await fleet.client(west)).request(GET, b'{"seq":2}', timeout=5)
        return answer.data == b"two"

    await until(joined, "what was published meanwhile")
