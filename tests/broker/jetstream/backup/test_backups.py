"""Backups: whatever a stream's state is, a stream that is restored from its backup has it; and what is wrong is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import SECOND, StreamStory, config, message
from tests.support.tiers import examples

from supercluster.broker.archive.entries import (
    CONSUMER_BYTES_MAX,
    END,
    STATE_BYTES_MAX,
    STATE_NAME,
    Entry,
    EntryReader,
    packed,
)
from supercluster.broker.archive.s2 import STREAM_HEAD, ArchiveError
from supercluster.broker.jetstream.backup import archive_format
from supercluster.broker.jetstream.backup.archive_format import ToldConsumer, ToldState
from supercluster.broker.jetstream.backup.reader import PLACEHOLDERS_MAX, RestoreReader
from supercluster.broker.jetstream.backup.sender import entries_of
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.config.workqueue_filters import WorkqueueFilters
from supercluster.broker.jetstream.encoding.codec import text, u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.accounts import NO_LIMITS, AccountLimits
from supercluster.broker.jetstream.meta.restoring import RESTORING_KEY, bare, is_bare
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind, encode_ops
from supercluster.broker.jetstream.state.snapshot import restore, snapshot_of
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.state.stream_reader import StreamReader
from supercluster.broker.jetstream.stream.call import state_info
from supercluster.broker.jetstream.subjects.filters import overlaps


def told_consumer(entry: Entry) -> ToldConsumer:
    """Read at once."""
    found = ToldConsumer.slices(entry)
    while True:
        try:
            next(found)
        except StopIteration as end:
            told: ToldConsumer = end.value
            return told


def backup_of(state: StreamState, now_ns: int = 7) -> bytes:
    head = [archive_format.state_entry(state_info(state).to_json(), now_ns)]
    head += [
        archive_format.consumer_entry(found, state.last_seq, now_ns) for found in state.consumers.values()
    ]
    return b"".join(packed(entries_of(StreamReader(state), head, state.last_seq)))


class Restored:
    """A stream that is restored: its log, without Raft."""

    def __init__(self, wanted: StreamConfig | None = None, limits: AccountLimits = NO_LIMITS) -> None:
        self.config = wanted or config()
        self.story = StreamStory(bare(self.config, "r"))
        self.reader = RestoreReader(self.config, limits)

    def append(self, proposal: Proposal) -> bool:
        self.story.append_proposal(proposal)
        return True

    def feed(self, data: bytes, size: int = 1 << 30) -> Restored:
        for at in range(0, len(data), size):
            self.reader.feed(data[at : at + size])
            while not self.reader.is_read:
                assert self.reader.read(self.story.admission, self.append, size)
        return self

    def end(self) -> StreamState:
        """As the leader does it when the last chunk has come."""
        story = self.story
        assert self.reader.end(story.admission, self.append)
        story.commit()
        told = self.reader.told
        assert told is not None
        for consumer in self.reader.consumers:
            found = consumer.state(told.last_seq, 5)
            found.drop_gone([seq for seq in found.pending if not story.state.has(seq)])
            story.append((Section.CONSUMER_RESTORED, [found.snapshot()]))
        story.append((Section.RESTORED, [u64(max(told.last_seq, told.first_seq - 1))]))
        story.commit()
        asked = json.dumps(self.config.to_json()).encode()
        story.append((Section.CONFIG_PUT, [u64(9) + u64(0), asked]))
        story.commit()
        return story.state


def restored(data: bytes, size: int = 1 << 30, wanted: StreamConfig | None = None) -> StreamState:
    return Restored(wanted).feed(data, size).end()


def content(state: StreamState) -> dict[str, Any]:
    """All that clients can see of a stream."""
    seqs = [seq for seq in range(state.first_seq, state.last_seq + 1) if state.has(seq)]
    return {
        "messages": [state.message(seq) for seq in seqs],
        "bounds": (state.messages, state.bytes, state.first_seq, state.last_seq, state.num_deleted),
        "subjects": state.subjects.subjects(">"),
        "lasts": [state.subjects.last_seq(name.encode()) for name in sorted(state.subjects.subjects(">"))],
        "consumers": {name: seen(found) for name, found in state.consumers.items()},
    }


def seen(consumer: ConsumerState) -> tuple[Any, ...]:
    return (
        consumer.config,
        (consumer.delivered_cseq, consumer.next_sseq),
        (consumer.ack_floor_cseq, consumer.ack_floor_sseq),
        consumer.pending,
        consumer.deliveries,
        list(consumer.remaining_last_seqs()),
    )


NUMBER = st.integers(min_value=1, max_value=40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), NUMBER),
        st.tuples(st.just("many"), st.integers(min_value=1, max_value=2 * PLACEHOLDERS_MAX)),
        st.tuples(st.just("delete"), NUMBER),
        st.tuples(st.just("purge"), NUMBER),
        st.tuples(st.just("purge_subject"), st.integers(min_value=0, max_value=2)),
        st.tuples(st.sampled_from(["deliver", "redeliver", "ack", "nak"]), NUMBER),
        st.tuples(st.just("wait"), NUMBER),
    ),
    max_size=25,
)


def played(steps: Sequence[tuple[str, int]]) -> StreamStory:
    """A stream that all that happened to."""
    story = StreamStory()
    asked = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 30 * SECOND}
    put = {"name": "c", "config": read_consumer(asked).to_json(), "start_seq": 1}
    story.command(Section.CONSUMER_PUT, json.dumps(put).encode())
    for what, number in steps:
        if what == "store":
            story.store(message(b"s.%d" % (number % 3), b"x" * number, Nats_Msg_Id=f"{story.state.last_seq}"))
        elif what == "many":
            story.store(*[message(b"s.%d" % (at % 3), b"%d" % at) for at in range(number)])
        elif what == "delete":
            story.command(Section.DELETE_MESSAGE, u64(story.state.first_seq + number))
        elif what == "purge":
            story.command(Section.PURGE, json.dumps({"seq": story.state.first_seq + number}).encode())
        elif what == "purge_subject":
            story.command(Section.PURGE, json.dumps({"filter": f"s.{number}"}).encode())
        elif what == "wait":
            story.now_ns += number * SECOND
        else:
            _operate(story, what, number)
    return story


def _operate(story: StreamStory, what: str, number: int) -> None:
    state, consumer = story.state, story.state.consumers["c"]
    if what == "deliver":
        seqs = [seq for seq in range(consumer.next_sseq, state.last_seq + 1) if state.has(seq)][:number]
        op = Op(OpKind.DELIVERED, tuple(seqs), story.now_ns)
    else:
        seqs = [seq for seq in consumer.pending if (seq + number) % 3]
        kind = {"ack": OpKind.ACK, "nak": OpKind.NAK, "redeliver": OpKind.REDELIVERED}[what]
        op = Op(kind, tuple(seqs), story.now_ns)
    if op.seqs:
        story.append((Section.CONSUMER_OPS, [text("c"), encode_ops([op])]))
        story.commit()


@settings(max_examples=examples(40, 120), deadline=None)
@given(steps=STEPS, size=st.integers(min_value=1, max_value=4000))
def test_whatever_happened_to_a_stream_its_backup_restores_it(
    steps: list[tuple[str, int]], size: int
) -> None:
    story = played(steps)
    found = restored(backup_of(story.state), size)
    assert content(found) == content(story.state)
    again = restore(snapshot_of(found), found.reader._log)
    assert content(again) == content(found), "a checkpoint of a restored stream has it too"
    assert content(restored(backup_of(found))) == content(found), "and so has a backup of it"


def test_times_of_acknowledgements_go_on_where_they_were() -> None:
    story = played([("many", 5), ("deliver", 4), ("wait", 3), ("redeliver", 1), ("nak", 2)])
    consumer = story.state.consumers["c"]
    assert consumer.deliveries
    assert restored(backup_of(story.state)).consumers["c"].pending == consumer.pending


def test_what_a_consumer_waits_for_and_the_backup_does_not_have_is_not_waited_for() -> None:
    story = played([("many", 4), ("deliver", 4)])
    entries = list(filter(None, EntryReader().slices(backup_of(story.state))))
    without = [entry for entry in entries if entry.seq != 2]
    found = restored(b"".join(packed(entry.encode() for entry in without)))
    assert list(found.consumers["c"].pending) == [1, 3, 4]
    assert not found.has(2)


def test_a_consumer_never_stands_behind_the_end_of_its_stream() -> None:
    """MV-10: the snapshot's last sequence is older than what the consumer has."""
    story = played([("many", 9), ("deliver", 9)])
    made = b"".join(packed([archive_format.consumer_entry(story.state.consumers["c"], 5, 1)]))
    entry = next(filter(None, EntryReader().slices(made)))
    told = told_consumer(entry)
    assert (told.delivered, sorted(told.pending)) == ((9, 5), [1, 2, 3, 4, 5])


