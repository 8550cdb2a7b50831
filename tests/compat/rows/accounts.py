"""Imports and exports between accounts: streams, services, mappings, and JetStream across them."""

from __future__ import annotations

import base64
import json
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from tests.compat.bench import WAIT_S, Bench, eventually
from tests.compat.table import Group, Settings

_A = {
    "exports": [
        {"stream": "news.>"},
        {"stream": "pair.*.*"},
        {"stream": "own.*", "accounts": ["B"]},
        {"service": "ask.*"},
        {"service": "swap.*.to.*"},
        {"service": "one"},
        {"service": "many.*", "response_type": "stream"},
        {"service": "parts.*", "response_type": "chunked"},
        {"service": "kept.>"},
        {"service": "for.*.only", "account_token_position": 2},
        {"service": "$JS.API.>", "response_type": "stream"},
        {"service": "$JS.ACK.>"},
        {"service": "deep.>"},
    ]
}
_B = {
    "exports": [{"service": "deep.b"}],
    "imports": [
        {"stream": {"account": "A", "subject": "news.>"}, "prefix": "from.a"},
        {"stream": {"account": "A", "subject": "pair.*.*"}, "to": "riap.$2.$1"},
        {"stream": {"account": "A", "subject": "own.*"}},
        {"service": {"account": "A", "subject": "ask.*"}, "to": "please.*"},
        {"service": {"account": "A", "subject": "swap.*.to.*"}, "to": "swapped.$2.$1"},
        {"service": {"account": "A", "subject": "one"}, "to": "the.one"},
        {"service": {"account": "A", "subject": "many.*"}},
        {"service": {"account": "A", "subject": "parts.*"}},
        {"service": {"account": "A", "subject": "kept.>"}},
        {"service": {"account": "A", "subject": "for.B.only"}},
        {"service": {"account": "A", "subject": "$JS.API.>"}, "to": "JS.A.>"},
        {"service": {"account": "A", "subject": "$JS.ACK.>"}},
        {"service": {"account": "A", "subject": "deep.b"}},
    ],
}
_C = {
    "imports": [
        {"stream": {"account": "A", "subject": "news.>"}, "to": "heard.>"},
        {"service": {"account": "B", "subject": "deep.b"}, "to": "deep.c"},
        {"service": {"account": "A", "subject": "ask.*"}, "share": True},
    ],
    "mappings": {
        "old.name": "new.name",
        "tokens.*.*": "turned.$2.$1",
        "half.*": [{"destination": "left.$1", "weight": "100%"}],
        "none": [{"destination": "nowhere", "weight": "0%"}],
        "asked.*": "ask.$1",
        "first": "second",
        "second": "third",
    },
}
_USERS = [{"user": name.lower(), "password": name.lower(), "account": name} for name in ("A", "B", "C")]


def _nats(entry: dict[str, Any], user: str) -> dict[str, Any]:
    return {"jetstream": "enabled", "users": [{"user": user, "password": user}], **entry}


ACCOUNTS = Settings(
    "accounts",
    credentials={"users.json": {"users": _USERS, "accounts": {"A": _A, "B": _B, "C": _C}}},
    nats={"accounts": {"A": _nats(_A, "a"), "B": _nats(_B, "b"), "C": _nats(_C, "c")}},
    login={"user": "b", "password": "b"},
)

_PASS_B: dict[str, Any] = {"pass": "b"}
_PASS_C: dict[str, Any] = {"pass": "c"}

rows = Group("accounts", settings=ACCOUNTS)


async def _client(b: Bench, account: str, node: int | None = None) -> Client:
    return await b.connect(node, user=account, password=account)


async def _listener(
    b: Bench, account: str, subject: str, queue: str = "", node: int | None = None
) -> Subscription:
    """A subscription of a client of that account, at a broker next to the row's own."""
    client = await _client(b, account, b.node + 1 if node is None else node)
    return await b.subscribe(subject, queue, nc=client)


async def _settled(b: Bench, nc: Client, subject: str, heard: Subscription) -> None:
    """Interest has reached the publisher's broker: a probe came through."""

    async def came() -> bool:
        await nc.publish(subject, b"probe")
        await nc.flush()
        try:
            await heard.next_msg(timeout=0.2)
        except TimeoutError:
            return False
        return True

    await eventually(came, f"a probe on {subject}")


