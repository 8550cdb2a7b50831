"""What a publisher may ask for with a message's headers: expectations, message ids, roll-ups."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench, StreamOfRow
from tests.compat.table import Group

rows = Group("publish")


async def _told(stream: StreamOfRow, suffix: str = "a", payload: bytes = b"x", **headers: Any) -> Any:
    """The sequence; or err_code and text of the refusal; or ("duplicate", sequence)."""
    answer = await stream.publish(
        suffix, payload, {f"Nats-{k.replace('_', '-')}": v for k, v in headers.items()}
    )
    if "error" in answer:
        return answer["error"]["err_code"], answer["error"]["description"]
    return ("duplicate", answer["seq"]) if answer.get("duplicate") else answer["seq"]


@rows("refusal", "a refusal names the stream and sequence 0")
async def refusal(b: Bench) -> None:
    stream = await b.stream()
    answer = await stream.publish(headers={"Nats-Expected-Stream": "X"})
    error = {"code": 400, "err_code": 10060, "description": "expected stream does not match"}
    assert answer == {"error": error, "stream": stream.name, "seq": 0}


@rows("expected-stream", "the expected stream has to be this one; an empty one is none")
async def expected_stream(b: Bench) -> None:
    stream = await b.stream()
    assert await _told(stream, Expected_Stream=stream.name) == 1
    assert await _told(stream, Expected_Stream="") == 2


@rows("expected-last-sequence", "the expected last sequence has to be the stream's")
async def expected_last(b: Bench) -> None:
    stream = await b.stream()
    assert await _told(stream, Expected_Last_Sequence="0") == 1
    assert await _told(stream, Expected_Last_Sequence="7") == (10071, "wrong last sequence: 1")
    assert await _told(stream, Expected_Last_Sequence="0") == (10071, "wrong last sequence: 1")
    assert await _told(stream, Expected_Last_Sequence="1") == 2


@rows("expected-last-sequence.odd", "what is no number is a wrong sequence, and nothing is none")
async def expected_last_odd(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a")
    for value in ("abc", "-1", "1.0", "9" * 23):
        assert await _told(stream, Expected_Last_Sequence=value) == (10071, "wrong last sequence: 1"), value
    assert await _told(stream, Expected_Last_Sequence="") == 2
    assert await _told(stream, Expected_Last_Sequence="  2") == 3


@rows("expected-last-sequence.deleted", "deleted messages do not change the last sequence")
async def expected_last_deleted(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "b")
    await b.ok(f"STREAM.PURGE.{stream.name}")
    assert await _told(stream, Expected_Last_Sequence="2") == 3


@rows("expected-subject", "the expected last sequence of the subject; 0 for one without messages")
async def expected_subject(b: Bench) -> None:
    stream = await b.stream()
    assert await _told(stream, "a", Expected_Last_Subject_Sequence="0") == 1
    assert await _told(stream, "b", Expected_Last_Subject_Sequence="0") == 2
    assert await _told(stream, "a", Expected_Last_Subject_Sequence="2") == (10071, "wrong last sequence: 1")
    assert await _told(stream, "a", Expected_Last_Subject_Sequence="1") == 3
    assert await _told(stream, "c", Expected_Last_Subject_Sequence="1") == (10071, "wrong last sequence: 0")
    assert await _told(stream, "a", Expected_Last_Subject_Sequence="x") == (10071, "wrong last sequence: 3")


@rows("expected-subject.deleted", "a subject whose messages were deleted is at 0, or at the one before")
async def expected_subject_deleted(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("a", "a", "b")
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 2})
    assert await _told(stream, "a", Expected_Last_Subject_Sequence="1") == 4
    await b.ok(f"STREAM.PURGE.{stream.name}", {"filter": f"{stream.name}.a"})
    assert await _told(stream, "a", Expected_Last_Subject_Sequence="0") == 5


@rows("expected-subject.race", "of creates of one key that are in flight together, one wins")
async def expected_subject_race(b: Bench) -> None:
    stream = await b.stream()
    client = await b.connect()
    inbox = await client.subscribe(client.new_inbox())
    for _ in range(20):
        await client.publish(
            f"{stream.name}.key", b"x", inbox.subject, headers={"Nats-Expected-Last-Subject-Sequence": "0"}
        )
    answers = [(await inbox.next_msg(timeout=5)).data for _ in range(20)]
    assert sum(b"error" not in answer for answer in answers) == 1
    assert (await stream.state())["messages"] == 1


@rows("expected-subject.other", "the subject may be another one, or a pattern")
async def expected_other_subject(b: Bench) -> None:
    stream = await b.stream()
    await stream.fill("k.1", "k.2")
    other = f"{stream.name}.k."
    assert await _told(
        stream,
        Expected_Last_Subject_Sequence="1",
        Expected_Last_Subject_Sequence_Subject=f"{other}2",
    ) == (10071, "wrong last sequence: 2")
    for subject, seq in (
        (f"{other}1", "1"),
        (f"{other}*", "2"),
        (f"{other}3", "0"),
        ("elsewhere", "0"),
        ("a..b", "0"),
    ):
        found = await _told(
            stream, Expected_Last_Subject_Sequence=seq, Expected_Last_Subject_Sequence_Subject=subject
        )
        assert isinstance(found, int), (subject, found)


@rows("expected-subject.no-sequence", "a subject without a sequence is refused with 10193")
async def expected_no_sequence(b: Bench) -> None:
    stream = await b.stream()
    assert await _told(stream, Expected_Last_Subject_Sequence_Subject="x") == (
        10193,
        "missing sequence for expected last sequence per subject",
    )
    assert await _told(stream, Expected_Last_Subject_Sequence_Subject="") == 1


@rows(
    "expected-msg-id", "the expected last message id has to be the last message's, and the refusal names it"
)
async def expected_msg_id(b: Bench) -> None:
    stream = await b.stream()
    assert await _told(stream, Expected_Last_Msg_Id="m0") == (10070, "wrong last msg ID: ")
    assert await _told(stream, Msg_Id="m1") == 1
    assert await _told(stream, Expected_Last_Msg_Id="m0") == (10070, "wrong last msg ID: m1")
    assert await _told(stream, Expected_Last_Msg_Id="m1") == 2
    assert await _told(stream, Expected_Last_Msg_Id="m1") == (10070, "wrong last msg ID: ")
    assert await _told(stream, Expected_Last_Msg_Id="") == 3


@rows("msg-id", "a message id that is known is answered as a duplicate of its message")
async def msg_id(b: Bench) -> None:
    stream = await b.stream()
    assert await _told(stream, Msg_Id="m1") == 1
    assert await _told(stream, "b", Msg_Id="m1") == ("duplicate", 1)
    assert await _told(stream, Msg_Id="") == 2
    assert (await stream.state())["messages"] == 2


@rows("msg-id.deleted", "a message id is known while its window is open, whatever becomes of the message")
async def msg_id_deleted(b: Bench) -> None:
    stream = await b.stream()
    await _told(stream, Msg_Id="m1")
    await b.ok(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 1})
    assert await _told(stream, Msg_Id="m1") == ("duplicate", 1)


@rows("order", "of several rules that a message breaks, the publisher is told the first of this order")
async def order(b: Bench) -> None:
    stream = await b.stream()
    await _told(stream, Msg_Id="m1")
    await _told(stream)
    rules: list[tuple[str, str, Any]] = [
        ("Incr", "1", 10168),
        ("Expected_Stream", "X", 10060),
        ("TTL", "1", 10166),
        ("Expected_Last_Sequence", "9", 10071),
        ("Expected_Last_Subject_Sequence", "8", 10071),
        ("Schedule", "x", 10188),
        ("Msg_Id", "m1", "duplicate"),
        ("Expected_Last_Msg_Id", "m2", 10070),
        ("Rollup", "x", 10111),
    ]
    for first, (_, _, told) in enumerate(rules):
        found = await _told(stream, payload=b"", **{name: value for name, value, _ in rules[first:]})
        assert found[0] == told, (rules[first], found)


@rows("rollup.off", "a roll-up has to be allowed")
async def rollup_off(b: Bench) -> None:
    stream = await b.stream()
    for value in ("sub", "all", "x"):
        assert await _told(stream, Rollup=value) == (10111, "rollup not permitted")
    assert await _told(stream, Rollup="") == 1


@rows("rollup.sub", "a roll-up of its subject removes what went before on it")
async def rollup_sub(b: Bench) -> None:
    stream = await b.stream(allow_rollup_hdrs=True)
    await stream.fill("a", "b", "a")
    assert await _told(stream, "a", Rollup="sub") == 4
    state = await stream.state()
    assert (state["messages"], state["first_seq"]) == (2, 2)


@rows("rollup.all", "a roll-up of all removes all that went before, in any spelling")
async def rollup_all(b: Bench) -> None:
    stream = await b.stream(allow_rollup_hdrs=True)
    await stream.fill("a", "b", "a")
    assert await _told(stream, "c", Rollup="ALL") == 4
    state = await stream.state()
    assert (state["messages"], state["first_seq"]) == (1, 4)


@rows("rollup.unknown", "another word is refused")
async def rollup_unknown(b: Bench) -> None:
    stream = await b.stream(allow_rollup_hdrs=True)
    assert await _told(stream, Rollup="some") == (10111, 'rollup value invalid: "some"')


@rows("max-msg-size", "header and payload together are held against max_msg_size, before all else")
async def max_msg_size(b: Bench) -> None:
    stream = await b.stream(max_msg_size=50)
    assert await _told(stream, payload=b"x" * 50) == 1
    told = (10054, "message size exceeds maximum allowed")
    assert await _told(stream, payload=b"x" * 51) == told
    assert await _told(stream, payload=b"x" * 40, Foo="bar") == told
    assert await _told(stream, payload=b"x" * 51, Expected_Stream="X") == told


@rows("header-size", "a header of more than 64k is refused")
async def header_size(b: Bench) -> None:
    stream = await b.stream()
    assert await _told(stream, Long="x" * 70_000) == (10097, "header size exceeds maximum allowed of 64k")


@rows("full", "a full stream that discards new ones says what it is full of, after all other rules")
async def full(b: Bench) -> None:
    stream = await b.stream(discard="new", max_msgs=1)
    assert await _told(stream, Msg_Id="m1") == 1
    assert await _told(stream) == (10077, "maximum messages exceeded")
    assert await _told(stream, Expected_Last_Sequence="9") == (10071, "wrong last sequence: 1")
    assert await _told(stream, Msg_Id="m1") == ("duplicate", 1)


@rows("full.bytes", "the same of bytes")
async def full_bytes(b: Bench) -> None:
    stream = await b.stream(discard="new", max_bytes=200)
    assert await _told(stream, payload=b"x" * 10) == 1
    assert await _told(stream, payload=b"x" * 190) == (10077, "maximum bytes exceeded")


@rows("full.subject", "a stream that discards new ones per subject refuses only subjects that are full")
async def full_subject(b: Bench) -> None:
    stream = await b.stream(discard="new", discard_new_per_subject=True, max_msgs_per_subject=2)
    await stream.fill("a", "a")
    assert await _told(stream, "a") == (10077, "maximum messages per subject exceeded")
    assert await _told(stream, "b") == 3


@rows(
    "full.per-subject-old", "without that, max_msgs_per_subject removes old ones whatever is discarded else"
)
async def full_per_subject_old(b: Bench) -> None:
    stream = await b.stream(discard="new", max_msgs_per_subject=2, max_msgs=3)
    await stream.fill("a", "a", "a", "b")
    assert (await stream.state())["messages"] == 3


FORGED = "X 1 > > x"
NOT_ALLOWED = (10227, "message stream source header is not allowed")


@rows("stream-source", "only streams that take messages of others say where they come from, no client does")
async def stream_source(b: Bench) -> None:
    stream = await b.stream(allow_atomic=True)
    assert await _told(stream, Stream_Source=FORGED) == NOT_ALLOWED
    assert await _told(stream, Stream_Source="") == 1
    assert await _told(stream, Stream_Source_Not="x") == 2
    answer = await stream.publish(headers={"nats-stream-source": FORGED})
    assert answer["seq"] == 3
    batch = {"Batch_Id": "one", "Batch_Sequence": "1", "Batch_Commit": "1"}
    assert await _told(stream, Stream_Source=FORGED, **dict[str, Any](batch)) == NOT_ALLOWED
    assert (await stream.state())["messages"] == 3


@rows("stream-source.order", "which of several refusals comes before that one, and which behind")
async def stream_source_order(b: Bench) -> None:
    stream = await b.stream()
    assert await _told(stream, Msg_Id="one") == 1
    for name, value in (("Msg_Id", "one"), ("Rollup", "x"), ("TTL", "x"), ("Expected_Last_Msg_Id", "two")):
        told = await _told(stream, **dict[str, Any]({name: value}), Stream_Source=FORGED)
        assert told == NOT_ALLOWED, name
    for name, value, code in (
        ("Expected_Stream", "x", 10060),
        ("Expected_Last_Sequence", "9", 10071),
        ("TTL", "9", 10166),
        ("Schedule", "x", 10188),
    ):
        told = await _told(stream, **dict[str, Any]({name: value}), Stream_Source=FORGED)
        assert told[0] == code, name


@rows("unknown-extras", "headers that only go with others mean nothing alone")
async def extras(b: Bench) -> None:
    stream = await b.stream()
    for name in ("Batch_Sequence", "Batch_Commit", "Schedule_Target", "Schedule_TTL", "Counter_Sources"):
        assert isinstance(await _told(stream, **dict[str, Any]({name: "1"})), int), name
    for name in ("Incr", "Batch_Id", "Schedule"):
        assert isinstance(await _told(stream, **dict[str, Any]({name: ""})), int), name
