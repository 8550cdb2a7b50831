"""Parts of mirrors and sources: gaps, positions, conversion, and what an origin answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, message, turn_of
from tests.broker.jetstream.publish.stream_story import config as stream_config

from supercluster.broker.jetstream.config.source_checks import (
    STEPS_MAX,
    check_origins,
    judge_origins,
    with_origin,
)
from supercluster.broker.jetstream.config.sources import Origin
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.codec import Reader, WireError, text
from supercluster.broker.jetstream.encoding.sections import Section, encode_mirrored, section, sections
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.source_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.moves.range_hasher import hashing
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.expiry import Expiry
from supercluster.broker.jetstream.publish.source_rewrite import SourceRewrite, origin_token
from supercluster.broker.jetstream.state.gaps import Gaps
from supercluster.broker.jetstream.state.lookup import seq_at
from supercluster.broker.jetstream.state.snapshot import restore, snapshot_of
from supercluster.broker.jetstream.state.source_positions import (
    OriginPosition,
    decode_positions,
    encode_positions,
    encode_taken,
    keep_position,
)
from supercluster.broker.jetstream.state.source_readers import (
    OriginReader,
    account_and_stream,
    encode_reader,
    name_for,
)
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.jetstream.subjects.filters import shared
from supercluster.broker.jetstream.turn.slices import at_once
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.storage.log.memory_log import MemoryLog


def origin(**fields: Any) -> Origin:
    return Origin.from_json({"name": "O", **fields}, "stream source")


def config(name: str, **fields: Any) -> StreamConfig:
    return read_stream({"name": name, **fields})


# ---- gaps ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=20), st.integers(0, 200))
def test_gaps_know_what_a_set_of_their_sequences_knows(steps: list[tuple[int, int]], below: int) -> None:
    gaps, plain, seq = Gaps(), set[int](), 1
    for held, missing in steps:
        seq += held
        gaps.add(seq, seq + missing - 1)
        plain |= set(range(seq, seq + missing))
        seq += missing
    while below in plain:
        below += 1
    gaps.drop_below(below)
    plain = {found for found in plain if found >= below}
    copy = Gaps()
    for part in gaps.encoded():
        copy.take(Reader(part))
    for tried in (gaps, copy):
        assert tried.count == len(plain)
        assert bool(tried) is bool(plain)
        for at in range(below, seq + 3):
            assert (at in tried) is (at in plain)
            assert tried.count_behind(at) == sum(found > at for found in plain)
            past = before = at
            while past in plain:
                past += 1
            while before in plain:
                before -= 1
            assert (tried.past(at), tried.before(at)) == (past, before)


def test_dropped_gaps_take_no_room() -> None:
    gaps = Gaps()
    for number in range(10_000):
        gaps.add(10 * number + 2, 10 * number + 10)
    gaps.drop_below(99_001)
    assert len(gaps._starts) < 2_000
    assert gaps.count == 100 * 9


# ---- positions and frames --------------------------------------------------------------------------------------------


def test_positions_are_what_was_written() -> None:
    known = {"b": OriginPosition("S.$G.B.1", 7, 6), "a": OriginPosition("S.$G.A.2", 2**63, 0)}
    assert decode_positions(Reader(encode_positions(known))) == known


def test_of_too_many_positions_one_goes_that_nobody_needs() -> None:
    positions: dict[str, OriginPosition] = {}
    for number in range(1100):
        keep_position(positions, f"{number:04}", OriginPosition("x", number), frozenset({"0000"}))
    assert len(positions) == 1024
    assert {"0000", "1099"} <= set(positions)
    assert "0001" not in positions


def test_frames_are_read_as_they_were_written() -> None:
    ask = OriginAsk("S.o", "S.t", "O a >", 7, 3, 0, 5, ("a", "b.>"), "T", 11)
    assert OriginAsk.decode(memoryview(b"".join(ask.encode()))) == ask
    told = OriginTold("S.t", "O a >", 7, 9, 12, [4, 8], [1, 2], [b"a", b"", b"x", b"b", b"h", b"yy"])
    read = OriginTold.decode(memoryview(b"".join(told.encode())))
    assert (read.up_to, read.last_seq, list(read.seqs), list(read.times_ns)) == (9, 12, [4, 8], [1, 2])
    assert read.parts == told.parts


def test_an_answer_with_more_sequences_than_messages_is_none() -> None:
    told = OriginTold("S.t", "k", 7, 9, 12, [4, 8], [1, 2], [b"a", b"", b"x"])
    with pytest.raises(WireError, match="2 sequences and 2 times for 1 messages"):
        OriginTold.decode(memoryview(b"".join(told.encode())))


# ---- what becomes of a message ---------------------------------------------------------------------------------------


def test_a_source_says_where_a_message_comes_from() -> None:
    found = SourceRewrite(origin(filter_subject="a.>"), "TOKEN123", is_mirror=False)
    assert found.header(b"", b"a.b", 7) == b"NATS/1.0\r\nNats-Stream-Source: O 7 a.> > a.b TOKEN123\r\n\r\n"


def test_a_chain_names_its_last_link_and_drops_what_was_expected() -> None:
    header = b"NATS/1.0\r\nNats-Stream-Source: X 1 > > a T\r\nK: v\r\nNats-Expected-Stream: O\r\n\r\n"
    source = SourceRewrite(origin(), "TOKEN123", is_mirror=False)
    assert (
        source.header(header, b"a", 2)
        == b"NATS/1.0\r\nK: v\r\nNats-Stream-Source: O 2 > > a TOKEN123\r\n\r\n"
    )
    mirror = SourceRewrite(origin(), "TOKEN123", is_mirror=True)
    assert mirror.header(header, b"a", 2) == b"NATS/1.0\r\nNats-Stream-Source: X 1 > > a T\r\nK: v\r\n\r\n"


def test_the_first_transform_that_is_about_a_subject_counts() -> None:
    transforms = [{"src": "a", "dest": ""}, {"src": "b.*", "dest": "c.{{wildcard(1)}}"}]
    found = SourceRewrite(origin(subject_transforms=transforms), "T", is_mirror=True)
    assert [found.subject(subject, 1) for subject in (b"a", b"b.x")] == [b"a", b"c.x"]


def test_a_stream_of_the_same_name_that_is_made_later_is_another_origin() -> None:
    assert origin_token("S.$G.O.1a") != origin_token("S.$G.O.2b")
    assert len(origin_token("S.$G.O.1a")) == 8


def test_sources_are_told_apart_by_their_filters() -> None:
    found = config("T", sources=[{"name": "O", "filter_subject": "a"}, {"name": "O", "filter_subject": "b"}])
    assert list(found.origins) == ["O a >", "O b >"]


# ---- rules -----------------------------------------------------------------------------------------------------------


def test_a_loop_over_other_streams_is_refused() -> None:
    streams = {
        "A": config("A", sources=[{"name": "B"}]),
        "B": config("B", mirror={"name": "C"}),
        "D": config("D", sources=[{"name": "D2"}]),
    }
    with pytest.raises(ApiError, match="detected cycle"):
        judge_origins(config("C", sources=[{"name": "X"}, {"name": "A"}]), streams.get)
    judge_origins(config("E", sources=[{"name": "A"}, {"name": "D"}]), streams.get)


def test_streams_that_source_each_other_in_too_many_ways_count_as_a_loop_before_all_are_looked_at() -> None:
    def source(name: str, only: str) -> dict[str, Any]:
        return {"name": name, "subject_transforms": [{"src": only, "dest": ""}]}

    names = [f"S{number}" for number in range(40)]
    streams = {
        name: config(
            name, sources=[source("A", "back"), *(source(other, "x") for other in names if other != name)]
        )
        for name in names
    }
    asked: list[str] = []

    def find(name: str) -> StreamConfig | None:
        asked.append(name)
        return streams.get(name)

    with pytest.raises(ApiError, match="detected cycle"):
        judge_origins(config("A", sources=[source(name, "x") for name in names]), find)
    assert len(asked) <= STEPS_MAX // len(names) + 2 * len(names)  # Each leads to all others.


def test_streams_may_source_each_other_where_filters_let_nothing_come_back() -> None:
    def judge(mine: dict[str, Any], **others: dict[str, Any]) -> None:
        streams = {name: config(name, **fields) for name, fields in others.items()}
        judge_origins(config("A", **mine), streams.get)

    def source(name: str, *filters: str, **more: Any) -> dict[str, Any]:
        transforms = [{"src": item, "dest": ""} for item in filters]
        return {"name": name, "subject_transforms": transforms, **more}

    judge({"sources": [source("B", "b.>")]}, B={"sources": [source("A", "a.>")]})
    judge({"sources": [source("B", "b.>", "c.x")]}, B={"sources": [source("A", "a.>", "c.y")]})
    judge({"sources": [source("B", "b.*")]}, B={"sources": [source("A", "*.*.c")]})
    # Over a third one, which takes everything.
    judge(
        {"sources": [source("C", "b.>")]},
        B={"sources": [source("A", "a.>")]},
        C={"sources": [{"name": "B"}]},
    )
    wrong: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"sources": [source("B", "b.>")]}, {"sources": [{"name": "A"}]}),
        ({"sources": [source("B", "*.x")]}, {"sources": [source("A", "a.*")]}),
        ({"sources": [source("B", "b.>")]}, {"mirror": {"name": "A"}}),
        # What a transform makes of subjects is not followed.
        (
            {"sources": [source("B", "b.>")]},
            {"sources": [{"name": "A", "subject_transforms": [{"src": "a.>", "dest": "b.>"}]}]},
        ),
        (
            {"sources": [source("B", "b.>")]},
            {"sources": [source("A", "a.>")], "subject_transform": {"src": "a.>", "dest": "b.>"}},
        ),
        ({"sources": [source("A", "other")]}, {}),
    ]
    for mine, other in wrong:
        with pytest.raises(ApiError, match="detected cycle"):
            judge(mine, B=other)
    # With more filters than are worth looking at, streams that lead to each other count as ones whose messages come back.
    many = [f"b.{number}" for number in range(400)]
    with pytest.raises(ApiError, match="detected cycle"):
        judge({"sources": [source("B", *many)]}, B={"sources": [source("A", *(f"a{item}" for item in many))]})
    # A circle of others is none of this stream's business.
    judge(
        {"sources": [{"name": "B"}]},
        B={"sources": [source("C", "c")]},
        C={"sources": [source("B", "b")]},
    )


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a.*", "*.b", "a.b"),
        ("a.>", "a.*.c", "a.*.c"),
        (">", "a", "a"),
        ("a.>", "a", None),
        ("a.*", "a.b.c", None),
        ("*.>", "a.*", "a.*"),
        ("a", "b", None),
    ],
)
def test_subjects_that_two_patterns_share(one: str, other: str, both: str | None) -> None:
    assert (shared(one, other), shared(other, one)) == (both, both)


def test_what_an_origin_allows_is_what_its_mirror_does() -> None:
    streams = {"O": config("O", allow_direct=True)}
    assert with_origin(config("M", mirror={"name": "O"}), streams.get).mirror_direct
    assert not with_origin(config("M", mirror={"name": "P"}), streams.get).mirror_direct


def test_what_these_brokers_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(ApiError, match="consumer") as refused:
        config("M", mirror={"name": "O", "consumer": {"name": "c"}})
    assert refused.value.err_code == 10213
    with pytest.raises(ApiError, match="consumer") as refused:
        config("M", mirror={"name": "O", "consumer": {"name": "c", "deliver_subject": "d"}})
    assert refused.value.err_code == 19002


# ---- origins behind another API -------------------------------------------------------------------------------------------


def external(api: str, deliver: str = "") -> dict[str, Any]:
    return {"name": "O", "external": {"api": api, "deliver": deliver}}


def test_origins_of_one_name_behind_other_apis_are_others() -> None:
    found = config("S", sources=[external("JS.A", "d"), external("JS.B", "d"), {"name": "O"}])
    check_origins(found)
    assert len(found.origins) == 3
    assert read_stream(found.to_json()) == found
    told = [origin.told_name for origin in found.sources]
    assert told[2] == "O"
    assert told[0].startswith("O:")
    assert told[1].startswith("O:")
    assert told[0] != told[1]
    with pytest.raises(ApiError) as refused:
        check_origins(config("S", sources=[external("JS.A", "d"), external("JS.A", "e")]))
    assert refused.value.err_code == 10140


@pytest.mark.parametrize(
    ("api", "deliver", "err_code"),
    [
        ("$JS.API", "", 10021),
        ("$JS.*.API", "", 10052),
        ("a..b", "", 10052),
        ("JS.A", "d.>", 10024),
        ("JS.A", "d e", 10024),
    ],
)
def test_prefixes_that_are_none_are_refused(api: str, deliver: str, err_code: int) -> None:
    for fields in ({"mirror": external(api, deliver)}, {"sources": [external(api, deliver)]}):
        with pytest.raises(ApiError) as refused:
            check_origins(config("S", **fields))
        assert refused.value.err_code == err_code


def test_a_stream_may_have_its_name_from_another_accounts_and_deliveries_must_not_meet_an_origins_subjects() -> (
    None
):
    same = config("O", mirror=external("JS.A", "d"))
    check_origins(same)
    judge_origins(same, {"O": same}.get)
    local = {"L": config("L", subjects=["d.>"])}
    judge_origins(config("S", sources=[{"name": "L"}, external("JS.A", "e")]), local.get)
    with pytest.raises(ApiError, match=r"d overlaps with stream subject d\.>") as refused:
        judge_origins(config("S", sources=[{"name": "L"}, external("JS.A", "d")]), local.get)
    assert refused.value.err_code == 10022


def test_an_origin_knows_the_stream_that_takes_by_its_account_too() -> None:
    for account in ("B", "$G", "a b/c"):
        name = name_for(account, "S", "A")
        assert " " not in name
        assert account_and_stream(name, "A") == (account, "S")
    assert name_for("A", "S", "A") == "S"
    assert account_and_stream("S", "A") == ("A", "S")


# ---- origins that keep only what is wanted -------------------------------------------------------------------------------


def taken(story: StreamStory, name: str, up_to: int, *filters: str) -> None:
    story.command(Section.ORIGIN_READER, encode_reader(name, OriginReader(filters, up_to)))


def test_a_work_queue_lets_go_what_a_reader_has_taken_and_nothing_else() -> None:
    story = StreamStory(stream_config(retention="workqueue", subjects=["q.>"]))
    story.publish(*(message(b"q." + suffix) for suffix in (b"a", b"b", b"a", b"b", b"a")))
    story.commit()
    taken(story, "T q", 0, "q.a")
    assert story.state.messages == 5
    taken(story, "T q", 3, "q.a")
    assert [seq for seq in range(1, 6) if story.state.has(seq)] == [2, 4, 5]
    assert story.restored().readers == story.state.readers


def test_interest_keeps_for_a_reader_what_no_consumer_wants_until_the_reader_ends() -> None:
    story = StreamStory(stream_config(retention="interest", subjects=["i.>"]))
    story.publish(message(b"i.0"))
    story.commit()
    assert story.state.messages == 0
    taken(story, "T i", 0)
    story.publish(message(b"i.1"), message(b"i.2"), message(b"i.3"))
    story.commit()
    assert story.state.messages == 3
    taken(story, "T i", 3)
    assert [seq for seq in range(1, 5) if story.state.has(seq)] == [4]
    story.command(Section.ORIGIN_READER_END, text("T i"))
    assert (story.state.messages, story.state.readers) == (0, {})


# ---- a mirror's state ----------------------------------------------------------------------------------------------------


def mirrored(state: StreamState, index: int, first_seq: int, *subjects: bytes, up_to: int) -> Entry:
    """Apply an entry with messages of the origin, one second apart, and the position."""
    parts = [part for subject in subjects for part in (subject, b"", b"x" if subject else b"")]
    times = [(first_seq + at) * 10**9 for at in range(len(subjects))]
    found = section(Section.MIRRORED, encode_mirrored(times, parts)) if subjects else []
    position = OriginPosition("S.$G.O.1", up_to, first_seq + len(subjects) - 1)
    found += section(Section.ORIGIN_TAKEN, [encode_taken("mirror", position)])
    entry = make_entry(
        index=index,
        term=1,
        kind=EntryKind.BATCH,
        time_ns=10**12,
        first_seq=first_seq if subjects else 0,
        count=len(subjects),
        payload=b"".join(found),
    )
    state.reader._log.append([entry])
    state.apply(entry)
    return entry


def a_mirror(log: MemoryLog | None = None, **fields: Any) -> StreamState:
    return StreamState(config("M", mirror={"name": "O"}, **fields), 0, log or MemoryLog())


def test_a_mirror_keeps_sequences_times_and_gaps() -> None:
    state = a_mirror()
    mirrored(state, 1, 100, b"a", b"", b"b", up_to=102)
    mirrored(state, 2, 500, b"a", up_to=500)
    assert [seq for seq in range(90, 510) if state.has(seq)] == [100, 102, 500]
    assert (state.num_deleted, state.messages, state.first_seq, state.last_seq) == (398, 3, 100, 500)
    assert [message.time_ns // 10**9 for seq in (100, 102, 500) if (message := state.message(seq))] == [
        100,
        102,
        500,
    ]
    found = [state.gaps.past(seq_at(state, at * 10**9)) for at in (1, 101, 103, 500, 501)]
    assert found == [100, 101, 500, 500, 501]
    batch = StreamReader(state).read(100, 10, 1 << 20)
    assert (list(batch.seqs), [at // 10**9 for at in batch.times]) == ([100, 102, 500], [100, 102, 500])
    state.remove(100)
    state.remove(102)
    assert (state.first_seq, state.num_deleted, state.first_time_ns) == (500, 0, 500 * 10**9)


def test_a_position_behind_the_last_message_moves_the_end_whatever_messages_there_are() -> None:
    whole, short = a_mirror(), a_mirror()
    for state in (whole, short):
        mirrored(state, 1, 1, b"a", up_to=1)
    at_once(short.empty())  # As from a base whose messages are dead by now.
    for state in (whole, short):
        mirrored(state, 2, 2, up_to=20_000)
        mirrored(state, 3, 20_005, b"b", up_to=20_005)
        mirrored(state, 4, 20_006, up_to=40_000)
    assert whole.gaps.past(2) == 20_005
    assert whole.gaps.past(seq_at(whole, 10**18)) == 40_001
    assert whole.gaps.past(seq_at(whole, 20_005 * 10**9)) == 20_005
    whole.remove(1)
    assert at_once(hashing(whole)) == at_once(hashing(short))
    assert (whole.first_seq, whole.last_seq) == (20_005, 40_000)
    for state in (whole, short):
        state.remove(20_005)
    assert at_once(hashing(whole)) == at_once(hashing(short))
    assert (whole.first_seq, whole.num_deleted) == (40_001, 0)


def test_a_snapshot_of_a_mirror_has_its_gaps_and_position() -> None:
    log = MemoryLog()
    state = a_mirror(log)
    mirrored(state, 1, 1, b"a", up_to=1)
    mirrored(state, 2, 1000, b"b", up_to=1000)
    again = restore(snapshot_of(state), log)
    assert at_once(hashing(again)) == at_once(hashing(state))
    assert again.origins == state.origins
    assert [seq for seq in range(1, 1001) if again.has(seq)] == [1, 1000]


def test_a_mirror_expires_by_the_times_of_its_origin() -> None:
    state = a_mirror(max_age=5 * 10**9)
    mirrored(state, 1, 1, *([b"a"] * 10), up_to=10)
    turn = turn_of(state, Admission(state, []), 10 * 10**9)
    Expiry().put(turn)
    (body,) = [
        bytes(body)
        for kind, body in sections(b"".join(map(bytes, turn.proposal.payload)))
        if kind == Section.EXPIRE
    ]
    assert int.from_bytes(body, "little") == 5