async def _drained(heard: Subscription) -> None:
    """What probes are left is taken out."""
    while heard.pending_msgs:
        await heard.next_msg(timeout=WAIT_S)


async def _responder(b: Bench, subject: str, *answers: bytes, account: str = "a") -> None:
    """Answers every request with all of these; in force everywhere on return."""
    client = await _client(b, account, b.node + 1)

    async def answer(message: Msg) -> None:
        for found in answers or (message.subject.encode(),):
            await client.publish(message.reply, found)

    await client.subscribe(subject, cb=answer)
    await client.flush()
    near = await _client(b, account)
    literal = subject.replace("*", "x").replace(">", "x")

    async def is_there() -> bool:
        try:
            await near.request(literal, b"", timeout=0.2)
        except Exception:
            return False
        return True

    await eventually(is_there, f"a responder on {literal}")


async def _answers(b: Bench, nc: Client, subject: str, count: int, payload: bytes = b"") -> list[Msg]:
    inbox = await b.subscribe(nc=nc)
    await nc.publish(subject, payload, reply=inbox.subject)
    return [await inbox.next_msg(timeout=WAIT_S) for _ in range(count)]


# ---- streams ---------------------------------------------------------------------------------------------------------


@rows("stream-prefix", "what is published in A reaches B's subscribers under the import's prefix")
async def stream_prefix(b: Bench) -> None:
    suffix = b.name("x")
    heard = await _listener(b, "b", f"from.a.news.{suffix}")
    a = await _client(b, "a")
    await _settled(b, a, f"news.{suffix}", heard)
    await _drained(heard)
    await a.publish(f"news.{suffix}", b"hi", reply="some.reply", headers={"K": "v"})
    message = await heard.next_msg(timeout=WAIT_S)
    while message.data == b"probe":
        message = await heard.next_msg(timeout=WAIT_S)
    assert (message.subject, message.reply, message.data) == (f"from.a.news.{suffix}", "some.reply", b"hi")
    assert message.headers == {"K": "v"}


@rows("stream-to", "an import with `to` and $n turns the wildcards' tokens round")
async def stream_to(b: Bench) -> None:
    one, two = b.name("x"), b.name("y")
    heard = await _listener(b, "b", f"riap.{two}.*")
    a = await _client(b, "a")
    await _settled(b, a, f"pair.{one}.{two}", heard)
    await a.publish(f"pair.{one}.other", b"not meant")
    await a.publish(f"pair.{one}.{two}", b"meant")
    message = await heard.next_msg(timeout=WAIT_S)
    while message.data == b"probe":
        message = await heard.next_msg(timeout=WAIT_S)
    assert (message.subject, message.data) == (f"riap.{two}.{one}", b"meant")


@rows("stream-wider", "a subscription that is wider than the import gets what is imported once")
async def stream_wider(b: Bench) -> None:
    suffix = b.name("x")
    heard = await _listener(b, "c", "heard.>")
    a = await _client(b, "a")
    await _settled(b, a, f"news.{suffix}", heard)
    await a.publish(f"news.{suffix}.last", b"end")
    found: list[bytes] = []
    while not found or found[-1] != b"end":
        message = await heard.next_msg(timeout=WAIT_S)
        if message.subject.startswith(f"heard.{suffix}"):
            found.append(message.data)
    assert found.count(b"end") == 1


@rows("stream-private", "what is exported to B alone reaches B")
async def stream_private(b: Bench) -> None:
    suffix = b.name("x")
    heard = await _listener(b, "b", f"own.{suffix}")
    await _settled(b, await _client(b, "a"), f"own.{suffix}", heard)


@rows("stream-one-way", "what B publishes under its name for an import does not reach A")
async def stream_one_way(b: Bench) -> None:
    suffix = b.name("x")
    there = await _listener(b, "a", f"news.{suffix}", node=b.node)
    here = await _listener(b, "b", f"from.a.news.{suffix}", node=b.node)
    nc = await _client(b, "b")
    await nc.publish(f"from.a.news.{suffix}", b"home")
    assert (await here.next_msg(timeout=WAIT_S)).data == b"home"
    a = await _client(b, "a")
    await a.publish(f"news.{suffix}", b"away")
    assert (await there.next_msg(timeout=WAIT_S)).data == b"away"
    assert (await here.next_msg(timeout=WAIT_S)).data == b"away"


