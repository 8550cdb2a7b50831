"""Priority groups of consumers: overflow, priorities and pins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.compat.bench import Bench, eventually
from tests.compat.consumer_asking import RESPONSE, SECOND, ZERO_TIME, call, filled, pull, said
from tests.compat.table import Group

priority = Group("consumers.priority")


OVERFLOW: dict[str, Any] = {"priority_policy": "overflow", "priority_groups": ["A"]}
PINNED: dict[str, Any] = {"priority_policy": "pinned_client", "priority_groups": ["A"]}
PRIORITIZED: dict[str, Any] = {"priority_policy": "prioritized", "priority_groups": ["A"]}

BAD_CONFIGS: Mapping[str, tuple[dict[str, Any], int, str]] = {
    "no-policy": (
        {"priority_groups": ["A"]},
        10196,
        "consumer can not have priority groups when policy is none",
    ),
    "no-group": (
        {"priority_policy": "overflow"},
        10159,
        "Setting PriorityPolicy requires at least one PriorityGroup to be set",
    ),
    "empty-name": ({**OVERFLOW, "priority_groups": [""]}, 10161, "Group name cannot be an empty string"),
    "bad-name": (
        {**OVERFLOW, "priority_groups": ["not good"]},
        10162,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
    ),
    "long-name": (
        {**OVERFLOW, "priority_groups": ["a" * 17]},
        10162,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
    ),
    "push": (
        {**OVERFLOW, "deliver_subject": "d.x"},
        10178,
        "priority groups can not be used with push consumers",
    ),
    "timeout": ({"priority_timeout": SECOND}, 10197, "PinnedTTL cannot be set when PriorityPolicy is none"),
}


def _bad_config(name: str, fields: dict[str, Any], err_code: int, text: str) -> None:
    @priority(f"config.{name}", f"{fields} is refused")
    async def refused(b: Bench) -> None:
        await (await b.stream()).consumer_refused(code=400, err_code=err_code, text=text, **fields)


for _name, (_fields, _err_code, _text) in BAD_CONFIGS.items():
    _bad_config(_name, _fields, _err_code, _text)


@priority("config.shown", "groups and policy are shown, and that nobody is pinned")
async def priority_shown(b: Bench) -> None:
    consumer = await (await b.stream()).consumer(**PINNED)
    config = consumer.created["config"]
    assert (config["priority_groups"], config["priority_policy"]) == (["A"], "pinned_client")
    assert config["priority_timeout"] == 120 * SECOND
    assert consumer.created["priority_groups"] == [{"group": "A", "pinned_ts": ZERO_TIME}]


BAD_REQUESTS: Mapping[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "group-missing": (OVERFLOW, {}, "Bad Request - Priority Group missing"),
    "group-unknown": (OVERFLOW, {"group": "B"}, "Bad Request - Invalid Priority Group"),
    "id": (OVERFLOW, {"group": "A", "id": "x"}, "Bad Request - Not a Pinned Client Priority consumer"),
    "plain-id": ({}, {"id": "x"}, "Bad Request - Not a Pinned Client Priority consumer"),
    "plain-min": ({}, {"min_pending": 5}, "Bad Request - Not a Overflow Priority consumer"),
    "too-high": (
        PRIORITIZED,
        {"group": "A", "priority": 10},
        "Bad Request - Priority must be between 0 and 9",
    ),
    "negative": (
        PRIORITIZED,
        {"group": "A", "priority": -1},
        "Bad Request - Priority must be between 0 and 9",
    ),
    "too-high-for-all": ({}, {"priority": 10}, "Bad Request - Priority must be between 0 and 9"),
    "too-high-overflow": (
        OVERFLOW,
        {"group": "A", "priority": 10},
        "Bad Request - Priority must be between 0 and 9",
    ),
    "below-zero": ({}, {"min_pending": -1}, "Bad Request - Not a Overflow Priority consumer"),
    "over-before": (OVERFLOW, {"expires": -5}, "Bad Request - Priority Group missing"),
}


def _bad_request(name: str, config: dict[str, Any], request: dict[str, Any], text: str) -> None:
    @priority(f"request.{name}", f"a pull request with {request} is refused: {text}")
    async def refused(b: Bench) -> None:
        consumer = await (await filled(b, "a")).consumer(**config)
        assert said(await pull(consumer, **request)) == ("400", text)


for _name, (_config, _request, _text) in BAD_REQUESTS.items():
    _bad_request(_name, _config, _request, _text)


@priority("request.ignored", "a plain consumer takes no notice of a group")
async def group_ignored(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer()
    assert (await pull(consumer, group="A", priority=3)).data == b"a"


@priority("overflow.plain", "an overflow consumer serves who asks for nothing")
async def overflow_plain(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(**OVERFLOW)
    assert (await pull(consumer, group="A")).data == b"a"


@priority("overflow.pending", "min_pending is served only when so many messages are there")
async def overflow_pending(b: Bench) -> None:
    stream = await filled(b, "a", "b")
    consumer = await stream.consumer(**OVERFLOW)
    assert said(await pull(consumer, group="A", min_pending=3, expires=SECOND // 4))[0] == "408"
    answers = await consumer.ask({"batch": 1, "group": "A", "min_pending": 3, "expires": 5 * SECOND})
    await stream.fill("c")
    assert (await answers.next()).data == b"a"


@priority("overflow.ack-pending", "min_ack_pending is served only when so many are out unacknowledged")
async def overflow_ack_pending(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b", "c")).consumer(**OVERFLOW)
    assert said(await pull(consumer, group="A", min_ack_pending=1, expires=SECOND // 4))[0] == "408"
    assert (await pull(consumer, group="A")).data == b"a"
    assert (await pull(consumer, group="A", min_ack_pending=1)).data == b"b"


@priority("overflow.either", "of both minima one is enough")
async def overflow_either(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b")).consumer(**OVERFLOW)
    assert (await pull(consumer, group="A", min_pending=2, min_ack_pending=100)).data == b"a"


@priority("overflow.no-wait", "a request that does not wait and is not served is told 404")
async def overflow_no_wait(b: Bench) -> None:
    consumer = await (await filled(b, "a")).consumer(**OVERFLOW)
    answers = await consumer.ask({"batch": 1, "no_wait": True, "group": "A", "min_pending": 100})
    assert await answers.status() == ("404", "No Messages")


@priority("prioritized", "the lowest number is served first, equals in turn")
async def prioritized(b: Bench) -> None:
    stream = await b.stream()
    consumer = await stream.consumer(**PRIORITIZED)
    nc = await b.connect()
    asked = [
        (
            number,
            await consumer.ask({"batch": 2, "group": "A", "priority": number, "expires": 9 * SECOND}, nc=nc),
        )
        for number in (5, 1, 5, 1, 0)
    ]

    async def all_wait() -> bool:
        return bool((await consumer.info())["num_waiting"] == len(asked))

    await eventually(all_wait, "all requests wait")
    await stream.fill(*"abcdefg")
    got: dict[int, list[bytes]] = {}
    for number, answers in asked:
        for _ in range({0: 2, 1: 2, 5: 0}[number]):
            got.setdefault(number, []).append((await answers.next()).data)
    assert got == {0: [b"a", b"b"], 1: [b"c", b"e", b"d", b"f"]}
    assert (await asked[0][1].next()).data == b"g"


@priority("pinned", "the first to ask is pinned, and its messages name the pin")
async def pinned(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b", "c")).consumer(**PINNED)
    first = await pull(consumer, group="A")
    pin = (first.headers or {})["Nats-Pin-Id"]
    assert (first.data, bool(pin)) == (b"a", True)
    (shown,) = (await consumer.info())["priority_groups"]
    assert (shown["group"], shown["pinned_client_id"]) == ("A", pin)
    assert shown["pinned_ts"] > "2026"
    again = await pull(consumer, group="A", id=pin)
    assert (again.data, again.headers) == (b"b", {"Nats-Pin-Id": pin})


@priority("pinned.others", "others wait while somebody is pinned, and a wrong id is told 423")
async def pinned_others(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b")).consumer(**PINNED)
    await pull(consumer, group="A")
    assert said(await pull(consumer, group="A", expires=SECOND // 4))[0] == "408"
    assert said(await pull(consumer, group="A", id="wrong")) == ("423", "Nats-Pin-Id mismatch")


@priority("pinned.timeout", "who says nothing for priority_timeout is not pinned any more")
async def pinned_timeout(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b", "c")).consumer(**PINNED, priority_timeout=SECOND // 2)
    pin = ((await pull(consumer, group="A")).headers or {})["Nats-Pin-Id"]
    other = await pull(consumer, group="A", expires=5 * SECOND)
    assert other.data == b"b"
    assert (other.headers or {})["Nats-Pin-Id"] != pin


@priority("pinned.stale", "an id that nobody has any more is told 423")
async def pinned_stale(b: Bench) -> None:
    consumer = await (await filled(b, "a", "b")).consumer(**PINNED)
    pin = ((await pull(consumer, group="A")).headers or {})["Nats-Pin-Id"]
    assert await b.ok(call("UNPIN", consumer), {"group": "A"}) == {
        "type": RESPONSE + "consumer_unpin_response"
    }
    (shown,) = (await consumer.info())["priority_groups"]
    assert shown == {"group": "A", "pinned_ts": ZERO_TIME}
    assert said(await pull(consumer, group="A", id=pin)) == ("423", "Nats-Wrong-Pin-Id")
    assert (await pull(consumer, group="A")).data == b"b"


UNPIN_REFUSED: Mapping[str, tuple[dict[str, Any], bytes, int, int, str]] = {
    "empty": (PINNED, b"", 400, 10025, "invalid JSON: unexpected end of JSON input"),
    "no-group": (PINNED, b"{}", 400, 10025, "invalid JSON: consumer group not specified"),
    "unknown-group": (
        PINNED,
        b'{"group":"B"}',
        400,
        10160,
        "Provided priority group does not exist for this consumer",
    ),
    "plain": (
        {},
        b'{"group":"A"}',
        400,
        10160,
        "Provided priority group does not exist for this consumer",
    ),
}


def _unpin_refused(
    name: str, config: dict[str, Any], body: bytes, code: int, err_code: int, text: str
) -> None:
    @priority(f"unpin.{name}", f"UNPIN with {body!r} is refused: {text}")
    async def refused(b: Bench) -> None:
        consumer = await (await b.stream()).consumer(**config)
        await b.refused(call("UNPIN", consumer), body, code=code, err_code=err_code, text=text)


for _name, _unpin in UNPIN_REFUSED.items():
    _unpin_refused(_name, *_unpin)


@priority("unpin.unknown", "UNPIN of a consumer that is not there is refused")
async def unpin_unknown(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"CONSUMER.UNPIN.{stream.name}.nobody",
        {"group": "A"},
        code=404,
        err_code=10014,
        text="consumer not found",
    )
