"""What differs of mirrors and sources."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.compat.bench import Bench, eventually
from tests.compat.differences import Differs
from tests.compat.rows.domains import DOMAIN
from tests.compat.rows.mirror_reads import ASKED_MAX, batch, has


@Differs(
    "origins.reader",
    "who takes messages from a work queue",
    nats="a source of a work queue makes a durable consumer there, which CONSUMER.NAMES shows",
    ours="the queue notes by itself who takes from it, and shows no consumer",
    reason="the position has to be in the log entry that has the messages, and a consumer would be a second one",
)
async def _reader(b: Bench) -> None:
    names = await _takers(b)
    assert len(names) == 1
    assert names[0].startswith("JS_SRC_")


@_reader.ours
async def _no_reader(b: Bench) -> None:
    assert await _takers(b) == []


async def _takers(b: Bench) -> list[str]:
    """The consumers of a work queue that a stream has as its source."""
    origin = await b.stream(retention="workqueue")
    stream = await b.stream(sources=[{"name": origin.name}])
    await origin.fill("a")
    while not (await stream.state())["messages"]:
        await asyncio.sleep(0.01)
    return (await b.ok(f"CONSUMER.NAMES.{origin.name}"))["consumers"] or []


async def _by_own_domain(b: Bench) -> int:
    """Messages of a source behind the own domain's prefix, when another one has them all."""
    origin = await b.stream()
    await origin.fill("1", "2")
    behind = await b.stream(sources=[{"name": origin.name, "external": {"api": "$JS.hub.API"}}])
    plain = await b.stream(sources=[{"name": origin.name}])

    async def has_all() -> bool:
        return bool((await plain.state())["messages"] == 2)

    await eventually(has_all, "the plain source's messages")
    if b.is_ours:

        async def has_some() -> bool:
            return bool((await behind.state())["messages"])

        await eventually(has_some, "messages behind the domain's prefix")
    return int((await behind.state())["messages"])


@Differs(
    "origins.own-domain",
    "an origin behind the own domain's prefix",
    nats="nothing comes: servers do not ask themselves by that prefix",
    ours="it is the account's own stream",
    reason="the prefix names this very JetStream, and clients that use it get that",
    settings=DOMAIN,
)
async def _own_domain(b: Bench) -> None:
    assert await _by_own_domain(b) == 0


@_own_domain.ours
async def _own_domain_here(b: Bench) -> None:
    assert await _by_own_domain(b) == 2


partial_mirrors = Differs(
    "mirror-reads.partial",
    "a direct get of a stream that has a mirror with a filter",
    nats="the mirror answers as well, and says 404 of messages that its filter leaves out",
    ours="mirrors that leave out or rename messages do not answer for their origin",
    reason="a message that is there would be found or not as chance has it",
)


async def _asked_of_a_part(b: Bench) -> set[str]:
    """Who answers, or with which status, for a message that a mirror's filter leaves out."""
    origin = await b.stream(allow_direct=True)
    await origin.fill("a", "b")
    copy = await b.stream(mirror={"name": origin.name, "filter_subject": f"{origin.name}.a"})
    await has(copy, 1)
    found: set[str] = set()
    for number in range(ASKED_MAX // 4):
        (answer,) = await batch(b, number % b.target.size, origin.name, {"seq": 2})
        headers = answer.headers or {}
        found.add("origin" if headers.get("Nats-Stream") == origin.name else headers.get("Status", ""))
    return found


@partial_mirrors
async def _partial_nats(b: Bench) -> None:
    assert await _asked_of_a_part(b) == {"origin", "404"}


@partial_mirrors.ours
async def _partial_ours(b: Bench) -> None:
    assert await _asked_of_a_part(b) == {"origin"}


circles = Differs(
    "origins.circles",
    "streams that source each other, where what one takes may be what it gave",
    nats="are taken where a filter names no subject of the stream that it takes from: its messages go round for ever",
    ours="are refused with 10052, detected cycle",
    reason="one message would fill both streams; filters that have no subject in common are taken by both",
)


async def _circle(b: Bench) -> dict[str, Any]:
    """The answer to the second of two streams, which takes everything of the first."""
    one, other = b.name(), b.name()
    await b.stream(name=one, subjects=[f"{one}.>"], sources=[{"name": other, "filter_subject": f"{other}.>"}])
    b.will_delete(other)
    config = {
        "name": other,
        "subjects": [f"{other}.>"],
        "sources": [{"name": one}],
        "num_replicas": b.replicas,
    }
    return await b.api(f"STREAM.CREATE.{other}", config)


@circles
async def _goes_round(b: Bench) -> None:
    assert "error" not in await _circle(b)


@circles.ours
async def _is_seen(b: Bench) -> None:
    error = (await _circle(b))["error"]
    assert (error["code"], error["err_code"], error["description"]) == (500, 10052, "detected cycle")