@rows("stream-queue", "a queue group that hears an import gets each message once")
async def stream_queue(b: Bench) -> None:
    suffix = b.name("x")
    members = [await _listener(b, "b", f"from.a.news.{suffix}", "q", node=b.node) for _ in range(3)]
    a = await _client(b, "a", b.node)
    for number in range(30):
        await a.publish(f"news.{suffix}", b"%d" % number)
    await a.flush()

    async def all_came() -> bool:
        return sum(member.pending_msgs for member in members) >= 30

    await eventually(all_came, "30 messages")
    assert sum(member.pending_msgs for member in members) == 30


@rows("stream-max", "UNSUB with a maximum counts what comes by an import")
async def stream_max(b: Bench) -> None:
    suffix = b.name("x")
    heard = await _listener(b, "b", f"from.a.news.{suffix}", node=b.node)
    await heard.unsubscribe(limit=2)
    await heard._conn.flush()
    a = await _client(b, "a", b.node)
    for _ in range(5):
        await a.publish(f"news.{suffix}", b"x")
    await a.flush()
    await b.nc.flush()
    end = await _listener(b, "b", f"from.a.news.{suffix}.end", node=b.node)
    await a.publish(f"news.{suffix}.end", b"x")
    await end.next_msg(timeout=WAIT_S)
    assert heard.pending_msgs == 2


@rows("stream-unsubscribe", "an ended subscription hears nothing more of what is imported")
async def stream_unsubscribe(b: Bench) -> None:
    suffix = b.name("x")
    client = await _client(b, "b")
    heard = await b.subscribe(f"from.a.news.{suffix}", nc=client)
    end = await b.subscribe(f"from.a.news.{suffix}.end", nc=client)
    a = await _client(b, "a")
    await a.publish(f"news.{suffix}", b"one")
    assert (await heard.next_msg(timeout=WAIT_S)).data == b"one"
    await heard.unsubscribe()
    await client.flush()
    await a.publish(f"news.{suffix}", b"two")
    await a.publish(f"news.{suffix}.end", b"three")
    await end.next_msg(timeout=WAIT_S)
    assert heard.pending_msgs == 0


@rows("stream-no-chain", "an import of an import is none: B's news do not go on to others")
async def stream_no_chain(b: Bench) -> None:
    suffix = b.name("x")
    c = await _listener(b, "c", f"from.a.news.{suffix}", node=b.node)
    heard = await _listener(b, "c", f"heard.{suffix}", node=b.node)
    a = await _client(b, "a", b.node)
    await a.publish(f"news.{suffix}", b"x")
    await heard.next_msg(timeout=WAIT_S)
    assert c.pending_msgs == 0


# ---- services --------------------------------------------------------------------------------------------------------


@rows("service", "a request in B is answered in A, and the answer comes to B's own inbox")
async def service(b: Bench) -> None:
    await _responder(b, "one", b"done")
    answer = await (await _client(b, "b")).request("the.one", b"?", timeout=WAIT_S)
    assert answer.data == b"done"
    assert answer.subject.startswith("_INBOX.")


@rows("service-wildcard", "a service's wildcard is carried over to its name there")
async def service_wildcard(b: Bench) -> None:
    await _responder(b, "ask.*")
    answer = await (await _client(b, "b")).request("please.me", b"?", timeout=WAIT_S)
    assert answer.data == b"ask.me"


@rows("service-swap", "$n in a service's `to` turns the tokens round")
async def service_swap(b: Bench) -> None:
    await _responder(b, "swap.*.to.*")
    answer = await (await _client(b, "b")).request("swapped.l.r", b"?", timeout=WAIT_S)
    assert answer.data == b"swap.r.to.l"


