"""What a row is handed: clients on a running target, names that no other row has, and the cleaning up behind it."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import zlib
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from tests.compat.raw import RawClient
from tests.compat.table import Row
from tests.compat.targets import CLUSTERS, Target

WAIT_S = 30.0
"""Only ends what hangs."""

_numbers = itertools.count(1)


class Bench:
    """One row's work place. `b` in rows."""

    def __init__(self, target: Target, row: Row) -> None:
        self.target = target
        self.row = row
        self.node = zlib.crc32(row.id.encode()) % target.size
        """Which server of the target this row talks to: over the rows all of them."""
        self.number = next(_numbers)
        self._streams: dict[str, Client] = {}
        self._clients: list[Client] = []
        self._raw: list[RawClient] = []

    # The target

    @property
    def is_ours(self) -> bool:
        return self.target.is_ours

    @property
    def host(self) -> str:
        return self.target.hosts[self.node]

    @property
    def cluster(self) -> str:
        """The name of the cluster that this row's server is in."""
        return CLUSTERS[self.node // self.target.replicas]

    @property
    def neighbours(self) -> list[str]:
        """The hosts of that cluster."""
        first = self.node - self.node % self.target.replicas
        return self.target.hosts[first : first + self.target.replicas]

    @property
    def replicas(self) -> int:
        """How many replicas streams get: as many as a cluster has servers."""
        return self.target.replicas

    @property
    def nc(self) -> Client:
        """A client that rows share: leave it open and without subscriptions."""
        return self.target.clients[self.node]

    @property
    def js(self) -> JetStreamContext:
        return self.nc.jetstream(timeout=WAIT_S)

    async def get(self, path: str) -> Any:
        """A monitoring endpoint's document, of the server this row talks to."""
        return await self.target.get(path, self.host)

    async def connect(self, node: int | None = None, **options: Any) -> Client:
        """A client of the row's own; closed when the row ends."""
        host = self.target.hosts[self.node if node is None else node % self.target.size]
        client = await self.target.connect(host, **{**self.target.login, **options})
        self._clients.append(client)
        return client

    async def raw(
        self,
        *,
        connect: bool = True,
        node: int | None = None,
        tls: ssl.SSLContext | None = None,
        first: bool = False,
        **options: Any,
    ) -> RawClient:
        """A connection of bytes, over TLS if a context is given (`first`: from the first byte); CONNECT was sent with
        `options`, unless `connect` is false."""
        host = self.target.hosts[self.node if node is None else node % self.target.size]
        client = await RawClient.open(host, tls=tls, first=first)
        self._raw.append(client)
        if connect:
            await client.connect(**options)
        return client

    # Names

    def name(self, prefix: str = "S") -> str:
        """A stream's (consumer's, bucket's) name that nobody else has."""
        return f"{prefix}_{self.number}_{next(_numbers)}"

    def subject(self) -> str:
        """A subject that nobody else has."""
        return f"compat.{self.number}.{next(_numbers)}"

    # The JetStream API

    async def api(
        self,
        call: str,
        body: Any = None,
        *,
        nc: Client | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The answer of `$JS.API.<call>`; `body` is a document, or bytes that are sent as they are."""
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        told = dict(headers) if headers else None
        answer = await (nc or self.nc).request(f"$JS.API.{call}", payload, timeout=WAIT_S, headers=told)
        found: dict[str, Any] = json.loads(answer.data)
        return found

    async def ok(self, call: str, body: Any = None, *, nc: Client | None = None) -> dict[str, Any]:
        """The answer of a call that succeeds."""
        answer = await self.api(call, body, nc=nc)
        assert "error" not in answer, f"{call}: {answer['error']}"
        return answer

    async def refused(
        self, call: str, body: Any = None, *, code: int, err_code: int, text: str, nc: Client | None = None
    ) -> None:
        """The call fails with just this error."""
        answer = await self.api(call, body, nc=nc)
        wanted = {"code": code, "err_code": err_code, "description": text}
        assert answer.get("error") == wanted, answer

    async def stream(self, *, nc: Client | None = None, **config: Any) -> StreamOfRow:
        """Create a stream, by default with all replicas and the subjects `<name>.>`; deleted when the row ends."""
        config.setdefault("name", self.name())
        if "mirror" not in config and "sources" not in config:
            config.setdefault("subjects", [f"{config['name']}.>"])
        config.setdefault("num_replicas", self.replicas)
        self.will_delete(config["name"], nc)
        answer = await self.ok(f"STREAM.CREATE.{config['name']}", config, nc=nc)
        return StreamOfRow(self, config["name"], answer, nc or self.nc)

    async def stream_refused(self, *, code: int, err_code: int, text: str, **config: Any) -> None:
        """Creating this stream fails with just this error."""
        config.setdefault("name", self.name())
        config.setdefault("num_replicas", self.replicas)
        self.will_delete(config["name"])
        await self.refused(f"STREAM.CREATE.{config['name']}", config, code=code, err_code=err_code, text=text)

    def will_delete(self, stream: str, nc: Client | None = None) -> None:
        """Delete that stream when the row ends, if it is there then."""
        self._streams[stream] = nc or self.nc

    # Messages

    async def publish(
        self,
        subject: str,
        payload: bytes = b"x",
        headers: Mapping[str, str] | None = None,
        *,
        nc: Client | None = None,
    ) -> dict[str, Any]:
        """A stream's acknowledgement: `{"stream", "seq", …}` or `{"error", …}`."""
        answer = await (nc or self.nc).request(
            subject, payload, timeout=WAIT_S, headers=dict(headers) if headers else None
        )
        found: dict[str, Any] = json.loads(answer.data)
        self.target.watch.see("PubAck error" if "error" in found else "PubAck", found)
        return found

    async def subscribe(
        self, subject: str = "", queue: str = "", *, nc: Client | None = None
    ) -> Subscription:
        """A subscription (to a new inbox unless a subject is given) on a client of the row's own, in force on return."""
        client = nc or await self.connect()
        subscription = await client.subscribe(subject or client.new_inbox(), queue)
        await client.flush()
        return subscription

    # The end

    async def clean(self) -> None:
        """Close what the row opened and delete its streams."""
        for name, nc in self._streams.items():
            client = nc if not nc.is_closed else self.nc
            await client.request(f"$JS.API.STREAM.DELETE.{name}", b"", timeout=WAIT_S)
        for client in self._clients:
            if not client.is_closed:
                await client.close()
        for raw in self._raw:
            await raw.close()


class StreamOfRow:
    """A stream that a row made; its messages go to `<name>.<suffix>`."""

    def __init__(self, bench: Bench, name: str, created: dict[str, Any], nc: Client) -> None:
        self.bench = bench
        self.name = name
        self.created = created
        """The answer of STREAM.CREATE."""
        self.nc = nc

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that the server answered with when the stream was made."""
        found: dict[str, Any] = self.created["config"]
        return found

    async def publish(
        self, suffix: str = "a", payload: bytes = b"x", headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Publish to `<name>.<suffix>`; the acknowledgement or the error."""
        return await self.bench.publish(f"{self.name}.{suffix}", payload, headers, nc=self.nc)

    async def fill(self, *suffixes: str) -> None:
        """Publish one message to each, with its suffix as payload."""
        for suffix in suffixes:
            answer = await self.publish(suffix, suffix.encode())
            assert "error" not in answer, answer

    async def info(self, body: Any = None) -> dict[str, Any]:
        return await self.bench.ok(f"STREAM.INFO.{self.name}", body, nc=self.nc)

    async def state(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.info())["state"]
        return found

    async def update(self, **changes: Any) -> dict[str, Any]:
        """STREAM.UPDATE with its present configuration and these changes; the answer, error or not."""
        config = {**(await self.info())["config"], **changes}
        return await self.bench.api(f"STREAM.UPDATE.{self.name}", config, nc=self.nc)

    async def update_refused(self, *, code: int, err_code: int, text: str, **changes: Any) -> None:
        """The update fails with just this error, and the configuration stays."""
        before = (await self.info())["config"]
        answer = await self.update(**changes)
        assert answer.get("error") == {"code": code, "err_code": err_code, "description": text}, answer
        assert (await self.info())["config"] == before

    async def consumer(self, name: str = "", **config: Any) -> ConsumerOfRow:
        """Create a consumer, durable with explicit acknowledgement unless said otherwise."""
        name = name or self.bench.name("C")
        config = {"durable_name": name, "ack_policy": "explicit", **config}
        answer = await self.bench.ok(
            f"CONSUMER.DURABLE.CREATE.{self.name}.{name}",
            {"stream_name": self.name, "config": config},
            nc=self.nc,
        )
        return ConsumerOfRow(self, name, answer)

    async def consumer_refused(self, *, code: int, err_code: int, text: str, **config: Any) -> None:
        """Creating this durable consumer fails with just this error."""
        name = config.setdefault("durable_name", self.bench.name("C"))
        config.setdefault("ack_policy", "explicit")
        await self.bench.refused(
            f"CONSUMER.DURABLE.CREATE.{self.name}.{name}",
            {"stream_name": self.name, "config": config},
            code=code,
            err_code=err_code,
            text=text,
            nc=self.nc,
        )


class ConsumerOfRow:
    """A consumer that a row made; it goes with its stream."""

    def __init__(self, stream: StreamOfRow, name: str, created: dict[str, Any]) -> None:
        self.stream = stream
        self.bench = stream.bench
        self.name = name
        self.created = created
        """The answer of CONSUMER.CREATE."""

    async def info(self) -> dict[str, Any]:
        return await self.bench.ok(f"CONSUMER.INFO.{self.stream.name}.{self.name}", nc=self.stream.nc)

    async def ask(self, body: Any = None, *, nc: Client | None = None) -> Answers:
        """Send a pull request (`{"batch": 1, …}`, or bytes as they are); what comes is in the answers."""
        client = nc or await self.bench.connect()
        inbox = await client.subscribe(client.new_inbox())
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        await client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self.stream.name}.{self.name}", payload, reply=inbox.subject
        )
        await client.flush()
        return Answers(inbox)

    async def fetch(self, batch: int = 1, *, ack: bytes | None = b"+ACK") -> list[Msg]:
        """Pull a batch (all that is there when it is less) and acknowledge each with `ack`, confirmed; None: not at all."""
        answers = await self.ask({"batch": batch, "no_wait": True})
        found: list[Msg] = []
        while len(found) < batch:
            message = await answers.next()
            if status_of(message):
                break
            found.append(message)
        for message in found if ack is not None else ():
            assert ack is not None
            await answers.acknowledge(message, ack)
        return found

    async def next(self) -> Msg:
        """The next message, waited for and not acknowledged."""
        answers = await self.ask({"batch": 1, "expires": int(WAIT_S * 1e9)})
        message = await answers.next()
        assert not status_of(message), message.headers
        return message


class Answers:
    """What arrives in an inbox."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription

    async def next(self, timeout_s: float = WAIT_S) -> Msg:
        """The next message or status.

        Raises:
            nats.errors.TimeoutError: nothing came.
        """
        return await self.subscription.next_msg(timeout=timeout_s)

    async def status(self, timeout_s: float = WAIT_S) -> tuple[str, str]:
        """The next one, which has to be a status: its code and description."""
        message = await self.next(timeout_s)
        status = status_of(message)
        assert status, f"a message came: {message.subject} {message.data!r}"
        return status, (message.headers or {}).get("Description", "")

    async def acknowledge(self, message: Msg, ack: bytes = b"+ACK") -> None:
        """Acknowledge and wait until the server has confirmed it."""
        client = self.subscription._conn
        await client.request(message.reply, ack, timeout=WAIT_S)


def status_of(message: Msg) -> str:
    """The code of a status message; empty for a real one."""
    return (message.headers or {}).get("Status", "") if not message.data else ""


async def eventually(condition: Any, what: str, timeout_s: float = WAIT_S) -> Any:
    """Poll what a server brings about by itself; the limit only ends what hangs."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await condition()
                if found:
                    return found
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited in vain for: {what}") from None
