"""What differs of streams, of where they are placed, and of the API's words."""

from __future__ import annotations

import asyncio
from typing import Any

import nats.errors
import pytest
from tests.compat.bench import Bench
from tests.compat.differences import Differs
from tests.compat.table import SINGLES

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


memory_bytes = Differs(
    "stream.memory-bytes",
    "the bytes that a message in memory counts, in state.bytes and for max_bytes",
    nats="subject, headers, payload and 16: less than on disk",
    ours="as many as on disk, by nats-server's own count there",
    reason="a stream that is copied, mirrored or restored holds as much in memory as on disk",
)


async def _bytes_counted(b: Bench, storage: str) -> int:
    stream = await b.stream(storage=storage)
    await stream.publish("a", b"0123456789")
    return int((await stream.state())["bytes"]) - len(stream.name)


@memory_bytes
async def _fewer_in_memory(b: Bench) -> None:
    assert await _bytes_counted(b, "memory") == 28
    assert await _bytes_counted(b, "file") == 42


@memory_bytes.ours
async def _as_on_disk(b: Bench) -> None:
    assert await _bytes_counted(b, "memory") == await _bytes_counted(b, "file") == 42


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


json_texts = Differs(
    "api.json-texts",
    "what a refusal of wrong JSON says (10025)",
    nats="the words of Go's decoder",
    ours="the field, its value and what it has to be",
    reason="a person can mend that; no client compares texts of a decoder",
)


async def _wrong_json(b: Bench) -> str:
    answer = await b.api("STREAM.CREATE.S", {"name": "S", "max_age": "1s"})
    error = answer["error"]
    assert (error["code"], error["err_code"]) == (400, 10025)
    text: str = error["description"]
    return text


@json_texts
async def _words_of_go(b: Bench) -> None:
    assert "cannot unmarshal string into Go struct field" in await _wrong_json(b)


@json_texts.ours
async def _words_of_ours(b: Bench) -> None:
    assert "field 'max_age' is \"1s\", it has to be a whole number" in await _wrong_json(b)


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


takes_all = Differs(
    "workqueue.update-to-all",
    "an update that leaves a consumer of a work queue without a filter, beside another one",
    nats="is taken; both are given the other's messages, and what either acknowledges is gone",
    ours="is refused as a second consumer without a filter is (10099)",
    reason="a work queue's message is for one consumer, whichever way that came to be",
)


async def _to_all(b: Bench) -> dict[str, Any]:
    """The answer of the update."""
    stream = await b.stream(retention="workqueue")
    for name in ("a", "b"):
        await stream.consumer(name, filter_subject=f"{stream.name}.{name}")
    config = {"durable_name": "b", "ack_policy": "explicit"}
    return await b.api(
        f"CONSUMER.DURABLE.CREATE.{stream.name}.b", {"stream_name": stream.name, "config": config}
    )


@takes_all
async def _is_taken(b: Bench) -> None:
    assert "filter_subject" not in (await _to_all(b))["config"]


@takes_all.ours
async def _is_not(b: Bench) -> None:
    assert (await _to_all(b))["error"] == {
        "code": 400,
        "err_code": 10099,
        "description": "multiple non-filtered consumers not allowed on workqueue stream",
    }


consumers_by_default = Differs(
    "consumers.default-max",
    "the 1,001st consumer of a stream whose max_consumers is not set",
    nats="is refused (10026): what its configuration does not say is 1,000",
    ours="is created",
    reason="a stream may have 10,000 consumers and more; who wants a limit sets one, by stream or by account",
    on=SINGLES,
)


async def _thousand_and_one(b: Bench) -> dict[str, Any]:
    """The answer of the last one's creation."""
    stream = await b.stream(storage="memory")

    async def create(number: int) -> dict[str, Any]:
        config = {"durable_name": f"c{number}", "ack_policy": "explicit"}
        return await b.api(
            f"CONSUMER.DURABLE.CREATE.{stream.name}.c{number}",
            {"stream_name": stream.name, "config": config},
        )

    for first in range(0, 1000, 100):
        made = await asyncio.gather(*(create(number) for number in range(first, first + 100)))
        assert not any("error" in answer for answer in made)
    return await create(1000)


@consumers_by_default
async def _no_more(b: Bench) -> None:
    error = (await _thousand_and_one(b))["error"]
    assert (error["code"], error["err_code"]) == (400, 10026)


@consumers_by_default.ours
async def _one_more(b: Bench) -> None:
    assert (await _thousand_and_one(b))["name"] == "c1000"