@rows("service-reply", "the responder sees a reply subject that stands for the asker's")
async def service_reply(b: Bench) -> None:
    heard = await _listener(b, "a", "one", node=b.node)
    nc = await _client(b, "b", b.node)
    inbox = await b.subscribe(nc=nc)
    await nc.publish("the.one", b"?", reply=inbox.subject)
    message = await heard.next_msg(timeout=WAIT_S)
    assert message.reply.startswith("_R_.")
    await heard._conn.publish(message.reply, b"!")
    answer = await inbox.next_msg(timeout=WAIT_S)
    assert (answer.subject, answer.data) == (inbox.subject, b"!")


@rows("service-without-reply", "a message without a reply goes through an import as well")
async def service_without_reply(b: Bench) -> None:
    heard = await _listener(b, "a", "one", node=b.node)
    nc = await _client(b, "b", b.node)
    await nc.publish("the.one", b"just so")
    message = await heard.next_msg(timeout=WAIT_S)
    assert (message.subject, message.reply, message.data) == ("one", "", b"just so")


@rows("service-info", "a responder is told which account asks, beside the message's own headers")
async def service_info(b: Bench) -> None:
    heard = await _listener(b, "a", "one", node=b.node)
    nc = await _client(b, "b", b.node)
    await nc.publish("the.one", b"?", headers={"Mine": "1"})
    message = await heard.next_msg(timeout=WAIT_S)
    assert message.headers is not None
    assert message.headers["Mine"] == "1"
    told = json.loads(message.headers["Nats-Request-Info"])
    assert told["acc"] == "B"
    assert "user" not in told


@rows("service-share", "with `share` a responder is told who asks")
async def service_share(b: Bench) -> None:
    heard = await _listener(b, "a", "ask.shared", node=b.node)
    nc = await b.connect(user="c", password="c", name="curious")
    await nc.publish("ask.shared", b"?")
    message = await heard.next_msg(timeout=WAIT_S)
    assert message.headers is not None
    told = json.loads(message.headers["Nats-Request-Info"])
    assert (told["acc"], told["user"], told["name"]) == ("C", "c", "curious")
    assert told["lang"].startswith("python")
    assert told["kind"] == "Client"


@rows("service-singleton", "of a service that answers once the second answer is dropped")
async def service_singleton(b: Bench) -> None:
    await _responder(b, "one", b"first", b"second")
    nc = await _client(b, "b", b.node)
    (first,) = await _answers(b, nc, "the.one", 1)
    assert first.data == b"first"
    await _responder(b, "many.*", b"1", b"2")
    inbox = await b.subscribe(nc=nc)
    await nc.publish("the.one", b"", reply=inbox.subject)
    assert (await inbox.next_msg(timeout=WAIT_S)).data == b"first"
    # All that came meanwhile came on the same ways.
    await _answers(b, nc, "many.x", 2)
    assert inbox.pending_msgs == 0


@rows("service-stream", "a service with response_type stream answers until an empty message")
async def service_stream(b: Bench) -> None:
    await _responder(b, "many.*", b"1", b"2", b"3", b"4")
    found = await _answers(b, await _client(b, "b"), "many.x", 4)
    assert [message.data for message in found] == [b"1", b"2", b"3", b"4"]


@rows("service-chunked", "a service with response_type chunked ends with an empty answer")
async def service_chunked(b: Bench) -> None:
    await _responder(b, "parts.*", b"1", b"2", b"", b"3")
    nc = await _client(b, "b")
    await _responder(b, "many.*", b"4", b"5")
    inbox = await b.subscribe(nc=nc)
    await nc.publish("parts.x", b"", reply=inbox.subject)
    assert [(await inbox.next_msg(timeout=WAIT_S)).data for _ in range(3)] == [b"1", b"2", b""]
    await _answers(b, nc, "many.x", 2)
    assert inbox.pending_msgs == 0


@rows("service-no-responders", "where nobody answers in A, the asker in B is told so at once")
async def service_no_responders(b: Bench) -> None:
    raw = await b.raw(user="b", **_PASS_B, headers=True, no_responders=True)
    raw.send("SUB in.box 1\r\nPUB kept.nobody in.box 0\r\n\r\n")
    answer = await raw.message()
    assert answer.subject == "in.box"
    assert answer.header.startswith(b"NATS/1.0 503")


