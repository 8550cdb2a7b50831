"""Whatever a judge accepts can be stored, snapshot, restored, framed and replayed (SF-24): all fields, at all bounds."""

from __future__ import annotations

import collections.abc
import contextlib
import json
import random
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.jetstream.consumer.consumer_story import Source
from tests.broker.jetstream.meta_leader.meta_story import Meta, meta
from tests.broker.jetstream.publish.stream_story import MS, SECOND, StreamStory, block
from tests.broker.jetstream.stream.test_replica import ASSIGNMENT, ORIGIN, Broker, Replicas
from tests.support import schema
from tests.support.tiers import examples

import supercluster.broker
from supercluster.broker.jetstream.api import answers, parser, requests
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.config.sources import Origin
from supercluster.broker.jetstream.config.stream import Placement, StreamConfig
from supercluster.broker.jetstream.config.stream_checks import check_update, read_stream
from supercluster.broker.jetstream.consumer.leader import ConsumerLeader
from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.codec import Reader, WireError, u64
from supercluster.broker.jetstream.encoding.sections import Section, decode_run, encode_run
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Forward, Request
from supercluster.broker.jetstream.links.source_frames import OriginAsk
from supercluster.broker.jetstream.meta import accounts
from supercluster.broker.jetstream.meta.accounts import AccountLimits, Accounts
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.cordons import Cordon
from supercluster.broker.jetstream.meta.map_recovery import MapRecovery
from supercluster.broker.jetstream.meta.move_record import EarlierMove, Move, MoveEnd, MoveReport
from supercluster.broker.jetstream.meta.restoring import Restoring
from supercluster.broker.jetstream.meta.state import BrokerRecord, MetaState
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts, Recovery
from supercluster.broker.jetstream.meta_leader.stream_request import Decided
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.digest import digesting
from supercluster.broker.jetstream.state.snapshot import restore, snapshot_of
from supercluster.broker.jetstream.state.source_positions import OriginPosition, encode_positions
from supercluster.broker.jetstream.state.source_readers import (
    OriginReader,
    encode_reader,
    name_for,
    reader_name,
)
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.stream import api
from supercluster.broker.jetstream.turn.slices import at_once
from supercluster.broker.moves.note import Note
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.entry import decode_entry

pytestmark = pytest.mark.covers("SF-24")
RANDOM = st.integers(0, 2**32).map(random.Random)
"""By a seed, so that all values of a table are as likely."""


