"""What differs for clients of plain NATS: CONNECT, subscriptions and queue groups."""

from __future__ import annotations

from tests.compat.bench import Bench
from tests.compat.differences import Differs
from tests.compat.rows.core import heard_everywhere
from tests.compat.table import CLUSTERS

queue_locality = Differs(
    "queue.locality",
    "a queue group with members on the publisher's server and on another of its cluster",
    nats="members of the whole cluster share the messages",
    ours="members on the publisher's own server get all of them",
    reason="CL-2: what can be done where the message is does not cross a link",
    on=CLUSTERS,
)


async def _near_and_far(b: Bench) -> tuple[int, int]:
    """How many of 100 messages the near and the far member of a queue group get."""
    subject = b.subject()
    near, far = await b.raw(), await b.raw(node=b.node + 1)
    publisher = await heard_everywhere(b, subject, [far, near])
    for member in (far, near):
        member.send(f"SUB {subject} q 1\r\n")
        await member.ping()
    await heard_everywhere(b, f"{subject}.again", [far, near])
    publisher.send(f"PUB {subject} 1\r\nx\r\n" * 100)
    publisher.send("".join(f"PUB {subject}.heard.{number} 3\r\nend\r\n" for number in (0, 1)))
    counts = []
    for member in (near, far):
        count = 0
        while (message := await member.message()).payload != b"end":
            count += message.subject == subject
        counts.append(count)
    assert sum(counts) == 100
    return counts[0], counts[1]


@queue_locality
async def _shared(b: Bench) -> None:
    near, far = await _near_and_far(b)
    assert near > 10
    assert far > 10


@queue_locality.ours
async def _near_first(b: Bench) -> None:
    assert await _near_and_far(b) == (100, 0)


wildcard_publish = Differs(
    "publish.wildcards",
    "a message that is published to a subject with wildcards",
    nats="is delivered and stored under that subject as it stands",
    ours="is neither; who asks for an answer hears that nobody is there",
    reason="a message's subject names one: nobody could subscribe to it, purge it or read it without meaning others too",
)


async def _published_to_wildcards(b: Bench) -> int:
    """How many messages a stream holds afterwards."""
    stream = await b.stream()
    client = await b.raw(pedantic=False)
    client.send(f"PUB {stream.name}.* 1\r\nx\r\n")
    await client.ping()
    await stream.publish("a")
    return int((await stream.state())["messages"])


@wildcard_publish
async def _stored_under_wildcards(b: Bench) -> None:
    assert await _published_to_wildcards(b) == 2


@wildcard_publish.ours
async def _not_stored(b: Bench) -> None:
    assert await _published_to_wildcards(b) == 1


verbose_default = Differs(
    "connect.verbose",
    "a CONNECT that says nothing about verbose",
    nats="counts as verbose: every operation is answered with +OK",
    ours="does not",
    reason="every client says which it wants; who types by hand asks for nothing",
)


@verbose_default
async def _verbose(b: Bench) -> None:
    client = await b.raw(connect=False)
    client.send("CONNECT {}\r\nPING\r\n")
    await client.expect("+OK", "PONG")


@verbose_default.ours
async def _quiet(b: Bench) -> None:
    client = await b.raw(connect=False)
    client.send("CONNECT {}\r\nPING\r\n")
    await client.expect("PONG")


parser_error = Differs(
    "connect.parser-error",
    "an operation with wrong words",
    nats="ends the connection without a word",
    ours="ends it with -ERR 'Parser Error'",
    reason="every error says its reason",
)


@parser_error
async def _silent_end(b: Bench) -> None:
    client = await b.raw()
    client.send("PUB a x\r\n")
    assert await client.closed() == []


@parser_error.ours
async def _said_end(b: Bench) -> None:
    client = await b.raw()
    client.send("PUB a x\r\n")
    assert await client.closed() == ["-ERR 'Parser Error'"]


queue_length = Differs(
    "subscribe.long-queue",
    "a queue group's name of more than 255 bytes",
    nats="is taken",
    ours="is refused with -ERR 'Invalid Subject'",
    reason="names of groups travel between brokers with one byte of length",
)


@queue_length
async def _long_queue(b: Bench) -> None:
    client = await b.raw()
    client.send(f"SUB a {'q' * 300} 1\r\n")
    await client.ping()


@queue_length.ours
async def _long_queue_refused(b: Bench) -> None:
    client = await b.raw()
    client.send(f"SUB a {'q' * 300} 1\r\n")
    await client.expect("-ERR 'Invalid Subject'")
    await client.ping()
