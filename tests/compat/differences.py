"""Where these brokers differ from nats-server on purpose: both behaviours, each asserted on its own server, and why.

Every difference is two functions and a reason.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import nats.errors
import pytest
from nats.aio.subscription import Subscription
from tests.compat.bench import Bench
from tests.compat.rows.core import heard_everywhere
from tests.compat.table import CLUSTERS, EVERYWHERE, PLAIN, SINGLES, Row, Run, Settings, register


@dataclass(frozen=True)
class Difference:
    """One behaviour that is not NATS's."""

    id: str
    title: str
    nats: str
    ours: str
    reason: str


DIFFERENCES: list[Difference] = []


class Differs:
    """Registers one difference as a row: `@Differs(...)` goes on what nats-server does, `.ours` on what ours do."""

    def __init__(
        self,
        name: str,
        title: str,
        *,
        nats: str,
        ours: str,
        reason: str,
        on: tuple[str, ...] = EVERYWHERE,
        settings: Settings = PLAIN,
    ) -> None:
        assert reason, f"{name}: a difference needs a reason"
        DIFFERENCES.append(Difference(name, title, nats, ours, reason))
        self._nats: Run | None = None
        self._ours: Run | None = None
        register(Row(f"differs.{name}", title, self._run, on, settings))

    def __call__(self, run: Run) -> Differs:
        """What nats-server does."""
        self._nats = run
        return self

    def ours(self, run: Run) -> Differs:
        """What these brokers do."""
        self._ours = run
        return self

    async def _run(self, b: Bench) -> None:
        run = self._ours if b.is_ours else self._nats
        assert run is not None, "a difference asserts both behaviours"
        await run(b)


wildcard_interest = Differs(
    "push.wildcard",
    "a wildcard subscription and a push consumer's deliver subject",
    nats="only a subscription to just the deliver subject makes the consumer deliver",
    ours="any subscription that would get the messages does",
    reason="whoever would be given the messages listens for them",
)


async def _wildcard_listener(b: Bench) -> Subscription:
    """A subscription to `<subject>.*`, and a push consumer that delivers to `<subject>.deliver`."""
    stream = await b.stream()
    await stream.fill("a")
    subject = b.subject()
    inbox = await b.subscribe(f"{subject}.*")
    await stream.consumer(deliver_subject=f"{subject}.deliver")
    return inbox


@wildcard_interest
async def _wildcard_nats(b: Bench) -> None:
    inbox = await _wildcard_listener(b)
    with pytest.raises(nats.errors.TimeoutError):
        await inbox.next_msg(timeout=0.5)


@wildcard_interest.ours
async def _wildcard_ours(b: Bench) -> None:
    inbox = await _wildcard_listener(b)
    assert (await inbox.next_msg(timeout=5)).data == b"a"


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


unknown_call = Differs(
    "api.unknown-call",
    "a call under $JS.API that is none",
    nats="is not answered",
    ours="is refused with err_code 19002",
    reason="what these brokers do not have is refused by name, never passed over in silence",
)


@unknown_call
async def _unanswered(b: Bench) -> None:
    with pytest.raises(nats.errors.TimeoutError):
        await b.nc.request("$JS.API.STREAM.NONSENSE", b"", timeout=0.3)


@unknown_call.ours
async def _refused_call(b: Bench) -> None:
    answer = await b.api("STREAM.NONSENSE")
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 19002)


first_seq_update = Differs(
    "stream.first-seq-update",
    "an update with another first_seq",
    nats="is taken, and changes nothing but the configuration",
    ours="is refused with 10052",
    reason="a setting that has no effect misleads, and a replica made later would take it for where to begin",
)


@first_seq_update
async def _first_seq_taken(b: Bench) -> None:
    stream = await b.stream()
    await stream.update(first_seq=10)
    assert (await stream.publish("a"))["seq"] == 1


@first_seq_update.ours
async def _first_seq_refused(b: Bench) -> None:
    stream = await b.stream()
    await stream.update_refused(
        first_seq=10,
        code=500,
        err_code=10052,
        text="stream configuration update can not change first_seq",
    )


purge_beyond = Differs(
    "stream.purge-beyond",
    "a purge up to a sequence beyond the last",
    nats="makes the stream go on there",
    ours="removes all, and the stream goes on behind its last message",
    reason="sequences are given by publishes alone (SF-12)",
    on=SINGLES,
)