def test_the_chosen_messages_of_last_per_subject_are_told() -> None:
    state = ConsumerState(
        name="c",
        config=read_consumer({"name": "c", "deliver_policy": "last_per_subject", "filter_subject": "s.>"}),
        created_ns=1,
        start_seq=3,
        last_seqs=(3, 5, 8),
    )
    entry = next(
        filter(None, EntryReader().slices(b"".join(packed([archive_format.consumer_entry(state, 9, 1)]))))
    )
    found = told_consumer(entry).state(9, 1)
    assert (found.next_sseq, list(found.remaining_last_seqs())) == (3, [3, 5, 8])


# ---- the configuration meanwhile -------------------------------------------------------------------------------------


def test_nothing_is_removed_while_a_stream_is_restored_and_the_limits_hold_when_it_is_whole() -> None:
    story = StreamStory()
    story.store(*[message(b"s.%d" % (at % 2)) for at in range(10)])
    wanted = config(max_msgs=3, max_age=SECOND, duplicate_window=SECOND, max_msgs_per_subject=2)
    run = Restored(wanted).feed(backup_of(story.state))
    run.story.commit()
    assert run.reader.end(run.story.admission, run.append)
    run.story.commit()
    assert run.story.held() == list(range(1, 11))
    state = run.end()
    assert (state.first_seq, state.last_seq, state.messages) == (8, 10, 3)
    assert not is_bare(state.config)


