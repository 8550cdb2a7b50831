"""What one client can do to a broker, as a table: each attack is made ready first, and then done while another client pings.

The sizes are those of the reviews that found them, or a half to a third of them where those take a minute.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

ANSWER_S = 60.0
"""Only ends what hangs."""


class Attacker:
    """A client that says bytes as they are."""

    def __init__(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host = host
        self._reader, self._writer = reader, writer
        self._calls = itertools.count()
        self.errors: list[str] = []
        """What it was told by -ERR."""

    @classmethod
    @asynccontextmanager
    async def connected(cls, host: str) -> AsyncIterator[Attacker]:
        reader, writer = await asyncio.open_connection(host, 4222, limit=1 << 28)
        attacker = cls(host, reader, writer)
        try:
            await attacker.say(b'CONNECT {"headers":true,"no_responders":true}\r\nSUB _R.> 1\r\n')
            yield attacker
        finally:
            writer.close()

    async def say(self, *said: bytes) -> None:
        """Say it, and wait until the broker has read it all."""
        self._writer.write(b"".join(said))
        await self._writer.drain()
        self._writer.write(b"PING\r\n")
        async with asyncio.timeout(ANSWER_S):
            while (await self._next())[0] != b"PONG":
                pass

    async def _next(self) -> tuple[bytes, bytes]:
        line = (await self._reader.readline()).rstrip(b"\r\n")
        if not line:
            raise ConnectionError("the broker has closed the connection")
        if line.startswith(b"-ERR"):
            self.errors.append(line.decode())
        if not line.startswith((b"MSG ", b"HMSG ")):
            return line, b""
        size = int(line.split(b" ")[-1])
        return line, (await self._reader.readexactly(size + 2))[:-2]

    async def ask(self, call: str, body: Any = None) -> dict[str, Any]:
        """A call of JetStream's API, and its answer."""
        return await self.request(f"$JS.API.{call}", body)

    async def request(self, subject: str, body: Any = None) -> dict[str, Any]:
        reply = b"_R.%d" % next(self._calls)
        payload = b"" if body is None else json.dumps(body).encode()
        self._writer.write(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply, len(payload), payload))
        async with asyncio.timeout(ANSWER_S):
            while True:
                line, answer = await self._next()
                if line.startswith(b"MSG " + reply + b" "):
                    found: dict[str, Any] = json.loads(answer)
                    return found

    async def create(self, name: str, **config: Any) -> dict[str, Any]:
        return await self.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})

    async def consumer(self, stream: str, name: str, **config: Any) -> dict[str, Any]:
        body = {"stream_name": stream, "config": {"durable_name": name, **config}}
        return await self.ask(f"CONSUMER.CREATE.{stream}.{name}", body)


def pub(subject: str, payload: bytes = b"", header: bytes = b"") -> bytes:
    if header:
        return b"HPUB %s %d %d\r\n%s%s\r\n" % (
            subject.encode(),
            len(header),
            len(header) + len(payload),
            header,
            payload,
        )
    return b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(payload), payload)


