"""What is accepted can be stored, snapshot, framed and replayed (SF-24): single requests that once ended every broker."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, block, config, message, turn_of

from supercluster.broker.bounds import FRAME_BYTES_MAX, TIME_NS_MAX
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import SessionKey
from supercluster.broker.jetstream.encoding.timestamps import ZERO_TIME, format_time, parse_time
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.far_groups import FarGroups
from supercluster.broker.jetstream.links.frames import Forward
from supercluster.broker.jetstream.links.raft_outbox import FRAME_BYTES, RaftOutbox
from supercluster.broker.jetstream.links.source_frames import OriginAsk
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.publish import counters
from supercluster.broker.jetstream.publish.admission import Answer
from supercluster.broker.jetstream.publish.counters import CounterError
from supercluster.broker.jetstream.publish.inbox import PublishInbox
from supercluster.broker.jetstream.publish.log_tail import LogTail
from supercluster.broker.jetstream.publish.proposal import ENTRY_BYTES_MAX, Proposal
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.jetstream.state.source_positions import OriginPosition, encode_positions
from supercluster.broker.ports import Channel
from supercluster.broker.raft.entry import make_entry
from supercluster.broker.raft.messages import Append

COUNTER = {"name": "S", "subjects": ["s.>"], "allow_msg_counter": True}


def stored(wanted: dict[str, Any]) -> StreamConfig:
    """As an entry of the map has it, read again by every replica."""
    accepted = read_stream(wanted)
    return StreamConfig.from_json(json.loads(json.dumps(accepted.to_json())))


# ---- configurations -----------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-24")
def test_a_configuration_is_judged_as_it_will_be_stored() -> None:
    with pytest.raises(ApiError, match="counter stream cannot use message TTLs"):
        read_stream({**COUNTER, "subject_delete_marker_ttl": 2_000_000_000})


@pytest.mark.covers("SF-24")
@pytest.mark.parametrize(
    "more",
    [
        {"sealed": True},
        {"allow_msg_schedules": True, "sealed": True, "allow_msg_counter": False},
        {"subject_delete_marker_ttl": 2_000_000_000, "deny_purge": True, "allow_msg_counter": False},
        {"max_age": 50_000_000_000, "duplicate_window": 1_000_000_000},
    ],
)
def test_what_is_stored_is_read_as_it_stands_by_every_replica(more: dict[str, Any]) -> None:
    accepted = read_stream({**COUNTER, **more})
    assert stored({**COUNTER, **more}) == accepted
    state = MetaState()
    state.streams["A", "S"] = _assignment(accepted)
    assert MetaState.restore(state.snapshot()).streams["A", "S"].config == accepted


@pytest.mark.covers("SF-24")
def test_sources_whose_key_a_log_has_no_room_for_are_refused() -> None:
    """A key stands behind two bytes of length in what each leader of the stream asks, writes and keeps."""
    transforms = [
        {"src": f"{number}.{'x' * 1000}.>", "dest": f"{number}.{'y' * 1000}.>"} for number in range(70)
    ]
    for many, refusal in ((transforms, "bytes"), (transforms[:14], "")):
        wanted = {"name": "S", "subjects": [], "sources": [{"name": "O", "subject_transforms": many}]}
        if refusal:
            with pytest.raises(ApiError, match=refusal):
                read_stream(wanted)
            continue
        [origin] = read_stream(wanted).sources
        encode_positions({origin.key: OriginPosition("g", 1, 1)})
    with pytest.raises(ApiError):
        read_stream({"name": "S", "mirror": {"name": "x" * 256}})


def _assignment(found: StreamConfig) -> Assignment:
    return Assignment("A", "S", "g", found, 1, ("n0@v",), 1)


def test_a_stored_configuration_with_fields_of_a_newer_version_is_read_without_them() -> None:
    told = read_stream(COUNTER).to_json() | {"of_tomorrow": 1}
    assert StreamConfig.from_json(told) == read_stream(COUNTER)
    with pytest.raises(ApiError, match="of_tomorrow"):
        read_stream(told)


# ---- times --------------------------------------------------------------------------------------------------------

YEARS = st.integers(1, 9999)
TIMES = st.builds(
    "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}{}{}".format,
    YEARS,
    st.integers(1, 12),
    st.integers(1, 28),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.sampled_from(["", ".1", ".999999999"]),
    st.sampled_from(["Z", "+23:59", "-23:59", "+00:00"]),
)


@pytest.mark.covers("SF-24")
@given(TIMES)
def test_whatever_time_is_read_can_be_stored_and_said_again(text: str) -> None:
    found = parse_time(text)
    assert len(u64(found)) == 8
    assert parse_time(format_time(found)) == found
    assert found <= TIME_NS_MAX


@pytest.mark.covers("SF-24")
@given(TIMES.filter(lambda text: text != ZERO_TIME))
def test_consumers_and_origins_with_any_time_are_stored_and_framed(text: str) -> None:
    wanted = {
        "deliver_policy": "by_start_time",
        "opt_start_time": text,
        "pause_until": text,
        "ack_policy": "explicit",
    }
    consumer = read_consumer(wanted)
    assert ConsumerConfig.from_json(json.loads(json.dumps(consumer.to_json()))) == consumer
    mirror = {"name": "S", "mirror": {"name": "O", "opt_start_time": text}}
    origin = read_stream(mirror).mirror
    assert origin is not None
    assert stored(mirror).mirror == origin
    ask = OriginAsk("g", "t", "k", 1, 0, 0, origin.opt_start_time_ns, (), "S", 0)
    assert OriginAsk.decode(memoryview(b"".join(map(bytes, ask.encode())))) == ask


@pytest.mark.covers("SF-24")
@pytest.mark.parametrize(
    "when", ["@at 2600-01-01T00:00:00Z", "@at 9999-12-31T23:59:59-23:59", "@at 0001-01-01T00:00:01Z"]
)
def test_a_schedule_at_any_time_is_kept_in_snapshots(when: str) -> None:
    story = StreamStory(config(allow_msg_schedules=True, allow_rollup_hdrs=True))
    story.store(message(b"s.a", b"x", Nats_Schedule=when, Nats_Schedule_Target="s.b"))
    assert snapshot_of(story.restored()) == snapshot_of(story.state)


# ---- messages -----------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-24")
@pytest.mark.parametrize("deep", [b"[" * 20_000, b'{"a":' * 20_000])
def test_deep_json_in_a_counter_is_no_counter(deep: bytes) -> None:
    with pytest.raises(CounterError):
        counters._sources(deep)
    with pytest.raises(CounterError):
        counters._value(deep)


@pytest.mark.covers("SF-24", "SF-11")
def test_blocks_that_end_many_large_batches_become_entries_of_a_bounded_size() -> None:
    class Piece:
        own = ()

        def __init__(self, section: Any) -> None:
            self.section = section

    story = StreamStory()
    taken = story.admission.take(
        Forward(story_key(story), 1, 0, 0, block(message())), story.now_ns, room=True
    )
    assert taken.answer is Answer.TAKEN
    assert taken.pieces

    class Judged:
        end = story.admission.end
        batches = story.admission.batches
        left = 9

        def take(self, forward: Forward, now_ns: int, *, room: bool) -> Any:
            return _Taken([Piece(_big(taken.pieces[0].section)) for _ in range(8)])

    intake = PublishInbox("g", None)  # type: ignore[arg-type]  # Nobody is told anything.
    intake.offer(Forward(story_key(story), 1, 0, 0, block(message())), early=False)
    sizes: list[int] = []

    def append(proposal: Proposal) -> bool:
        sizes.append(proposal.size)
        return True

    turn = turn_of(story.state, Judged(), 1, story.log, append)  # type: ignore[arg-type]
    turn.admission.config_sent = 1
    intake.put(turn)
    assert turn.proposal.size == 0
    assert len(sizes) == 8
    assert max(sizes) < 2 * ENTRY_BYTES_MAX + BATCH


BATCH = 3 * 1024 * 1024


class _Taken:
    answer = Answer.TAKEN
    next_number = 0

    def __init__(self, pieces: list[Any]) -> None:
        self.pieces = pieces


def _big(section: Any) -> Any:
    return replace(section, block=b"x" * BATCH)


def story_key(story: StreamStory) -> SessionKey:
    [key] = [found.key for found in story.state.sessions.states()]
    return key


@pytest.mark.covers("SF-10")
def test_a_session_of_an_incarnation_that_was_followed_by_another_is_not_opened_again() -> None:
    story = StreamStory()
    key = story_key(story)
    newer = SessionKey(key.node, "newer", 1)
    end: LogTail = story.admission.end
    assert end.may_open(newer)
    end.opened(newer)  # appended, and not committed
    assert not end.may_open(SessionKey(key.node, key.incarnation, key.counter + 1))
    assert end.may_open(SessionKey(key.node, "newest", 1))


# ---- frames -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("SF-24")
def test_what_all_groups_have_to_say_in_a_turn_goes_in_frames_of_a_bounded_size() -> None:
    sent: list[tuple[Channel, int]] = []

    class Network:
        def send(self, node: str, frame: int, body: list[bytes], channel: Channel) -> bool:
            sent.append((channel, sum(map(len, body))))
            return True

    peers = SimpleNamespace(linked={"n1"}, far={}, far_groups=FarGroups(""), network=Network())
    mail = RaftOutbox(peers)  # type: ignore[arg-type]
    entry = make_entry(index=1, term=1, kind=1, time_ns=1, payload=b"x" * 1024 * 1024)
    for number in range(65):
        mail.add(f"g{number}", Append("n0@a", "n1@b", 1, 0, 0, 0, 0, entries=(entry,), by_bulk=True))
    mail.flush()
    assert len(sent) > 10
    assert all(size < FRAME_BYTES + 2 * 1024 * 1024 < FRAME_BYTES_MAX for _, size in sent)
    assert sum(size for _, size in sent) > 65 * 1024 * 1024


@pytest.mark.covers("SF-29")
def test_a_block_that_waits_already_is_not_kept_again() -> None:
    """A window repeats what a full leader has not answered: 8,192 copies of a block were 8 GiB."""
    story, intake = StreamStory(), PublishInbox("g", None)  # type: ignore[arg-type]  # Nobody is told anything.
    for _ in range(3):
        for number in (1, 2):
            intake.offer(Forward(story_key(story), number, 0, 0, block(message())), early=False)
    assert len(intake._forwards) == 2
    story.admission.config_sent = 1
    intake.put(story.turn())
    assert not intake._forwards
    intake.offer(Forward(story_key(story), 3, 0, 0, block(message())), early=False)
    assert len(intake._forwards) == 1


@pytest.mark.covers("SF-29", "BG-4")
def test_a_window_that_is_sent_again_is_answered_once_for_each_number() -> None:
    """Each block was answered with the verdicts on all later ones, too: after a cut of 20 s leaders did nothing else for 26 s."""
    story = StreamStory()
    told: list[Any] = []
    host: Any = SimpleNamespace(verdicts=lambda group, key, runs, appended: told.extend(runs))
    intake = PublishInbox("g", host)
    for number in range(1, 101):
        # What a retrying publisher repeats has verdicts that are not joined.
        story.publish(message(Nats_Msg_Id=str(number // 2)))
    story.commit()
    session = story.state.sessions.current(story_key(story))
    assert session is not None
    assert len(session.runs) > 50
    for closed in (False, True):
        told.clear()
        for number in range(1, 101):
            intake.offer(
                Forward(story_key(story), number, 0, 0, block(message(Nats_Msg_Id=str(number // 2)))),
                early=False,
            )
        story.admission.config_sent = 1
        if closed:
            intake.answer_known(story.state)
        else:
            intake.put(story.turn())
        assert {at for run in told for at in range(run.first_number, run.last_number + 1)} == set(
            range(1, 101)
        )
        assert len(told) == 100


@pytest.mark.covers("SF-10", "SF-29", "BG-4")
def test_of_a_block_that_a_leader_has_half_of_the_known_half_is_answered() -> None:
    """A window that sends again merges small blocks. Verdicts on the second half alone were a gap, for which it sent all again, once
    per frame of verdicts: after a cut of 10 s ten times as many bytes."""
    story = StreamStory()
    told: list[Any] = []
    host: Any = SimpleNamespace(verdicts=lambda group, key, runs, appended: told.extend(runs))
    intake = PublishInbox("g", host)
    story.admission.config_sent = 1
    for _ in range(2):
        story.publish(message())
    story.commit()
    seq = story.state.last_seq
    intake.offer(Forward(story_key(story), 1, 0, 0, block(*(message() for _ in range(4)))), early=False)
    turn = story.turn()
    intake.put(turn)
    assert [(run.first_number, run.count) for run in told] == [(1, 2)]
    story.append_proposal(turn.proposal)
    for done in story.commit():
        intake.applied(done)
    intake.send_verdicts()
    assert [(run.first_number, run.count) for run in told] == [(1, 2), (3, 2)]
    assert story.state.last_seq == seq + 2
