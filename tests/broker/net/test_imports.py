"""Messages that go from one account to another: over links and gateways, into full streams, and back with answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg
from tests.broker.net.test_full_windows import start

from supercluster.broker.net.routing.cross_account_replies import REPLIES_MAX, SWEEP_MS, Replies
from supercluster.broker.protocol.frames import Item
from supercluster.broker.protocol.imports import Export

LINK = {"user": "route", "password": "r0ute"}
A = {
    "exports": [
        {"stream": "news.>"},
        {"service": "ask.*"},
        {"service": "many", "response_type": "stream"},
        {"service": "orders.>"},
    ]
}
B = {
    "imports": [
        {"stream": {"account": "A", "subject": "news.>"}, "prefix": "a"},
        {"service": {"account": "A", "subject": "ask.*"}, "to": "please.*"},
        {"service": {"account": "A", "subject": "many"}},
        {"service": {"account": "A", "subject": "orders.>"}, "to": "bought.>"},
    ]
}


def users(**accounts: Any) -> dict[str, Any]:
    """Credentials files of a broker with the accounts A and B."""
    people = [{"user": name.lower(), "password": "p", "account": name} for name in ("A", "B")]
    return {
        "users.json": {"users": people, "accounts": accounts},
        "cluster.json": {"accept": [LINK], "send": LINK},
        "gateway.json": {"accept": [LINK], "send": LINK},
    }


async def client(brokers: Any, broker: Any, user: str) -> Any:
    return await brokers.client(broker, user=user, password="p")


async def interest(brokers: Any, broker: Any, account: str, subject: bytes) -> None:
    await brokers.until(lambda: broker.router.has_interest(account, subject), f"interest in {subject!r}")


@pytest.mark.covers("CL-1", "CL-6")
async def test_imports_work_between_brokers_of_two_clusters_as_on_one(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 2, "west": 2}, credentials=users(A=A, B=B))
    everywhere = [*clusters["east"], *clusters["west"]]
    asker = clusters["east"][0]
    home = await client(brokers, asker, "b")
    for broker in everywhere:
        heard = await home.subscribe(f"a.news.{broker.place.name}")
        await home.flush()
        subject = f"news.{broker.place.name}"
        await interest(brokers, broker, "A", subject.encode())
        there = await client(brokers, broker, "a")
        await there.publish(subject, b"x")
        assert (await heard.next_msg(timeout=30)).subject == f"a.{subject}"

        async def answer(message: Msg, there: Any = there) -> None:
            await there.publish(message.reply, message.subject.encode())

        asked = f"ask.{broker.place.name}"
        await there.subscribe(asked, cb=answer)
        await there.flush()
        await interest(brokers, asker, "A", asked.encode())
        found = await home.request(f"please.{broker.place.name}", b"", timeout=30)
        assert found.data == asked.encode()
        assert len(asker.router.replies) == 0, "a singleton's answer ends the request"


@pytest.mark.covers("CL-2", "CL-6")
async def test_a_queue_group_in_the_other_account_gets_a_request_once_near_ones_first(brokers: Any) -> None:
    clusters = await brokers.start_clusters({"east": 2, "west": 1}, credentials=users(A=A, B=B))
    counts: dict[str, int] = {}
    for broker in (clusters["east"][1], clusters["west"][0]):
        there = await client(brokers, broker, "a")
        counts[broker.place.name] = 0

        async def answer(message: Msg, there: Any = there, name: str = broker.place.name) -> None:
            counts[name] += 1
            await there.publish(message.reply, b"ok")

        await there.subscribe("ask.*", "workers", cb=answer)
        await there.flush()
    asker = clusters["east"][0]
    group = (b"ask.1", b"workers")
    await brokers.until(lambda: asker.router.has_interest("A", *group), "the group")
    await brokers.until(
        lambda: len(asker.router.account("A").sublist.match(b"ask.1").groups[0].remote) >= 1, "near"
    )
    home = await client(brokers, asker, "b")
    await brokers.until(
        lambda: "east-1" in asker.router.account("A").sublist.match(b"ask.1").groups[0].remote,
        "the near member",
    )
    for _ in range(10):
        await home.request("please.1", b"", timeout=30)
    assert counts == {"east-1": 10, "west-0": 0}


async def test_a_message_crosses_a_link_once_whoever_hears_of_it_there(
    brokers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await brokers.start(2, credentials=users(A=A, B=B))
    hearers = [await client(brokers, second, "b") for _ in range(3)]
    subscriptions = [await hearer.subscribe("a.news.1") for hearer in hearers]
    for hearer in hearers:
        await hearer.flush()
    await interest(brokers, first, "A", b"news.1")
    there = await client(brokers, first, "a")
    sent: list[str] = []
    send = first.mesh.send_message

    def counted(node: str, account: str, *more: Any) -> bool:
        sent.append(account)
        return bool(send(node, account, *more))

    monkeypatch.setattr(first.mesh, "send_message", counted)
    await there.publish("news.1", b"once")
    for subscription in subscriptions:
        assert (await subscription.next_msg(timeout=30)).data == b"once"
    assert sent == ["A"]


async def test_a_full_stream_of_the_other_account_holds_back_what_is_for_it_alone(brokers: Any) -> None:
    broker, core = await start(brokers, credentials=users(A=A, B=B))
    core.orders.full = True
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"user":"b","pass":"p"}\r\nSUB own 1\r\n')
    raw.send(
        b"PUB bought.1 1\r\na\r\nPUB own 1\r\nx\r\nPUB audit.1 1\r\nb\r\nPUB bought.2 1\r\nc\r\nPING\r\n"
    )
    assert await raw.until_line(b"PONG") == [b"MSG own 1 1", b"x", b"PONG"]
    assert core.orders.taken == []
    assert [subject for subject, _, _ in core.audit.taken] == [b"audit.1"]
    core.orders.make_room()
    raw.send(b"PUB bought.3 1\r\nd\r\nPING\r\n")
    await raw.until_line(b"PONG")
    assert [(subject, payload) for subject, _, payload in core.orders.taken] == [
        (b"orders.1", b"a"),
        (b"orders.2", b"c"),
        (b"orders.3", b"d"),
    ]
    await raw.close()


async def test_what_waits_for_another_accounts_stream_too_long_is_refused(brokers: Any) -> None:
    broker, core = await start(brokers, credentials=users(A=A, B=B), limits={"windowWaitMs": 100})
    core.orders.full = True
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"user":"b","pass":"p","headers":true,"no_responders":true}\r\nSUB in.* 1\r\n')
    raw.send(b"PUB bought.1 in.1 1\r\na\r\nPUB bought.2 1\r\nb\r\n")
    lines = [await raw.line() for _ in range(5)]
    assert lines[:2] == [b"HMSG in.1 1 40 40", b"NATS/1.0 503"]
    error = await raw.line()
    assert error.startswith(b"-ERR")
    assert b"ORDERS" in error
    assert broker.server.held_bytes == 0
    await raw.close()


async def test_that_nobody_is_there_is_said_to_who_asked_and_where_he_wants_to_hear_it(brokers: Any) -> None:
    own = {**B, "mappings": {"mapped.*": "please.$1"}}
    (broker,) = await brokers.start(credentials=users(A=A, B=own))
    other = await client(brokers, broker, "b")
    secret = await other.subscribe("secret.>")
    await other.flush()
    raw = await brokers.raw(broker)
    raw.send(b'CONNECT {"user":"b","pass":"p","headers":true,"no_responders":true}\r\nSUB in.* 1\r\n')
    for asked_on in (b"please.1", b"mapped.1"):
        raw.send(b"PUB %b secret.box 0\r\n\r\nPUB %b in.box 0\r\n\r\n" % (asked_on, asked_on))
        assert (await raw.line()).startswith(b"HMSG in.box 1 ")
        assert (await raw.until_line(b""))[0] == b"NATS/1.0 503"
        assert await raw.line() == b""
    raw.send(b'CONNECT {"user":"b","pass":"p","headers":true}\r\n')
    raw.send(b"PUB please.1 in.box 0\r\n\r\nPUB mapped.1 in.box 0\r\n\r\nPING\r\n")
    assert await raw.until_line(b"PONG") == [b"PONG"], "it does not want to know"
    await other.flush()
    assert secret.pending_msgs == 0, "who may not publish there does not have the broker do it"
    await raw.close()


async def test_a_request_that_nobody_took_waits_for_no_answer(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials=users(A=A, B=B))
    home = await client(brokers, broker, "b")
    for _ in range(3):
        with pytest.raises(nats.errors.NoRespondersError):
            await home.request("please.1", b"", timeout=30)
    assert len(broker.router.replies) == 0


@pytest.mark.covers("CL-5")
async def test_a_changed_file_changes_what_is_heard_and_asked(brokers: Any) -> None:
    (broker,) = await brokers.start(credentials=users(A=A, B={}))
    home, there = await client(brokers, broker, "b"), await client(brokers, broker, "a")
    heard = await home.subscribe("*.news.1")
    await home.flush()
    assert not broker.router.has_interest("A", b"news.1")
    file = broker.place.credentials_dir / "users.json"
    file.write_text(json.dumps(users(A=A, B=B)["users.json"]))
    await interest(brokers, broker, "A", b"news.1")
    await there.publish("news.1", b"x")
    assert (await heard.next_msg(timeout=30)).subject == "a.news.1"
    other = {"imports": [{"stream": {"account": "A", "subject": "news.>"}, "prefix": "z"}]}
    file.write_text(json.dumps(users(A=A, B=other)["users.json"]))
    await brokers.until(
        lambda: broker.router.declared_accounts.accounts["B"].services == (), "the other file"
    )
    await there.publish("news.1", b"y")
    assert (await heard.next_msg(timeout=30)).subject == "z.news.1"
    assert heard.pending_msgs == 0
    file.write_text(
        json.dumps(users(A=A, B={"imports": [{"stream": {"account": "A", "subject": "no"}}]})["users.json"])
    )
    assert not broker.credentials.refresh(), "a wrong file changes nothing"
    assert broker.router.declared_accounts.accounts["B"].streams
    await home.close()
    await brokers.until(lambda: not broker.router.has_interest("A", b"news.1"), "who is gone to hear nothing")


async def test_messages_of_a_pull_find_the_asker_over_a_link(brokers: Any) -> None:
    first, second = await brokers.start(2, credentials=users(A=A, B=B))
    home, there = await client(brokers, first, "b"), await client(brokers, second, "a")
    asked: asyncio.Queue[Msg] = asyncio.Queue()
    await there.subscribe("many", cb=asked.put)
    await there.flush()
    await interest(brokers, first, "A", b"many")
    inbox = await home.subscribe(home.new_inbox())
    await home.publish("many", b"", reply=inbox.subject)
    reply = (await asked.get()).reply.encode()
    items: list[Item] = [
        (b"s.1", b"ack", b"", b"1"),
        (b"s.2", b"ack", b"", b"2"),
        (reply, b"", b"NATS/1.0 408\r\n\r\n", b""),
    ]
    second.router.deliver("A", reply, items)
    found = [await inbox.next_msg(timeout=30) for _ in range(3)]
    assert [message.subject for message in found] == ["s.1", "s.2", inbox.subject]
    assert second.router.pending_bytes("A", reply) == 0


# Replies


class _Router:
    """Notes what is published; nobody else is there."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, bytes]] = []
        self.joined: list[bytes] = []

    def join(self, account: Any, subscription: Any) -> None:
        self.joined.append(subscription.subject)
        self.answered = subscription.interceptor

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self.published.append((account, subject, payload))