@rows(
    "service-unwanted-status",
    "who does not want to be told that nobody is there is not told so of an import either",
)
async def service_unwanted_status(b: Bench) -> None:
    raw = await b.raw(user="b", **_PASS_B, headers=True)
    raw.send("SUB in.box 1\r\nPUB kept.nobody in.box 0\r\n\r\nPING\r\n")
    assert await raw.line() == "PONG"


@rows(
    "service-status-to-asker",
    "that nobody answers in A is told to the asker alone, not to who else hears his reply subject",
)
async def service_status_to_asker(b: Bench) -> None:
    inbox = b.subject()
    other = await _listener(b, "b", inbox, node=b.node)
    raw = await b.raw(user="b", **_PASS_B, headers=True, no_responders=True)
    raw.send(f"SUB {inbox} 1\r\nPUB kept.nobody {inbox} 0\r\n\r\n")
    assert (await raw.message()).header.startswith(b"NATS/1.0 503")
    raw.send(f"PUB {inbox} 1\r\nx\r\n")
    assert (await other.next_msg(timeout=WAIT_S)).data == b"x", "nothing came before it"


@rows("service-queue", "a queue group that answers in A gets each request once")
async def service_queue(b: Bench) -> None:
    clients = [await _client(b, "a", b.node) for _ in range(3)]
    count = [0, 0, 0]
    for at, client in enumerate(clients):

        async def answer(message: Msg, at: int = at, client: Client = client) -> None:
            count[at] += 1
            await client.publish(message.reply, b"ok")

        await client.subscribe("one", "workers", cb=answer)
        await client.flush()
    nc = await _client(b, "b", b.node)
    for _ in range(20):
        await nc.request("the.one", b"", timeout=WAIT_S)
    assert sum(count) == 20


@rows("service-account-token", "a service whose token is the account's name is asked by that account")
async def service_account_token(b: Bench) -> None:
    await _responder(b, "for.B.only", b"yes")
    assert (await (await _client(b, "b")).request("for.B.only", b"", timeout=WAIT_S)).data == b"yes"


@rows("service-chain", "a service that B imports and exports again is asked of A")
async def service_chain(b: Bench) -> None:
    await _responder(b, "deep.b", b"from below")
    answer = await (await _client(b, "c")).request("deep.c", b"", timeout=WAIT_S)
    assert answer.data == b"from below"


@rows("service-local", "who subscribes in B to an imported service's name gets the request, too")
async def service_local(b: Bench) -> None:
    heard = await _listener(b, "a", "one", node=b.node)
    here = await _listener(b, "b", "the.one", node=b.node)
    nc = await _client(b, "b", b.node)
    await nc.publish("the.one", b"?")
    assert (await heard.next_msg(timeout=WAIT_S)).subject == "one"
    assert (await here.next_msg(timeout=WAIT_S)).subject == "the.one"


@rows("not-imported", "what C does not import it can't ask")
async def not_imported(b: Bench) -> None:
    await _responder(b, "one", b"done")
    raw = await b.raw(user="c", **_PASS_C, headers=True, no_responders=True)
    raw.send("SUB in.box 1\r\nPUB one in.box 0\r\n\r\n")
    assert (await raw.message()).header.startswith(b"NATS/1.0 503")


# ---- mappings --------------------------------------------------------------------------------------------------------


@rows("mapping", "an account's mapping gives a message another subject")
async def mapping(b: Bench) -> None:
    new = await _listener(b, "c", "new.name", node=b.node)
    old = await _listener(b, "c", "old.name", node=b.node)
    nc = await _client(b, "c", b.node)
    await nc.publish("old.name", b"x", reply="r")
    message = await new.next_msg(timeout=WAIT_S)
    assert (message.subject, message.reply) == ("new.name", "r")
    assert old.pending_msgs == 0


@rows("mapping-tokens", "a mapping turns wildcards' tokens round")
async def mapping_tokens(b: Bench) -> None:
    heard = await _listener(b, "c", "turned.>", node=b.node)
    nc = await _client(b, "c", b.node)
    await nc.publish("tokens.1.2", b"x")
    assert (await heard.next_msg(timeout=WAIT_S)).subject == "turned.2.1"


