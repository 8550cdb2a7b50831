"""What clients may say, field by field: values that stand in practice, and those at and beyond every bound.

Property tests and the fuzzer of live brokers draw from the same tables. `tests/broker/jetstream/core/test_every_field.py` fails for a field
or a header that brokers read and no table has.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

Values = Sequence[Any] | Callable[[random.Random], Any]
Table = Mapping[str, Values]
Triple = tuple[bytes, bytes, bytes]

SECOND = 1_000_000_000
HUGE = 10**400

WRONG: Sequence[Any] = (None, True, 1.5, 1e308, -0.0, "", "1", [], {}, [[]], [None], {"a": {}}, HUGE, -HUGE)
"""Of any type but the right one."""
COUNTS = (
    0,
    1,
    -1,
    2,
    3,
    5,
    6,
    1000,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
)
SMALL = (0, -1, 1, 2, 5, 1000)
DURATIONS = (
    *(0, -1, 1, 10**6, 10**8 - 1, 10**8, SECOND - 1, SECOND, 60 * SECOND, 3600 * SECOND),
    *(2**62 - 1, 2**62, 2**63 - 1, 2**63, -(2**63)),
)
FLAGS = (True, True, False, None)
TEXTS = ("", "x", "ü", "a b", "\n\r", "\u2028", "💥" * 64, "x" * 4096, "x" * 4097, "y" * 70_000, "\x00")
NAMES = ("N", "n-1", "ü", "x" * 255, "x" * 256, "", "a.b", "a b", "*", ">", "a/b", "\x7f", "💥", "y" * 70_000)
SUBJECTS = (
    *(
        "s.>",
        "s.a",
        "s.*",
        "s.*.b",
        "s.b.>",
        "t.>",
        ">",
        "*",
        "*.>",
        "",
        ".",
        "s..a",
        "s.a b",
        "s.\n",
        ".s",
        "s.",
    ),
    *(
        "$JS.API.>",
        "$JS.EVENT.>",
        "$SYS.>",
        "$NRG.x",
        "$KV.b.>",
        "_INBOX.>",
        "ü.>",
        "s.💥",
        "s.\x7f",
        "s.\u0085",
    ),
    *("s." + "x" * 1021, "s." + "x" * 1022, "s." + "x" * 1023, "ü" * 1024, ".".join("s" * 200), "y" * 70_000),
)
TIMES = (
    *(
        "2026-01-31T12:00:00Z",
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:00.000000001Z",
        "0001-01-01T00:00:00Z",
    ),
    *("0001-01-01T00:00:00.1Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999999Z"),
    *(
        "9999-12-31T23:59:59-23:59",
        "2262-04-11T23:47:16.854775807Z",
        "2554-07-21T23:34:33Z",
        "2600-01-01T00:00:00Z",
    ),
    *("2026-02-30T00:00:00Z", "2026-01-01", "", "now", "2026-01-01T00:00:00+99:99", "२०२६-01-01T00:00:00Z"),
)
DESTINATIONS = (
    *(
        "t.>",
        "t.{{wildcard(1)}}",
        "t.$1",
        "t.{{wildcard(2)}}",
        "{{partition(3,1)}}",
        "{{partition(2147483647,1)}}",
    ),
    *(
        "t.{{partition(0,1)}}",
        "t.{{partition(-1)}}",
        "t.{{random(5)}}",
        "t.{{random(0)}}",
        "t.{{split(1,-)}}",
    ),
    *(
        "t.{{SplitFromLeft(1,2147483647)}}",
        "t.{{slicefromright(1,0)}}",
        "t.{{left(1,-5)}}",
        "t.{{right(1,99)}}",
        "",
    ),
    *(
        "t.*",
        "a b",
        "{{",
        "t.{{unknown(1)}}",
        "t." + "x" * 1021,
        "t." + ".".join(["$1"] * 300),
        "t.$99999999999",
    ),
    *("t.{{wildcard(" + "9" * 5000 + ")}}", "y" * 70_000, "s.>", "$JS.API.>"),
)


def one(rng: random.Random, values: Values) -> Any:
    return values(rng) if callable(values) else rng.choice(values)


def some(values: Values, most: int = 3) -> Callable[[random.Random], list[Any]]:
    return lambda rng: [one(rng, values) for _ in range(rng.choice((0, 1, 1, 1, 2, most)))]


def part_of(table: Table, *, wild: float = 0.03) -> Callable[[random.Random], dict[str, Any]]:
    """An object with some of the fields."""

    def draw(rng: random.Random) -> dict[str, Any]:
        names = rng.sample(list(table), rng.randint(0, min(len(table), 5)))
        return {name: one(rng, WRONG if rng.random() < wild else table[name]) for name in names}

    return draw


def metadata(rng: random.Random) -> Any:
    keys = ("a", "", "ü", "_nats.level", "_nats.req.level", "supercluster.resource", "x" * 1000, "\x00")
    found = {rng.choice(keys): rng.choice((*TEXTS, "0", "3", "99", None)) for _ in range(rng.randint(0, 3))}
    return {"m": "x" * (128 * 1024)} if rng.random() < 0.05 else found


PLACEMENT: Table = {
    "cluster": ("", "east", "west", "ü", "y" * 70_000),
    "tags": some(("ssd", "", "ü", "!hdd", "y" * 70_000)),
    "preferred": ("", "n0", "n1", "nobody", "y" * 70_000),
}
CONSUMER_LIMITS: Table = {"inactive_threshold": DURATIONS, "max_ack_pending": COUNTS}
TRANSFORM: Table = {"src": SUBJECTS, "dest": DESTINATIONS}
REPUBLISH: Table = {"src": SUBJECTS, "dest": DESTINATIONS, "headers_only": FLAGS}
EXTERNAL: Table = {
    "api": ("", "$JS.hub.API", "$JS.API", "*", "a b", "x" * 1025),
    "deliver": ("", "d", ">", "x" * 1025),
}


def many_transforms(rng: random.Random) -> list[Any]:
    if rng.random() < 0.3:
        return [{"src": f"{at}.{'x' * 1000}", "dest": f"{at}.{'y' * 1000}"} for at in range(70)]
    return some(whole(TRANSFORM))(rng)


def whole(table: Table) -> Callable[[random.Random], dict[str, Any]]:
    """An object with all of the fields."""
    return lambda rng: {name: one(rng, values) for name, values in table.items()}


ORIGIN: Table = {
    "name": ("O", "P", *NAMES),
    "opt_start_seq": COUNTS,
    "opt_start_time": TIMES,
    "filter_subject": SUBJECTS,
    "subject_transforms": many_transforms,
    "external": part_of(EXTERNAL),
    "consumer": (None, None, None, {"name": "c", "deliver_subject": "d"}, {}),
}


def origin(rng: random.Random) -> dict[str, Any]:
    return {"name": rng.choice(("O", "P"))} | part_of(ORIGIN)(rng)


STREAM: Table = {
    "name": ("S",),
    "subjects": some(("s.>", "s.>", "s.a", "t.*", *SUBJECTS)),
    "description": TEXTS,
    "retention": ("limits", "interest", "workqueue", "", "none"),
    "storage": ("file", "memory", "memory", "", "tape"),
    "discard": ("old", "new", ""),
    "discard_new_per_subject": FLAGS,
    "num_replicas": (1, 1, 1, 3, 0, *COUNTS),
    "max_consumers": COUNTS,
    "max_msgs": (*SMALL, *COUNTS),
    "max_bytes": (*SMALL, 10_000, *COUNTS),
    "max_age": DURATIONS,
    "max_msgs_per_subject": (*SMALL, *COUNTS),
    "max_msg_size": (*SMALL, *COUNTS),
    "duplicate_window": DURATIONS,
    "no_ack": FLAGS,
    "placement": part_of(PLACEMENT),
    "consumer_limits": part_of(CONSUMER_LIMITS),
    "first_seq": COUNTS,
    "sealed": FLAGS,
    "deny_delete": FLAGS,
    "deny_purge": FLAGS,
    "allow_rollup_hdrs": FLAGS,
    "allow_direct": FLAGS,
    "mirror_direct": FLAGS,
    "mirror": origin,
    "sources": some(origin),
    "subject_transform": whole(TRANSFORM),
    "republish": whole(REPUBLISH),
    "allow_msg_ttl": FLAGS,
    "subject_delete_marker_ttl": DURATIONS,
    "allow_msg_counter": FLAGS,
    "allow_atomic": FLAGS,
    "allow_msg_schedules": FLAGS,
    "persist_mode": ("default", "async", "", "other"),
    "compression": ("none", "s2", "", "zip"),
    "allow_batched": FLAGS,
    "metadata": metadata,
}

CONSUMER: Table = {
    "name": ("C",),
    "durable_name": ("C",),
    "description": TEXTS,
    "deliver_policy": (
        "all",
        "last",
        "new",
        "by_start_sequence",
        "by_start_time",
        "last_per_subject",
        "undefined",
        "",
    ),
    "opt_start_seq": COUNTS,
    "opt_start_time": TIMES,
    "ack_policy": ("none", "all", "explicit", "explicit", ""),
    "ack_wait": DURATIONS,
    "max_deliver": COUNTS,
    "backoff": some(DURATIONS, 5),
    "filter_subject": SUBJECTS,
    "filter_subjects": some(SUBJECTS),
    "max_ack_pending": COUNTS,
    "max_waiting": COUNTS,
    "max_batch": COUNTS,
    "max_expires": DURATIONS,
    "max_bytes": COUNTS,
    "inactive_threshold": DURATIONS,
    "headers_only": FLAGS,
    "deliver_subject": ("d", "d.x", *SUBJECTS),
    "deliver_group": ("g", *TEXTS),
    "flow_control": FLAGS,
    "idle_heartbeat": DURATIONS,
    "rate_limit_bps": COUNTS,
    "pause_until": TIMES,
    "sample_freq": ("", "30", "30%", "0", "100", "-1", "999999999", "9" * 5000, "²", "1e3"),
    "priority_groups": some(("g", "h", "", "x" * 17, "ü")),
    "priority_policy": ("none", "overflow", "pinned_client", "prioritized", ""),
    "priority_timeout": DURATIONS,
    "direct": FLAGS,
    "replay_policy": ("instant", "original", ""),
    "num_replicas": (0, 1, 1, 3, *COUNTS),
    "mem_storage": FLAGS,
    "metadata": metadata,
}
TOGETHER: Sequence[Mapping[str, Any]] = (
    {},
    {},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 2**64 - 1},
    {"deliver_policy": "by_start_time", "opt_start_time": "9999-12-31T23:59:59-23:59"},
    {"deliver_policy": "last_per_subject", "filter_subject": "s.>"},
    {"ack_policy": "explicit", "ack_wait": 2**63 - 1},
    {"ack_policy": "explicit", "backoff": [1, 2**63 - 1]},
    {"ack_policy": "all", "max_ack_pending": -1},
    {"deliver_subject": "d", "idle_heartbeat": 10**8, "flow_control": True},
    {"deliver_subject": "d", "rate_limit_bps": 2**64 - 1, "idle_heartbeat": 2**63 - 1},
    {
        "ack_policy": "explicit",
        "priority_policy": "pinned_client",
        "priority_groups": ["g"],
        "priority_timeout": 2**63 - 1,
    },
)
"""Fields of a consumer that are taken only beside others."""
STREAMS_TOGETHER: Sequence[Mapping[str, Any]] = (
    {},
    {},
    {"allow_msg_counter": True},
    {"allow_msg_counter": True, "sources": [{"name": "O"}]},
    {"allow_msg_schedules": True, "allow_msg_ttl": True},
    {"allow_msg_ttl": True, "subject_delete_marker_ttl": SECOND},
    {"allow_atomic": True, "allow_batched": True},
    {"allow_rollup_hdrs": True, "max_msgs_per_subject": 1},
    {"discard": "new", "max_msgs_per_subject": 1, "discard_new_per_subject": True},
    {"mirror": {"name": "O", "opt_start_time": "0001-01-01T00:00:00.1Z"}, "subjects": []},
    {"retention": "interest"},
    {"retention": "workqueue"},
    {"subject_transform": {"src": "s.*", "dest": "s.{{partition(9,1)}}.$1"}},
    {"max_age": 10**8, "duplicate_window": 10**8},
)


def stream_config(rng: random.Random, name: str = "S") -> dict[str, Any]:
    """Mostly one that is accepted, with some fields at their bounds."""
    found = {"name": name, "subjects": ["s.>"], "storage": "memory", **rng.choice(STREAMS_TOGETHER)}
    return {**found, **part_of({key: STREAM[key] for key in STREAM if key != "name"})(rng)}


def consumer_config(rng: random.Random, name: str = "C") -> dict[str, Any]:
    found = {"durable_name": name, **rng.choice(TOGETHER)}
    return {**found, **part_of({key: CONSUMER[key] for key in CONSUMER if "name" not in key})(rng)}


def dumped(rng: random.Random, body: Any) -> bytes:
    """As bytes, now and then broken."""
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return broken(rng, raw) if rng.random() < 0.03 else raw


def broken(rng: random.Random, raw: bytes) -> bytes:
    """Bytes that are nearly the same."""
    at = rng.randrange(len(raw) + 1)
    return rng.choice(
        (
            raw[:at],
            raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :],
            raw[:at] + raw[at + 1 :],
            raw + raw,
            b"[" * 20_000,
            b'{"a":' * 20_000,
            raw.replace(b"1", b"9" * 5000, 1),
            raw.replace(b'"s', rb'"\ud800s', 1),
            raw.replace(b"0", b"NaN", 1),
            raw.replace(b":", b":1e999,", 1),
            b"",
            b"null",
            b"\xff",
        )
    )


NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "+1",
    "",
    "x",
    "18446744073709551615",
    "18446744073709551616",
    "9" * 5000,
    "²",
    " 1",
)
HEADERS: Mapping[str, Values] = {
    "KV-Operation": ("PUT", "DEL", "PURGE", ""),
    "Nats-Batch-Id": ("b", "c", "", "x" * 64, "x" * 65, "\xff"),
    "Nats-Batch-Sequence": ("1", "2", "3", *NUMBERS),
    "Nats-Batch-Commit": ("1", "eob", "0", ""),
    "Nats-Counter-Sources": (
        '{"O":{"s.a":"5"}}',
        "[" * 20_000,
        '{"\\ud800":{}}',
        '{"O":{"s.a":"' + "9" * 5000 + '"}}',
        "{}",
        "x",
    ),
    "Nats-Expected-Last-Msg-Id": ("a", "b", ""),
    "Nats-Expected-Last-Sequence": NUMBERS,
    "Nats-Expected-Last-Subject-Sequence": NUMBERS,
    "Nats-Expected-Last-Subject-Sequence-Subject": ("s.a", "s.*", "\xff", "s.>", "> .", "s." + "x" * 5000),
    "Nats-Expected-Stream": ("S", "T", ""),
    "Nats-Incr": ("1", "-1", "+0", "9" * 4000, "9" * 4001, "-" + "9" * 4000, *NUMBERS),
    "Nats-Marker-Reason": ("MaxAge", ""),
    "Nats-Msg-Id": ("a", "b", "", "\xff", "x" * 60_000),
    "Nats-Request-Info": ("{}",),
    "Nats-Required-Api-Level": ("0", "1", "99", "x"),
    "Nats-Rollup": ("sub", "all", "ALL", "", "x"),
    "Nats-Schedule": (
        *(
            "@at 2026-01-31T12:00:01Z",
            "@every 1s",
            "@every 1.5s",
            "@hourly",
            "@weekly",
            "0 0 * * * *",
            "* * * * * *",
        ),
        *(
            "59 59 23 31 2 *",
            "0 0 0 29 2 1",
            "@at 9999-12-31T23:59:59-23:59",
            "@at 0001-01-01T00:00:00.1Z",
            "@every 0s",
        ),
        *(
            "@every 2562047h47m16.854775807s",
            "@every 9223372036854775808ns",
            "@at",
            "@every",
            "",
            "x",
            "*/0 * * * * *",
        ),
        *(
            "*/999999999999 * * * * *",
            "0-99999999 * * * * *",
            "\xff",
            "0 " * 3000,
            ",".join(["0"] * 500) + " * * * * *",
        ),
    ),
    "Nats-Schedule-Next": ("purge", "2026-01-31T12:00:01Z", ""),
    "Nats-Schedule-Rollup": ("sub", "all", ""),
    "Nats-Schedule-Source": ("s.a", "s.*", "x", ""),
    "Nats-Schedule-TTL": ("1", "5m", "never", "0", "x"),
    "Nats-Schedule-Target": ("s.t", "s.*", "x", "s." + "y" * 5000, ""),
    "Nats-Schedule-Time-Zone": (
        "Europe/Berlin",
        "UTC",
        "",
        "Local",
        "../../etc/passwd",
        "x" * 5000,
        "\xff",
        ".",
    ),
    "Nats-Scheduler": ("s.a", "s.*", ""),
    "Nats-Stream-Source": ("O 1 > > s.a s.a", "O 1", "", "x" * 5000),
    "Nats-TTL": (
        "1",
        "5m",
        "never",
        "0",
        "-1s",
        "9223372036854775807",
        "9223372036854775808",
        "2562047h47m",
        "x",
        "",
    ),
    "Nats-Trace-Dest": ("t", ""),
    "Nats-Trace-Only": ("true", "false"),
    "Supercluster-Ack": ("x", ""),
}
MESSAGES_TOGETHER: Sequence[Mapping[str, str]] = (
    {},
    {},
    {},
    {"Nats-Incr": "1"},
    {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "s.t"},
    {"Nats-Schedule": "@at 2600-01-01T00:00:00Z", "Nats-Schedule-Target": "s.t"},
    {
        "Nats-Schedule": "0 0 3 * * *",
        "Nats-Schedule-Target": "s.t",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
    },
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "eob"},
    {"Nats-TTL": "9223372036854775807"},
    {"Nats-TTL": "1"},
    {"Nats-Rollup": "sub"},
    {"Nats-Msg-Id": "a"},
)


def header(rng: random.Random) -> bytes:
    told = dict(rng.choice(MESSAGES_TOGETHER))
    for name in rng.sample(list(HEADERS), rng.choice((0, 0, 1, 1, 2))):
        told[name] = one(rng, HEADERS[name])
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    if rng.random() < 0.02:
        lines *= 2
    return f"NATS/1.0\r\n{lines}\r\n".encode("latin-1", "replace") if lines else b""


def _put(rng: random.Random) -> dict[str, Any]:
    return {
        "stream_name": "{stream}",
        "config": consumer_config(rng, "{consumer}"),
        "action": rng.choice(("", "create", "update")),
    }


BLOCK = struct.pack("<I3I", 1, 3, 0, 1) + b"s.ax"
"""What a writer stages: one row."""
PARTS: Values = (
    [],
    [{"token": "t", "rows": 1, "crc": crc32(BLOCK)}],
    [{"token": "t", "rows": 2, "crc": crc32(BLOCK, crc32(BLOCK))}, {"token": "u", "rows": 1, "crc": 0}],
)


def _sink(table: Table) -> Callable[[random.Random], dict[str, Any]]:
    """A call about a batch: mostly whole, for it says nothing otherwise."""
    whole = {"writer": ("q", "w", *TEXTS), "batch": (0, 1, 2, *COUNTS), **table}
    some_of_it = part_of(whole)
    return lambda rng: (
        some_of_it(rng)
        if rng.random() < 0.1
        else {
            name: values(rng) if callable(values) else rng.choice(values[:3])
            for name, values in whole.items()
        }
    )


API: Sequence[tuple[str, Values]] = (
    ("INFO", ({},)),
    ("STREAM.CREATE.{stream}", stream_config),
    ("STREAM.UPDATE.{stream}", stream_config),
    ("STREAM.DELETE.{stream}", ({},)),
    (
        "STREAM.INFO.{stream}",
        part_of(
            {
                "subjects_filter": SUBJECTS,
                "deleted_details": FLAGS,
                "offset": COUNTS,
                "supercluster_details": FLAGS,
            }
        ),
    ),
    ("STREAM.LIST", part_of({"offset": COUNTS, "subject": SUBJECTS, "supercluster_details": FLAGS})),
    ("STREAM.NAMES", part_of({"offset": COUNTS, "subject": SUBJECTS})),
    ("STREAM.PURGE.{stream}", part_of({"filter": SUBJECTS, "seq": COUNTS, "keep": COUNTS})),
    (
        "STREAM.SNAPSHOT.{stream}",
        part_of(
            {
                "deliver_subject": ("d", *SUBJECTS),
                "no_consumers": FLAGS,
                "chunk_size": COUNTS,
                "window_size": COUNTS,
                "jsck": FLAGS,
            }
        ),
    ),
    ("STREAM.RESTORE.{stream}", part_of({"config": stream_config, "state": ({}, None, 1)})),
    (
        "STREAM.MSG.GET.{stream}",
        part_of(
            {
                "seq": COUNTS,
                "last_by_subj": SUBJECTS,
                "next_by_subj": SUBJECTS,
                "start_time": TIMES,
                "no_hdr": FLAGS,
            }
        ),
    ),
    ("STREAM.MSG.DELETE.{stream}", part_of({"seq": COUNTS, "no_erase": FLAGS})),
    ("STREAM.LEADER.STEPDOWN.{stream}", part_of({"placement": part_of(PLACEMENT)})),
    ("STREAM.PEER.REMOVE.{stream}", part_of({"peer": TEXTS})),
    (
        "DIRECT.GET.{stream}",
        part_of(
            {
                "seq": COUNTS,
                "last_by_subj": SUBJECTS,
                "next_by_subj": SUBJECTS,
                "start_time": TIMES,
                "batch": COUNTS,
                "max_bytes": COUNTS,
                "multi_last": some(SUBJECTS),
                "up_to_seq": COUNTS,
                "up_to_time": TIMES,
                "no_hdr": FLAGS,
            }
        ),
    ),
    ("DIRECT.GET.{stream}.s.a", ({},)),
    ("CONSUMER.CREATE.{stream}.{consumer}", _put),
    ("CONSUMER.CREATE.{stream}", _put),
    ("CONSUMER.DURABLE.CREATE.{stream}.{consumer}", _put),
    (
        "CONSUMER.MSG.NEXT.{stream}.{consumer}",
        part_of(
            {
                "batch": COUNTS,
                "expires": DURATIONS,
                "max_bytes": COUNTS,
                "no_wait": FLAGS,
                "idle_heartbeat": DURATIONS,
                "group": ("g", *TEXTS),
                "id": TEXTS,
                "min_pending": COUNTS,
                "min_ack_pending": COUNTS,
                "priority": COUNTS,
            }
        ),
    ),
    ("CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}", part_of({"placement": part_of(PLACEMENT)})),
    ("CONSUMER.PAUSE.{stream}.{consumer}", part_of({"pause_until": TIMES})),
    ("CONSUMER.RESET.{stream}.{consumer}", part_of({"seq": COUNTS})),
    ("CONSUMER.UNPIN.{stream}.{consumer}", part_of({"group": ("g", *TEXTS)})),
    ("CONSUMER.DELETE.{stream}.{consumer}", ({},)),
    ("CONSUMER.INFO.{stream}.{consumer}", ({},)),
    ("CONSUMER.LIST.{stream}", part_of({"offset": COUNTS})),
    ("CONSUMER.NAMES.{stream}", part_of({"offset": COUNTS})),
    (
        "SINK.STAGE.{stream}",
        _sink({"token": ("t", "u", *TEXTS), "block": (1, 2, *COUNTS), "crc": (crc32(BLOCK), *COUNTS)}),
    ),
    ("SINK.COMMIT.{stream}", _sink({"offsets_hash": ("h", *TEXTS), "parts": PARTS})),
    ("SINK.ABORT.{stream}", _sink({"tokens": some(("t", "u"))})),
    ("SINK.FORGET.{stream}", part_of({"writer": ("q", "w", *TEXTS)})),
    ("SINK.STATUS.{stream}", part_of({"writer": ("q", "w", *TEXTS)})),
    ("META.LEADER.STEPDOWN", part_of({"placement": part_of(PLACEMENT)})),
    ("SERVER.REMOVE", part_of({"peer": TEXTS, "peer_id": TEXTS})),
    ("ACCOUNT.PURGE.{stream}", ({},)),
    ("ACCOUNT.STREAM.CANCEL_MOVE.$G.{stream}", ({},)),
)
"""Calls of the JetStream API, below its prefix, and their bodies."""


def api_call(
    rng: random.Random, streams: Sequence[str] = ("S",), consumers: Sequence[str] = ("C",)
) -> tuple[bytes, bytes]:
    """Subject and payload."""
    template, body = rng.choice(API)
    stream, consumer = rng.choice(streams), rng.choice(consumers)
    told = one(rng, WRONG if rng.random() < 0.01 else body)
    payload = (
        dumped(rng, told).replace(b"{stream}", stream.encode()).replace(b"{consumer}", consumer.encode())
    )
    payload = payload.replace(b'"name": "S"', b'"name": "%s"' % stream.encode())
    if template.startswith("SINK.STAGE"):
        payload += b"\n" + (BLOCK if rng.random() < 0.95 else broken(rng, BLOCK))
    subject = "$JS.API." + template.format(stream=stream, consumer=consumer)
    return subject.encode(), payload if payload != b"{}" or rng.random() < 0.3 else b""


PAYLOADS = (
    b"",
    b"x",
    b'{"val":"5"}',
    b'{"val":"' + b"9" * 4500 + b'"}',
    b"[" * 20_000,
    b"\x00\xff" * 50,
    b"y" * 70_000,
)
PUBLISHED = ("s.a", "s.b", "s.c", "s.t", "s.a.b", "s.\xff", "s." + "x" * 3000)


def message(rng: random.Random, subjects: Sequence[str] = PUBLISHED) -> Triple:
    """Subject, header and payload."""
    payload = rng.choice(PAYLOADS) if rng.random() < 0.3 else rng.choice((b"", b"x"))
    return rng.choice(subjects).encode("latin-1"), header(rng), payload