class _There:
    name = "A"


def replies(now: list[int]) -> tuple[Replies, _Router]:
    router, numbers = _Router(), iter(range(10**9))
    return Replies(router.join, router.publish, lambda: now[0], lambda: f"t{next(numbers)}"), router


def asked(found: Replies, export: Export, reply: bytes = b"in.1", asker: str = "B") -> bytes:
    there: Any = _There()
    return found.open(there, "B", asker, reply, export)


def test_a_singleton_is_answered_once_and_a_stream_until_it_is_silent() -> None:
    now = [0]
    found, router = replies(now)
    one = asked(found, Export(b"x", True))
    many = asked(found, Export(b"x", True, response="stream", threshold_ms=10_000), b"in.2")
    assert router.joined == [b"_R_.t0.*"]
    for subject in (one, one, many, many):
        assert router.answered((subject, b"", b"", b"hi")) is None
    assert router.published == [("B", b"in.1", b"hi"), ("B", b"in.2", b"hi"), ("B", b"in.2", b"hi")]
    now[0] = 9000
    router.answered((many, b"", b"", b"still there"))
    now[0] = 18_000
    asked(found, Export(b"x", True))
    assert found.resolve("A", many) == ("B", b"in.2"), "it was heard 9 s ago"
    now[0] += 10_001 + SWEEP_MS
    asked(found, Export(b"x", True))
    assert found.resolve("A", many) is None