@rows("mapping-weights", "the weights of a mapping's destinations decide")
async def mapping_weights(b: Bench) -> None:
    heard = await _listener(b, "c", "left.*", node=b.node)
    stays = await _listener(b, "c", "none", node=b.node)
    nc = await _client(b, "c", b.node)
    await nc.publish("half.1", b"x")
    await nc.publish("none", b"x")
    assert (await heard.next_msg(timeout=WAIT_S)).subject == "left.1"
    assert (await stays.next_msg(timeout=WAIT_S)).subject == "none"


@rows("mapping-once", "a mapping is followed once, not on and on")
async def mapping_once(b: Bench) -> None:
    second = await _listener(b, "c", "second", node=b.node)
    third = await _listener(b, "c", "third", node=b.node)
    nc = await _client(b, "c", b.node)
    await nc.publish("first", b"1")
    assert (await second.next_msg(timeout=WAIT_S)).data == b"1"
    await nc.publish("second", b"2")
    assert (await third.next_msg(timeout=WAIT_S)).data == b"2"
    assert second.pending_msgs == 0


@rows("mapping-service", "a mapping leads to an imported service")
async def mapping_service(b: Bench) -> None:
    await _responder(b, "ask.*")
    assert (await (await _client(b, "c")).request("asked.me", b"", timeout=WAIT_S)).data == b"ask.me"


@rows("mapping-no-responders", "who asks on a mapped subject where nobody is hears so at once")
async def mapping_no_responders(b: Bench) -> None:
    raw = await b.raw(user="c", **_PASS_C, headers=True, no_responders=True)
    raw.send("SUB in.box 1\r\nPUB old.name in.box 0\r\n\r\n")
    assert (await raw.message()).header.startswith(b"NATS/1.0 503")


@rows(
    "mapping-status-to-asker",
    "that nobody is there for a mapped subject is told to the asker alone, also where it is an import",
)
async def mapping_status_to_asker(b: Bench) -> None:
    inbox = b.subject()
    other = await _listener(b, "c", inbox, node=b.node)
    raw = await b.raw(user="c", **_PASS_C, headers=True, no_responders=True)
    raw.send(f"SUB {inbox} 1\r\n")
    for asked in ("old.name", "asked.nobody"):
        raw.send(f"PUB {asked} {inbox} 0\r\n\r\n")
        assert (await raw.message()).header.startswith(b"NATS/1.0 503")
    raw.send(f"PUB {inbox} 1\r\nx\r\n")
    assert (await other.next_msg(timeout=WAIT_S)).data == b"x", "nothing came before it"


@rows("mapping-stream", "a stream captures by the mapped subject")
async def mapping_stream(b: Bench) -> None:
    nc = await _client(b, "c")
    stream = await b.stream(nc=nc, subjects=["new.name"])
    ack = await b.publish("old.name", b"x", nc=nc)
    assert ack["stream"] == stream.name
    assert ack["seq"] == 1


# ---- JetStream -------------------------------------------------------------------------------------------------------


@rows(
    "capture-by-service",
    "a stream in A captures what B publishes through a service import, and B is acknowledged",
)
async def capture_by_service(b: Bench) -> None:
    a = await _client(b, "a")
    name = b.name("kept")
    stream = await b.stream(nc=a, subjects=[f"kept.{name}.>"])
    ack = await b.publish(f"kept.{name}.1", b"mine", {"K": "v"}, nc=await _client(b, "b"))
    assert (ack["stream"], ack["seq"]) == (stream.name, 1)
    found = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 1}, nc=a)
    assert found["message"]["subject"] == f"kept.{name}.1"
    assert b"Nats-Request-Info" not in base64.b64decode(found["message"]["hdrs"])


@rows("capture-many", "a thousand messages through an import are stored in order")
async def capture_many(b: Bench) -> None:
    a, nc = await _client(b, "a"), await _client(b, "b")
    name = b.name("kept")
    stream = await b.stream(nc=a, subjects=[f"kept.{name}"])
    for number in range(1000):
        await nc.publish(f"kept.{name}", b"%d" % number)
    await nc.flush()
    assert (await b.publish(f"kept.{name}", b"end", nc=nc))["seq"] == 1001
    found = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 778}, nc=a)
    assert found["message"]["data"] == "Nzc3"


