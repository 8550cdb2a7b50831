"""Streams: updating and sealing them."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import Group

rows = Group("streams")

SECOND = 1_000_000_000


@rows("update", "an update answers with the new configuration")
async def update(b: Bench) -> None:
    stream = await b.stream()
    answer = await stream.update(max_msgs=5, description="other")
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_update_response"
    assert (answer["config"]["max_msgs"], answer["config"]["description"]) == (5, "other")


MAY_CHANGE: dict[str, Any] = {
    "subjects": ["compat.changed.>"],
    "description": "other",
    "max_msgs": 10,
    "max_bytes": 4096,
    "max_age": SECOND,
    "max_msgs_per_subject": 3,
    "max_msg_size": 100,
    "max_consumers": 4,
    "discard": "new",
    "no_ack": True,
    "deny_delete": True,
    "deny_purge": True,
    "allow_rollup_hdrs": True,
    "allow_direct": True,
    "duplicate_window": 5 * SECOND,
    "retention": "interest",
    "consumer_limits": {"max_ack_pending": 7},
}


def _may_change(field: str, value: Any) -> None:
    @rows(f"update.may.{field}", f"{field} may change")
    async def may_change(b: Bench) -> None:
        stream = await b.stream()
        more = {"duplicate_window": SECOND} if field == "max_age" else {}
        answer = await stream.update(**{field: value}, **more)
        assert "error" not in answer, answer
        assert answer["config"][field] == value
        assert (await stream.info())["config"] == answer["config"]


for _field, _value in MAY_CHANGE.items():
    _may_change(_field, _value)

# What the stream has, what is wanted, the text of error 10052.
MAY_NOT_CHANGE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "storage": (
        {},
        {"storage": "memory"},
        "stream configuration update can not change storage type",
    ),
    "to-workqueue": (
        {},
        {"retention": "workqueue"},
        "stream configuration update can not change retention policy to/from workqueue",
    ),
    "from-workqueue": (
        {"retention": "workqueue"},
        {"retention": "limits"},
        "stream configuration update can not change retention policy to/from workqueue",
    ),
    "deny-delete": (
        {"deny_delete": True},
        {"deny_delete": False},
        "stream configuration update can not cancel deny message deletes",
    ),
    "deny-purge": (
        {"deny_purge": True},
        {"deny_purge": False},
        "stream configuration update can not cancel deny purge",
    ),
    "rollup-and-deny-purge": (
        {"deny_purge": True},
        {"allow_rollup_hdrs": True},
        "roll-ups require the purge permission",
    ),
    "duplicates-over-age": (
        {},
        {"max_age": SECOND},
        "duplicates window can not be larger then max age",
    ),
    "discard-old-per-subject": (
        {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1},
        {"discard": "old"},
        "discard new per subject requires discard new policy to be set",
    ),
    "subjects-overlap": (
        {},
        {"subjects": ["compat.own.>", "compat.own.a"]},
        'subject "compat.own.>" overlaps with "compat.own.a"',
    ),
}


def _may_not_change(name: str, has: dict[str, Any], wanted: dict[str, Any], text: str) -> None:
    @rows(f"update.may-not.{name}", f"an update to {', '.join(wanted)} is refused: {name}")
    async def may_not_change(b: Bench) -> None:
        stream = await b.stream(**has)
        await stream.update_refused(**wanted, code=500, err_code=10052, text=text)


for _name, (_has, _changes, _text) in MAY_NOT_CHANGE.items():
    _may_not_change(_name, _has, _changes, _text)


@rows("update.not-there", "a stream that is not there is not updated")
async def update_not_there(b: Bench) -> None:
    name = b.name()
    await b.refused(
        f"STREAM.UPDATE.{name}", {"name": name}, code=404, err_code=10059, text="stream not found"
    )


@rows("update.name", "an update's subject has to name its stream")
async def update_name(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"STREAM.UPDATE.{stream.name}",
        {"name": "other"},
        code=400,
        err_code=10056,
        text="stream name in subject does not match request",
    )


@rows("update.overlap", "an update to another stream's subjects is refused")
async def update_overlap(b: Bench) -> None:
    other, stream = await b.stream(), await b.stream()
    await stream.update_refused(
        subjects=[f"{other.name}.a"],
        code=400,
        err_code=10065,
        text="subjects overlap with an existing stream",
    )


@rows("update.max-msgs.drops", "a smaller max_msgs drops the oldest at once")
async def update_drops(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c")
    answer = await stream.update(max_msgs=1)
    assert (answer["state"]["messages"], answer["state"]["first_seq"]) == (1, 3)


@rows("update.per-subject.drops", "a smaller max_msgs_per_subject drops the oldest of each subject at once")
async def update_per_subject_drops(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "a", "a")
    await stream.update(max_msgs_per_subject=1)
    state = (await stream.info({"subjects_filter": ">"}))["state"]
    assert state["subjects"] == {f"{stream.name}.a": 1, f"{stream.name}.b": 1}


@rows("seal", "sealing sets what a sealed stream is")
async def seal(b: Bench) -> None:
    stream = await b.stream(max_age=100 * SECOND)
    await stream.fill("a")
    config = (await stream.update(sealed=True))["config"]
    found = {name: config[name] for name in ("sealed", "max_age", "discard", "deny_delete", "deny_purge")}
    assert found == {"sealed": True, "max_age": 0, "discard": "new", "deny_delete": True, "deny_purge": True}


@rows("seal.unseal", "a sealed stream stays sealed")
async def unseal(b: Bench) -> None:
    stream = await b.stream()
    await stream.update(sealed=True)
    answer = await stream.update(sealed=False, deny_delete=True, deny_purge=True)
    text = "stream configuration update can not unseal a sealed stream"
    assert answer["error"] == {"code": 500, "err_code": 10052, "description": text}


@rows("seal.refuses", "a sealed stream takes no message, and none is taken out of it")
async def sealed_refuses(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    await stream.update(sealed=True)
    error = {"code": 400, "err_code": 10109, "description": "invalid operation on sealed stream"}
    assert (await stream.publish("a"))["error"] == error
    assert (await b.api(f"STREAM.PURGE.{stream.name}"))["error"] == error
    assert (await b.api(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 1}))["error"] == error