def test_the_bare_configuration_is_read_back_as_it_was_written() -> None:
    wanted = config(
        retention="workqueue",
        discard="new",
        max_bytes=5,
        allow_msg_ttl=True,
        subject_delete_marker_ttl=SECOND,
        allow_msg_schedules=True,
        compression="s2",
        metadata={"a": "b"},
    )
    meanwhile = bare(wanted, "r1")
    assert read_stream(meanwhile.to_json()) == meanwhile
    assert meanwhile.metadata == {"a": "b", RESTORING_KEY: "r1"}
    assert is_bare(meanwhile)
    assert not is_bare(wanted)
    assert (meanwhile.allow_msg_ttl, meanwhile.allow_msg_schedules, meanwhile.compression) == (
        True,
        True,
        "s2",
    )


def test_message_ids_that_are_older_than_the_window_are_not_gathered() -> None:
    story = StreamStory()
    for number in range(50):
        story.now_ns += 10 * SECOND
        story.store(message(Nats_Msg_Id=f"{number}"))
    run = Restored()
    run.story.now_ns = story.now_ns
    state = run.feed(backup_of(story.state)).end()
    assert set(state.message_ids) == {b"%d" % number for number in range(38, 50)}


def test_a_source_goes_on_behind_the_last_message_that_is_there() -> None:
    wanted = config(sources=[{"name": "O"}, {"name": "P", "filter_subject": "p.x"}])
    lines = ["O 4 > > o.a TOKEN", "O 9 > > o.a TOKEN", "P 7 p.x > p.x TOKEN", "Q 3 > > q T", "O x > > o T"]
    lines += ["O \N{SUPERSCRIPT TWO} > > o T", f"O {'9' * 30} > > o T"]
    messages = [
        Entry(b"s.a", 1, seq, b"NATS/1.0\r\nNats-Stream-Source: %s\r\n\r\n" % line.encode(), b"")
        for seq, line in enumerate(lines, 1)
    ]
    run = Restored(wanted).feed(archive(7, *messages))
    keys = list(wanted.origins)
    assert run.reader.sourced == {keys[0]: 9, keys[1]: 7}


