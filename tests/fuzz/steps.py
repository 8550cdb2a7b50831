"""What the fuzzer does to brokers, one small step after the other, each as JSON: so a list of steps can be kept and shortened.

Bytes are texts in Latin-1.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.fuzz.storms import storm
from tests.support import schema

from supercluster.broker.bounds import TEXT_BYTES_MAX
from supercluster.broker.jetstream.encoding.codec import blob, text, u8, u32, u64
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.meta.move_record import MoveEnd, MoveReport, Outcome
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts
from supercluster.broker.protocol.frames import FrameType

Step = Mapping[str, Any]
STREAMS, CONSUMERS = ("S", "T", "O"), ("C", "D")
USERS = {
    "users": [
        {"user": "fuzz", "password": "p", "account": "F"},
        {"user": "witness", "password": "p", "account": "W"},
        {"user": "operator", "password": "p", "role": "operator"},
    ]
}


def shown(raw: bytes) -> str:
    return raw.decode("latin-1")


def _api(rng: random.Random) -> Step:
    stream = rng.choice(STREAMS)
    subject, payload = schema.api_call(rng, (stream,), CONSUMERS)
    payload = payload.replace(b'"s.', b'"%s.' % stream.lower().encode())
    user = "operator" if rng.random() < 0.1 else "fuzz"
    return {"do": "api", "user": user, "subject": shown(subject), "payload": shown(payload)}


def _begin(rng: random.Random) -> Step:
    """A stream or a consumer as it should be, so that the other calls meet something."""
    stream, name = rng.choice(STREAMS), rng.choice(CONSUMERS)
    if rng.random() < 0.5:
        body: Any = {
            "name": stream,
            "subjects": [f"{stream.lower()}.>"],
            **rng.choice(schema.STREAMS_TOGETHER),
        }
        body |= {"num_replicas": rng.choice((1, 3)), "storage": rng.choice(("memory", "file"))}
        subject = f"$JS.API.STREAM.CREATE.{stream}"
    else:
        body = {"stream_name": stream, "config": {"durable_name": name, **rng.choice(schema.TOGETHER)}}
        subject = f"$JS.API.CONSUMER.CREATE.{stream}.{name}"
    return {
        "do": "api",
        "user": "fuzz",
        "subject": subject,
        "payload": json.dumps(body).replace('"s.', f'"{stream.lower()}.'),
    }


def _publish(rng: random.Random) -> Step:
    stream = rng.choice(STREAMS).lower()
    messages = []
    for _ in range(rng.randint(1, 20)):
        subject, header, payload = schema.message(rng)
        messages.append([stream + shown(subject)[1:], shown(header), shown(payload)])
    return {"do": "publish", "messages": messages}


def _acks(rng: random.Random) -> Step:
    payloads = (
        "",
        "+ACK",
        "-NAK",
        "-NAK 99999999999999h",
        '-NAK {"delay":1e5}',
        "+WPI",
        "+TERM x",
        "+NXT",
        '+NXT {"batch":2}',
        "\xff",
    )
    acks = []
    for _ in range(rng.randint(1, 20)):
        numbers = (1, rng.choice((1, 2, 3, 2**63, 10**19 - 1)), rng.choice((0, 1, 2**64)), 0, 0)
        tail = ".".join(map(str, numbers))
        kind = rng.choice(("ACK", "ACK", "ACK", "FC", "SNAPSHOT.ACK"))
        acks.append(
            [f"$JS.{kind}.{rng.choice(STREAMS)}.{rng.choice(CONSUMERS)}.{tail}", "", rng.choice(payloads)]
        )
    return {"do": "publish", "messages": acks}


LINES = (
    *(
        "PING",
        "PONG",
        "+OK",
        "-ERR 'x'",
        "INFO {}",
        "CONNECT {}",
        'CONNECT {"user":"fuzz","pass":"p"}',
        'CONNECT {"x":"\\ud800"}',
    ),
    *(
        "CONNECT " + "[" * 3000,
        "SUB s.> 1",
        "SUB s.> g 1",
        "SUB > 2",
        "SUB . 3",
        "SUB s.> " + "9" * 30,
        "UNSUB 1",
        "UNSUB 1 5",
        "UNSUB x -1",
    ),
    *(
        "PUB s.a 0\r\n",
        "PUB s.a 1\r\nx",
        "PUB s.a -1",
        "PUB s.a 99999999999999999999",
        "PUB s.a 3\r\nx",
        "PUB s.* 1\r\nx",
        "PUB",
    ),
    *(
        "HPUB s.a 12 12\r\nNATS/1.0\r\n\r\n",
        "HPUB s.a 5 3\r\nabc",
        "HPUB s.a 0 0\r\n",
        "HPUB s.a _R 22 22\r\nNATS/1.0\r\nA: \xff\r\n\r\nx",
    ),
    *(
        "MSG s.a 1 1\r\nx",
        "SUB " + "s" * 5000 + " 1",
        "\x00",
        "\xff\xfe",
        "",
        " ",
        "PUB\ts.a\t1\r\nx",
        "pub s.a 1\r\nx",
        "GET / HTTP/1.1",
    ),
)


def _plain(rng: random.Random) -> Step:
    lines = [rng.choice(LINES) for _ in range(rng.randint(1, 12))]
    said = ("\r\n".join(lines) + rng.choice(("\r\n", "", "\n"))).encode("latin-1")
    if rng.random() < 0.2:
        said = schema.broken(rng, said)
    return {"do": "plain", "login": rng.random() < 0.7, "said": shown(said)}


SESSION = "ttn"
SHAPES: Mapping[int, str] = {
    Frame.RAFT: "gb",
    Frame.FORWARD: f"g{SESSION}nnn1r",
    Frame.VERDICTS: f"g{SESSION}14nnnn",
    Frame.AGAIN: f"g{SESSION}n",
    Frame.OPEN: f"g{SESSION}",
    Frame.OPENED: f"g{SESSION}n",
    Frame.LEADER: "gntb",
    Frame.NOT_LEADER: "gt",
    Frame.REQUEST: "tngtt1bbbb",
    Frame.RESPONSE: "tn1r",
    Frame.ACKS: "gbbb",
    Frame.MAP_APPLIED: "n",
    Frame.BOOTSTRAP: "j",
    Frame.JOIN: "gt",
    Frame.WHO_LEADS: "g",
    Frame.COPY_LOST: "gt",
    Frame.MOVE_END: "j",
    Frame.LOAD: "nn",
    Frame.MOVE_HASHES: "gtnnnn1",
    Frame.MOVE_HASHED: "gtnn1nb4nnn",
    Frame.PULL_BACK: "tngtt1bbbb",
    Frame.COPY_ASK: "ng",
    Frame.COPY_TOLD: "nj",
    Frame.DRAIN: "4",
    Frame.TAGS: "j",
    Frame.FAILED_COPIES: "gt",
    Frame.META_LINEAGE: "tt",
    Frame.MAP_ASK: "n",
    Frame.MAP_TOLD: "nj",
    Frame.ORIGIN_ASK: "gttnnnn4ttn",
    Frame.ORIGIN_TOLD: "ttnnntbb4",
    Frame.ACKS_BACK: "gbbb",
    Frame.PREPARE: "tttggttnnnb",
    Frame.PREPARED: "gnnt4tt",
    Frame.CUT_ASK: "gn1",
    Frame.CUT_TOLD: "ggtn1bnt",
    Frame.DROP: "gnt",
    Frame.MIGRATION_STEP: "j",
    Frame.CLIENTS: "j",
    Frame.PREFLIGHT: "j",
    Frame.PREFLIGHT_TOLD: "j",
    Frame.FAR_SUBJECTS: "ngn4tt",
    Frame.PUT_BACK: "tn",
    FrameType.PING: "",
    FrameType.INTEREST: "sl1sss",
    FrameType.MESSAGES: "11ssllr",
    FrameType.DELIVER_TO: "ss1lssllr",
    FrameType.SLOW: "ss1",
    FrameType.GATEWAYS: "j",
    FrameType.LOGIN: "j",
    FrameType.LOAD: "l",
    FrameType.LEAVING: "r",
    FrameType.SWITCHED: "r",
}
"""What a frame of a broker is made of: g the id of a group of the fuzzer's account, t another text, n, 4 and 1 numbers of 8, 4 and
1 bytes, b bytes with their length, j JSON, r what is left; l and s are 4 and 2 bytes as the network layer writes them."""
TEXTS = (
    "",
    "F",
    "W",
    "a-0",
    "a-0@x",
    "a-0@y",
    "n2@x",
    "n2@x.1",
    "east-0",
    "s.a",
    ">",
    "\u00fc",
    "x" * 65_535,
)
BLOBS = (
    *(
        "",
        "x",
        "\xff",
        "{}",
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.S",
        "$JS.API.CONSUMER.CREATE.S.C",
        "$JS.ACK.S.C.1.1.1.0.0",
    ),
    *(
        "$SC.CORDON",
        "$SC.STREAM.FACTS",
        "$SC.MOVE.START",
        "$SC.MOVE.PLAN",
        "$SC.ACCOUNT",
        "$SC.RECOVER",
        "$SC.BROKER.STAY",
        "$SC.RESTORE",
        "$SC.MOVE.CANCEL",
    ),
    *(
        '{"node":1,"cordon":{}}',
        '["a",null]',
        '["F",[[],1]]',
        '{"verb":"x","name":1,"account":1,"id":1,"group":1}',
        '{"name":1,"account":[]}',
    ),
    *('["F","S","n",1e9,"x",0]', '{"name":"S","account":"F","replicas":1e400,"nodes":1}', "[" * 5000),
)
MOVE_END = MoveEnd("g", ("a-0@x",), MoveReport("m", Outcome.DONE, config_index=2**64 - 1)).to_json()
COPY = CopyFacts(
    "a-0", "S.F.S.1", "a-0@x", last_term=2**64 - 1, last_seq=2**64 - 1, voters=("a-0@x",)
).to_json()
INSIDE: Sequence[Any] = (
    *schema.WRONG,
    ["a"],
    [["a", "b", "c"]],
    {"node": "x", "group": "g", "members": ["a@b"], "report": {}},
)


def _atom(rng: random.Random, kind: str) -> Any:
    if kind == "g":
        return rng.choice(("S", "T", "meta", "nobody"))
    if kind == "t":
        return rng.choice(TEXTS)
    if kind in "n4":
        return rng.choice((0, 1, 2, 3, 2**31, 2**32 - 1, *((2**63, 2**64 - 1) if kind == "n" else ())))
    if kind in "1ls":
        return rng.choice((0, 1, 2, 255))
    if kind == "b":
        return rng.choice((*BLOBS, shown(rng.randbytes(rng.randint(0, 80)))))
    if kind == "j":
        return json.dumps(rng.choice(INSIDE)) if rng.random() < 0.9 else "[" * 5000
    return shown(rng.randbytes(rng.randint(0, 40)))


def frame_of(rng: random.Random, kinds: Iterable[int]) -> list[Any]:
    """Type, atoms, and how many bytes too few or too many it says that it has."""
    kind = int(rng.choice(list(kinds))) if rng.random() < 0.97 else rng.randrange(256)
    atoms = [[one, _atom(rng, one)] for one in SHAPES.get(kind, "ntr")]
    if rng.random() < 0.2:
        atoms = [*atoms[: rng.randint(0, len(atoms))], ["r", shown(rng.randbytes(3))]]
    return [kind, atoms, rng.choice((-1, 1, 2**31)) if rng.random() < 0.02 else 0]


def encoded(found: Sequence[Any], groups: Mapping[str, str]) -> bytes:
    """A frame; `groups`: the ids of groups by what is said for them."""
    kind, atoms, off = found
    body = b"".join(_encoded(one, value, groups) for one, value in atoms)
    return struct.pack(">IB", max(0, len(body) + 1 + off), kind) + body


def _encoded(kind: str, value: Any, groups: Mapping[str, str]) -> bytes:
    match kind:
        case "g":
            return text(groups.get(value, value))
        case "t":
            return text(value[: TEXT_BYTES_MAX // 2] if not value.isascii() else value)
        case "n":
            return u64(value)
        case "4":
            return u32(value)
        case "1":
            return u8(value)
        case "l":
            return struct.pack(">I", value)
        case "s":
            return struct.pack(">H", value)
        case "b":
            return blob(value.encode("latin-1"))
    raw: bytes = value.encode("latin-1")
    return raw


HELLO: Mapping[str, Any] = {
    "version": 12,
    "super_cluster": "demo",
    "identity": "id-1",
    "cluster": "east",
    "node": "a-0",
    "incarnation": "x",
    "process": "p",
    "client_url": "127.0.0.1:1",
    "meta_state": 0,
    "channel": 0,
    "pair": "x",
    "user": "link",
    "password": "link",
    "tags": [],
    "gateway_url": "",
    "version_least": 1,
    "introduces": False,
    "lineage": "",
}


def _link(rng: random.Random) -> Step:
    told = dict(HELLO)
    is_known = rng.random() < 0.7
    if not is_known:
        for name in rng.sample(list(HELLO), rng.randint(1, 3)):
            told[name] = rng.choice((*schema.WRONG, *schema.COUNTS, "a\nb", "\ud800", "east-0", "x" * 20_000))
    # A wrong one of the network layer ends the link.
    frames = [frame_of(rng, FrameType if rng.random() < 0.05 else Frame) for _ in range(rng.randint(1, 30))]
    return {
        "do": "link",
        "hello": shown(schema.dumped(rng, told) if not is_known else json.dumps(told).encode()),
        "frames": frames,
    }


UPGRADE = (
    "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def _web(rng: random.Random) -> Step:
    said = UPGRADE.encode()
    if rng.random() < 0.1:
        said = schema.broken(rng, said)
    for _ in range(rng.randint(1, 8)):
        payload = rng.choice(LINES).encode("latin-1") + b"\r\n"
        first = rng.choice((0x82, 0x82, 0x82, 0x81, 0x02, 0x80, 0x88, 0x89, 0x8A, 0xF2, rng.randrange(256)))
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else struct.pack(">BH", 0xFE, size & 0xFFFF)
        if rng.random() < 0.1:
            length = rng.choice(
                (
                    b"\x05",
                    b"\xfe\x00\x01",
                    b"\xff" + b"\xff" * 8,
                    b"\xff\x00\x00\x00\x00\xff\xff\xff\xff",
                    b"\x80",
                )
            )
        mask = rng.randbytes(4)
        said += bytes([first]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return {"do": "web", "said": shown(said)}


PATHS = (
    *(
        "/varz",
        "/connz?subs=detail&limit=-1&offset=99999999999999999999",
        "/connz?cid=x&state=any&sort=%FF",
        "/subsz?test=s..a&subs=1",
    ),
    *(
        "/jsz?accounts=1&streams=1&consumers=1&config=1&limit=x",
        "/routez?subs=detail",
        "/gatewayz",
        "/leafz",
        "/accountz?acc=%00",
    ),
    *(
        "/accstatz?unused=1",
        "/healthz?js-enabled-only=true&stream=%FF",
        "/metrics",
        "/admin/",
        "/admin/%00",
        "/admin/accounts/%FF",
    ),
    *(
        "/admin/accounts",
        "/admin/accounts/G",
        "/admin/streams/F/S/move",
        "/admin/streams/F/T/move",
        "/admin/moves",
        "/admin/brokers",
    ),
    *(
        "/admin/brokers/nobody",
        "/admin/brokers/nobody/cordon",
        "/admin/brokers/east-0/cordon",
        "/admin/streams/F/S/recover",
        "/admin/credentials?user=%FF&user=$G/witness",
    ),
)


def _web_page(rng: random.Random) -> Step:
    body = schema.part_of(
        {
            "placement": schema.part_of(schema.PLACEMENT),
            "replicas": schema.COUNTS,
            "replace": schema.some(schema.TEXTS),
            "bytesPerS": schema.COUNTS,
            "dryRun": schema.FLAGS,
            "id": schema.TEXTS,
            "reason": schema.TEXTS,
            "declaredBy": schema.TEXTS,
            "streamsMax": schema.COUNTS,
            "storageBytesMax": schema.COUNTS,
            "ackPendingMax": schema.COUNTS,
            "node": schema.TEXTS,
        }
    )
    method = rng.choice(("GET", "GET", "PUT", "POST", "DELETE", "PATCH"))
    return {
        "do": "http",
        "method": method,
        "path": rng.choice(PATHS),
        "body": shown(schema.dumped(rng, body(rng))),
    }


USERS_WRONG: Mapping[str, schema.Values] = {
    **dict.fromkeys(
        ("user", "password", "token", "nkey", "account", "role", "credential"),
        (*schema.TEXTS, *schema.WRONG, "�", "$2a$99$x"),
    ),
    "permissions": (
        *schema.WRONG,
        {"publish": {"allow": [">", "\ud800", "a b"]}},
        {"publish": {"deny": ["s.>"] * 5000}},
        {"responses": {"max": -1}},
    ),
    "limits": (
        *schema.WRONG,
        {"connectionsMax": 0, "subscriptionsMax": 2**63, "payloadBytesMax": -1},
        {"connectionsMax": 1, "payloadBytesMax": 1},
    ),
}


def _users(rng: random.Random) -> Step:
    """users.json as somebody got it wrong, for a while. Witness and operator stay in it where it can be read."""
    more = [schema.part_of(USERS_WRONG)(rng) for _ in range(rng.randint(1, 2))]
    document: Any = {
        **USERS,
        "users": [*USERS["users"], *more],
        **rng.choice(({}, {}, {"accounts": rng.choice(schema.WRONG)})),
    }
    return {"do": "users", "text": shown(schema.dumped(rng, document))}


CONF = (
    *(
        "port: 4222",
        "server_name: s1",
        "max_payload: 2MB",
        'ping_interval: "1m30s"',
        "jetstream { store_dir: /data, max_mem: 64MB }",
    ),
    *(
        "accounts { A { users: [{user: a, password: b}], exports: [{stream: s.>}] } }",
        "authorization { user: a, password: b }",
        "$X",
    ),
    *(
        "cluster { name: east, port: 6222, routes: [nats://a:1] }",
        "gateway { name: g, gateways: [{name: h, url: nats://h:1}] }",
        "mappings { a: b }",
    ),
    *(
        "websocket { port: 8080, no_tls: true }",
        "tls { cert_file: a, key_file: b }",
        "X = [1, 2]",
        "A: $X",
        "include 'y'",
        "a: {",
        "}",
        "]",
        '"',
    ),
    *(
        "max_connections: 99999999999999999999",
        "write_deadline: -1s",
        "max_control_line: 1e9",
        "debug: maybe",
        "[[[[",
        "a: \x00",
        "# x",
        "'''(",
        "ü: ü",
    ),
)


CONF_NAMES = (
    *(
        "port",
        "listen",
        "http",
        "max_payload",
        "max_connections",
        "max_control_line",
        "max_pending",
        "max_subs",
        "ping_interval",
        "ping_max",
    ),
    *(
        "write_deadline",
        "lame_duck_duration",
        "server_tags",
        "jetstream",
        "accounts",
        "authorization",
        "cluster",
        "gateway",
        "websocket",
        "tls",
    ),
    *(
        "system_account",
        "no_auth_user",
        "logfile",
        "debug",
        "pid_file",
        "leafnodes",
        "operator",
        "mappings",
        "server_name",
        "sync_interval",
    ),
)
CONF_VALUES = (
    *(
        "9" * 5000,
        "9" * 400 + ".5",
        "1e999",
        "-1",
        "-0.5",
        "true",
        "[]",
        "{}",
        "[[]]",
        "{a: b}",
        "'1h'",
        "1000000000000h",
        "64MB",
        "9" * 20 + "GB",
    ),
    *(
        "9223372036854775808",
        "2026-01-01T00:00:00Z",
        "$Y",
        "[nats://a:1]",
        "{user: a, password: b}",
        "{port: 99999}",
        "\u0661",
        "-1s",
        "{max_mem: -1}",
    ),
    *(
        "{users: [{user: a, password: b, permissions: {publish: 1}}]}",
        "{A: {exports: [{stream: 's.>'}], jetstream: {max_mem: 1e5}}}",
        "{port: -1}",
    ),
)


def _conf(rng: random.Random) -> Step:
    lines = [
        rng.choice(CONF) if rng.random() < 0.3 else f"{rng.choice(CONF_NAMES)}: {rng.choice(CONF_VALUES)}"
        for _ in range(rng.randint(1, 4))
    ]
    said = "\n".join(lines).encode()
    return {"do": "conf", "text": shown(schema.broken(rng, said) if rng.random() < 0.3 else said)}


def _restore(rng: random.Random) -> Step:
    """The archive of a small stream, with some bytes changed, cut off or doubled."""
    edits = [[rng.random(), rng.randrange(256)] for _ in range(rng.choice((0, 0, 1, 1, 3)))]
    config = (
        {}
        if rng.random() < 0.5
        else schema.part_of({key: schema.STREAM[key] for key in schema.STREAM if key != "name"})(rng)
    )
    return {
        "do": "restore",
        "edits": edits,
        "cut": rng.choice((1.0, 1.0, rng.random())),
        "config": shown(schema.dumped(rng, config)),
    }


def _wait(rng: random.Random) -> Step:
    return {"do": "wait", "ms": rng.choice((1, 50, 300, 1100))}


def _kill(rng: random.Random) -> Step:
    return {"do": "kill"}


KINDS = (
    *(
        (_api, 30),
        (_begin, 18),
        (_publish, 22),
        (_acks, 5),
        (_plain, 6),
        (_link, 6),
        (_web, 4),
        (_web_page, 5),
        (_users, 1),
        (_conf, 2),
    ),
    *((_restore, 4), (_wait, 4), (_kill, 2), (storm, 3)),
)


def steps(rng: random.Random, count: int) -> list[Step]:
    """Of one round; each with the broker that it is done to."""
    kinds, weights = zip(*KINDS, strict=True)
    return [{"at": rng.randrange(3), **kind(rng)} for kind in rng.choices(kinds, weights, k=count)]
