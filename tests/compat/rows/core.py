"""The client protocol itself: what goes over one connection, and between connections."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from tests.compat.bench import Bench
from tests.compat.raw import RawClient
from tests.compat.table import ALL, CLUSTERS, Group, Settings

rows = Group("core")
ends = Group("protocol-errors")


async def open_raw(b: Bench, **options: Any) -> tuple[RawClient, str]:
    """A connection, and a subject that nobody else has."""
    return await b.raw(**options), b.subject()


# ---- one connection -------------------------------------------------------------------------------------------------


@rows("info", "INFO says what clients act on")
async def info(b: Bench) -> None:
    client = await b.raw(connect=False)
    found = client.info
    assert (found["proto"], found["headers"], found["jetstream"]) == (1, True, True)
    assert found["max_payload"] == 1_048_576
    assert (found["host"], found["port"], found["client_ip"]) == (b.host, 4222, "127.0.0.1")
    assert found["client_id"] > 0
    assert found["server_id"]
    assert found["server_name"].startswith(f"{b.cluster}-")
    assert all(found[name] and isinstance(found[name], str) for name in ("version", "git_commit", "go"))
    assert not any(found.get(name) for name in ("auth_required", "tls_required", "ldm", "nonce"))


@rows("info.cluster", "INFO names the cluster and the servers of it", on=CLUSTERS)
async def info_cluster(b: Bench) -> None:
    client = await b.raw(connect=False)
    assert client.info["cluster"] == b.cluster
    assert sorted(client.info["connect_urls"]) == sorted(f"{host}:4222" for host in b.neighbours)


@rows("ping", "a PING is answered with PONG")
async def ping(b: Bench) -> None:
    client = await b.raw()
    await client.ping()
    client.send("ping\r\n")
    await client.expect("PONG")


@rows("split", "operations may come in pieces")
async def split(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\nPUB {subject} 5\r\nhe")
    await client.writer.drain()
    other = await b.raw()
    await other.ping()
    client.send("llo\r")
    await client.writer.drain()
    await other.ping()
    client.send("\n")
    assert (await client.message()).payload == b"hello"


@rows("line-feed", "a line may end with a line feed alone")
async def line_feed(b: Bench) -> None:
    client = await b.raw()
    client.send("PING\n")
    await client.expect("PONG")


@rows("spaces", "words are parted by any spaces and tabs")
async def spaces(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB \t {subject}  1\r\nPUB\t{subject}\t1\r\nx\r\n")
    assert (await client.message()).payload == b"x"


@rows("verbose", "a verbose connection is told +OK for every operation")
async def verbose(b: Bench) -> None:
    client, subject = await open_raw(b, verbose=True)
    client.send(f"SUB {subject} 1\r\n")
    await client.expect("+OK")
    client.send(f"PUB {b.subject()} 1\r\nx\r\n")
    await client.expect("+OK")
    client.send("UNSUB 1\r\n")
    await client.expect("+OK")


@rows("connect-again", "CONNECT may come again")
async def connect_again(b: Bench) -> None:
    client = await b.raw()
    await client.connect(name="other")


@rows("pong", "a PONG that nobody asked for does no harm")
async def pong(b: Bench) -> None:
    client = await b.raw()
    client.send("PONG\r\n+OK\r\n")
    await client.ping()


# ---- publishing and subscribing -------------------------------------------------------------------------------------


@rows("publish", "a message reaches a subscriber with subject, reply and payload")
async def publish(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 7\r\nPUB {subject} answers.here 5\r\nhello\r\n")
    message = await client.message()
    assert (message.subject, message.sid, message.reply) == (subject, "7", "answers.here")
    assert (message.header, message.payload) == (b"", b"hello")


@rows("publish.empty", "an empty message is a message")
async def publish_empty(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\nPUB {subject} 0\r\n\r\n")
    assert (await client.message()).payload == b""


@rows("publish.headers", "headers reach a subscriber as they were sent")
async def publish_headers(b: Bench) -> None:
    client, subject = await open_raw(b)
    header = b"NATS/1.0\r\nA: 1\r\nA: 2\r\nb:\r\n\r\n"
    client.send(f"SUB {subject} 1\r\nHPUB {subject} {len(header)} {len(header) + 1}\r\n".encode())
    client.send(header + b"x\r\n")
    message = await client.message()
    assert (message.header, message.payload) == (header, b"x")


@rows("publish.binary", "a payload may be any bytes")
async def publish_binary(b: Bench) -> None:
    client, subject = await open_raw(b)
    payload = bytes(range(256)) + b"\r\nPING\r\n"
    client.send(f"SUB {subject} 1\r\nPUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n")
    assert (await client.message()).payload == payload


@rows("publish.largest", "a payload of max_payload bytes is taken")
async def publish_largest(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\nPUB {subject} 1048576\r\n".encode() + b"x" * 1_048_576 + b"\r\n")
    assert len((await client.message()).payload) == 1_048_576


WILDCARDS = {
    "star": ("$.*", ["$.a", "$.b"], ["$.a.b", "$"]),
    "star.inner": ("$.*.c", ["$.a.c"], ["$.c", "$.a.b.c"]),
    "greater": ("$.>", ["$.a", "$.a.b.c"], ["$"]),
    "star.greater": ("$.*.>", ["$.a.b", "$.a.b.c"], ["$.a"]),
    "literal": ("$.a", ["$.a"], ["$.ab", "$.A", "$.a.b"]),
    "in-token": ("$.a*", ["$.a*"], ["$.ab"]),
}


def _wildcard(name: str, pattern: str, matching: list[str], others: list[str]) -> None:
    @rows(f"wildcards.{name}", f"{pattern} matches {', '.join(matching)} and not {', '.join(others)}")
    async def wildcard(b: Bench) -> None:
        client, prefix = await open_raw(b)
        client.send(f"SUB {pattern.replace('$', prefix)} 1\r\n")
        for subject in (*others, *matching):
            client.send(f"PUB {subject.replace('$', prefix)} 0\r\n\r\n")
        for subject in matching:
            assert (await client.message()).subject == subject.replace("$", prefix)
        await client.ping()


for _name, (_pattern, _matching, _others) in WILDCARDS.items():
    _wildcard(_name, _pattern, _matching, _others)


@rows("subscribe.two", "each subscription gets the message")
async def two(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\nSUB {subject} 2\r\nPUB {subject} 0\r\n\r\n")
    assert {(await client.message()).sid, (await client.message()).sid} == {"1", "2"}


@rows("subscribe.order", "one publisher's messages come in order")
async def order(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\n" + "".join(f"PUB {subject} 3\r\n{n:03}\r\n" for n in range(200)))
    assert [(await client.message()).payload for _ in range(200)] == [b"%03d" % n for n in range(200)]


@rows("echo.off", "with echo off a connection does not get its own messages")
async def echo_off(b: Bench) -> None:
    client, subject = await open_raw(b, echo=False)
    other = await b.raw()
    client.send(f"SUB {subject} 1\r\n")
    await client.ping()
    client.send(f"PUB {subject} 3\r\nown\r\n")
    await client.ping()
    other.send(f"PUB {subject} 5\r\nother\r\n")
    assert (await client.message()).payload == b"other"


@rows("unsubscribe", "after UNSUB nothing comes")
async def unsubscribe(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\nUNSUB 1\r\nPUB {subject} 0\r\n\r\n")
    await client.ping()


@rows("unsubscribe.max", "UNSUB with a maximum ends the subscription after so many messages")
async def unsubscribe_max(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\nUNSUB 1 2\r\n" + f"PUB {subject} 0\r\n\r\n" * 4)
    for _ in range(2):
        await client.message()
    await client.ping()


@rows("unsubscribe.max.reached", "UNSUB with a maximum that is reached ends the subscription at once")
async def unsubscribe_reached(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\n" + f"PUB {subject} 0\r\n\r\n" * 2)
    for _ in range(2):
        await client.message()
    client.send(f"UNSUB 1 2\r\nPUB {subject} 0\r\n\r\n")
    await client.ping()


@rows("unsubscribe.no-number", "UNSUB with what is no number ends the subscription at once")
async def unsubscribe_no_number(b: Bench) -> None:
    client, subject = await b.raw(), b.subject()
    for number, most in enumerate(("x", "-1", "1x", "9" * 12)):
        client.send(f"SUB {subject} {number}\r\nUNSUB {number} {most}\r\nPUB {subject} 0\r\n\r\n")
        await client.ping()


@rows("connect.types", "CONNECT with a field of another type is none")
async def connect_types(b: Bench) -> None:
    wrong: list[dict[str, Any]] = [
        {"name": 5},
        {"verbose": 1},
        {"lang": []},
        {"protocol": "1"},
        {"echo": "x"},
    ]
    for options in wrong:
        client = await b.raw(connect=False)
        client.send(f"CONNECT {json.dumps({'verbose': False, **options})}\r\nPING\r\n")
        assert "PONG" not in await client.closed(), options
    client = await b.raw(connect=False)
    await client.connect(
        **dict[str, Any]({"name": None, "protocol": None, "unknown": 4, "tls_required": False})
    )


@rows("connect.protocol", "a client protocol that there is not ends the connection")
async def connect_protocol(b: Bench) -> None:
    for protocol in (5, -1, 2):
        client = await b.raw(connect=False)
        client.send_connect(protocol=protocol)
        assert await client.closed() == ["-ERR 'invalid client protocol'"]
    for protocol in (0, 1):
        await (await b.raw(connect=False)).connect(protocol=protocol)


@rows("connect.account", "no client says whose account it comes to")
async def connect_account(b: Bench) -> None:
    client = await b.raw(connect=False)
    client.send_connect(account="x")
    assert await client.closed() == ["-ERR 'Authorization Violation'"]
    await (await b.raw(connect=False)).connect(account="")


@rows("unsubscribe.unknown", "UNSUB of no subscription does no harm")
async def unsubscribe_unknown(b: Bench) -> None:
    client = await b.raw()
    client.send("UNSUB 99\r\n")
    await client.ping()


@rows("subscribe.same-sid", "a second subscription of the same id is passed over")
async def same_sid(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject}.a 1\r\nSUB {subject}.b 1\r\n")
    client.send(f"PUB {subject}.b 1\r\nb\r\nPUB {subject}.a 1\r\na\r\n")
    assert (await client.message()).payload == b"a"
    await client.ping()


# ---- queue groups ---------------------------------------------------------------------------------------------------


@rows("queue.one", "one member of a queue group gets the message")
async def queue_one(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} q 1\r\nSUB {subject} q 2\r\nPUB {subject} 0\r\n\r\n")
    assert (await client.message()).sid in ("1", "2")
    await client.ping()


@rows("queue.spread", "a queue group's messages are spread over its members")
async def queue_spread(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send("".join(f"SUB {subject} q {sid}\r\n" for sid in (1, 2, 3, 4)))
    client.send(f"PUB {subject} 0\r\n\r\n" * 400)
    counts = Counter([(await client.message()).sid for _ in range(400)])
    assert len(counts) == 4
    assert min(counts.values()) > 40


@rows("queue.groups", "every group gets the message, and plain subscribers do")
async def queue_groups(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} q 1\r\nSUB {subject} r 2\r\nSUB {subject} 3\r\nPUB {subject} 0\r\n\r\n")
    assert {(await client.message()).sid for _ in range(3)} == {"1", "2", "3"}


@rows("queue.echo", "with echo off a group's other member gets the message")
async def queue_echo(b: Bench) -> None:
    client, subject = await open_raw(b, echo=False)
    other = await b.raw()
    other.send(f"SUB {subject} q 1\r\n")
    await other.ping()
    client.send(f"SUB {subject} q 1\r\n" + f"PUB {subject} 0\r\n\r\n" * 5)
    for _ in range(5):
        await other.message()
    await client.ping()


async def heard_everywhere(b: Bench, subject: str, members: list[RawClient]) -> RawClient:
    """A publisher on this row's server, once a message of it reaches every member's server."""
    for number, member in enumerate(members):
        member.send(f"SUB {subject}.heard.{number} {subject}.{number}\r\n")
        await member.ping()
    publisher = await b.raw()
    for number, member in enumerate(members):
        async with asyncio.timeout(10):
            while True:
                publisher.send(f"PUB {subject}.heard.{number} 0\r\n\r\n")
                try:
                    async with asyncio.timeout(0.1):
                        await member.message()
                        break
                except TimeoutError:
                    continue
    return publisher


@rows("queue.weights", "among servers a queue group's members count", on=CLUSTERS)
async def queue_weights(b: Bench) -> None:
    subject = b.subject()
    few, many = await b.raw(node=b.node + 1), await b.raw(node=b.node + 2)
    few.send(f"SUB {subject} q 1\r\n")
    many.send("".join(f"SUB {subject} q {sid}\r\n" for sid in range(1, 10)))
    publisher = await heard_everywhere(b, subject, [few, many])
    publisher.send(f"PUB {subject} 1\r\nx\r\n" * 500 + f"PUB {subject}.heard.0 3\r\nend\r\n")
    count = 0
    while (message := await few.message()).payload != b"end":
        count += message.subject == subject
    assert 10 < count < 125


# ---- requests -------------------------------------------------------------------------------------------------------


@rows("request", "a request is answered")
async def request(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\nSUB {subject}.answers 2\r\nPUB {subject} {subject}.answers 1\r\nx\r\n")
    asked = await client.message()
    client.send(f"PUB {asked.reply} 6\r\nanswer\r\n")
    assert (await client.message()).payload == b"answer"


@rows("request.many", "a request may be answered many times")
async def request_many(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject} 1\r\nSUB {subject} 2\r\nSUB {subject}.answers 3\r\n")
    client.send(f"PUB {subject} {subject}.answers 0\r\n\r\n")
    for _ in range(2):
        asked = await client.message()
        client.send(f"PUB {asked.reply} {len(asked.sid)}\r\n{asked.sid}\r\n")
    assert {(await client.message()).payload for _ in range(2)} == {b"1", b"2"}


@rows("no-responders", "a request that nobody takes is told so at once, with its subject")
async def no_responders(b: Bench) -> None:
    client, subject = await open_raw(b, no_responders=True)
    client.send(f"SUB {subject}.answers 1\r\nPUB {subject} {subject}.answers 0\r\n\r\n")
    message = await client.message()
    assert message.subject == f"{subject}.answers"
    assert message.header == f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n".encode()
    assert message.payload == b""


@rows("no-responders.client", "a client raises what no responders means")
async def no_responders_client(b: Bench) -> None:
    with pytest.raises(NoRespondersError):
        await b.nc.request(b.subject(), b"", timeout=5)


@rows("no-responders.off", "a connection that does not ask for it is told nothing")
async def no_responders_off(b: Bench) -> None:
    client, subject = await open_raw(b)
    client.send(f"SUB {subject}.answers 1\r\nPUB {subject} {subject}.answers 0\r\n\r\n")
    await client.ping()


@rows("no-responders.no-inbox", "who has no subscription for answers is told nothing")
async def no_responders_no_inbox(b: Bench) -> None:
    client, subject = await open_raw(b, no_responders=True)
    client.send(f"PUB {subject} {subject}.answers 0\r\n\r\n")
    await client.ping()


@rows("headers.off", "a client that knows no headers gets the payload alone")
async def headers_off(b: Bench) -> None:
    client, subject = await open_raw(b, headers=False)
    other = await b.raw()
    client.send(f"SUB {subject} 1\r\n")
    await client.ping()
    other.send(f"HPUB {subject} 12 13\r\nNATS/1.0\r\n\r\nx\r\n")
    message = await client.message()
    assert (message.header, message.payload) == (b"", b"x")


# ---- across a cluster -----------------------------------------------------------------------------------------------


@rows("cluster.publish", "a message reaches subscribers on other servers", on=CLUSTERS)
async def cluster_publish(b: Bench) -> None:
    subject = b.subject()
    far = await b.raw(node=b.node + 1)
    far.send(f"SUB {subject}.> 1\r\n")
    publisher = await heard_everywhere(b, subject, [far])
    publisher.send(f"HPUB {subject}.x answers.here 12 13\r\nNATS/1.0\r\n\r\nx\r\n")
    message = await far.message()
    while message.subject != f"{subject}.x":
        message = await far.message()
    assert (message.reply, message.header, message.payload) == ("answers.here", b"NATS/1.0\r\n\r\n", b"x")


# ---- what ends a connection, and what does not ----------------------------------------------------------------------


@ends("operation", "an unknown operation ends the connection")
async def unknown(b: Bench) -> None:
    client = await b.raw()
    client.send("FOO\r\n")
    assert await client.closed() == ["-ERR 'Unknown Protocol Operation'"]


@ends("message", "MSG is the server's alone")
async def msg_from_client(b: Bench) -> None:
    client = await b.raw()
    client.send("MSG a 1 1\r\nx\r\n")
    assert await client.closed() == ["-ERR 'Unknown Protocol Operation'"]


@ends("payload", "a payload over max_payload ends the connection")
async def payload(b: Bench) -> None:
    client = await b.raw()
    client.send("PUB a 1048577\r\n")
    assert await client.closed() == ["-ERR 'Maximum Payload Violation'"]


@ends("control-line", "a control line over 4096 bytes ends the connection")
async def control_line(b: Bench) -> None:
    client = await b.raw()
    client.send(f"SUB {'a' * 5000} 1\r\n")
    assert await client.closed() == ["-ERR 'maximum control line exceeded'"]


def _closes(name: str, text: str) -> None:
    @ends(f"closes.{name}", f"{text!r} ends the connection")
    async def closes(b: Bench) -> None:
        client = await b.raw()
        client.send(text)
        assert "PONG" not in await client.closed()


for _name, _text in {
    "sub": "SUB\r\nPING\r\n",
    "sub.few": "SUB a\r\nPING\r\n",
    "sub.many": "SUB a b c d\r\nPING\r\n",
    "pub.size": "PUB a x\r\nPING\r\n",
    "pub.negative": "PUB a -1\r\nPING\r\n",
    "pub.huge": "PUB a 99999999999\r\nPING\r\n",
    "pub.longer": "PUB a 1\r\nxyz\r\nPING\r\n",
    "hpub.sizes": "HPUB a 14 13\r\nPING\r\n",
    "hpub.few": "HPUB a 12\r\nPING\r\n",
    "connect.json": "CONNECT {\r\nPING\r\n",
    "connect.list": "CONNECT []\r\nPING\r\n",
    "connect.none": "CONNECT\r\nPING\r\n",
    "unsub": "UNSUB\r\nPING\r\n",
}.items():
    _closes(_name, _text)


@ends("headers.not-supported", "headers of a client that knows none end the connection")
async def headers_not_supported(b: Bench) -> None:
    client = await b.raw(headers=False)
    client.send("HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\nPING\r\n")
    assert "PONG" not in await client.closed()


@ends("no-responders.headers", "no_responders without headers is refused")
async def no_responders_headers(b: Bench) -> None:
    client = await b.raw(connect=False)
    client.send_connect(no_responders=True, headers=False)
    assert await client.closed() == ["-ERR 'no responders requires headers support'"]


def _invalid_subject(name: str, subject: str) -> None:
    @ends(f"subject.{name}", f"a subscription to {subject!r} is refused, and the connection stays")
    async def invalid_subject(b: Bench) -> None:
        client = await b.raw()
        client.send(f"SUB {subject} 1\r\n")
        await client.expect("-ERR 'Invalid Subject'")
        await client.ping()


for _name, _text in {
    "empty-token": "a..b",
    "inner-greater": "a.>.b",
    "leading-dot": ".a",
    "trailing-dot": "a.",
}.items():
    _invalid_subject(_name, _text)


@ends("publish-subject", "a pedantic connection is told of a publish to no literal subject, and stays")
async def publish_subject(b: Bench) -> None:
    client, relaxed = await b.raw(pedantic=True), await b.raw(pedantic=False)
    for subject in ("a.*", "a..b", "a.>"):
        client.send(f"PUB {subject} 1\r\nx\r\n")
        await client.expect("-ERR 'Invalid Publish Subject'")
        relaxed.send(f"PUB {subject} 1\r\nx\r\n")
    await client.ping()
    await relaxed.ping()


# ---- micro-services -------------------------------------------------------------------------------------------------


@rows("services", "every instance of a micro-service is found, and one of them answers", on=ALL)
async def services(b: Bench) -> None:
    name = b.name("service")
    ids = {f"{name}{number}" for number in range(b.target.size)}
    for number, service_id in enumerate(sorted(ids)):
        nc = await b.connect(node=number)

        async def found(message: Msg, service_id: str = service_id) -> None:
            await message.respond(json.dumps({"name": name, "id": service_id}).encode())

        await nc.subscribe(f"$SRV.PING.{name}", cb=found)
        await nc.subscribe(f"{name}.work", "q", cb=found)
        await nc.flush()
    client = await heard_everywhere_by(b, name, len(ids))
    inbox = await client.subscribe(client.new_inbox())
    await client.publish(f"$SRV.PING.{name}", reply=inbox.subject)
    answers = [json.loads((await inbox.next_msg(timeout=5)).data)["id"] for _ in ids]
    assert set(answers) == ids
    answer = await client.request(f"{name}.work", b"", timeout=5)
    assert json.loads(answer.data)["id"] in ids


async def heard_everywhere_by(b: Bench, name: str, count: int) -> Client:
    """A client whose server knows of all instances."""
    client = await b.connect()
    async with asyncio.timeout(60):
        while True:
            inbox = await client.subscribe(client.new_inbox())
            await client.publish(f"$SRV.PING.{name}", reply=inbox.subject)
            try:
                for _ in range(count):
                    await inbox.next_msg(timeout=1)
            except nats.errors.TimeoutError:
                continue
            return client


# ---- limits and credentials -----------------------------------------------------------------------------------------

PASSWORD = Settings(
    "password",
    credentials={
        "users.json": {
            "users": [
                {"user": "app", "password": "secret", "account": "$G"},
                {"user": "other", "password": "secret", "account": "OTHER"},
                {"user": "system", "password": "secret", "account": "$SYS", "role": "system"},
            ]
        },
        "cluster.json": {"accept": [{"user": "r", "password": "r"}], "send": {"user": "r", "password": "r"}},
    },
    nats={
        "accounts": {
            "APP": {"users": [{"user": "app", "password": "secret"}], "jetstream": "enabled"},
            "OTHER": {"users": [{"user": "other", "password": "secret"}], "jetstream": "enabled"},
            "$SYS": {"users": [{"user": "system", "password": "secret"}]},
        }
    },
    login={"user": "app", "password": "secret"},
)
secured = Group("credentials", settings=PASSWORD)


@secured("info", "INFO says that credentials are asked for")
async def auth_info(b: Bench) -> None:
    client = await b.raw(connect=False)
    assert client.info["auth_required"] is True


@secured("right", "with the right password a client is let in")
async def right(b: Bench) -> None:
    client = await b.raw(connect=False)
    client.send_connect(**{"user": "app", "pass": "secret"})
    await client.ping()


def _wrong(name: str, **options: str) -> None:
    @secured(f"wrong.{name}", f"a client is not let in: {name}")
    async def wrong(b: Bench) -> None:
        client = await b.raw(connect=False)
        client.send_connect(**options)
        client.send("PING\r\n")
        assert await client.closed() == ["-ERR 'Authorization Violation'"]


_wrong("password", **{"user": "app", "pass": "guess"})
_wrong("user", **{"user": "nobody", "pass": "secret"})
_wrong("nothing")
_wrong("token", auth_token="secret")


@secured("first", "nothing is taken before CONNECT")
async def first(b: Bench) -> None:
    client = await b.raw(connect=False)
    client.send("PUB a 1\r\nx\r\nPING\r\n")
    lines = await client.closed()
    assert "PONG" not in lines
    assert lines == ["-ERR 'Authorization Violation'"]


@secured("late", "who says nothing is sent away")
async def late(b: Bench) -> None:
    client = await b.raw(connect=False)
    assert await client.closed() == ["-ERR 'Authentication Timeout'"]


@secured("accounts", "accounts do not hear each other")
async def accounts(b: Bench) -> None:
    subject = b.subject()
    own, other = await b.connect(), await b.connect(user="other", password="secret")
    theirs = await b.subscribe(subject, nc=other)
    mine = await b.subscribe(subject, nc=own)
    await own.publish(subject, b"x")
    await mine.next_msg(timeout=5)
    await other.flush()
    assert theirs.pending_msgs == 0


@secured("accounts.streams", "accounts have streams of their own")
async def accounts_streams(b: Bench) -> None:
    other = await b.connect(user="other", password="secret")
    stream = await b.stream()
    await b.refused(f"STREAM.INFO.{stream.name}", code=404, err_code=10059, text="stream not found", nc=other)
    await b.stream(name=stream.name, nc=other)


TIGHT = Settings(
    "tight",
    ours={
        "limits": {
            "maxPayloadBytes": 100,
            "maxConnections": 4,
            "maxSubscriptions": 2,
            "maxSubscriptionTokens": 3,
        }
    },
    nats={"max_payload": 100, "max_connections": 4, "max_subscriptions": 2, "max_sub_tokens": 3},
)
tight = Group("limits", settings=TIGHT, on=("ours-1", "nats-1"))


@tight("payload.info", "INFO says max_payload")
async def payload_info(b: Bench) -> None:
    assert (await b.raw(connect=False)).info["max_payload"] == 100


@tight("payload", "a configured max_payload ends the connection of who goes beyond")
async def tight_payload(b: Bench) -> None:
    client = await b.raw()
    client.send("PUB a 100\r\n" + "x" * 100 + "\r\n")
    await client.ping()
    client.send("PUB a 101\r\n")
    assert await client.closed() == ["-ERR 'Maximum Payload Violation'"]


@tight("payload.headers", "headers count for max_payload")
async def tight_headers(b: Bench) -> None:
    client = await b.raw()
    client.send("HPUB a 12 101\r\n")
    assert await client.closed() == ["-ERR 'Maximum Payload Violation'"]


@tight("subscriptions", "a subscription beyond the limit is refused, and the connection stays")
async def tight_subscriptions(b: Bench) -> None:
    client = await b.raw()
    client.send("SUB a 1\r\nSUB b 2\r\n")
    await client.ping()
    client.send("SUB c 3\r\n")
    await client.expect("-ERR 'maximum subscriptions exceeded'")
    client.send("UNSUB 1\r\nSUB c 3\r\n")
    await client.ping()


@tight(
    "tokens",
    "a subscription to more tokens than the limit is refused with the reason, and the connection stays",
)
async def tight_tokens(b: Bench) -> None:
    client = await b.raw()
    client.send("SUB a.*.> 1\r\n")
    await client.ping()
    client.send("SUB a.b.c.> q 2\r\n")
    await client.expect("-ERR 'Permissions Violation for Subscription to \"a.b.c.>\", too many tokens'")
    client.send("SUB a.b.c 2\r\nPUB a.b.c.d 1\r\nx\r\n")
    await client.expect("MSG a.b.c.d 1 1")


@tight("connections", "a connection beyond the limit is refused with the reason")
async def tight_connections(b: Bench) -> None:
    for _ in range(3):
        await b.raw()
    client = await b.raw(connect=False)
    assert await client.closed() == ["-ERR 'maximum connections exceeded'"]