def test_sources_of_one_name_that_other_apis_lead_to_are_told_apart() -> None:
    hub = {"name": "O", "external": {"api": "$JS.hub.API", "deliver": "d"}}
    wanted = config(sources=[{"name": "O"}, hub])
    local, external = wanted.origins
    told = wanted.origins[external].told_name
    run = Restored(wanted).feed(archive(3, _from(1, "O 4"), _from(2, f"{told} 9"), _from(3, "O:abcdefgh 11")))
    assert run.reader.sourced == {local: 4, external: 9}
    # Another kind of server writes the API down in another way: one source of the name is the one that is meant.
    wanted = config(sources=[hub])
    run = Restored(wanted).feed(archive(1, _from(1, "O:abcdefgh 9")))
    assert run.reader.sourced == {next(iter(wanted.origins)): 9}
    wanted = config(sources=[hub, {"name": "O", "external": {"api": "$JS.leaf.API", "deliver": "e"}}])
    run = Restored(wanted).feed(archive(1, _from(1, "O:abcdefgh 9")))
    assert run.reader.sourced == {}


def _from(seq: int, source: str) -> Entry:
    header = f"NATS/1.0\r\nNats-Stream-Source: {source} > > o T\r\n\r\n"
    return Entry(b"s.a", 1, seq, header.encode(), b"")


# ---- what is refused -------------------------------------------------------------------------------------------------


def archive(last_seq: int, *entries: Entry, **state: Any) -> bytes:
    told = {"messages": 0, "first_seq": 1, "last_seq": last_seq, "consumer_count": 0, **state}
    return b"".join(
        packed([archive_format.state_entry(told, 1), *(entry.encode() for entry in entries), END.encode()])
    )


def a_message(
    seq: int = 1, name: bytes = b"s.a", header: bytes = b"", body: bytes = b"", at: int = 1
) -> Entry:
    return Entry(name, at, seq, header, body)


def a_consumer(body: Any, name: bytes = b"consumers/c") -> Entry:
    return Entry(name, 1, 0, b"", body if isinstance(body, bytes) else json.dumps(body).encode())


OK_STATE = {"delivered": {"consumer_seq": 1, "stream_seq": 1}, "ack_floor": {}}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (archive(3, a_message(2), a_message(2)), "message sequence 2 out of order"),
        (archive(3, a_message(2), a_message(1)), "message sequence 1 out of order"),
        (archive(3, a_message(3), first_seq=4), "message sequence 3 out of order"),
        (archive(3, a_message(4)), "message sequence 4 is behind"),
        (archive(3, a_message(0)), "expected message sequence"),
        (archive(3, a_message(name=b"s.*")), "no valid subject"),
        (archive(3, a_message(name=b"")), "no valid subject"),
        (archive(3, a_message(header=b"x")), "header that cannot be read"),
        (archive(3, a_message(at=-1)), "before there was time"),
        (archive(3, a_message(body=b"123456")), "exceeds maximum message size"),
        (archive(3, a_message(), consumer_count=1), 'expected consumer, found "s.a"'),
        (archive(3, a_consumer(b"{no"), consumer_count=1), 'error in consumer "c"'),
        (archive(3, a_consumer({"config": {}}), consumer_count=1), "missing state"),
        (archive(3, a_consumer({"state": {}}), consumer_count=1), "missing config"),
        (
            archive(3, *[a_consumer({"config": {"name": "c"}, "state": OK_STATE})] * 2, consumer_count=2),
            "is there twice",
        ),
        (
            archive(3, a_consumer({"config": {}, "state": {"delivered": 5}}), consumer_count=1),
            "delivered is no pair",
        ),
        (
            archive(3, a_consumer({"config": {}, "state": {"pending": {"x": {}}}}), consumer_count=1),
            "pending is no map",
        ),
        (
            archive(3, a_consumer({"config": {}, "state": {"redelivered": {"1": -1}}}), consumer_count=1),
            "redelivered is '-1'",
        ),
        (
            archive(3, a_consumer({"config": {}, "state": {"pending": {"²": {}}}}), consumer_count=1),
            "pending is no map",
        ),
        (
            archive(
                3,
                a_consumer({"config": {}, "state": {}, "supercluster": {"last_seqs": 5}}),
                consumer_count=1,
            ),
            "last_seqs is no list",
        ),
        (
            archive(3, a_consumer({"config": {}, "state": {}}, b"consumers/"), consumer_count=1),
            "a consumer has no name",
        ),
        (archive(3, a_message(name=b"s" * 65536)), "name has 65536 bytes"),
        (STREAM_HEAD + b"\x00\x04\x00\x00abcd", "a block is cut off"),
        (archive(-1), "last_seq is '-1'"),
        (archive(3, first_seq=9), "from 9 to 3"),
        (archive(3, first_seq=4, messages=1), "1 messages from 4 to 3"),
        (archive(3, consumer_count=10**6), "1000000 consumers"),
        (archive(3, consumer_count=True), "consumer_count is 'True'"),
        (b"".join(packed([a_message().encode()])), "expected state.json first"),
        (archive(3, END), "more behind the end"),
    ],
)
def test_what_cannot_be_restored_is_refused_with_what_was_found(data: bytes, what: str) -> None:
    with pytest.raises(ArchiveError, match=what):
        Restored(config(max_msg_size=5)).feed(data)