def headers(**named: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def subs(subjects: Iterable[str], first: int = 10) -> bytes:
    return b"".join(b"SUB %s %d\r\n" % (subject.encode(), sid) for sid, subject in enumerate(subjects, first))


Attack = Callable[[Attacker], AsyncIterator[None]]
"""Yields once, when it is ready."""


async def wildcards(it: Attacker) -> AsyncIterator[None]:
    """Publishes that each match tens of thousands of places in the tree of subscriptions."""
    await it.say(subs(".".join(tokens) for tokens in itertools.product("a*", repeat=12)))
    yield
    await it.say(*(pub("a." * 12 + f"x{at}") for at in range(400)))


async def filters(it: Attacker) -> AsyncIterator[None]:
    await it.create("F")
    longs = [f"F.{'a.' * 440}x{at}" for at in range(1_000)]
    yield
    await it.consumer("F", "c", filter_subjects=longs)


async def wild_filters(it: Attacker) -> AsyncIterator[None]:
    """Filters that a search in a tree has to hold against each other, one by one."""
    await it.create("F", retention="workqueue")
    longs = [f"F.x{at}.{'a.' * 22}y" for at in range(500)] + [f"F.*.{'a.' * 22}z{at}" for at in range(500)]
    yield
    await it.consumer("F", "c", ack_policy="explicit", filter_subjects=longs[:500])
    await it.consumer("F", "d", ack_policy="explicit", filter_subjects=longs[500:])


async def short_waits(it: Attacker) -> AsyncIterator[None]:
    await it.create("P")
    await it.say(b"SUB d.> 9\r\n", *(pub("P.x", b"x") for _ in range(10_000)))
    yield
    for at in range(10):
        await it.consumer(
            "P", f"c{at}", deliver_subject=f"d.{at}", ack_policy="explicit", ack_wait=1, max_ack_pending=-1
        )
    for _ in range(20):
        await it.say()
        await asyncio.sleep(0.1)


async def tokens(it: Attacker) -> AsyncIterator[None]:
    await it.create("T")
    yield
    await it.say(*(pub(f"T.{'a.' * 1_898}{at}") for at in range(1_500)))


async def tails(it: Attacker) -> AsyncIterator[None]:
    """Subscriptions that each take in the rest of the subject, from each of its tokens on."""
    await it.say(subs("a." * at + ">" for at in range(1, 1_900)))
    yield
    await it.say(*(pub(f"{'a.' * 1_898}{at}") for at in range(300)))


async def details(it: Attacker) -> AsyncIterator[None]:
    """All subscriptions of two clients, one by one; in the account's share are fifty such answers a second."""
    async with Attacker.connected(it.host) as other:
        for each in (it, other):
            await each.say(subs(f"s.{at}" for at in range(30_000)))
        yield
        body = {"subscriptions_detail": True}
        await it.say(
            *(
                b"PUB $SYS.REQ.ACCOUNT.PING.CONNZ _R.d %d\r\n%s\r\n" % (30, json.dumps(body).encode())
                for _ in range(3)
            )
        )
        await it.request("$SYS.REQ.ACCOUNT.PING.CONNZ", {**body, "filter_subject": "none"})


async def sources(it: Attacker) -> AsyncIterator[None]:
    listed = [{"name": f"o{at}"} for at in range(40_000)]
    yield
    await it.create("S", sources=listed)
    for _ in range(3):
        await it.ask("STREAM.INFO.S")


async def subjects(it: Attacker) -> AsyncIterator[None]:
    """As many as a stream may have, of many tokens; and more than that."""
    listed = [f"Z.{at}.*.{'a.' * 25}b" for at in range(4_096)]
    yield
    await it.create("Z", subjects=listed)
    await it.create("Z", subjects=[f"Z.{at}.*" for at in range(30_000)])
    await it.ask("STREAM.UPDATE.Z", {"name": "Z", "subjects": listed, "max_msgs": 5})
    await it.create("Y")


async def metadata(it: Attacker) -> AsyncIterator[None]:
    for at in range(500):
        await it.create(f"M{at}", metadata={"k": "v" * 100_000}, storage="memory")
    yield
    await it.ask("STREAM.LIST")


async def schedules(it: Attacker) -> AsyncIterator[None]:
    await it.create("C", allow_msg_schedules=True, allow_msg_ttl=True)
    said = (
        pub(f"C.s.{at}", b"x", headers(Nats_Schedule="@every 1s", Nats_Schedule_Target=f"C.t.{at}"))
        for at in range(20_000)
    )
    await it.say(*said)
    yield
    await asyncio.sleep(3)


async def ids(it: Attacker) -> AsyncIterator[None]:
    await it.create("I", max_msgs=1)
    yield
    for first in range(0, 4_000, 200):
        said = (
            pub("I.x", b"", headers(Nats_Msg_Id=f"{at}" + "i" * 60_000)) for at in range(first, first + 200)
        )
        await it.say(*said)


async def heartbeats(it: Attacker) -> AsyncIterator[None]:
    await it.create("H")
    await it.consumer("H", "c", ack_policy="explicit", max_waiting=3_000)
    body = json.dumps({"batch": 1, "expires": 10**10, "idle_heartbeat": 1}).encode()
    yield
    await it.say(
        *(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.H.c _R.p%d %d\r\n%s\r\n" % (at, len(body), body)
            for at in range(3_000)
        )
    )
    for _ in range(30):
        await it.say()
        await asyncio.sleep(0.1)


ATTACKS: tuple[Attack, ...] = (
    wildcards,
    filters,
    wild_filters,
    short_waits,
    tokens,
    tails,
    details,
    sources,
    subjects,
    metadata,
    schedules,
    ids,
    heartbeats,
)
LONG = (metadata, schedules, ids, tails)
"""What a shorter one shows as well."""
