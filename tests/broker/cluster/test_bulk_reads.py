"""The bulk ports of several brokers: each answers with its own copy, and one without a copy says who has them."""

from __future__ import annotations

from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from tests.broker.bulk.reading import Answer, read
from tests.support.local_clusters import Broker, Fleet, until

PORT = 4333


async def ask(broker: Broker) -> Answer:
    return await read(PORT, "orders", host=broker.host)


async def whole(broker: Broker, last: int) -> Answer:
    """Its answer, once it has applied as much: a follower may be behind."""
    found: list[Answer] = []

    async def is_there() -> bool:
        found.append(await ask(broker))
        return found[-1].end is not None and found[-1].end["last"] >= last

    await until(is_there, f"{broker.name} covers {last}")
    return found[-1]


async def fill(js: JetStreamContext) -> None:
    await js.add_stream(StreamConfig(name="orders", subjects=["orders.>"], num_replicas=2))
    for number in range(1, 401):
        await js.publish(f"orders.{number % 7}", b"%03d" % number * 200)


@pytest.mark.covers("SP-1")
async def test_any_copy_answers_with_the_same_rows_also_when_it_is_alone(
    fleet: Fleet, tmp_path: Path
) -> None:
    brokers = await fleet.start(3, bulk={"port": PORT}, storage={"segmentBytes": 65_536})
    client = await nats.connect(brokers[0].url, allow_reconnect=False)
    js = client.jetstream()
    await fill(js)
    leader = (await js.stream_info("orders")).cluster
    assert leader is not None
    answers = {broker: await ask(broker) for broker in brokers}
    (without,) = (broker for broker, found in answers.items() if found.status == 404)
    having = [broker for broker in brokers if broker is not without]
    assert sorted(answers[without].refusal["nodes"]) == [broker.name for broker in having]
    one, other = [await whole(broker, 300) for broker in having]
    assert one.is_complete()
    assert other.is_complete()
    assert one.end is not None
    assert other.end is not None
    assert one.end["lineage"] == other.end["lineage"]
    shared = min(len(one.rows), len(other.rows))
    assert one.rows[:shared] == other.rows[:shared]
    assert [row["payload"] for row in one.rows] == [b"%03d" % row["sequence"] * 200 for row in one.rows]
    await js.delete_msg("orders", 77)
    await client.close()
    first, second = having
    first.kill()
    alone = await whole(second, 300)
    before = {row["sequence"]: row for row in other.rows}
    assert all(before.get(row["sequence"], row) == row for row in alone.rows)
    first.start()
    await fleet.ready()

    async def is_without() -> bool:
        again = await whole(first, 300)
        assert again.is_complete()
        return 77 not in {row["sequence"] for row in again.rows}

    await until(is_without, "the copy that came back has applied the deletion")
