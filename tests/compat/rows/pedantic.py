"""Pedantic requests: what would be filled in against another value, or mended in silence, is refused."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench
from tests.compat.rows.refusals import told
from tests.compat.table import Group, Settings

rows = Group("pedantic")

SECOND = 1_000_000_000
FINE = (0, 0, "")


def mode(why: str) -> tuple[int, int, str]:
    return 400, 10157, f"pedantic mode: {why}"


def config(why: str) -> tuple[int, int, str]:
    return 500, 10052, why


async def made(b: Bench, **fields: Any) -> tuple[int, int, str]:
    """What a pedantic create of a stream is told; the stream goes again."""
    name = b.name()
    subjects = {} if "mirror" in fields else {"subjects": [f"{name}.>"]}
    body = {"name": name, "pedantic": True, "num_replicas": b.replicas, **subjects, **fields}
    found = await told(b, f"STREAM.CREATE.{name}", body)
    await b.api(f"STREAM.DELETE.{name}")
    return found


@rows("streams.limits", "a limit below -1 is not taken for none")
async def stream_limits(b: Bench) -> None:
    for field in ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers"):
        assert await made(b, **{field: -2}) == mode(f"{field} must be set to -1")
        assert await made(b, **{field: -2, "max_age": -1}) == mode(f"{field} must be set to -1")
        for value in (-1, 0):
            assert await made(b, **{field: value}) == FINE


@rows("streams.duplicate-window", "a duplicate window is not shortened to max_age")
async def duplicate_window(b: Bench) -> None:
    too_long = mode("duplicate window cannot be bigger than max age")
    assert await made(b, max_age=60 * SECOND) == too_long
    assert await made(b, max_age=60 * SECOND, duplicate_window=0) == too_long
    assert await made(b, max_age=60 * SECOND, duplicate_window=60 * SECOND) == FINE
    assert await made(b, max_age=120 * SECOND) == FINE
    assert await made(b, max_age=60 * SECOND, mirror={"name": b.name()}) == FINE


@rows("streams.needs", "what delete markers and schedules need is not allowed along with them")
async def needs(b: Bench) -> None:
    markers = {"subject_delete_marker_ttl": SECOND}
    no_ttl = "subject delete marker cannot be set if message TTLs are disabled"
    no_rollup = "subject delete marker cannot be set if roll-ups are disabled"
    assert await made(b, **markers) == config(no_ttl)
    assert await made(b, **markers, allow_msg_ttl=True) == config(no_rollup)
    assert await made(b, **markers, allow_msg_ttl=True, allow_rollup_hdrs=True) == FINE
    schedules = "message scheduling cannot be set if roll-ups are disabled"
    assert await made(b, allow_msg_schedules=True) == config(schedules)
    assert await made(b, allow_msg_schedules=True, allow_rollup_hdrs=True) == FINE


@rows("streams.republish", "a source of what is republished is named, and no transform put in its place")
async def republish(b: Bench) -> None:
    dest = f"{b.subject()}.>"
    for found in ({"dest": dest}, {"src": "", "dest": dest}):
        assert await made(b, republish=found) == mode("republish source can not be empty")
    assert await made(b, republish={"src": ">", "dest": dest}) == FINE
    name = b.name()
    implicit = await made(
        b,
        subjects=[f"{name}.>"],
        subject_transform={"src": f"{name}.>", "dest": f"{name}made.>"},
        republish={"src": ">", "dest": ">"},
    )
    assert implicit == mode("implicit republish based on subject transform")


@rows("streams.mirror-direct", "a mirror says itself what its origin makes of its direct gets")
async def mirror_direct(b: Bench) -> None:
    differs = mode("origin stream has direct get set, mirror has it disabled")
    for allow_direct in (True, False):
        origin = await b.stream(allow_direct=allow_direct)
        mirror = {"name": origin.name}
        assert await made(b, mirror=mirror, mirror_direct=not allow_direct) == differs
        assert await made(b, mirror=mirror, mirror_direct=allow_direct) == FINE
    assert await made(b, mirror={"name": b.name()}, mirror_direct=True) == FINE


@rows("streams.update", "an update is judged as a create is")
async def stream_update(b: Bench) -> None:
    stream = await b.stream()
    for fields, wanted in (
        ({"max_msgs": -2}, mode("max_msgs must be set to -1")),
        (
            {"max_age": 60 * SECOND, "duplicate_window": 0},
            mode("duplicate window cannot be bigger than max age"),
        ),
        ({"republish": {"dest": f"{b.subject()}.>"}}, mode("republish source can not be empty")),
        ({"max_msgs": 5}, FINE),
    ):
        body = {**stream.config, "pedantic": True, **fields}
        assert await told(b, f"STREAM.UPDATE.{stream.name}", body) == wanted, fields


@rows("streams.flag", "the flag is true or false, where it may stand")
async def flag(b: Bench) -> None:
    stream = await b.stream()
    body: dict[str, Any]
    wrong: tuple[Any, ...] = (1, "true", [])
    for value in wrong:
        body = {"name": b.name(), "pedantic": value}
        assert (await told(b, f"STREAM.CREATE.{body['name']}", body))[1] == 10025
        body = {"stream_name": stream.name, "config": {}, "pedantic": value}
        assert (await told(b, f"CONSUMER.CREATE.{stream.name}", body))[1] == 10025
    unknown = (400, 10025, 'invalid JSON: json: unknown field "pedantic"')
    body = {"config": {"name": b.name(), "pedantic": True}}
    assert await told(b, f"STREAM.RESTORE.{body['config']['name']}", body) == unknown
    body = {"stream_name": stream.name, "config": {"pedantic": True}}
    assert await told(b, f"CONSUMER.CREATE.{stream.name}", body) == unknown
    for relaxed in (False, None):
        body = {**stream.config, "pedantic": relaxed, "max_msgs": -5}
        assert await told(b, f"STREAM.UPDATE.{stream.name}", body) == FINE


async def consumer(b: Bench, stream: str, **fields: Any) -> tuple[int, int, str]:
    """What pedantic creates of a consumer are told: named, durable, and without a name in the subject; all alike."""
    name = b.name()
    bodies: tuple[tuple[str, dict[str, Any]], ...] = (
        (f"CONSUMER.CREATE.{stream}.{name}", {"name": name}),
        (f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"durable_name": name}),
        (f"CONSUMER.CREATE.{stream}", {}),
    )
    found = set()
    for call, names in bodies:
        body = {"stream_name": stream, "pedantic": True, "config": {**names, **fields}}
        found.add(await told(b, call, body))
        await b.api(f"CONSUMER.DELETE.{stream}.{name}")
    assert len(found) == 1, found
    return found.pop()


@rows("consumers.negative", "a consumer's negative numbers are not taken for what is meant")
async def consumer_negative(b: Bench) -> None:
    stream = (await b.stream()).name
    for field in ("max_deliver", "max_ack_pending"):
        assert await consumer(b, stream, **{field: -2}) == mode(f"{field} must be set to -1")
        assert await consumer(b, stream, **{field: -1}) == FINE
    for field in ("max_waiting", "max_batch", "max_expires", "max_bytes", "idle_heartbeat"):
        assert await consumer(b, stream, **{field: -1}) == mode(f"{field} must not be negative")
    for field in ("inactive_threshold", "priority_timeout"):
        assert await consumer(b, stream, **{field: -1}) == mode(f"{field} must not be negative")
    both = await consumer(b, stream, max_deliver=-2, num_replicas=-1)
    assert both == mode("max_deliver must be set to -1")


@rows("consumers.backoff", "a consumer's ack_wait is the first step of its back-off")
async def consumer_backoff(b: Bench) -> None:
    stream = (await b.stream()).name
    differs = mode("first backoff value has to equal batch AckWait")
    steps = [SECOND, 2 * SECOND]
    assert await consumer(b, stream, backoff=steps) == differs
    assert await consumer(b, stream, backoff=steps, ack_policy="explicit") == differs
    assert await consumer(b, stream, backoff=steps, ack_policy="explicit", ack_wait=30 * SECOND) == differs
    assert await consumer(b, stream, backoff=steps, ack_policy="explicit", ack_wait=SECOND) == FINE
    assert await consumer(b, stream, backoff=[30 * SECOND], ack_policy="all") == FINE


@rows("consumers.limits", "a stream's limits of its consumers are not filled in")
async def consumer_limits(b: Bench) -> None:
    limits = {"max_ack_pending": 10, "inactive_threshold": SECOND}
    stream = (await b.stream(consumer_limits=limits)).name
    pending = mode("max_ack_pending must be set if it's configured in stream limits")
    threshold = mode("inactive_threshold must be set if it's configured in stream limits")
    fields: dict[str, Any] = {"ack_policy": "explicit"}
    assert await consumer(b, stream, **fields) == pending
    assert await consumer(b, stream, **fields, inactive_threshold=SECOND) == pending
    assert await consumer(b, stream, **fields, max_ack_pending=5) == threshold
    assert await consumer(b, stream, **fields, **limits) == FINE
    too_many = (400, 10121, "consumer max ack pending exceeds system limit of 10")
    assert await consumer(b, stream, **fields, max_ack_pending=11, inactive_threshold=SECOND) == too_many


LIMITED = Settings(
    "server-limits",
    ours={"jetstream": {"maxRequestBatch": 5, "duplicateWindowMs": 60_000}},
    nats={"jetstream": {"limits": {"max_request_batch": 5, "duplicate_window": "1m"}}},
)


@rows("server-limits", "a server's limits are not filled in either", settings=LIMITED)
async def server_limits(b: Bench) -> None:
    assert await made(b) == mode("duplicate window limits are higher than current limits")
    assert await made(b, duplicate_window=SECOND) == FINE
    assert await made(b, mirror={"name": b.name()}) == FINE
    stream = (await b.stream()).name
    found = await consumer(b, stream)
    assert found == mode("max_request_batch must be set if it's JetStream limits are set")
    assert await consumer(b, stream, max_batch=5) == FINE
    assert await consumer(b, stream, deliver_subject=b.subject()) == FINE