def test_a_ttl_that_cannot_be_read_is_refused() -> None:
    data = archive(3, a_message(header=b"NATS/1.0\r\nNats-TTL: soon\r\n\r\n"))
    with pytest.raises(ArchiveError, match="failed to parse message TTL"):
        Restored(config(allow_msg_ttl=True)).feed(data)


@pytest.mark.parametrize(
    ("wanted", "limits", "consumers", "why"),
    [
        ({"retention": "workqueue"}, {}, [{"ack_policy": "none"}], "c0.*10084"),
        ({"retention": "workqueue"}, {}, [{}, {}], r'"c1": multiple non-filtered .*\(10099\)'),
        ({"retention": "workqueue"}, {}, [{"filter_subject": "s.a"}, {}], "c1.*10099"),
        ({"retention": "workqueue"}, {}, [{}, {"filter_subject": "s.a"}], "c1.*10099"),
        (
            {"retention": "workqueue"},
            {},
            [{"filter_subject": "s.a"}, {"filter_subjects": ["s.b", "s.*.c"]}, {"filter_subject": "*.b"}],
            '"c2": filtered consumer not unique .*10100',
        ),
        ({"max_consumers": 1}, {}, [{}, {}], '"c1": maximum consumers limit reached .*10026'),
        ({}, {"consumers_per_stream_max": 2}, [{}, {}, {}], "c2.*10026"),
        ({}, {"ack_pending_max": 50}, [{"max_ack_pending": 51}], "c0.*system limit of 50 .*10121"),
        ({}, {}, [{"filter_subjects": ["s.a", "s.>"]}], "c0.*10138"),
    ],
)
def test_a_consumer_that_could_not_be_created_is_not_restored(
    wanted: dict[str, Any], limits: dict[str, Any], consumers: list[dict[str, Any]], why: str
) -> None:
    run = Restored(config(**wanted), AccountLimits(**limits))
    with pytest.raises(ArchiveError, match=f"failed to add consumer .*{why}"):
        run.feed(_with_consumers(*consumers))


def test_consumers_that_share_a_work_queue_are_restored() -> None:
    filters = [["s.a"], ["s.b", "s.*.c"], ["s.c.*.>"], ["s.a.*.*"]]
    run = Restored(config(retention="workqueue", max_consumers=4), AccountLimits(ack_pending_max=50))
    state = run.feed(_with_consumers(*[{"filter_subjects": found} for found in filters[:3]])).end()
    assert [list(found.config.filter_subjects) for found in state.consumers.values()] == filters[:3]
    assert {found.config.max_ack_pending for found in state.consumers.values()} == {50}


