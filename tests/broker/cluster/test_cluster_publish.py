"""JetStream publishing through real processes and nats-py, with one broker and with three."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from nats.errors import NoRespondersError
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError
from tests.support.local_clusters import Fleet
from tests.support.tiers import case

pytestmark = pytest.mark.e2e


async def refused(publishing: Any) -> APIError:
    with pytest.raises(APIError) as caught:
        await publishing
    return caught.value


async def test_what_a_stream_does_not_permit_is_refused_in_the_words_of_nats(fleet: Fleet) -> None:
    await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="KEEP", subjects=["keep.>"], deny_delete=True, deny_purge=True)
    await js.add_stream(name="ROLL", subjects=["roll.>"], allow_rollup_hdrs=True)
    await js.add_stream(name="SEALED", subjects=["sealed.>"])
    for subject in ("keep.a", "roll.a", "sealed.a", "sealed.a"):
        await js.publish(subject, b"x")
    await js.update_stream(name="SEALED", subjects=["sealed.>"], sealed=True)
    for asking, err_code, words in (
        (js.purge_stream("KEEP"), 10110, "stream purge not permitted"),
        (js.delete_msg("KEEP", 1), 10057, "message delete not permitted"),
        (js.publish("keep.a", b"x", headers={"Nats-Rollup": "all"}), 10111, "rollup not permitted"),
        (js.publish("roll.a", b"x", headers={"Nats-Rollup": "bad"}), 10111, 'rollup value invalid: "bad"'),
        (js.purge_stream("SEALED"), 10109, "invalid operation on sealed stream"),
        (js.delete_msg("SEALED", 1), 10109, "invalid operation on sealed stream"),
        (js.publish("sealed.a", b"x"), 10109, "invalid operation on sealed stream"),
    ):
        wrong = await refused(asking)
        assert (wrong.err_code, wrong.description) == (err_code, words)


async def test_a_direct_get_is_answered_by_a_message_or_a_status(fleet: Fleet) -> None:
    await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="D", subjects=["d"], allow_direct=True)
    await js.publish("d", b"x")
    assert (await js.get_msg("D", 1, direct=True)).data == b"x"
    with pytest.raises(NotFoundError):
        await js.get_msg("D", 2, direct=True)
    with pytest.raises(NoRespondersError):
        await js.get_msg("NONE", 1, direct=True)
    client = await fleet.client()
    for payload in (b"", b"{"):
        answer = await client.request("$JS.API.DIRECT.GET.D", payload, timeout=30)
        assert answer.headers is not None
        assert (answer.headers["Status"], answer.data) == ("408", b"")


async def test_a_stream_begins_at_the_sequence_that_it_was_given(fleet: Fleet) -> None:
    await fleet.start(1)
    js = await fleet.js()
    created = await js.add_stream(name="LATER", subjects=["later"], first_seq=100)
    assert (created.state.first_seq, created.state.last_seq) == (100, 99)
    assert [(await js.publish("later", b"x")).seq for _ in range(2)] == [100, 101]
    state = (await js.stream_info("LATER")).state
    assert (state.messages, state.first_seq, state.last_seq) == (2, 100, 101)


@pytest.mark.covers("SF-1", "SF-12")
async def test_publishes_are_acknowledged_judged_and_told_apart(fleet: Fleet) -> None:
    await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s.>"])
    first = await js.publish("s.a", b"one", headers={"Nats-Msg-Id": "1"})
    again = await js.publish("s.a", b"one", headers={"Nats-Msg-Id": "1"})
    assert (first.stream, first.seq, first.duplicate) == ("S", 1, None)
    assert (again.seq, again.duplicate) == (1, True)

    wrong = await refused(js.publish("s.a", b"x", headers={"Nats-Expected-Last-Sequence": "7"}))
    assert (wrong.err_code, wrong.description) == (10071, "wrong last sequence: 1")
    wrong = await refused(js.publish("s.a", b"x", headers={"Nats-Expected-Last-Subject-Sequence": "0"}))
    assert (wrong.err_code, wrong.description) == (10071, "wrong last sequence: 1")
    wrong = await refused(js.publish("s.a", b"x", headers={"Nats-Expected-Last-Msg-Id": "2"}))
    assert wrong.err_code == 10070
    wrong = await refused(js.publish("s.a", b"x", headers={"Nats-Expected-Stream": "T"}))
    assert wrong.err_code == 10060
    good = await js.publish(
        "s.a",
        b"two",
        headers={
            "Nats-Expected-Stream": "S",
            "Nats-Expected-Last-Sequence": "1",
            "Nats-Expected-Last-Msg-Id": "1",
            "Nats-Expected-Last-Subject-Sequence": "1",
        },
    )
    assert good.seq == 2
    assert (await js.stream_info("S")).state.messages == 2


@pytest.mark.covers("SF-12")
async def test_of_many_creates_of_one_key_in_flight_one_wins(fleet: Fleet) -> None:
    await fleet.start(3)
    js = await fleet.js()
    await js.add_stream(name="KEYS", subjects=["k.>"], num_replicas=3)
    clients = [await fleet.js(broker) for broker in fleet.running]

    async def create(number: int) -> int | None:
        headers = {"Nats-Expected-Last-Subject-Sequence": "0"}
        publishing = clients[number % 3].publish(f"k.{number // 12}", b"%d" % number, headers=headers)
        (answer,) = await asyncio.gather(publishing, return_exceptions=True)
        if isinstance(answer, APIError) and answer.err_code == 10071:
            return None
        assert not isinstance(answer, BaseException), answer
        return answer.seq

    answers = await asyncio.gather(*(create(number) for number in range(60)))
    assert sorted(seq for seq in answers if seq is not None) == [1, 2, 3, 4, 5]
    assert (await js.stream_info("KEYS")).state.messages == 5


async def test_hostile_headers_and_subjects_are_refused_and_disturb_nothing(fleet: Fleet) -> None:
    await fleet.start(1)
    client = await fleet.client()
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.>"], allow_rollup_hdrs=True, max_msg_size=20_000)
    wrong = await refused(js.publish("s.a", b"", headers={"Nats-Expected-Last-Sequence": "9" * 5000}))
    assert wrong.err_code == 10071
    wrong = await refused(js.publish("s.a", b"x" * 20_001))
    assert wrong.err_code == 10054
    wrong = await refused(js.publish("s.a", b"x", headers={"Nats-Rollup": "some"}))
    assert wrong.err_code == 10111
    for payload in (
        b"{",
        b"[" * 200_000,
        b"1" * 5000,
        b'{"batch":' + b"9" * 5000 + b"}",
        b"\xff",
    ):
        # What does not begin as a document is no body of a purge, as on nats-server.
        purge = ("STREAM.PURGE.S",) if payload[:1] in (b"{", b"[") else ()
        for verb in ("STREAM.CREATE.X", *purge, "STREAM.MSG.GET.S", "CONSUMER.CREATE.S.c"):
            answer = json.loads((await client.request(f"$JS.API.{verb}", payload, timeout=5)).data)
            assert answer["error"]["err_code"] == 10025, (payload[:20], verb, answer)
    assert (await js.publish("s.a", b"still there")).seq == 1


async def test_subjects_that_are_no_text_are_stored_read_and_rolled_up(fleet: Fleet) -> None:
    """NATS carries any bytes in a subject; nothing that looks at one may stumble over them."""
    (broker,) = await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s.>"], allow_rollup_hdrs=True, max_msgs_per_subject=2)
    reader, writer = await asyncio.open_connection(broker.host, 4222)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
    header = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
    writer.write(b"PUB s.\xff\xfe 1\r\na\r\n" * 3)
    writer.write(b"HPUB s.\xff\xfe %d %d\r\n%sb\r\n" % (len(header), len(header) + 1, header))
    writer.write(b"PUB $JS.API.STREAM.INFO.\xff r 0\r\n\r\nPUB $JS.API.\xff.\xff r 0\r\n\r\n")
    writer.write(b"PUB $JS.ACK.\xff.\xff.1.1.1.1.1 0\r\n\r\nPING\r\n")
    while (await reader.readline()) != b"PONG\r\n":
        pass
    await js.publish("s.end", b"c")
    state = (await js.stream_info("S", subjects_filter=">")).state
    assert (state.messages, state.last_seq) == (2, 5)
    writer.close()


async def test_limits_discard_and_full_streams(fleet: Fleet) -> None:
    await fleet.start(1)
    js = await fleet.js()
    await js.add_stream(name="OLD", subjects=["old"], max_msgs=10)
    await js.add_stream(name="NEW", subjects=["new.*"], max_msgs=10, discard="new")
    await js.add_stream(name="BYTES", subjects=["bytes"], max_bytes=2000, discard="new")
    for number in range(25):
        await js.publish("old", b"%d" % number)
    state = (await js.stream_info("OLD")).state
    assert (state.messages, state.first_seq, state.last_seq) == (10, 16, 25)

    async def count_accepted(subject: str) -> int:
        publishing = (js.publish(subject, b"x" * 100) for _ in range(30))
        answers = await asyncio.gather(*publishing, return_exceptions=True)
        refusals = [answer for answer in answers if isinstance(answer, BaseException)]
        assert all(isinstance(found, APIError) and found.err_code == 10077 for found in refusals), refusals
        return len(answers) - len(refusals)

    assert await count_accepted("new.a") == 10
    assert await count_accepted("bytes") == 2000 // (100 + 5 + 30)
    assert (await js.stream_info("BYTES")).state.bytes <= 2000


@pytest.mark.parametrize(
    ("replicas", "storage"),
    [
        case(replicas, storage, id=f"{replicas}-{storage}", is_short=(replicas, storage) == (3, "file"))
        for replicas in (1, 3)
        for storage in ("file", "memory")
    ],
)
async def test_the_stream_api_on_every_storage(fleet: Fleet, replicas: int, storage: str) -> None:
    await fleet.start(replicas)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s.*"], num_replicas=replicas, storage=storage)
    for number in range(10):
        await js.publish(f"s.{number % 2}", b"%d" % number)
    info = await js.stream_info("S")
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (10, 1, 10)
    if replicas > 1:
        assert info.cluster is not None
        assert len(info.cluster.replicas or []) == replicas - 1
    assert [found.config.name for found in await js.streams_info()] == ["S"]
    assert await js.find_stream_name_by_subject("s.1") == "S"
    assert (await js.get_msg("S", 3)).data == b"2"
    assert (await js.get_last_msg("S", "s.0")).data == b"8"
    assert await js.delete_msg("S", 4)
    with pytest.raises(NotFoundError):
        await js.get_msg("S", 4)
    await js.update_stream(name="S", subjects=["s.*", "t"], num_replicas=replicas, storage=storage)
    assert (await js.publish("t", b"x")).seq == 11
    await js.purge_stream("S", subject="s.0")
    assert (await js.stream_info("S")).state.messages == 5
    await js.purge_stream("S", keep=2)
    assert (await js.stream_info("S")).state.messages == 2
    await js.purge_stream("S")
    state = (await js.stream_info("S")).state
    assert (state.messages, state.first_seq, state.last_seq) == (0, 12, 11)
    assert (await js.publish("s.0", b"on")).seq == 12
    assert await js.delete_stream("S")
    with pytest.raises(NotFoundError):
        await js.stream_info("S")
    wrong = await refused(js.add_stream(name="BIG", subjects=["b"], num_replicas=5))
    if replicas == 1:
        assert wrong.err_code == 10074
    else:
        assert wrong.err_code == 10005
        assert "east-0, east-1, east-2" in str(wrong.description)


async def publish_many(js: JetStreamContext, subject: str, count: int) -> None:
    """Acknowledged publishes, a few hundred in flight."""
    for start in range(0, count, 250):
        await asyncio.gather(
            *(js.publish(subject, b"%d" % number) for number in range(start, min(start + 250, count)))
        )


@pytest.mark.long  # As three on three.
async def test_five_replicas_on_five_brokers(fleet: Fleet) -> None:
    await fleet.start(5)
    js = await fleet.js()
    await js.add_stream(name="S", subjects=["s"], num_replicas=5)
    await publish_many(js, "s", 200)
    rows = await fleet.level("S", 5)
    assert rows[0]["state"]["messages"] == 200
    leader = await fleet.leader("S")
    leader.kill()
    (await fleet.followers("S"))[0].kill()
    writer = await fleet.js()
    assert (await writer.publish("s", b"two of five are gone")).seq == 201
    await writer.update_stream(api.StreamConfig(name="S", subjects=["s", "more"], num_replicas=5))
    assert (await writer.publish("more", b"")).seq == 202
