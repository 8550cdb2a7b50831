"""The codec of entries and frames, and the replicated memory of who has sent what."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.encoding.codec import Reader, WireError
from supercluster.broker.jetstream.encoding.sections import (
    Exceptional,
    MessagesSection,
    Section,
    SessionKey,
    VerdictRun,
    decode_block,
    decode_messages,
    decode_run,
    encode_block,
    encode_messages,
    encode_run,
    packed,
    section,
    sections,
)
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Forward
from supercluster.broker.jetstream.state.publish_sessions import RETIRED_MAX, PublishSessions, SessionState
from supercluster.broker.ports import ClientInfo

U64 = st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 2**40)
NAMES = st.text(min_size=1, max_size=8)
KEYS = st.builds(SessionKey, NAMES, NAMES, SMALL)
PARTS = st.lists(
    st.tuples(st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9)), max_size=6
).map(lambda rows: [part for row in rows for part in row])


@st.composite
def runs(draw: Callable[..., Any]) -> VerdictRun:
    count = draw(st.integers(1, 12))
    offsets = draw(st.sets(st.integers(0, count - 1)))
    items = tuple(
        Exceptional(
            offset,
            draw(st.integers(1, 6)),
            draw(st.integers(0, 65535)),
            draw(U64),
            draw(st.binary(max_size=9)),
        )
        for offset in sorted(offsets)
    )
    return VerdictRun(draw(st.integers(1, 2**40)), count, draw(SMALL), items)


def joined(body: list[bytes | memoryview]) -> bytes:
    return b"".join(bytes(part) for part in body)


@st.composite
def alike(draw: Callable[..., Any]) -> list[bytes]:
    """Messages of one publisher: each part has the same length in all of them."""
    sizes = [draw(st.integers(0, 5)) for _ in range(3)]
    count = draw(st.integers(0, 6))
    return [draw(st.binary(min_size=size, max_size=size)) for _ in range(count) for size in sizes]


@given(PARTS | alike())
def test_blocks_come_back_as_they_were(parts: list[bytes]) -> None:
    found = decode_block(encode_block(parts))
    assert found.parts() == parts
    assert found.subjects() == parts[::3]
    assert found.subjects() == parts[0::3]
    assert found.has_headers == any(parts[1::3])
    assert found.count == len(parts) // 3


@given(PARTS, st.data())
def test_a_block_that_is_cut_or_longer_than_it_says_is_refused(
    parts: list[bytes], data: st.DataObject
) -> None:
    whole = encode_block(parts)
    with pytest.raises(WireError):
        decode_block(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(WireError):
        decode_block(whole + b"x")


@given(KEYS, SMALL, runs(), PARTS)
def test_sections_come_back_as_they_were(
    key: SessionKey, confirmed: int, run: VerdictRun, parts: list[bytes]
) -> None:
    wanted = MessagesSection(key, confirmed, run, encode_block(parts))
    payload = joined(
        section(Section.MESSAGES, encode_messages(wanted)) + section(Section.EXPIRE, [b"12345678"])
    )
    (one, body), (other, rest) = sections(payload)
    assert (one, other, bytes(rest)) == (Section.MESSAGES, Section.EXPIRE, b"12345678")
    found = decode_messages(body)
    assert (found.session, found.confirmed, found.run) == (key, confirmed, run)
    assert bytes(found.block) == wanted.block
    for size in range(1, len(payload)):
        if size == len(payload) - 8 - 5:
            continue  # Between two sections: what is left is whole.
        with pytest.raises(WireError):
            list(sections(payload[:size]))


@given(runs())
def test_a_run_comes_back_and_its_tails_say_the_same(run: VerdictRun) -> None:
    def verdicts(found: VerdictRun) -> dict[int, Any]:
        exceptions = {item.offset: (item.verdict, item.code, item.seq) for item in found.exceptions}
        seq, said = found.first_seq, {}
        for offset in range(found.count):
            said[found.first_number + offset] = exceptions.get(offset, seq)
            seq += offset not in exceptions
        return said

    raw = encode_run(run)
    assert decode_run(Reader(raw)) == run
    for size in range(len(raw)):
        with pytest.raises(WireError):
            decode_run(Reader(raw[:size]))
    whole = verdicts(run)
    assert run.stored == sum(isinstance(said, int) for said in whole.values())
    for number in range(run.first_number, run.last_number + 1):
        assert verdicts(run.tail(number)) == {at: said for at, said in whole.items() if at >= number}


FRAMES: list[tuple[Callable[..., frames.Body], Callable[[memoryview], Any], tuple[Any, ...], Any]] = [
    (
        frames.encode_numbered,
        frames.decode_numbered,
        ("g", SessionKey("n", "i", 7), 9),
        ("g", SessionKey("n", "i", 7), 9),
    ),
    (frames.encode_open, frames.decode_open, ("g", SessionKey("n", "i", 3)), ("g", SessionKey("n", "i", 3))),
    (
        frames.encode_leaderships,
        frames.decode_leaderships,
        ([frames.Leadership("g", 3, "n", b"members"), frames.Leadership("h", 1, "n", b"")],),
        [frames.Leadership("g", 3, "n", b"members"), frames.Leadership("h", 1, "n", b"")],
    ),
    (
        frames.encode_request,
        frames.decode_request,
        (frames.Request("i", 1, "g", ClientInfo("$G", "u", True), b"s", b"r", b"h", b"p"),),
        frames.Request("i", 1, "g", ClientInfo("$G", "u", True), b"s", b"r", b"h", b"p"),
    ),
    (
        frames.encode_response,
        frames.decode_response,
        ("i", 5, 3, b"x"),
        ("i", 5, frames.ResponseStatus.CONTINUE, b"x"),
    ),
    (
        frames.encode_acks,
        frames.decode_acks,
        ("g", [(b"a", b"b", b"c")] * 2),
        ("g", [(b"a", b"b", b"c")] * 2),
    ),
    (frames.encode_number, frames.decode_number, (11,), 11),
    (
        frames.encode_raft,
        frames.decode_raft,
        ([("g", [b"ab", b"c"]), ("h", [b"d"])],),
        [("g", b"abc"), ("h", b"d")],
    ),
]


@pytest.mark.parametrize(("encode", "decode", "given_values", "expected"), FRAMES)
def test_frames_come_back_and_garbage_is_refused(
    encode: Callable[..., frames.Body], decode: Callable[[memoryview], Any], given_values: Any, expected: Any
) -> None:
    raw = joined(encode(*given_values))
    assert decode(memoryview(raw)) == expected
    for size in range(len(raw) - 1 if encode is frames.encode_response else len(raw)):
        try:
            shorter = decode(memoryview(raw[:size]))
        except WireError:
            continue
        assert shorter != expected


@given(KEYS, SMALL, SMALL, SMALL, st.booleans(), PARTS)
def test_forwards_come_back(
    key: SessionKey, first: int, confirmed: int, version: int, early: bool, parts: list[bytes]
) -> None:
    forward = Forward(key, first, confirmed, version, encode_block(parts))
    raw = joined(frames.encode_forward("group", forward, early=early))
    assert frames.decode_forward(memoryview(raw)) == ("group", forward, early)


@given(st.lists(runs(), max_size=3), st.booleans())
def test_verdicts_come_back(found: list[VerdictRun], appended: bool) -> None:
    key = SessionKey("n", "i", 4)
    raw = joined(frames.encode_verdicts("g", key, found, appended=appended))
    assert frames.decode_verdicts(memoryview(raw)) == ("g", key, appended, found)


@given(st.binary(max_size=80))
def test_no_garbage_gets_further_than_the_codec(raw: bytes) -> None:
    for decode in (
        frames.decode_raft,
        frames.decode_forward,
        frames.decode_verdicts,
        frames.decode_numbered,
        frames.decode_open,
        frames.decode_leaderships,
        frames.decode_request,
        frames.decode_response,
        frames.decode_acks,
        frames.decode_number,
        decode_block,
    ):
        try:
            decode(memoryview(raw))
        except WireError:
            pass


# ---- sessions -------------------------------------------------------------------------------------------------------

A1, A2 = SessionKey("n", "vol-a", 1), SessionKey("n", "vol-a", 2)
B1 = SessionKey("n", "vol-b", 1)


@pytest.mark.covers("SF-10")
def test_opening_shuts_out_what_came_before_and_never_lets_it_in_again() -> None:
    table = PublishSessions()
    assert table.open(A1)
    assert table.open(A1)
    assert table.open(A2)
    assert table.shut_out(A1)
    assert not table.open(A1)
    assert table.open(B1)
    assert table.shut_out(A2)
    assert not table.open(A2)
    assert table.current(B1) is not None
    assert table.current(A2) is None


def test_volumes_that_are_gone_are_remembered_within_a_bound() -> None:
    table = PublishSessions()
    for number in range(RETIRED_MAX + 5):
        assert table.open(SessionKey("n", f"vol-{number}", 1))
    assert table.shut_out(SessionKey("n", f"vol-{RETIRED_MAX}", 9))
    assert len(table.states()[0].retired) == RETIRED_MAX


@pytest.mark.covers("SF-11")
@given(st.lists(runs(), min_size=1, max_size=8), st.data())
def test_a_number_keeps_its_verdict_until_its_sender_knows_it(
    found: list[VerdictRun], data: st.DataObject
) -> None:
    state, said = SessionState(A1), {}
    number, seq = 1, 1
    for run in found:
        run = VerdictRun(number, run.count, seq, run.exceptions)
        for at in range(number, run.last_number + 1):
            one = run.tail(at)
            exceptional = bool(one.exceptions) and one.exceptions[0].offset == 0
            said[at] = one.exceptions[0] if exceptional else one.first_seq
        number, seq = run.last_number + 1, seq + run.stored
        state.record(run, 0)
    with pytest.raises(AssertionError):
        state.record(VerdictRun(number + 1, 1, 1), 0)
    confirmed = data.draw(st.integers(0, number + 5))
    state.confirm(confirmed)
    state.confirm(0)
    assert state.confirmed == min(confirmed, number - 1)
    again: dict[int, Any] = {}
    start = data.draw(st.integers(1, number))
    count = data.draw(st.integers(1, number))
    for run in state.verdicts(start, count):
        for at in range(run.first_number, run.last_number + 1):
            one = run.tail(at)
            exceptional = bool(one.exceptions) and one.exceptions[0].offset == 0
            again[at] = one.exceptions[0] if exceptional else one.first_seq
    known = {at: verdict for at, verdict in said.items() if at >= max(start, state.confirmed + 1)}
    assert again.items() <= known.items()
    assert again.keys() >= {at for at in known if at < start + count}
    table = PublishSessions()
    table._by_node["n"] = state
    assert PublishSessions.decode(Reader(table.encode())).encode() == table.encode()


def test_packed_sections_are_read_as_what_they_hold_and_only_where_that_saves_something() -> None:
    plain = b"".join(
        bytes(part) for body in (b"x" * 400, b"", b"y" * 99) for part in section(Section.PURGE, [body])
    )
    small = packed(plain)
    assert len(small) < len(plain) // 4
    assert list(sections(small)) == list(sections(plain))
    after = small + b"".join(bytes(part) for part in section(Section.EXPIRE, [b"12345678"]))
    assert [kind for kind, _ in sections(after)] == [Section.PURGE] * 3 + [Section.EXPIRE]
    noise = b"".join(bytes(part) for part in section(Section.PURGE, [random.Random(1).randbytes(500)]))
    assert packed(noise) == noise
    assert packed(plain[:20]) == plain[:20]


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-9],
        lambda raw: raw[:12] + b"zzzz" + raw[16:],
        lambda raw: raw[:5] + b"\xff\xff\xff\xff" + raw[9:],
        lambda raw: raw[:5] + b"\x01\x00\x00\x00" + raw[9:],
    ],
)
def test_a_damaged_packed_section_is_refused(damage: Callable[[bytes], bytes]) -> None:
    raw = packed(b"".join(bytes(part) for part in section(Section.PURGE, [b"x" * 400])))
    with pytest.raises(WireError):
        list(sections(damage(raw)))
    with pytest.raises(WireError):
        list(sections(b"".join(bytes(part) for part in section(Section.PACKED, [b"ab"]))))