class Asked(dict[str, Any]):
    """An object that remembers which fields were asked for."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def asked_for(read: Any, data: dict[str, Any]) -> set[str]:
    found = Asked(data)
    read(found)
    return found.names


def test_every_field_that_is_read_has_values_here() -> None:
    assert asked_for(read_stream, {"name": "S"}) == set(schema.STREAM)
    assert asked_for(read_consumer, {}) == set(schema.CONSUMER)
    assert asked_for(lambda data: Origin.from_json(data, "x"), {}) == set(schema.ORIGIN)
    for name, table in (
        ("placement", schema.PLACEMENT),
        ("consumer_limits", schema.CONSUMER_LIMITS),
        ("subject_transform", schema.TRANSFORM),
        ("republish", schema.REPUBLISH),
    ):
        inner = Asked({next(iter(table)): None})
        with contextlib.suppress(ApiError):
            read_stream({"name": "S", name: inner})
        assert inner.names == set(table), name
    inner = Asked()
    Origin.from_json({"external": inner}, "x")
    assert inner.names == set(schema.EXTERNAL)


def test_every_header_that_is_read_has_values_here() -> None:
    [root] = supercluster.broker.__path__
    text = "".join(path.read_text() for path in Path(root).rglob("*.py"))
    named = set(re.findall(r'b"((?:Nats|KV|Supercluster)-[A-Za-z-]+[A-Za-z])"', text))
    assert named == set(schema.HEADERS)


def test_every_call_has_values_here() -> None:
    named = {template.split(".{")[0].replace(".s.a", "") for template, _ in schema.API}
    assert {words for words, *_ in parser._CALLS} - named == {"ACCOUNT.STREAM.CANCEL_MOVE"}


# ---- streams --------------------------------------------------------------------------------------------------------


def read(subject: bytes, body: bytes) -> Any:
    """The request; None: it is refused, in words that can be sent."""
    try:
        return parser.parse_api(subject, body)
    except ApiError as refused:
        json.loads(answers.error_answer(parser.answer_kind(subject), refused))
        return None


def stored_again(data: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(data))


@pytest.mark.parametrize(
    "wanted",
    [
        {"first_seq": 1},  # Once not told from a different configuration, when it was created again.
        {
            "sources": [
                {"name": "O", "subject_transforms": [{"src": f"{at}.{'x' * 1000}"} for at in range(70)]}
            ]
        },
        {"sources": [{"name": "y" * 70_000}]},
    ],
    ids=["first-seq", "many-transforms", "long-name"],
)
def test_a_stream_that_was_once_not_as_it_was_stored_is_kept_or_refused(wanted: dict[str, Any]) -> None:
    call = read(b"$JS.API.STREAM.CREATE.S", json.dumps({"name": "S", "subjects": ["s.>"], **wanted}).encode())
    if call is not None:
        keep(call.config)


def keep(config: StreamConfig) -> None:
    assert StreamConfig.from_json(stored_again(config.to_json())) == config
    if not config.sealed:
        # As a client has it from STREAM.INFO, and sends it back with a field changed.
        assert read_stream(stored_again(config.to_json())) == config
    keep_origins(config)


@settings(max_examples=examples(800, 10_000))
@given(RANDOM)
def test_a_stream_that_is_accepted_is_stored_replayed_and_moved(rng: random.Random) -> None:
    call = read(b"$JS.API.STREAM.CREATE.S", schema.dumped(rng, schema.stream_config(rng)))
    if call is None:
        return
    config = call.config
    keep(config)
    map_of = meta(n1="east", n2="east")
    outcome = map_of.call("create", config=config, asked_at=map_of.host.node)
    check_map(map_of)
    [done] = outcome or [None]
    if isinstance(done, ApiError):
        json.loads(answers.error_answer("stream_create", done))
    if not isinstance(done, Decided):
        return
    update = read(
        b"$JS.API.STREAM.UPDATE.S", schema.dumped(rng, {**config.to_json(), **schema.stream_config(rng)})
    )
    if update is not None:
        try:
            check_update(config, update.config)
        except ApiError:
            return
        map_of.call("update", config=update.config)
        check_map(map_of)
        begin(config).command(
            Section.CONFIG_PUT, u64(2) + u64(1), json.dumps(update.config.to_json()).encode()
        )


def check_map(found: Meta) -> None:
    """Snapshot, and replayed by another broker."""
    state = found.replica.state
    assert MetaState.restore(state.snapshot()).snapshot() == state.snapshot()
    replayed = MetaState()
    log = found.replica.log
    for entry in log.entries(1, log.last_index, 1 << 40):
        replayed.apply(decode_entry(entry.record))
    assert replayed.snapshot() == state.snapshot()


def keep_origins(config: StreamConfig) -> None:
    """What a leader asks and keeps of each of its origins, and these of it."""
    for key, origin in config.origins.items():
        ask = OriginAsk(
            "g",
            "t",
            key,
            1,
            2**64 - 1,
            origin.opt_start_seq,
            origin.opt_start_time_ns,
            origin.filters,
            "S",
            0,
        )
        assert OriginAsk.decode(memoryview(b"".join(map(bytes, ask.encode())))) == ask
        encode_positions({key: OriginPosition("g", 2**64 - 1, 2**64 - 1)})
        name = reader_name(name_for("a" * 128, "s" * 255, "other"), key)
        encode_reader(name, OriginReader(origin.filters, 2**64 - 1))


def begin(config: StreamConfig) -> StreamStory:
    story = StreamStory(config)
    story.now_ns = 1_769_860_800 * SECOND
    return story


# ---- messages -------------------------------------------------------------------------------------------------------


def of_replicas(story: StreamStory) -> Iterator[StreamState]:
    """The state by its snapshot, and by the log alone."""
    yield story.restored()
    replayed = StreamState(story.config, 0, story.log)
    for entry in story.log.entries(1, story.log.last_index, 1 << 40):
        replayed.apply(decode_entry(entry.record))
    yield replayed


def digest(state: StreamState) -> bytes:
    return at_once(digesting(state))


@settings(max_examples=examples(800, 10_000))
@given(RANDOM)
def test_messages_that_are_taken_are_stored_replayed_and_sent_on(rng: random.Random) -> None:
    call = None
    while call is None or not call.config.subjects:
        call = read(b"$JS.API.STREAM.CREATE.S", json.dumps(schema.stream_config(rng)).encode())
    story = begin(call.config)
    for _ in range(rng.randint(1, 4)):
        messages = [schema.message(rng) for _ in range(rng.randint(1, 5))]
        taken = story.offer(block(*messages), story.numbers.get(story_key(story), 0) + 1)
        for piece in taken.pieces:
            run = piece.section.run
            story.numbers[story_key(story)] = run.last_number
            assert decode_run(Reader(encode_run(run))) == run
        story.commit()
        story.now_ns += rng.choice((0, MS, SECOND, 3600 * SECOND))
        story.expired()
        story.send_on()
        snapshot = snapshot_of(story.state)
        for found in of_replicas(story):
            assert snapshot_of(found) == snapshot
            assert digest(found) == digest(story.state)


def story_key(story: StreamStory) -> Any:
    [key] = [found.key for found in story.state.sessions.states()]
    return key


# ---- consumers ------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(800, 10_000))
@given(RANDOM)
def test_a_consumer_that_is_accepted_is_stored_replayed_and_delivers(rng: random.Random) -> None:
    body = {"stream_name": "S", "config": schema.consumer_config(rng)}
    call = read(b"$JS.API.CONSUMER.CREATE.S.C", schema.dumped(rng, body))
    if call is None:
        return
    stream = read_stream({"name": "S", "subjects": ["s.>"], "num_replicas": 3})
    try:
        config = call.config.for_stream(stream)
    except ApiError:
        return
    assert ConsumerConfig.from_json(stored_again(config.to_json())) == config
    assert read_consumer(stored_again(config.to_json())) == config
    story = begin(stream)
    story.store((b"s.a", b"", b"x"), (b"s.b", b"", b"y"))
    put = {
        "name": config.name,
        "config": config.to_json(),
        "start_seq": max(config.opt_start_seq, 1),
        "last_seqs": [],
    }
    story.command(Section.CONSUMER_PUT, json.dumps(put).encode())
    for found in of_replicas(story):
        assert snapshot_of(found) == snapshot_of(story.state)
    check_consumer(rng, story, config.name)


def check_consumer(rng: random.Random, story: StreamStory, name: str) -> None:
    """Its leader delivers, hears answers, and all of it is one state on every replica."""
    committed = story.state.consumers[name]
    leader = ConsumerLeader("S", committed, story.now_ns)
    source = Source()
    for subject in ("s.a", "s.b", "s.a"):
        source.store(subject)
    leader.on_pull(
        schema.dumped(rng, {"batch": 3, "expires": rng.choice(schema.DURATIONS)}),
        b"in",
        story.now_ns,
        lambda inbox: True,
    )
    for _ in range(4):
        leader.pump(source, story.now_ns, lambda inbox: True)
        for seq in rng.sample(list(leader.state.pending), rng.randint(0, len(leader.state.pending))):
            answer = rng.choice(
                (
                    b"",
                    b"-NAK",
                    b"-NAK 2562047h",
                    b'-NAK {"delay":9223372036854775807}',
                    b"+WPI",
                    b"+TERM",
                    b"+NXT",
                )
            )
            leader.on_ack(seq, answer, b"", story.now_ns, lambda inbox: True)
        leader.next_deadline_ns()
        while (outbox := leader.take_ops()) is not None:
            committed.apply(outbox.ops, last_seq=source.last_seq)
        restored = ConsumerState.restore(committed.snapshot())
        assert restored.snapshot() == committed.snapshot() == leader.state.snapshot()
        assert restored.exhausted == committed.exhausted
        story.now_ns += rng.choice((0, SECOND, 3600 * SECOND))


# ---- records of moves, recoveries, accounts ---------------------------------------------------------------------------


INTEGERS = st.sampled_from([0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**64 - 1]) | st.integers(0, 2**64 - 1)
SHORT = st.sampled_from(["", "n0@v", "ü", "💥", "\x00", "x" * 300]) | st.text(max_size=8)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Of a field's type; raises for one that is not known here."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is StreamConfig:
        return st.just(read_stream({"name": "S", "subjects": ["s.>"]}))
    if is_dataclass(kind):
        return records(kind)
    if origin in (types.UnionType, Union):
        return st.one_of(*map(values_of, arguments))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin in (dict, Mapping, collections.abc.Mapping):
        return st.dictionaries(*map(values_of, arguments), max_size=3)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    return {int: INTEGERS, str: SHORT, bool: st.booleans(), type(None): st.none()}[kind]


def records(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]) | {"Mapping": Mapping})
    return st.builds(
        kind, **{field.name: values_of(hints[field.name]) for field in fields(kind) if field.init}
    )


STORED = (
    Placement,
    Move,
    MoveReport,
    EarlierMove,
    MoveEnd,
    Recovery,
    MapRecovery,
    CopyFacts,
    Restoring,
    Cordon,
    AccountLimits,
)


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(20, 1000))
@given(data=st.data())
def test_a_record_that_is_stored_is_read_as_it_was(kind: Any, data: st.DataObject) -> None:
    record = data.draw(records(kind))
    assert kind.from_json(stored_again({"it": record.to_json()})["it"]) == record


@settings(max_examples=examples(30, 1000))
@given(records(Note))
def test_what_a_move_notes_in_its_streams_log_is_read_as_it_was(note: Note) -> None:
    assert Note.decode(note.encode()) == note


@settings(max_examples=examples(50, 2000))
@given(st.lists(records(Assignment), max_size=3), st.lists(records(BrokerRecord), max_size=3), st.data())
def test_a_map_with_any_records_is_restored_as_it_was(
    streams: list[Assignment], brokers: list[BrokerRecord], data: st.DataObject
) -> None:
    state = MetaState(applied_index=data.draw(INTEGERS), time_ns=data.draw(INTEGERS))
    for at, found in enumerate(streams):
        state._put(
            (found.account, f"{found.name}{at}"), replace(found, name=f"{found.name}{at}", group=f"g{at}")
        )
        state.accounts.has_stream(found.account)
    state.brokers = {found.node: found for found in brokers}
    state.cordoned = {found.node: data.draw(records(Cordon)) for found in brokers[:1]}
    state.away = {found.node: data.draw(INTEGERS) for found in brokers[:1]}
    state.recovery = data.draw(st.none() | records(MapRecovery))
    restored = MetaState.restore(state.snapshot())
    for field in fields(MetaState):
        if field.name != "accounts":
            assert getattr(restored, field.name) == getattr(state, field.name), field.name
    assert restored.snapshot() == state.snapshot()


@settings(max_examples=examples(100, 2000))
@given(RANDOM)
def test_what_somebody_declares_of_an_account_is_stored_as_it_was(rng: random.Random) -> None:
    known = (*accounts.FIELDS, *accounts.MORE_FIELDS)
    table: schema.Table = dict.fromkeys(known, schema.COUNTS)
    table = {**table, accounts.MAX_BYTES_REQUIRED: schema.FLAGS, accounts.DECLARED_BY: schema.TEXTS}
    try:
        record = accounts.read_record(schema.part_of(table)(rng))
    except ApiError:
        return
    state = Accounts()
    told = accounts.put_account("A", record)
    state.set_totals("A", json.loads(told)["record"], has_streams=False)
    assert state.limits_of("A") == record.limits
    assert Accounts.from_json(stored_again({"it": state.to_json()})["it"], ()).to_json() == state.to_json()


# ---- any calls of a stream's leader, one after the other --------------------------------------------------------------


@settings(max_examples=examples(15, 300), deadline=None)
@given(RANDOM)
def test_whatever_a_streams_leader_is_asked_its_replicas_stay_the_same(rng: random.Random) -> None:
    call = None
    while call is None or call.config.origins:
        call = read(b"$JS.API.STREAM.CREATE.S", json.dumps(schema.stream_config(rng)).encode())
    replicas = Replicas(replace(ASSIGNMENT, config=replace(call.config, num_replicas=3)))
    replicas.settle(2000)
    leader = replicas.leader()
    leader.group.copy.inbox.open_session(ORIGIN)
    replicas.settle()
    number = 1
    for _ in range(40):
        step = rng.random()
        if step < 0.3:
            messages = [schema.message(rng) for _ in range(3)]
            leader.group.copy.inbox.offer(Forward(ORIGIN, number, 0, 1, block(*messages)), early=False)
            number += 3
        elif step < 0.45:
            acks = [acknowledgement(rng) for _ in range(5)]
            leader.group.copy.appender.acknowledge("d", acks)
        else:
            ask(rng, leader)
        replicas.settle(rng.choice((0, 0, 0, 100, 2000)))
        assert [broker.group.failed for broker in replicas.brokers.values()] == [None] * 3
        if not any(broker.group.serves for broker in replicas.brokers.values()):
            replicas.settle(3000)
        leader = replicas.leader()
    replicas.settle(1000)
    states = [broker.group.state for broker in replicas.brokers.values()]
    assert len({snapshot_of(state) for state in states}) == 1
    assert snapshot_of(restore(snapshot_of(states[0]), leader.group.log)) == snapshot_of(states[0])
    assert not {"GroupFailed", "BadFrame"} & {
        event for broker in replicas.brokers.values() for event in broker.events
    }


def acknowledgement(rng: random.Random) -> Ack:
    number = rng.choice((0, 1, 2, 3, 2**63, 10**19 - 1))
    payload = rng.choice(
        (
            b"",
            b"+ACK",
            b"-NAK",
            b"-NAK 9999999999999999h",
            b'-NAK {"delay":1e5}',
            b"+WPI",
            b"+TERM x",
            b"+NXT",
            b"+NXT {",
            b"\xff",
        )
    )
    return b"$JS.ACK.S.C.1.%d.%d.0.0" % (number, rng.choice((0, 1, 2**63))), b"_R.1", payload


def ask(rng: random.Random, leader: Broker) -> None:
    """As the broker of a client passes it on."""
    subject, payload = schema.api_call(rng)
    try:
        call = parser.parse_api(subject, payload)
    except ApiError:
        return
    if call.stream != "S" or isinstance(call, OF_THE_MAP):
        return
    info = ClientInfo("$G", "u", is_operator=rng.random() < 0.3)
    request = Request("vol-d", 1, leader.group.id, info, subject, b"_R.2", b"", payload)
    answers: list[bytes | None] = []
    api.answer(leader.group.copy, request, answers.append, lambda: None, lambda left: None)


OF_THE_MAP = (
    requests.StreamCreateRequest,
    requests.StreamUpdateRequest,
    requests.StreamDeleteRequest,
    requests.StreamRestoreRequest,
    requests.StreamMoveCancelRequest,
    requests.StreamPeerRemoveRequest,
)


def test_an_origin_is_asked_in_words_that_it_can_keep() -> None:
    """A linked broker's frame whose stream and key are too long for one text once halted the origin's copy."""
    for key, stream, is_kept in (
        ("k" * 30_000, "s" * 30_000, True),
        ("k" * 65_535, "s", False),
        ("k", "s" * 65_535, False),
    ):
        ask = OriginAsk("g", "t", key, 1, 0, 0, 0, (), stream, 0)
        raw = memoryview(b"".join(map(bytes, ask.encode())))
        if is_kept:
            encode_reader(reader_name(ask.stream, ask.key), OriginReader((), 0))
            assert OriginAsk.decode(raw) == ask
        else:
            with pytest.raises(WireError, match="too long"):
                OriginAsk.decode(raw)


LATER = {"of_tomorrow": {"a": [1]}}


def test_fields_of_a_newer_version_are_passed_over_in_every_part_of_what_is_stored() -> None:
    origin = {
        "name": "O",
        "external": {"api": "$JS.hub.API", "deliver": ""},
        "subject_transforms": [{"src": "o.>", "dest": "s.>"}],
    }
    parts = {
        "placement": {"cluster": "east"},
        "consumer_limits": {"max_ack_pending": 1},
        "subject_transform": {"src": "s.*", "dest": "s.$1"},
        "republish": {"src": "s.>", "dest": "t.>"},
        "sources": [origin],
    }
    config = read_stream({"name": "S", "subjects": ["s.>"], **parts})
    told = later(stored_again(config.to_json()))
    assert len(str(told).split("of_tomorrow")) == 9, "one for each object"
    assert StreamConfig.from_json(told) == config
    consumer = read_consumer({"durable_name": "C"})
    assert ConsumerConfig.from_json(later(consumer.to_json())) == consumer
    move = Move("m", (), (), Placement("east"), 1)
    assert Move.from_json(later(move.to_json())) == move
    with pytest.raises(ApiError, match="of_tomorrow"):
        read_stream({**config.to_json(), "placement": {"cluster": "east", **LATER}})


def later(told: Any) -> Any:
    """The same as a newer version may have it."""
    if isinstance(told, dict):
        return {name: later(value) for name, value in told.items()} | LATER
    return [later(one) for one in told] if isinstance(told, list) else told
