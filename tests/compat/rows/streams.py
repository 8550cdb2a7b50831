"""Streams: creating them, the defaults and refusals of their configuration."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import SINGLES, Group

rows = Group("streams")

SECOND = 1_000_000_000


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


@rows("create.numbers", "a whole number is written as one, and max_msg_size has 32 bits")
async def numbers(b: Bench) -> None:
    name = b.name()
    for field, text in (("max_age", "1000000000.0"), ("max_msgs", "1.0"), ("max_msg_size", "2147483648")):
        body = f'{{"name": "{name}", "{field}": {text}}}'.encode()
        answer = await b.api(f"STREAM.CREATE.{name}", body)
        assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10025), answer


@rows("create.template", "no field for templates of streams is left")
async def template(b: Bench) -> None:
    for owner in ("", "x"):
        await b.stream_refused(
            template_owner=owner,
            code=400,
            err_code=10025,
            text='invalid JSON: json: unknown field "template_owner"',
        )


@rows("create.persist-mode.empty", "a persist_mode that is said and left empty is the default")
async def persist_mode(b: Bench) -> None:
    assert "persist_mode" not in (await b.stream(persist_mode="")).config


@rows("create.raft-subjects", "subjects of servers' own groups are captured by no stream that acknowledges")
async def raft_subjects(b: Bench) -> None:
    text = "subjects that overlap with jetstream api require no-ack to be true"
    for subject in ("$NRG.>", "$NRG.x"):
        await b.stream_refused(subjects=[subject], code=500, err_code=10052, text=text)
    stream = await b.stream()
    config = {**stream.config, "subjects": [f"{stream.name}.>", "$NRG.x"]}
    await b.refused(f"STREAM.UPDATE.{stream.name}", config, code=500, err_code=10052, text=text)


@rows("create.name.wildcard", "a stream's name has no wildcard")
async def name_wildcard(b: Bench) -> None:
    text = "stream name is required and can not contain '.', '*', '>', '\\', '/'"
    for name in ("a*", "a>", "*"):
        await b.refused(f"STREAM.CREATE.{name}", {"name": name}, code=500, err_code=10052, text=text)


@rows("bodies", "what can do without a body passes over one that is neither object nor list")
async def bodies(b: Bench) -> None:
    stream = await b.stream()
    await stream.consumer("c")
    for call in (
        f"STREAM.INFO.{stream.name}",
        "STREAM.NAMES",
        "STREAM.LIST",
        f"STREAM.PURGE.{stream.name}",
        f"CONSUMER.LIST.{stream.name}",
        f"CONSUMER.NAMES.{stream.name}",
        f"CONSUMER.PAUSE.{stream.name}.c",
    ):
        for body in (b"null", b"x", b'"a"', b" "):
            await b.ok(call, body)
        for body in (b"[]", b"{", b'{"offset": "x"}'):
            answer = await b.api(call, body)
            assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10025), (call, body)


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