@rows("capture-by-stream", "a stream in B captures what is published in A and imported")
async def capture_by_stream(b: Bench) -> None:
    a, nc = await _client(b, "a"), await _client(b, "b")
    name = b.name("x")
    stream = await b.stream(nc=nc, subjects=[f"from.a.news.{name}.>"])

    async def is_stored() -> bool:
        await a.publish(f"news.{name}.1", b"hi")
        await a.flush()
        return bool((await stream.state())["messages"])

    await eventually(is_stored, "a message in the stream")
    found = await b.ok(f"STREAM.MSG.GET.{stream.name}", {"seq": 1}, nc=nc)
    assert found["message"]["subject"] == f"from.a.news.{name}.1"


@rows("js-api", "A's JetStream is managed by B through an imported API")
async def js_api(b: Bench) -> None:
    a, nc = await _client(b, "a"), await _client(b, "b")
    stream = await b.stream(nc=a)
    answer = json.loads((await nc.request(f"JS.A.STREAM.INFO.{stream.name}", b"", timeout=WAIT_S)).data)
    assert answer["config"]["name"] == stream.name
    missing = json.loads((await nc.request("JS.A.STREAM.INFO.NO", b"", timeout=WAIT_S)).data)
    assert missing["error"]["err_code"] == 10059
    assert (await b.api(f"STREAM.INFO.{stream.name}", nc=nc))["error"]["err_code"] == 10059


@rows("js-pull", "B pulls from A's consumer through an imported API, and acknowledges")
async def js_pull(b: Bench) -> None:
    a, nc = await _client(b, "a"), await _client(b, "b")
    stream = await b.stream(nc=a)
    await stream.fill("1", "2", "3")
    consumer = await stream.consumer()
    inbox = await b.subscribe(nc=nc)
    await nc.publish(
        f"JS.A.CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}", b'{"batch":3}', reply=inbox.subject
    )
    for number in (1, 2, 3):
        message = await inbox.next_msg(timeout=WAIT_S)
        assert message.subject == f"{stream.name}.{number}"
        await nc.request(message.reply, b"+ACK", timeout=WAIT_S)
    assert (await consumer.info())["num_ack_pending"] == 0


@rows("js-pull-status", "the status of a pull through an imported API comes to B")
async def js_pull_status(b: Bench) -> None:
    a, nc = await _client(b, "a"), await _client(b, "b")
    stream = await b.stream(nc=a)
    consumer = await stream.consumer()
    inbox = await b.subscribe(nc=nc)
    await nc.publish(
        f"JS.A.CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}",
        b'{"batch":1,"no_wait":true}',
        reply=inbox.subject,
    )
    message = await inbox.next_msg(timeout=WAIT_S)
    assert message.headers is not None
    assert message.headers["Status"] == "404"


@rows("js-context", "nats-py's context with the import's prefix publishes, pulls and acknowledges")
async def js_context(b: Bench) -> None:
    a, nc = await _client(b, "a"), await _client(b, "b")
    name = b.name("kept")
    stream = await b.stream(nc=a, subjects=[f"kept.{name}.>"])
    js = nc.jetstream(prefix="JS.A", timeout=WAIT_S)
    for number in range(20):
        assert (await js.publish(f"kept.{name}.{number}", b"%d" % number)).seq == number + 1
    subscription = await js.pull_subscribe(f"kept.{name}.>", durable="D", stream=stream.name)
    found = await subscription.fetch(20, timeout=WAIT_S)
    assert [message.data for message in found] == [b"%d" % number for number in range(20)]
    for message in found:
        await message.ack_sync(timeout=WAIT_S)
    info = await b.ok(f"CONSUMER.INFO.{stream.name}.D", nc=a)
    assert info["ack_floor"]["stream_seq"] == 20


@rows("js-own", "B's own JetStream is apart from A's")
async def js_own(b: Bench) -> None:
    a, nc = await _client(b, "a"), await _client(b, "b")
    name = b.name()
    await b.stream(nc=a, name=name)
    await b.ok(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]}, nc=nc)
    await b.ok(f"STREAM.DELETE.{name}", nc=nc)
    assert (await b.ok(f"STREAM.INFO.{name}", nc=a))["config"]["name"] == name
