"""Streams: their configuration, its defaults and refusals; creating, updating, deleting; what they tell of themselves."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench, eventually
from tests.compat.table import SINGLES, Group

rows = Group("streams")

SECOND = 1_000_000_000

# ---- creating -----------------------------------------------------------------------------------------------------


@rows("create", "a stream is created, and the answer has its configuration and an empty state")
async def create(b: Bench) -> None:
    stream = await b.stream()
    assert stream.created["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert stream.created["did_create"] is True
    state = stream.created["state"]
    assert (state["messages"], state["bytes"], state["first_seq"], state["last_seq"]) == (0, 0, 0, 0)
    assert (state["first_ts"], state["consumer_count"]) == ("0001-01-01T00:00:00Z", 0)


@rows("create.defaults", "what a configuration does not say has NATS's defaults")
async def defaults(b: Bench) -> None:
    stream = await b.stream()
    wanted: dict[str, Any] = {
        "name": stream.name,
        "subjects": [f"{stream.name}.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "discard": "old",
        "storage": "file",
        "num_replicas": b.replicas,
        "duplicate_window": 120 * SECOND,
        "compression": "none",
        "allow_direct": False,
        "mirror_direct": False,
        "sealed": False,
        "deny_delete": False,
        "deny_purge": False,
        "allow_rollup_hdrs": False,
        "consumer_limits": {},
    }
    assert {name: stream.config.get(name) for name in wanted} == wanted


@rows("create.subject-is-name", "a stream without subjects captures its name")
async def subject_is_name(b: Bench) -> None:
    stream = await b.stream(subjects=[])
    assert stream.config["subjects"] == [stream.name]


@rows("create.again", "creating the same stream again succeeds and creates nothing")
async def create_again(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    answer = await b.ok(f"STREAM.CREATE.{stream.name}", stream.config)
    assert answer["created"] == stream.created["created"]
    assert answer["state"]["messages"] == 1


@rows("create.differs", "a name that another configuration has is refused")
async def create_differs(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"STREAM.CREATE.{stream.name}",
        {**stream.config, "max_msgs": 7},
        code=400,
        err_code=10058,
        text="stream name already in use with a different configuration",
    )


@rows("create.name-in-subject", "the name in the subject has to be the one in the request")
async def name_differs(b: Bench) -> None:
    await b.refused(
        f"STREAM.CREATE.{b.name()}",
        {"name": b.name()},
        code=400,
        err_code=10056,
        text="stream name in subject does not match request",
    )


@rows("create.overlap", "subjects that another stream captures are refused")
async def overlap(b: Bench) -> None:
    stream = await b.stream()
    for subject in (f"{stream.name}.a", f"{stream.name}.*", f"{stream.name}.>"):
        await b.stream_refused(
            subjects=[subject], code=400, err_code=10065, text="subjects overlap with an existing stream"
        )


@rows("create.json", "a body that is no JSON is refused with 10025")
async def no_json(b: Bench) -> None:
    answer = await b.api(f"STREAM.CREATE.{b.name()}", b"{")
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10025)
    assert answer["error"]["description"].startswith("invalid JSON: ")


@rows("create.unknown-field", "a field that nobody knows is refused by name")
async def unknown_field(b: Bench) -> None:
    await b.stream_refused(
        nonsense=1, code=400, err_code=10025, text='invalid JSON: json: unknown field "nonsense"'
    )


@rows("create.pedantic", "the pedantic flag of the request is taken")
async def pedantic(b: Bench) -> None:
    await b.stream(pedantic=True)


WRONG_TYPES: dict[str, Any] = {
    "description": 5,
    "subjects": "a",
    "retention": "none",
    "storage": "tape",
    "discard": "",
    "max_msgs": "x",
    "max_bytes": 1.5,
    "max_age": True,
    "max_msgs_per_subject": 2**64,
    "max_msg_size": "1",
    "max_consumers": [],
    "num_replicas": "3",
    "duplicate_window": "1s",
    "no_ack": 1,
    "sealed": "x",
    "deny_delete": 1,
    "deny_purge": "true",
    "allow_rollup_hdrs": 0.5,
    "allow_direct": "yes",
    "metadata": {"a": 5},
    "placement": "east",
    "consumer_limits": 5,
    "first_seq": -1,
}


def _wrong_type(field: str, value: Any) -> None:
    @rows(f"create.type.{field}", f"{field} of a wrong type is refused with 10025")
    async def wrong_type(b: Bench) -> None:
        name = b.name()
        b.will_delete(name)
        answer = await b.api(f"STREAM.CREATE.{name}", {"name": name, field: value})
        assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10025), answer


for _field, _value in WRONG_TYPES.items():
    _wrong_type(_field, _value)

# name of the row → (what it says, the configuration, the text of error 10052)
INVALID: dict[str, tuple[str, dict[str, Any], str]] = {
    "description": (
        "a description of more than 4096 bytes is refused",
        {"description": "d" * 4097},
        "stream description is too long, maximum allowed is 4096",
    ),
    "max-age.negative": (
        "a negative max_age is refused",
        {"max_age": -1},
        "max age can not be negative",
    ),
    "max-age.short": (
        "a max_age under 100 ms is refused",
        {"max_age": 1000},
        "max age needs to be >= 100ms",
    ),
    "duplicates.negative": (
        "a negative duplicate_window is refused",
        {"duplicate_window": -1},
        "duplicates window can not be negative",
    ),
    "duplicates.short": (
        "a duplicate_window under 100 ms is refused",
        {"duplicate_window": 5},
        "duplicates window needs to be >= 100ms",
    ),
    "duplicates.over-age": (
        "a duplicate_window beyond max_age is refused",
        {"max_age": SECOND, "duplicate_window": 2 * SECOND},
        "duplicates window can not be larger then max age",
    ),
    "discard-new-per-subject.old": (
        "discard_new_per_subject without discard new is refused",
        {"discard_new_per_subject": True},
        "discard new per subject requires discard new policy to be set",
    ),
    "discard-new-per-subject.no-limit": (
        "discard_new_per_subject without a limit per subject is refused",
        {"discard": "new", "discard_new_per_subject": True},
        "discard new per subject requires max msgs per subject > 0",
    ),
    "rollup-needs-purge": (
        "roll-ups and deny_purge contradict each other",
        {"deny_purge": True, "allow_rollup_hdrs": True},
        "roll-ups require the purge permission",
    ),
    "sealed": (
        "a stream is not born sealed",
        {"sealed": True},
        "stream configuration for create can not be sealed",
    ),
    "replicas.six": ("more than five replicas are refused", {"num_replicas": 6}, "maximum replicas is 5"),
    "metadata.large": (
        "metadata of more than 128 KiB is refused",
        {"metadata": {"a": "x" * 131_073}},
        "stream metadata exceeds maximum size of 131072 bytes",
    ),
    "subjects.same": (
        "the same subject twice is refused",
        {"subjects": ["compat.twice", "compat.twice"]},
        'subject "compat.twice" overlaps with "compat.twice"',
    ),
    "subjects.overlap": (
        "subjects of one stream that overlap are refused",
        {"subjects": ["compat.over.*", "compat.over.b"]},
        'subject "compat.over.*" overlaps with "compat.over.b"',
    ),
    "subjects.empty-token": (
        "an empty token in a subject is refused",
        {"subjects": ["compat..b"]},
        "invalid subject",
    ),
    "subjects.inner-wildcard": (
        "'>' before the end of a subject is refused",
        {"subjects": ["compat.>.b"]},
        "invalid subject",
    ),
    "subjects.space": ("a space in a subject is refused", {"subjects": ["com pat"]}, "invalid subject"),
    "subjects.all": (
        "capturing everything needs no_ack",
        {"subjects": [">"]},
        "capturing all subjects requires no-ack to be true",
    ),
    "subjects.api": (
        "capturing the API needs no_ack",
        {"subjects": ["$JS.API.>"]},
        "subjects that overlap with jetstream api require no-ack to be true",
    ),
    "subjects.system": (
        "capturing the system's subjects needs no_ack",
        {"subjects": ["$SYS.>"]},
        "subjects that overlap with system api require no-ack to be true",
    ),
}


def _invalid(name: str, title: str, config: dict[str, Any], text: str) -> None:
    @rows(f"create.refused.{name}", title)
    async def invalid(b: Bench) -> None:
        config.setdefault("subjects", [f"{b.name('subject')}"])
        await b.stream_refused(**config, code=500, err_code=10052, text=text)


for _name, (_title, _config, _text) in INVALID.items():
    _invalid(_name, _title, _config, _text)

# What is given, and what the answer says.
KEPT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "description": ({"description": "d" * 4096}, {"description": "d" * 4096}),
    "max-msgs": ({"max_msgs": 5}, {"max_msgs": 5}),
    "max-msgs.zero": ({"max_msgs": 0}, {"max_msgs": -1}),
    "max-msgs.negative": ({"max_msgs": -7}, {"max_msgs": -1}),
    "max-bytes": ({"max_bytes": 1024}, {"max_bytes": 1024}),
    "max-bytes.zero": ({"max_bytes": 0}, {"max_bytes": -1}),
    "max-msg-size": ({"max_msg_size": 100}, {"max_msg_size": 100}),
    "max-msg-size.zero": ({"max_msg_size": 0}, {"max_msg_size": -1}),
    "max-msgs-per-subject": ({"max_msgs_per_subject": 3}, {"max_msgs_per_subject": 3}),
    "max-msgs-per-subject.zero": ({"max_msgs_per_subject": 0}, {"max_msgs_per_subject": -1}),
    "max-consumers": ({"max_consumers": 3}, {"max_consumers": 3}),
    "max-consumers.zero": ({"max_consumers": 0}, {"max_consumers": -1}),
    "max-age": (
        {"max_age": SECOND},
        {"max_age": SECOND, "duplicate_window": SECOND},
    ),
    "max-age.100ms": ({"max_age": 100_000_000}, {"max_age": 100_000_000}),
    "duplicate-window": ({"duplicate_window": 5 * SECOND}, {"duplicate_window": 5 * SECOND}),
    "retention.interest": ({"retention": "interest"}, {"retention": "interest"}),
    "retention.workqueue": ({"retention": "workqueue"}, {"retention": "workqueue"}),
    "storage.memory": ({"storage": "memory"}, {"storage": "memory"}),
    "discard.new": ({"discard": "new"}, {"discard": "new"}),
    "discard-new-per-subject": (
        {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1},
        {"discard_new_per_subject": True},
    ),
    "no-ack": ({"no_ack": True}, {"no_ack": True}),
    "deny-delete": ({"deny_delete": True}, {"deny_delete": True}),
    "deny-purge": ({"deny_purge": True}, {"deny_purge": True}),
    "allow-rollup": ({"allow_rollup_hdrs": True}, {"allow_rollup_hdrs": True}),
    "allow-direct": ({"allow_direct": True}, {"allow_direct": True}),
    "first-seq": ({"first_seq": 100}, {"first_seq": 100}),
    "consumer-limits": (
        {"consumer_limits": {"inactive_threshold": SECOND, "max_ack_pending": 5}},
        {"consumer_limits": {"inactive_threshold": SECOND, "max_ack_pending": 5}},
    ),
    "replicas.zero": ({"num_replicas": 0}, {"num_replicas": 1}),
    "subjects.no-ack": ({"subjects": ["$JS.API.>"], "no_ack": True}, {"subjects": ["$JS.API.>"]}),
    "subjects.events": ({"subjects": ["$JS.EVENT.>"]}, {"subjects": ["$JS.EVENT.>"]}),
    "subjects.account-events": ({"subjects": ["$SYS.ACCOUNT.>"]}, {"subjects": ["$SYS.ACCOUNT.>"]}),
    "subjects.stars-in-tokens": (
        {"subjects": ["compat.a*", "compat.>b"]},
        {"subjects": ["compat.a*", "compat.>b"]},
    ),
}


def _kept(name: str, given: dict[str, Any], wanted: dict[str, Any]) -> None:
    @rows(f"create.kept.{name}", f"a stream with {', '.join(given)} is created and says so")
    async def kept(b: Bench) -> None:
        stream = await b.stream(**given)
        assert {field: stream.config[field] for field in wanted} == wanted
        assert (await stream.info())["config"] == stream.config


for _name, (_given, _wanted) in KEPT.items():
    _kept(_name, _given, _wanted)


@rows("create.metadata", "metadata is kept, beside what the server adds")
async def metadata(b: Bench) -> None:
    stream = await b.stream(metadata={"owner": "compat", "tier": "1"})
    found = {name: value for name, value in stream.config["metadata"].items() if not name.startswith("_nats")}
    assert found == {"owner": "compat", "tier": "1"}


@rows("create.single-replicas", "a server alone makes no replicas", on=SINGLES)
async def single_replicas(b: Bench) -> None:
    text = "replicas > 1 not supported in non-clustered mode"
    await b.stream_refused(num_replicas=3, code=500, err_code=10074, text=text)
    stream = await b.stream()
    await stream.update_refused(num_replicas=3, code=500, err_code=10074, text=text)


# ---- limits at work -------------------------------------------------------------------------------------------------


@rows("limits.max-msgs", "beyond max_msgs the oldest goes")
async def max_msgs(b: Bench) -> None:
    stream = await b.stream(max_msgs=2)
    await stream.fill("a", "b", "c")
    state = await stream.state()
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (2, 2, 3)


@rows("limits.max-msgs.new", "with discard new a full stream refuses")
async def max_msgs_new(b: Bench) -> None:
    stream = await b.stream(max_msgs=2, discard="new")
    await stream.fill("a", "b")
    answer = await stream.publish("c")
    assert answer["error"] == {"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}
    assert (await stream.state())["messages"] == 2


@rows("limits.max-bytes", "beyond max_bytes the oldest go")
async def max_bytes(b: Bench) -> None:
    stream = await b.stream(max_bytes=1000)
    for _ in range(4):
        await stream.publish("a", b"x" * 400)
    state = await stream.state()
    assert (state["messages"], state["last_seq"]) == (2, 4)
    assert 800 < state["bytes"] <= 1000


@rows("limits.max-bytes.new", "with discard new too many bytes are refused")
async def max_bytes_new(b: Bench) -> None:
    stream = await b.stream(max_bytes=1000, discard="new")
    for _ in range(2):
        await stream.publish("a", b"x" * 400)
    answer = await stream.publish("a", b"x" * 400)
    assert answer["error"] == {"code": 503, "err_code": 10077, "description": "maximum bytes exceeded"}


@rows("limits.max-msg-size", "a message over max_msg_size is refused, one of that size is not")
async def max_msg_size(b: Bench) -> None:
    stream = await b.stream(max_msg_size=10)
    assert (await stream.publish("a", b"x" * 10))["seq"] == 1
    answer = await stream.publish("a", b"x" * 11)
    text = "message size exceeds maximum allowed"
    assert answer["error"] == {"code": 400, "err_code": 10054, "description": text}


@rows("limits.max-msg-size.header", "headers count for max_msg_size")
async def max_msg_size_header(b: Bench) -> None:
    stream = await b.stream(max_msg_size=10)
    assert (await stream.publish("a", b"x", {"a": "b"}))["error"]["err_code"] == 10054


@rows("limits.per-subject", "of each subject only the newest max_msgs_per_subject stay")
async def per_subject(b: Bench) -> None:
    stream = await b.stream(max_msgs_per_subject=2)
    await stream.fill("a", "a", "b", "a")
    state = (await stream.info({"subjects_filter": ">"}))["state"]
    assert state["subjects"] == {f"{stream.name}.a": 2, f"{stream.name}.b": 1}
    assert state["first_seq"] == 2


@rows("limits.per-subject.new", "with discard_new_per_subject a full subject refuses, others do not")
async def per_subject_new(b: Bench) -> None:
    stream = await b.stream(discard="new", discard_new_per_subject=True, max_msgs_per_subject=1)
    await stream.fill("a", "b")
    answer = await stream.publish("a")
    text = "maximum messages per subject exceeded"
    assert answer["error"] == {"code": 503, "err_code": 10077, "description": text}


@rows("limits.per-subject.discard-new", "discard new alone lets a subject's oldest go for its newest")
async def per_subject_discard_new(b: Bench) -> None:
    stream = await b.stream(discard="new", max_msgs_per_subject=1, max_msgs=2)
    await stream.fill("a", "b", "a")
    assert (await stream.publish("c"))["error"]["description"] == "maximum messages exceeded"


@rows("limits.per-subject.discard-new.bytes", "a subject's newest takes the room of its oldest")
async def per_subject_discard_new_bytes(b: Bench) -> None:
    stream = await b.stream(discard="new", max_msgs_per_subject=1, max_bytes=1000)
    await stream.publish("a", b"x" * 400)
    await stream.publish("b", b"x" * 400)
    for _ in range(3):
        assert "error" not in await stream.publish("a", b"x" * 400)
    assert (await stream.publish("c", b"x" * 400))["error"]["description"] == "maximum bytes exceeded"


@rows("limits.max-age", "messages older than max_age go")
async def max_age(b: Bench) -> None:
    stream = await b.stream(max_age=200_000_000)
    await stream.fill("a", "b")

    async def gone() -> bool:
        return bool((await stream.state())["messages"] == 0)

    await eventually(gone, "both messages to expire")
    state = await stream.state()
    assert (state["first_seq"], state["last_seq"]) == (3, 2)


@rows("limits.max-consumers", "max_consumers bounds a stream's consumers")
async def max_consumers(b: Bench) -> None:
    stream = await b.stream(max_consumers=1)
    await stream.consumer()
    name = b.name("C")
    answer = await b.api(
        f"CONSUMER.DURABLE.CREATE.{stream.name}.{name}",
        {"stream_name": stream.name, "config": {"durable_name": name, "ack_policy": "explicit"}},
    )
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10026)
    assert answer["error"]["description"].startswith("maximum consumers limit reached")


@rows("limits.no-ack", "a stream with no_ack stores and says nothing")
async def no_ack(b: Bench) -> None:
    stream = await b.stream(no_ack=True)
    answers = await b.subscribe()
    await b.nc.publish(f"{stream.name}.a", b"x", reply=answers.subject)

    async def stored() -> bool:
        return bool((await stream.state())["messages"] == 1)

    await eventually(stored, "the message to be stored")
    assert answers.pending_msgs == 0


@rows("limits.first-seq", "the first message has the sequence first_seq")
async def first_seq(b: Bench) -> None:
    stream = await b.stream(first_seq=100)
    state = await stream.state()
    assert (state["first_seq"], state["last_seq"]) == (100, 99)
    assert (await stream.publish("a"))["seq"] == 100


# ---- updating -------------------------------------------------------------------------------------------------------


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


# ---- deleting, telling ----------------------------------------------------------------------------------------------


@rows("delete", "a deleted stream is gone")
async def delete(b: Bench) -> None:
    stream = await b.stream()
    answer = await b.ok(f"STREAM.DELETE.{stream.name}")
    assert answer == {"type": "io.nats.jetstream.api.v1.stream_delete_response", "success": True}
    await b.refused(f"STREAM.INFO.{stream.name}", code=404, err_code=10059, text="stream not found")


@rows("delete.not-there", "a stream that is not there is not deleted")
async def delete_not_there(b: Bench) -> None:
    await b.refused(f"STREAM.DELETE.{b.name()}", code=404, err_code=10059, text="stream not found")


@rows("delete.payload", "a deletion takes no payload")
async def delete_payload(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"STREAM.DELETE.{stream.name}",
        b"x",
        code=400,
        err_code=10038,
        text="expected an empty request payload",
    )


@rows("delete.new", "a stream of the same name is a new one")
async def delete_new(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    await b.ok(f"STREAM.DELETE.{stream.name}")
    again = await b.stream(name=stream.name)
    assert (await again.publish("a"))["seq"] == 1


@rows("info", "information has configuration, state, time and the leader")
async def info(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "a")
    found = await stream.info()
    assert found["type"] == "io.nats.jetstream.api.v1.stream_info_response"
    assert (found["total"], found["offset"], found["limit"]) == (0, 0, 0)
    assert found["config"] == stream.config
    assert found["created"] == stream.created["created"]
    state = found["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (3, 1, 3)
    assert (state["num_subjects"], state["consumer_count"]) == (2, 0)
    assert "subjects" not in state
    assert found["created"] <= state["first_ts"] <= state["last_ts"] <= found["ts"]
    assert found["cluster"]["leader"]


@rows("info.bytes", "a message counts for its subject, header and payload, and 30 bytes more")
async def info_bytes(b: Bench) -> None:
    stream = await b.stream()
    await stream.publish("a", b"12345")
    assert (await stream.state())["bytes"] == len(f"{stream.name}.a") + 5 + 22 + 8


@rows("info.not-there", "information about no stream is refused, with the fields of paging")
async def info_not_there(b: Bench) -> None:
    answer = await b.api(f"STREAM.INFO.{b.name()}")
    assert answer["error"] == {"code": 404, "err_code": 10059, "description": "stream not found"}
    assert (answer["total"], answer["offset"], answer["limit"]) == (0, 0, 0)


@rows("info.subjects", "a subjects filter gives the subjects and their counts")
async def info_subjects(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "a", "c.d")
    name = stream.name
    found = await stream.info({"subjects_filter": ">"})
    assert found["state"]["subjects"] == {f"{name}.a": 2, f"{name}.b": 1, f"{name}.c.d": 1}
    assert (found["total"], found["offset"], found["limit"]) == (3, 0, 100_000)
    found = await stream.info({"subjects_filter": f"{name}.*"})
    assert found["state"]["subjects"] == {f"{name}.a": 2, f"{name}.b": 1}
    assert found["total"] == 2


@rows("info.subjects.none", "a subjects filter that matches nothing gives none")
async def info_no_subjects(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    for pattern in ("other", "a..b"):
        found = await stream.info({"subjects_filter": pattern})
        assert "subjects" not in found["state"]
        assert (found["total"], found["limit"]) == (0, 0)


@rows("info.subjects.offset", "the offset pages through the subjects")
async def info_subjects_offset(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c")
    found = await stream.info({"subjects_filter": ">", "offset": 2})
    assert (found["total"], found["offset"], len(found["state"]["subjects"])) == (3, 2, 1)
    found = await stream.info({"subjects_filter": ">", "offset": 9})
    assert (found["total"], found["offset"]) == (3, 9)
    assert "subjects" not in found["state"]


@rows("info.deleted", "deleted details list the holes")
async def info_deleted(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b", "c", "d", "e")
    for seq in (2, 4):
        await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": seq})
    assert (await stream.state())["num_deleted"] == 2
    assert "deleted" not in await stream.state()
    assert (await stream.info({"deleted_details": True}))["state"]["deleted"] == [2, 4]


@rows("info.unknown-field", "a request's unknown field is refused by name")
async def info_unknown(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"STREAM.INFO.{stream.name}",
        {"foo": 1},
        code=400,
        err_code=10025,
        text='invalid JSON: json: unknown field "foo"',
    )


# ---- lists ----------------------------------------------------------------------------------------------------------


@rows("names", "names come sorted, with the fields of paging")
async def names(b: Bench) -> None:
    made = sorted([(await b.stream()).name for _ in range(3)])
    found = await b.ok("STREAM.NAMES")
    assert found["type"] == "io.nats.jetstream.api.v1.stream_names_response"
    assert [name for name in found["streams"] if name in made] == made
    assert (found["offset"], found["limit"]) == (0, 1024)
    assert found["total"] == len(found["streams"])


@rows("names.subject", "names by a subject that the stream captures")
async def names_subject(b: Bench) -> None:
    stream, _ = await b.stream(), await b.stream()
    for subject in (f"{stream.name}.a", f"{stream.name}.>", f"{stream.name}.*.b"):
        found = await b.ok("STREAM.NAMES", {"subject": subject})
        assert (found["streams"], found["total"]) == ([stream.name], 1)


@rows("names.none", "no names are null")
async def names_none(b: Bench) -> None:
    found = await b.ok("STREAM.NAMES", {"subject": b.subject()})
    assert (found["streams"], found["total"]) == (None, 0)


@rows("names.offset", "names from an offset on")
async def names_offset(b: Bench) -> None:
    prefix = b.name("sub")
    made = sorted([(await b.stream(subjects=[f"{prefix}.{number}"])).name for number in range(3)])
    found = await b.ok("STREAM.NAMES", {"subject": f"{prefix}.*", "offset": 1})
    assert (found["streams"], found["total"], found["offset"]) == (made[1:], 3, 1)


@rows("names.refused", "a refused list has an empty page")
async def names_refused(b: Bench) -> None:
    answer = await b.api("STREAM.NAMES", {"foo": 1})
    assert answer["error"]["err_code"] == 10025
    assert (answer["streams"], answer["total"], answer["limit"]) == (None, 0, 0)
    assert (await b.api("STREAM.LIST", {"foo": 1}))["streams"] == []


@rows("list", "a list has every stream's information")
async def listing(b: Bench) -> None:
    prefix = b.name("sub")
    streams = [await b.stream(subjects=[f"{prefix}.{number}"]) for number in range(3)]
    await b.publish(f"{prefix}.1")
    found = await b.ok("STREAM.LIST", {"subject": f"{prefix}.*"})
    assert found["type"] == "io.nats.jetstream.api.v1.stream_list_response"
    assert [row["config"]["name"] for row in found["streams"]] == sorted(s.name for s in streams)
    counts = {row["config"]["name"]: row["state"]["messages"] for row in found["streams"]}
    assert counts[streams[1].name] == 1
    assert (found["total"], found["offset"], found["limit"]) == (3, 0, 256)


@rows("list.none", "an empty list is an empty list")
async def list_none(b: Bench) -> None:
    found = await b.ok("STREAM.LIST", {"subject": b.subject()})
    assert (found["streams"], found["total"]) == ([], 0)


@rows("list.offset", "a list from an offset on")
async def list_offset(b: Bench) -> None:
    prefix = b.name("sub")
    streams = [await b.stream(subjects=[f"{prefix}.{number}"]) for number in range(3)]
    found = await b.ok("STREAM.LIST", {"subject": f"{prefix}.*", "offset": 2})
    assert [row["config"]["name"] for row in found["streams"]] == sorted(s.name for s in streams)[2:]


@rows("account-info", "the account's information counts streams and consumers")
async def account_info(b: Bench) -> None:
    before = await b.ok("INFO")
    stream = await b.stream()
    await stream.consumer()
    after = await b.ok("INFO")
    assert after["type"] == "io.nats.jetstream.api.v1.account_info_response"
    assert after["streams"] == before["streams"] + 1
    assert after["consumers"] == before["consumers"] + 1
    assert after["limits"]["max_streams"] == -1
    assert after["api"]["total"] > before["api"]["total"]


@rows("account-info.storage", "the account's information counts bytes")
async def account_storage(b: Bench) -> None:
    stream = await b.stream(num_replicas=1)
    before = await b.ok("INFO")
    await stream.publish("a", b"x" * 1000)
    after = await b.ok("INFO")
    assert after["storage"] - before["storage"] == (await stream.state())["bytes"]
    assert after["memory"] == before["memory"]