def _with_consumers(*consumers: dict[str, Any]) -> bytes:
    told = [
        a_consumer(
            {"config": {"ack_policy": "explicit", **found}, "state": {"delivered": {}, "ack_floor": {}}},
            f"consumers/c{at}".encode(),
        )
        for at, found in enumerate(consumers)
    ]
    return archive(0, *told, consumer_count=len(told))


TOKENS = st.lists(st.sampled_from(["a", "b", "*"]), max_size=3)
FILTER = st.builds(
    lambda tokens, last: ".".join([*tokens, last]), TOKENS, st.sampled_from(["a", "b", "c", "*", ">"])
)


@settings(max_examples=examples(50, 300), deadline=None)
@given(filters=st.lists(FILTER, max_size=12))
def test_filters_of_a_work_queue_overlap_as_each_does_with_each(filters: list[str]) -> None:
    found, taken = WorkqueueFilters(), list[str]()
    for item in filters:
        wanted = read_consumer({"ack_policy": "explicit", "filter_subject": item})
        if any(overlaps(item, other) for other in taken):
            with pytest.raises(ApiError, match="not unique"):
                found.add(wanted)
        else:
            found.add(wanted)
            taken.append(item)


def test_ten_thousand_consumers_of_a_work_queue_are_not_each_held_against_each() -> None:
    found = WorkqueueFilters()
    for number in range(10_000):
        filters = [f"s.{number}.a", f"s.{number}.b.>"]
        found.add(read_consumer({"ack_policy": "explicit", "filter_subjects": filters}))
    assert found.looked_at < 100_000


@pytest.mark.parametrize("name", [b"a.b", b"a b", b"a/b", b"\xff" * 65000])
def test_a_consumer_is_called_as_one_that_is_made(name: bytes) -> None:
    told = {"config": {"ack_policy": "explicit"}, "state": OK_STATE}
    with pytest.raises(ArchiveError, match="failed to add consumer"):
        Restored().feed(archive(3, a_consumer(told, b"consumers/" + name), consumer_count=1))


def test_a_delivery_before_there_was_time_is_due_at_once() -> None:
    pending = {"1": {"Sequence": 1, "Timestamp": -(2**63) + 1}}
    told = {"config": {"ack_policy": "explicit"}, "state": {**OK_STATE, "pending": pending}}
    state = restored(archive(3, a_consumer(told), a_message(), consumer_count=1))
    assert state.consumers["c"].pending == {1: (1, 0)}


def test_what_a_few_bytes_unpack_to_is_taken_in_pieces() -> None:
    messages = [a_message(seq, body=bytes(500_000)) for seq in range(1, 101)]
    data = archive(100, *messages)
    run = Restored()
    run.reader.feed(data)
    pieces = 0
    while not run.reader.is_read:
        before, pieces = run.reader.taken_bytes, pieces + 1
        assert run.reader.read(run.story.admission, run.append, 1 << 20)
        assert run.reader.taken_bytes - before < 2 << 20
    assert len(data) < 4 << 20
    assert pieces >= 30


def test_stretches_without_messages_are_taken_in_pieces_too() -> None:
    """Each is written as an empty message: a turn that counted only messages had 65 times as many to write."""
    stride = PLACEHOLDERS_MAX + 1
    run = Restored()
    run.reader.feed(archive(2000 * stride, *[a_message(seq * stride) for seq in range(1, 2001)]))
    sizes = []
    while not run.reader.is_read:
        before = run.reader._last_seq
        assert run.reader.read(run.story.admission, run.append, 64 * 1024)
        sizes.append(run.reader._last_seq - before)
    assert max(sizes) <= 1024 + 2 * stride
    state = run.end()
    assert (state.messages, state.last_seq) == (2000, 2000 * stride)


def test_a_backup_without_its_end_is_not_whole() -> None:
    data = b"".join(packed([archive_format.state_entry({"last_seq": 1}, 1), a_message().encode()]))
    run = Restored().feed(data)
    with pytest.raises(ArchiveError, match="backup was truncated"):
        run.end()
    run = Restored().feed(data[:-3])
    with pytest.raises(ArchiveError, match="unexpected EOF"):
        run.end()
    with pytest.raises(ArchiveError, match=r"^EOF"):
        Restored().end()


