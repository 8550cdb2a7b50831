"""Brokers that the fuzzer does its steps to, and what it demands of them after each round.

Nothing of account W is touched by any step. Whatever a publisher there had confirmed has to be there after every round; each broker has
to run, to answer, and to come back from its disk after a kill; and no copy of any stream may have halted. Beside all that a
client of another account pings each broker, and no answer may take long (SF-36).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from nats.aio.client import Client
from nats.errors import Error as NatsError
from tests.compat.backups import Backup, take_backup
from tests.fuzz.steps import HELLO, USERS, Step, encoded
from tests.fuzz.storms import said
from tests.stalls.pinger import Pings
from tests.support.local_clusters import LINKS, Broker, Fleet, until

from supercluster.broker.dropin.conf import ConfError, parse
from supercluster.broker.dropin.options import read
from supercluster.broker.protocol.frames import FrameType, frame

ANSWER_S = 30.0
"""Only ends what hangs."""
WEB_PORT = 8080
STALL_MS = 250.0
"""For the answer to a ping, of the processor time of all the broker's threads, as issue 33 demands on one broker."""
PINGS_AS = json.dumps({"user": "witness", "pass": "p"})
TROUBLE = re.compile(r"Traceback|GroupFailed|CRITICAL|Task exception was never retrieved|the core failed")
PAGES_AS = "Basic " + base64.b64encode(b"operator:p").decode()


class FoundError(Exception):
    """What a broker should not do."""