def test_an_answer_from_another_account_is_none() -> None:
    found, router = replies([0])
    subject = asked(found, Export(b"x", True))
    assert found.resolve("C", subject) is None
    assert found.resolve("A", subject) == ("B", b"in.1")
    assert router.published == []


def test_requests_that_nobody_answers_are_bounded() -> None:
    found, _ = replies([0])
    first = asked(found, Export(b"x", True))
    for _number in range(REPLIES_MAX):
        last = asked(found, Export(b"x", True))
    assert len(found) == REPLIES_MAX
    assert found.resolve("A", first) is None
    assert found.resolve("A", last) is not None


def test_who_asks_and_asks_ends_his_own_requests_and_not_those_of_other_accounts() -> None:
    found, router = replies([0])
    export = Export(b"x", True)
    of_b = asked(found, export)
    greedy = [asked(found, export, asker="C") for _ in range(REPLIES_MAX)]
    assert len(found) == REPLIES_MAX
    assert found.resolve("A", of_b) == ("B", b"in.1")
    assert [subject for subject in greedy if found.resolve("A", subject) is None] == greedy[:1]
    more = [asked(found, export) for _ in range(100)]
    assert all(found.resolve("A", subject) is not None for subject in more), "there is room for the others"
    assert all(found.resolve("A", subject) is None for subject in greedy[:101])
    assert len(found) == REPLIES_MAX
    router.answered((of_b, b"", b"", b"hi"))
    asked(found, export)
    assert len(found) == REPLIES_MAX