def test_the_state_of_a_stream_that_never_had_a_message() -> None:
    found = ToldState.read(Entry(b"state.json", 1, 0, b"", b'{"first_seq":0,"last_seq":0,"bytes":0,"x":1}'))
    assert found == ToldState(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("subject", "stream"),
    [
        (b"$JS.SNAPSHOT.ACK.S.t.1024.7", "S"),
        (b"$JS.SNAPSHOT.RESTORE.S.t", "S"),
        (b"$JS.SNAPSHOT.ACK.S.t", ""),
        (b"$JS.SNAPSHOT.RESTORE.S", ""),
        (b"$JS.SNAPSHOT.OTHER.S.t", ""),
    ],
)
def test_the_stream_that_a_subject_names(subject: bytes, stream: str) -> None:
    assert archive_format.stream_of(subject) == stream


# ---- bounds and slices -----------------------------------------------------------------------------------------------


def large_consumer() -> ConsumerState:
    config = {
        "durable_name": "c",
        "ack_policy": "explicit",
        "description": '"pending":{"1":',
        "max_ack_pending": -1,
    }
    state = ConsumerState(
        name="c",
        config=read_consumer(config),
        created_ns=1,
        start_seq=1,
        last_seqs=range(600, 900),
    )
    state.delivered_cseq = state.delivered_sseq = 500
    for seq in range(1, 501):
        state.pending[seq] = (seq, SECOND * seq)
        if seq % 3 == 0:
            state.deliveries[seq] = 2 + seq % 5
    return state


@pytest.mark.covers("SF-29")
@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_a_consumer_that_waits_for_much_is_read_in_slices_to_the_same_end(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    encoded = archive_format.consumer_entry(large_consumer(), 1_000, 1)
    entry = next(filter(None, EntryReader().slices(b"".join(packed([encoded])))))
    at_once = told_consumer(entry)
    assert (len(at_once.pending), len(at_once.deliveries), len(at_once.last_seqs)) == (500, 166, 300)
    monkeypatch.setattr(archive_format, "CONSUMER_JSON_MAX", 2_000)
    monkeypatch.setattr(archive_format, "SLICE_ROWS", rows)
    slices = sum(1 for _ in ToldConsumer.slices(entry))
    assert slices == (500 // rows + 166 // rows + 300 // rows)
    assert told_consumer(entry) == at_once


@pytest.mark.covers("SF-24")
def test_what_is_no_message_is_bounded_and_refused_before_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in ((STATE_NAME, STATE_BYTES_MAX), (b"consumers/c", CONSUMER_BYTES_MAX)):
        begun = Entry(name, 1, 0, b"", b"x" * (most + 1)).encode()[: 200 + len(name)]
        with pytest.raises(ArchiveError, match=f"{most} can be restored"):
            list(EntryReader().slices(b"".join(packed([begun]))))
    monkeypatch.setattr(archive_format, "CONSUMER_JSON_MAX", 2_000)
    body = json.dumps({"config": {"description": "x" * 3_000}, "state": {"delivered": {}}}).encode()
    with pytest.raises(ArchiveError, match="beside its lists"):
        told_consumer(Entry(b"consumers/c", 1, 0, b"", body))


@pytest.mark.covers("SF-29")
def test_a_few_bytes_that_unpack_to_many_are_read_a_share_at_a_time() -> None:
    """P12: 446 bytes unpacked to 48 MB of JSON."""
    body = json.dumps({"config": {"description": " " * 10_000_000}, "state": {}}).encode()
    data = archive(1, Entry(b"consumers/c", 1, 0, b"", body), consumer_count=1)
    assert len(data) < len(body) // 10
    found = Restored()
    found.reader.feed(data)
    for _ in range(9):
        assert found.reader.read(found.story.admission, found.append, 1024 * 1024)
        assert not found.reader.is_read
    with pytest.raises(ArchiveError, match="beside its lists"):
        found.reader.read(found.story.admission, found.append, 1 << 30)