class Connection:
    """A client that says bytes as they are, and passes over what it hears."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.asked: dict[str, str] = {}
        """Calls that are not answered yet, by their reply subjects."""

    @classmethod
    async def open(cls, broker: Broker, port: int) -> Connection:
        return cls(*await asyncio.open_connection(broker.host, port, limit=1 << 20))

    async def login(self, user: str) -> None:
        told = {"user": user, "pass": "p", "verbose": False, "headers": True, "no_responders": True}
        await self.say(b"CONNECT %s\r\nSUB _R.> 1\r\nSUB d 2\r\n" % json.dumps(told).encode())
        await self.heard()

    async def say(self, said: bytes) -> None:
        self._writer.write(said)
        await self._writer.drain()

    async def heard(self) -> bool:
        """Until the broker has read all of it. False: it has closed the connection."""
        await self.say(b"PING\r\n")
        try:
            async with asyncio.timeout(ANSWER_S):
                while line := await self._line():
                    if line == b"PONG\r\n":
                        return True
        except TimeoutError:
            raise FoundError(f"a PING is not answered within {ANSWER_S} s") from None
        return False

    async def _line(self) -> bytes:
        line = await self._reader.readline()
        if self.asked and line.startswith((b"MSG _R.", b"HMSG _R.")):
            self.asked.pop(line.split(b" ")[1].decode(), None)
        return line

    async def answered(self) -> None:
        """
        Raises:
            FoundError: a call has had no answer for too long.
        """
        ends_s = time.monotonic() + ANSWER_S
        while self.asked and await self.heard():
            if time.monotonic() > ends_s:
                raise FoundError(f"no answer to {list(self.asked.values())[:5]}")
            await asyncio.sleep(0.05)

    async def find(self, pattern: bytes, seconds: float) -> str:
        """The pattern's group in what comes within that time; empty: it does not come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while line := await self._line():
                    if match := re.search(pattern, line):
                        return (match[1] or b"").decode()
        return ""

    async def drain(self, seconds: float) -> None:
        """What comes for a while is passed over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while await self._reader.read(1 << 16):
                    pass

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Site:
    """One broker, or three in a cluster."""

    def __init__(self, folder: Path, count: int) -> None:
        self.fleet = Fleet(folder)
        self.count = count
        self.confirmed: list[bytes] = []
        """Payloads on the witness stream, by sequence."""
        self._read: dict[str, int] = {}
        self._calls = 0
        self._connections: dict[tuple[str, str], Connection] = {}
        self._archive: Backup | None = None
        self._pings: dict[str, Pings] = {}
        """By broker."""

    async def __aenter__(self) -> Self:
        await self.fleet.start(
            self.count,
            credentials={"users.json": USERS, "cluster.json": LINKS},
            ports={"websocket": WEB_PORT},
        )
        nc = await self._witness(self.brokers[0])
        await nc.jetstream(timeout=ANSWER_S).add_stream(name="W", subjects=["w.>"], num_replicas=self.count)
        await self._confirm(nc, 20)
        self._archive = await take_backup(nc, "W")
        await nc.close()
        await self._watch(*self.brokers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close_connections()
        await self.fleet.stop()
        for pings in self._pings.values():
            await pings.end()

    @property
    def brokers(self) -> list[Broker]:
        return list(self.fleet.brokers.values())

    # ---- steps ----------------------------------------------------------------------------------------------------

    async def do(self, step: Step) -> None:
        """
        Raises:
            FoundError: a broker ended.
        """
        broker = self.brokers[step["at"] % self.count]
        try:
            await getattr(self, "_" + step["do"])(broker, step)
        except (OSError, asyncio.IncompleteReadError, ValueError, TimeoutError):
            pass  # A connection that was closed; whether the broker lives is looked at next.
        self.check_alive()

    async def _watch(self, *brokers: Broker) -> None:
        """Ping them from now on."""
        for broker in brokers:
            assert broker.process is not None
            self._pings[broker.name] = await Pings.begin(broker.host, broker.process.pid, PINGS_AS)

    async def _watched(self, *brokers: Broker) -> None:
        """
        Raises:
            FoundError: an answer to a ping took too long since `_watch`.
        """
        for broker in brokers:
            longest_ms = await self._pings.pop(broker.name).end()
            if longest_ms > STALL_MS:
                raise FoundError(
                    f"the answer to a ping took {longest_ms:.0f} ms of {broker.name}'s processor time"
                )

    async def _client(self, broker: Broker, user: str) -> Connection:
        found = self._connections.get((broker.name, user))
        if found is not None and not await self._is_open(found):
            await found.close()
            found = None
        if found is None:
            found = self._connections[broker.name, user] = await Connection.open(broker, 4222)
            await found.login(user)
        return found

    async def _is_open(self, connection: Connection) -> bool:
        try:
            return await connection.heard()
        except (OSError, ValueError, asyncio.IncompleteReadError):
            return False

    async def _close_connections(self) -> None:
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    async def _api(self, broker: Broker, step: Step) -> None:
        client = await self._client(broker, step["user"])
        self._calls += 1
        reply = f"_R.a{self._calls}"
        if ".MSG.NEXT." not in step["subject"]:  # A pull waits for messages.
            client.asked[reply] = step["subject"]
        await client.say(_pub(step["subject"], reply, "", step["payload"]))
        await client.heard()

    async def _publish(self, broker: Broker, step: Step) -> None:
        client = await self._client(broker, "fuzz")
        await client.say(
            b"".join(_pub(subject, "_R.2", header, payload) for subject, header, payload in step["messages"])
        )
        await client.heard()

    async def _plain(self, broker: Broker, step: Step) -> None:
        client = await Connection.open(broker, 4222)
        try:
            if step["login"]:
                await client.login("fuzz")
            await client.say(step["said"].encode("latin-1"))
            await client.drain(0.05)
        finally:
            await client.close()

    async def _link(self, broker: Broker, step: Step) -> None:
        """As a broker that nobody knows, over both connections of a pair."""
        document = await broker.get("/jsz") or {"streams": []}
        groups = {found["name"]: found["group"] for found in document["streams"] if found["account"] == "F"}
        said = b"".join(encoded(found, {**groups, "meta": "meta"}) for found in step["frames"])
        bulk = json.dumps({**HELLO, "channel": 1}).encode()
        both = [await Connection.open(broker, 6222) for _ in range(2)]
        try:
            for connection, hello in zip(both, (step["hello"].encode("latin-1"), bulk), strict=True):
                await connection.say(b"".join(map(bytes, frame(FrameType.HELLO, [hello]))))
            await both[0].drain(0.05)
            await both[0].say(said)
            await both[0].drain(0.1)
        finally:
            for connection in both:
                await connection.close()

    async def _web(self, broker: Broker, step: Step) -> None:
        client = await Connection.open(broker, WEB_PORT)
        try:
            await client.say(step["said"].encode("latin-1"))
            await client.drain(0.05)
        finally:
            await client.close()

    async def _http(self, broker: Broker, step: Step) -> None:
        body = step["body"].encode("latin-1") if step["method"] != "GET" else None
        headers = {"Authorization": PAGES_AS, "Content-Type": "application/json"}
        url = f"http://{broker.host}:8222{step['path']}"
        request = urllib.request.Request(url, body, headers, method=step["method"])
        status = await asyncio.to_thread(_status, request)
        if status == 500:
            raise FoundError(f"{broker.name} answers {step['method']} {step['path']} with 500")

    async def _users(self, broker: Broker, step: Step) -> None:
        file = broker.folder / "users.json"
        file.write_bytes(step["text"].encode("latin-1"))
        await asyncio.sleep(1.2)
        file.write_text(json.dumps(USERS))
        await until(lambda: self._logs_in(broker), f"{broker.name} to read its users again", ANSWER_S)

    async def _logs_in(self, broker: Broker) -> bool:
        client = await Connection.open(broker, 4222)
        try:
            await client.login("witness")
            return await client.heard()
        except OSError:
            return False
        finally:
            await client.close()

    async def _conf(self, broker: Broker, step: Step) -> None:
        def no_file(file: str, name: str) -> tuple[str, str]:
            raise FileNotFoundError(name)

        with contextlib.suppress(ConfError):
            try:
                read(parse(step["text"], "fuzz.conf", read=no_file, environment={}))
            except (
                ArithmeticError,
                LookupError,
                TypeError,
                AttributeError,
                AssertionError,
                RecursionError,
                ValueError,
            ) as error:
                raise FoundError(f"a configuration file ends in {error!r}") from error

    async def _restore(self, broker: Broker, step: Step) -> None:
        assert self._archive is not None
        data = bytearray(self._archive.data)
        for where, byte in step["edits"]:
            data[int(where * len(data))] = byte
        data = data[: int(step["cut"] * len(data))]
        client = await self._client(broker, "fuzz")
        config = {**self._archive.config, "name": "R", "subjects": ["r.>"]}
        with contextlib.suppress(ValueError, RecursionError):
            more = json.loads(step["config"].encode("latin-1"))
            config |= more if isinstance(more, dict) else {}
        begin = json.dumps({"config": config}).encode("utf-8", "surrogatepass").decode("latin-1")
        await client.say(_pub("$JS.API.STREAM.RESTORE.R", "_R.4", "", begin))
        subject = await client.find(rb'"(?:error|deliver_subject":\s*"([^"]+))"', 5.0)
        if subject:
            for at in range(0, len(data), 1000):
                await client.say(_pub(subject, "_R.3", "", data[at : at + 1000].decode("latin-1")))
            await client.say(_pub(subject, "_R.3", "", ""))
            await client.heard()

    async def _wait(self, broker: Broker, step: Step) -> None:
        await asyncio.sleep(step["ms"] / 1000)

    async def _kill(self, broker: Broker, step: Step) -> None:
        """kill -9, and back."""
        self.check_alive()
        await self._watched(broker)
        broker.kill()
        broker.start()
        await broker.ready()
        await self._watch(broker)

    async def _storm(self, broker: Broker, step: Step) -> None:
        client = await Connection.open(broker, 4222)
        try:
            await client.login("fuzz")
            await asyncio.gather(client.say(said(step)), client.drain(0.5))
        finally:
            await client.close()

    # ---- what has to be -------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        for broker in self.brokers:
            code = broker.process.poll() if broker.process is not None else None
            if code is not None:
                raise FoundError(f"{broker.name} ended with {code}: {_last_words(broker.log())}")
            text = broker.log()[self._read.get(broker.name, 0) :]
            self._read[broker.name] = self._read.get(broker.name, 0) + len(text)
            if TROUBLE.search(text):
                raise FoundError(f"{broker.name} says {_last_words(text)}")

    async def check(self, *, restarts: bool) -> None:
        """
        Raises:
            FoundError: something is not as it has to be.
        """
        try:
            self.check_alive()
            for connection in self._connections.values():
                with contextlib.suppress(OSError, ValueError):
                    await connection.answered()
            await self._check_witness()
            if restarts:
                await self._watched(*self.brokers)
                await self._close_connections()
                for broker in self.brokers:
                    broker.kill()
                for broker in self.brokers:
                    broker.start()
                await self.fleet.ready()
                await self._check_witness()
                await self._watch(*self.brokers)
            await self._clean()
            self.check_alive()
        except (AssertionError, NatsError, TimeoutError) as error:
            self.check_alive()
            raise FoundError(f"{type(error).__name__}: {error}") from error

    async def _witness(self, broker: Broker) -> Client:
        return await self.fleet.client(broker, user="witness", password="p", allow_reconnect=False)

    async def _confirm(self, nc: Client, count: int) -> None:
        js = nc.jetstream(timeout=ANSWER_S)
        for _ in range(count):
            payload = b"%d" % len(self.confirmed)
            ack = await js.publish("w.x", payload)
            self.confirmed.append(payload)
            assert ack.seq == len(self.confirmed), (ack.seq, len(self.confirmed))

    async def _check_witness(self) -> None:
        """By way of each broker: it answers, stores, and has all that it had confirmed."""
        for broker in self.brokers:
            nc = await self._witness(broker)
            js = nc.jetstream(timeout=ANSWER_S)
            await js.account_info()
            await self._confirm(nc, 1)
            sub = await js.pull_subscribe("w.>", stream="W", config=None)
            found: list[bytes] = []
            while len(found) < len(self.confirmed):
                found += [
                    one.data for one in await sub.fetch(len(self.confirmed) - len(found), timeout=ANSWER_S)
                ]
            assert found == self.confirmed, (
                f"{broker.name} has {len(found)} of {len(self.confirmed)} messages"
            )
            await sub.unsubscribe()
            await nc.close()

    async def _clean(self) -> None:
        """Whatever the steps have made can be deleted."""
        for user in ("fuzz", "operator"):
            nc = await self.fleet.client(self.brokers[0], user=user, password="p", allow_reconnect=False)
            names = (
                json.loads((await nc.request("$JS.API.STREAM.NAMES", b"", timeout=ANSWER_S)).data)["streams"]
                or []
            )
            for name in names:
                answer = json.loads(
                    (await nc.request(f"$JS.API.STREAM.DELETE.{name}", b"", timeout=ANSWER_S)).data
                )
                if answer.get("error", {}).get("err_code") not in (None, 10059):
                    raise FoundError(f"stream {name} cannot be deleted: {answer['error']}")
            await nc.close()


def _pub(subject: str, reply: str, header: str, payload: str) -> bytes:
    head, body = header.encode("latin-1"), payload.encode("latin-1")
    what = (
        f"HPUB {subject} {reply} {len(head)} {len(head) + len(body)}"
        if head
        else f"PUB {subject} {reply} {len(body)}"
    )
    return what.encode("latin-1") + b"\r\n" + head + body + b"\r\n"


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def _last_words(log: str) -> str:
    lines = log.strip().splitlines()
    first = next((at for at, line in enumerate(lines) if TROUBLE.search(line)), len(lines) - 5)
    return "\n".join(line[:400] for line in lines[max(0, first - 1) : first + 40])


async def run(folder: Path, count: int, rounds: Sequence[Sequence[Step]]) -> str:
    """Do these rounds; what was found, empty where nothing was."""
    folder.mkdir(parents=True, exist_ok=True)
    async with Site(folder, count) as site:
        try:
            for steps in rounds:
                for step in steps:
                    await site.do(step)
                await site.check(restarts=True)
        except FoundError as found:
            return str(found)
    return ""