async def _purged_to_99(b: Bench) -> int:
    stream = await b.stream()
    await stream.fill("a", "b")
    await b.ok(f"STREAM.PURGE.{stream.name}", {"seq": 99})
    found: int = (await stream.publish("a"))["seq"]
    return found


@purge_beyond
async def _jumps(b: Bench) -> None:
    assert await _purged_to_99(b) == 99


@purge_beyond.ours
async def _goes_on(b: Bench) -> None:
    assert await _purged_to_99(b) == 3


delete_beyond = Differs(
    "stream.delete-beyond",
    "deleting a message that never was",
    nats="err_code 10057, stream store EOF",
    ours="err_code 10043, which names the sequence",
    reason="it is the error of a message that is gone, and says which",
    on=SINGLES,
)


@delete_beyond
async def _store_eof(b: Bench) -> None:
    stream = await b.stream()
    answer = await b.api(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 99})
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, 10057)


@delete_beyond.ours
async def _not_found(b: Bench) -> None:
    stream = await b.stream()
    await b.refused(
        f"STREAM.MSG.DELETE.{stream.name}",
        {"seq": 99},
        code=400,
        err_code=10043,
        text="sequence 99 not found",
    )


placement_preferred = Differs(
    "stream.placement-preferred",
    "placement.preferred in a stream's configuration",
    nats="is refused: it is for step-downs",
    ours="names the broker that should lead the stream",
    reason="a stream's leader is worth a wish of its own (docs/adr/moves.md)",
    on=SINGLES,
)


@placement_preferred
async def _preferred_refused(b: Bench) -> None:
    await b.stream_refused(
        placement={"preferred": "east-0"},
        code=500,
        err_code=10052,
        text="preferred server not permitted in placement",
    )


@placement_preferred.ours
async def _preferred_kept(b: Bench) -> None:
    stream = await b.stream(placement={"preferred": "east-0"})
    assert stream.config["placement"] == {"preferred": "east-0"}


placement_alone = Differs(
    "stream.placement-alone",
    "a placement that a server alone does not satisfy",
    nats="is taken: a server that is no cluster does not look at it",
    ours="is refused with 10005, and the text says which broker lacks what",
    reason="a broker alone is a cluster of one, and may be joined by others (MV-2)",
    on=SINGLES,
)


@placement_alone
async def _placed_anyhow(b: Bench) -> None:
    await b.stream(placement={"cluster": "nowhere"})


@placement_alone.ours
async def _not_placed(b: Bench) -> None:
    name = b.name()
    answer = await b.api(f"STREAM.CREATE.{name}", {"name": name, "placement": {"cluster": "nowhere"}})
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10005)
    assert "cluster east, not nowhere" in answer["error"]["description"]


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


@Differs(
    "origins.reader",
    "who takes messages from a work queue",
    nats="a source of a work queue makes a durable consumer there, which CONSUMER.NAMES shows",
    ours="the queue notes by itself who takes from it, and shows no consumer",
    reason="the position has to be in the log entry that has the messages, and a consumer would be a second one",
)
async def _reader(b: Bench) -> None:
    names = await _takers(b)
    assert len(names) == 1
    assert names[0].startswith("JS_SRC_")


@_reader.ours
async def _no_reader(b: Bench) -> None:
    assert await _takers(b) == []


async def _takers(b: Bench) -> list[str]:
    """The consumers of a work queue that a stream has as its source."""
    origin = await b.stream(retention="workqueue")
    stream = await b.stream(sources=[{"name": origin.name}])
    await origin.fill("a")
    while not (await stream.state())["messages"]:
        await asyncio.sleep(0.01)
    return (await b.ok(f"CONSUMER.NAMES.{origin.name}"))["consumers"] or []


@Differs(
    "origins.external",
    "an origin behind a prefix",
    nats="external is taken as it is; the origin is found or not, later",
    ours="external is refused (19002)",
    reason="there are no domains, and streams are not reached over imports: the mirror would never get a message",
)
async def _external(b: Bench) -> None:
    await b.stream(mirror={"name": "O", "external": {"api": "$JS.hub.API"}})


@_external.ours
async def _no_external(b: Bench) -> None:
    answer = await b.api(
        "STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O", "external": {"api": "$JS.hub.API"}}}
    )
    assert answer["error"]["err_code"] == 19002
    assert "external" in answer["error"]["description"]
