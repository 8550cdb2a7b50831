"""A stream's replicas around a change of leader: what the old one says, and what it does not say any more."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.broker.jetstream.publish.stream_story import block, message

from supercluster.broker.jetstream.config.limits import NO_SERVER_LIMITS, ServerLimits
from supercluster.broker.jetstream.config.sources import Origin
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.consumer.leader import ConsumerLeader
from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.codec import blob, text, u64
from supercluster.broker.jetstream.encoding.sections import Section, SessionKey, VerdictRun
from supercluster.broker.jetstream.links.frames import Forward, Frame, Request, decode_numbered
from supercluster.broker.jetstream.links.source_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.meta.accounts import NO_LIMITS, AccountLimits
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep
from supercluster.broker.jetstream.publish import proposal
from supercluster.broker.jetstream.publish.atomic_batches import batch_room
from supercluster.broker.jetstream.replica import replica
from supercluster.broker.jetstream.state import consumer_ops
from supercluster.broker.jetstream.stream import api, appender
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.jetstream.subjects.interest_watch import InterestWatch
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.jetstream.turn.share import TurnShare
from supercluster.broker.jetstream.turn.slices import Job, JobOwner, Slices, at_once
from supercluster.broker.ports import ClientInfo, Ticket
from supercluster.broker.raft.confchange import membership_of, node_of
from supercluster.broker.raft.config import RaftConfig, Role
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.messages import Message, TimeoutNow
from supercluster.broker.raft.node import RaftNode
from supercluster.broker.storage.log.memory_log import MemoryLog

NODES = ("a", "b", "c")
CONFIG = read_stream({"name": "S", "subjects": ["s.>"], "num_replicas": 3})
ASSIGNMENT = Assignment("$G", "S", "S.$G.S.1", CONFIG, 1, tuple(f"{node}@1" for node in NODES), 0)
ORIGIN = SessionKey("d", "vol-d", 1)


class BreakableLog(MemoryLog):
    """A log whose disk may have no room, or fail for good."""

    problem: DiskError | None = None
    is_final = False

    def append(self, entries: Sequence[Entry]) -> None:
        if self.problem is not None:
            raise self.problem
        super().append(entries)

    @property
    def failed(self) -> DiskError | None:
        return self.problem if self.is_final else None


class Broker:
    """One replica and everything around it: host, clock, network and randomness."""

    meta_id = "meta"
    domain = world = ""

    def __init__(self, replicas: Replicas, node: str) -> None:
        self.replicas = replicas
        self.node = node
        self.clock: Any = self
        self.network: Any = self
        self.map: Any = self
        self.batch_room = replicas.batch_room
        self.interests = InterestWatch()
        self.replies: list[bytes] = []
        self.acks_given_back: list[tuple[str, list[Ack]]] = []
        self.republished: list[tuple[bytes, bytes, bytes]] = []
        self.listens = False
        """Does anybody listen to what is told of the stream?"""
        self.posts: list[tuple[int, bytes]] = []
        self.stored: list[VerdictRun] = []
        self.events: list[str] = []
        self.delivered: list[int] = []
        self.statuses: list[bytes] = []
        self.goes_on = self.touched = False
        """The group wants another turn."""
        self.given_back: list[bytes] = []
        self.restores_ended: list[str] = []
        """What the meta group is asked for."""
        assignment = replicas.assignment
        member, membership, log = f"{node}@1", membership_of(assignment.members), BreakableLog()
        log.save_checkpoint(0, blob(membership.encode()) + StreamReplica.blank_state(assignment))
        raft = RaftNode(
            RaftConfig(member),
            log,
            term=0,
            vote="",
            membership=membership,
            commit_index=0,
            rng=self,
            now_ms=0,
        )
        self.group = StreamReplica(assignment, member, log, raft, self)
        self.group.recover(0)

    @property
    def questions(self) -> Questions:
        return Questions(Slices())

    @property
    def turn_share(self) -> TurnShare:
        """Each turn of the group is one of the broker."""
        return TurnShare()

    def now_ns(self) -> int:
        return 1_000_000 * self.replicas.now_ms

    def monotonic_ms(self) -> int:
        return self.replicas.now_ms

    def machine_ms(self) -> int:
        return self.replicas.now_ms

    def randrange(self, start: int, /) -> int:
        return start * NODES.index(self.node) // len(NODES)

    def getrandbits(self, k: int, /) -> int:
        return 0

    def send_raft(self, group: str, message: Message) -> None:
        self.replicas.send(message)

    def origin_of(self, account: str, origin: Origin) -> None:
        raise AssertionError("no stream here has origins")

    def stream_of(self, account: str, name: str) -> None:
        return None

    def end_restore(self, told: dict[str, Any], then: Callable[[bytes | None], None]) -> None:
        self.restores_ended.append(told["verb"])

    def who_leads(self, group_id: str) -> None:
        pass

    def watch_origins(self, target: str, origins: Iterable[str]) -> None:
        assert not list(origins), "no stream here has origins"

    def ask_origin(self, node: str, ask: OriginAsk) -> bool:
        raise AssertionError("no stream here has origins")

    def tell_target(self, node: str, told: OriginTold) -> bool:
        raise AssertionError("no stream here is an origin")

    def leader_of(self, group_id: str) -> str | None:
        return None

    def far_nodes(self, world: str) -> list[str]:
        return []

    def migration_step(self, step: MigrationStep) -> None:
        raise AssertionError("no stream here goes to another super-cluster")

    def migration(self, migration_id: str) -> Migration | None:
        return None

    def cut_moved(self, group: str) -> None: ...

    def acks_back(self, node: str, group: str, acks: list[Ack]) -> None:
        self.acks_given_back.append((node, acks))

    def is_heard(self, account: str, subject: bytes) -> bool:
        return self.listens

    def republish(self, account: str, message: tuple[bytes, bytes, bytes]) -> None:
        self.republished.append(message)

    @property
    def server_limits(self) -> ServerLimits:
        return self.replicas.server_limits

    def account_limits(self, account: str) -> AccountLimits:
        return self.replicas.limits

    def post(self, node: str, frame: int, body: list[bytes | memoryview]) -> bool:
        self.posts.append((frame, b"".join(body)))
        return True

    def verdicts(self, group: str, key: SessionKey, runs: list[VerdictRun], *, appended: bool) -> None:
        self.stored += runs

    def serving(self, group: str) -> None: ...

    def save_vote(self, group: str, ticket: Ticket) -> None:
        raise AssertionError(f"{group} is kept in memory")

    def touch(self, group: str) -> None:
        self.touched = True

    def touch_next(self, group: str) -> None:
        self.goes_on = True

    def save_checkpoint(self, group: str, ticket: Ticket) -> None:
        raise AssertionError("a log in memory has no tickets")

    def in_slices(self, owner: JobOwner, job: Job) -> None:
        at_once(job)

    def event(self, group: str, reason: str, text: str) -> None:
        self.events.append(reason)

    def group_failed(self, group: str) -> None: ...

    def new_token(self) -> str:
        return "t"

    @property
    def is_fresh(self) -> bool:
        return True

    def has_failed(self, group_id: str, node: str) -> bool:
        return False

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        return {node: ("east", "1") for node in NODES if node not in self.replicas.lost}

    def tags_of(self, node: str) -> tuple[str, ...]:
        return ()

    def takes_no_leaderships(self, node: str) -> bool:
        return False

    def deliver(self, account: str, inbox: bytes, items: Sequence[Any]) -> None:
        self.statuses += [header for _, reply, header, _ in items if not reply]
        self.delivered += [int(reply.split(b".")[5]) for _, reply, _, _ in items if reply]

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self.replies.append(subject)

    def has_interest(self, account: str, inbox: bytes, queue: bytes = b"") -> bool:
        return True

    def pending_bytes(self, account: str, inbox: bytes) -> int:
        return 0

    def ask(
        self,
        subject: str,
        body: dict[str, Any],
        inbox: bytes = b"",
        respond: Callable[[bytes | None], None] = lambda answer: None,
    ) -> None:
        """A client's API request, to this broker's replica."""
        info, payload = ClientInfo("$G", "u", False), json.dumps(body).encode()
        request = Request("vol-d", 1, self.group.id, info, subject.encode(), inbox, b"", payload)
        api.answer(self.group.copy, request, respond, lambda: None, self.given_back.append)

    def asked_again(self) -> list[int]:
        return [decode_numbered(memoryview(body))[2] for frame, body in self.posts if frame == Frame.AGAIN]


class Replicas:
    """Three brokers, and the network between them."""

    def __init__(self, assignment: Assignment = ASSIGNMENT) -> None:
        self.assignment = assignment
        self.now_ms = 0
        self.limits = NO_LIMITS
        self.server_limits = NO_SERVER_LIMITS
        self.batch_room = batch_room(lambda: self.server_limits)
        self.lost: set[str] = set()
        """Nodes that are cut off, and so slow that they do not notice."""
        self.hand_overs_are_lost = False
        self.queue: list[Message] = []
        self.brokers = {node: Broker(self, node) for node in NODES}

    def send(self, message: Message) -> None:
        if isinstance(message, TimeoutNow) and self.hand_overs_are_lost:
            return
        if not {node_of(message.frm), node_of(message.to)} & self.lost:
            self.queue.append(message)

    def turn(self, *nodes: str) -> None:
        for node in nodes:
            self.brokers[node].group.turn(self.now_ms)

    def settle(self, ms: int = 0) -> None:
        """Let time pass, in steps of a heartbeat; every message arrives."""
        for _ in range(ms // 50 + 1):
            awake = [node for node in NODES if node not in self.lost]
            for node in awake:
                self.brokers[node].group.tick(self.now_ms)
            self.turn(*awake)
            while self.queue:
                queue, self.queue = self.queue, []
                for sent in queue:
                    self.brokers[node_of(sent.to)].group.raft.step(sent, self.now_ms)
                self.turn(*awake)
            self.now_ms += 50 if ms else 0

    def leader(self) -> Broker:
        (found,) = [b for b in self.brokers.values() if b.group.serves and b.node not in self.lost]
        return found


@pytest.fixture
def replicas() -> Replicas:
    found = Replicas()
    found.settle(2000)
    leader = found.leader()
    leader.group.copy.inbox.open_session(ORIGIN)
    found.settle()
    leader.posts.clear()
    return found


def forward(first: int, *payloads: bytes) -> Forward:
    messages = [message(payload=payload) for payload in payloads]
    return Forward(ORIGIN, first, 0, ASSIGNMENT.version, block(*messages))


@pytest.mark.covers("SF-1", "SF-2")
def test_a_deposed_leader_does_not_answer_by_entries_of_the_next_one(replicas: Replicas) -> None:
    old = replicas.leader()
    done: list[int | None] = []
    replicas.lost = {old.node}
    old.group.copy.waiters.command(Section.DELETE_MESSAGE, [u64(1)], done.append)
    replicas.turn(old.node)
    assert old.group.log.last_index > old.group.applied_index, (
        "the command has to stand in the old leader's log"
    )
    replicas.settle(2000)
    new = replicas.leader()
    assert new is not old
    # More entries than the old leader has proposed: they take the same places in the log.
    for number in range(1, 4):
        new.group.copy.inbox.open_session(SessionKey("d", "vol-d", 1 + number))
        replicas.settle()
    replicas.lost = set()
    # Its link is up again: one append brings the old leader all of it, with what is committed.
    new.group.raft.wake(replicas.now_ms, old.node)
    replicas.settle(1000)
    assert old.group.applied_index == new.group.applied_index
    assert done == [None]


@pytest.mark.covers("MV-8", "MV-11")
def test_a_follower_applies_a_backlog_in_turns_of_a_bounded_number_of_messages(replicas: Replicas) -> None:
    """Three learners that applied 64 entries of 1,000 messages at a time held processors, and so publishers, for 90 ms."""
    leader = replicas.leader()
    (late, other) = [found for found in replicas.brokers.values() if found is not leader]
    replicas.lost = {late.node}
    for first in range(1, 3001, 300):
        leader.group.copy.inbox.offer(forward(first, *[b"x"] * 300), early=False)
        replicas.settle()
    replicas.settle(100)
    assert leader.group.state.last_seq == other.group.state.last_seq == 3000
    replicas.lost = set()
    leader.group.raft.wake(replicas.now_ms, late.node)
    seen = [late.group.state.last_seq]
    for _ in range(40):
        leader.group.tick(replicas.now_ms)
        replicas.turn(leader.node)
        queue, replicas.queue = replicas.queue, []
        for sent in queue:
            replicas.brokers[node_of(sent.to)].group.raft.step(sent, replicas.now_ms)
        late.goes_on = False
        replicas.turn(late.node)
        if late.group.state.last_seq != seen[-1]:
            seen.append(late.group.state.last_seq)
            assert late.goes_on == (seen[-1] < 3000), "what is left is for a turn of its own"
        replicas.now_ms += 50
    assert seen == [0, 1200, 2400, 3000], (
        "entries are applied whole, up to the one that reaches 1,024 messages"
    )


NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.c"


def with_consumer(replicas: Replicas) -> Broker:
    leader = replicas.leader()
    config = {"durable_name": "c", "ack_policy": "explicit"}
    leader.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    leader.group.copy.inbox.offer(forward(1, b"x", b"y"), early=False)
    replicas.settle()
    return leader


@pytest.mark.covers("SF-2", "MV-10")
def test_a_leader_that_is_cut_off_hands_nothing_out(replicas: Replicas) -> None:
    old = with_consumer(replicas)
    old.ask(NEXT, {"batch": 1}, b"in")
    replicas.settle(100)
    assert old.delivered == [1]
    replicas.lost = {old.node}
    old.ask(NEXT, {"batch": 1}, b"in")
    replicas.turn(old.node, old.node)
    replicas.settle(2000)
    new = replicas.leader()
    new.ask(NEXT, {"batch": 5}, b"in")
    replicas.settle(100)
    assert new.delivered == [2]
    replicas.turn(old.node)
    replicas.lost = set()
    replicas.settle(1000)
    assert old.delivered == [1], "the old leader knew of no commit"
    assert [json.loads(request)["batch"] for request in old.given_back] == [1]


@pytest.mark.covers("SF-2", "MV-10")
def test_what_a_deposed_leader_did_not_hand_out_leaves_when_the_next_one_commits_it(
    replicas: Replicas,
) -> None:
    """Nobody else hands it out before the time for its acknowledgement is over."""
    old = with_consumer(replicas)
    old.ask(NEXT, {"batch": 3}, b"in")
    replicas.turn(old.node, old.node)
    appends, replicas.queue = replicas.queue, []
    assert appends
    replicas.lost = {old.node}
    for sent in appends:
        replicas.brokers[node_of(sent.to)].group.raft.step(sent, replicas.now_ms)
    replicas.settle(2000)
    new = replicas.leader()
    assert new.group.state.consumers["c"].delivered_sseq == 2, "it is in the log"
    assert old.delivered == []
    replicas.lost = set()
    new.group.raft.wake(replicas.now_ms, old.node)
    replicas.settle(1000)
    assert old.delivered == [1, 2]
    assert new.delivered == []
    assert [json.loads(request)["batch"] for request in old.given_back] == [1]


@pytest.mark.covers("RP-3")
def test_a_message_stirs_only_the_consumers_that_it_is_for(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = with_consumer(replicas)
    leader.ask(NEXT, {"batch": 9, "expires": 60_000_000_000}, b"in")
    for number in range(50):
        name = f"n{number}"
        config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": f"nobody.{number}"}
        leader.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": config})
    replicas.settle(500)
    for number in range(50):
        subject = f"$JS.API.CONSUMER.MSG.NEXT.S.n{number}"
        leader.ask(subject, {"batch": 1, "expires": 60_000_000_000}, b"in")
    replicas.settle(500)
    assert leader.delivered == [1, 2]
    calls: list[str] = []
    for method in ("pump", "next_deadline_ns", "is_inactive"):
        original = getattr(ConsumerLeader, method)

        def counted(
            self: ConsumerLeader, *given: Any, original: Any = original, method: str = method, **named: Any
        ) -> Any:
            calls.append(f"{method} {self.state.name}")
            return original(self, *given, **named)

        monkeypatch.setattr(ConsumerLeader, method, counted)
    leader.group.copy.inbox.offer(forward(3, b"z"), early=False)
    replicas.settle(200)
    assert leader.delivered == [1, 2, 3]
    assert set(calls) == {"pump c", "next_deadline_ns c"}


@pytest.mark.covers("MV-5", "MV-10")
def test_what_a_consumer_was_given_by_former_filters_is_let_go_under_the_next_leader_too(
    replicas: Replicas,
) -> None:
    """With max_ack_pending 1 a message that is gone, and that its new filters do not match, would hold it up for good."""
    old = replicas.leader()
    create = "$JS.API.CONSUMER.DURABLE.CREATE.S.c"
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 1, "ack_wait": 3600 * 10**9}
    old.ask(create, {"stream_name": "S", "config": config | {"filter_subject": "s.a"}})
    messages = [message(b"s.a", b"x"), message(b"s.b", b"y")]
    old.group.copy.inbox.offer(Forward(ORIGIN, 1, 0, ASSIGNMENT.version, block(*messages)), early=False)
    replicas.settle()
    old.ask(NEXT, {"batch": 1}, b"in")
    replicas.settle(100)
    assert old.delivered == [1]
    old.ask(create, {"stream_name": "S", "config": config | {"filter_subject": "s.b"}})
    replicas.settle(100)
    replicas.lost = {old.node}
    replicas.settle(2000)
    new = replicas.leader()
    new.ask(NEXT, {"batch": 1, "expires": 3600 * 10**9}, b"in")
    replicas.settle(100)
    assert new.delivered == []
    new.group.copy.waiters.command(Section.DELETE_MESSAGE, [u64(1)], lambda result: None)
    replicas.settle(200)
    assert new.delivered == [2]


@pytest.mark.covers("SF-18")
def test_consumers_wait_while_what_is_left_of_the_disk_is_for_purges(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = with_consumer(replicas)
    monkeypatch.setattr(BreakableLog, "is_scarce", True)
    before = leader.group.log.last_index
    leader.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(500)
    assert (leader.delivered, leader.group.log.last_index) == ([], before)
    monkeypatch.setattr(BreakableLog, "is_scarce", False)
    replicas.settle(1500)
    assert leader.delivered == [1, 2], "it looks again by itself"


@pytest.mark.covers("MV-10")
def test_leadership_is_handed_over_behind_what_is_under_way(replicas: Replicas) -> None:
    """Whatever the next leader will take for delivered was delivered: nothing waits for its ack_wait."""
    old = with_consumer(replicas)
    voters = [member for member in ASSIGNMENT.members if node_of(member) != old.node]
    old.ask(NEXT, {"batch": 2}, b"in")
    replicas.turn(old.node)
    assert old.delivered == []
    assert old.group.raft.transfer_leadership(voters[0], replicas.now_ms)
    replicas.settle(1000)
    assert replicas.leader().group.member == voters[0]
    assert old.delivered == [1, 2]
    assert old.given_back == []


@pytest.mark.covers("SF-12")
def test_nothing_is_judged_while_leadership_is_on_its_way_to_another(replicas: Replicas) -> None:
    old = replicas.leader()
    replicas.hand_overs_are_lost = True
    to = next(member for member in ASSIGNMENT.members if node_of(member) != old.node)
    assert old.group.raft.transfer_leadership(to, replicas.now_ms)
    done: list[int | None] = []
    admission = old.group.copy.appender.admission
    old.group.copy.inbox.offer(forward(1, b"x", b"y"), early=False)
    old.group.copy.waiters.command(Section.DELETE_MESSAGE, [u64(1)], done.append)
    replicas.settle()
    assert (old.stored, done) == ([], [])
    assert old.group.copy.appender.admission is admission, "there was nothing to admission anew"
    deadline_ms = old.group.deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms > replicas.now_ms, "a leader that waits does not spin"
    replicas.settle(600)
    # The word was lost: the leader goes on, with everything that waited.
    assert old.group.raft.role is Role.LEADER
    assert [(run.first_number, run.count, run.first_seq) for run in old.stored] == [(1, 2, 1)]
    assert done == [1]


@pytest.mark.covers("SF-10")
def test_a_gap_is_asked_for_once_however_many_blocks_are_behind_it(replicas: Replicas) -> None:
    leader = replicas.leader()
    for first in (3, 4, 5):
        leader.group.copy.inbox.offer(forward(first, b"late"), early=False)
        replicas.settle()
    assert leader.asked_again() == [1]
    leader.group.copy.inbox.offer(forward(1, b"x", b"y"), early=False)
    leader.group.copy.inbox.offer(forward(5, b"late"), early=False)
    replicas.settle()
    assert leader.asked_again() == [1, 3]
    # Whatever is asked again after numbers were taken is a new gap.
    leader.group.copy.inbox.offer(forward(3, b"z"), early=False)
    leader.group.copy.inbox.offer(forward(6, b"late"), early=False)
    replicas.settle()
    assert leader.asked_again() == [1, 3, 4]


@pytest.mark.covers("SF-1", "SF-18")
@pytest.mark.parametrize("leads", [True, False])
def test_a_log_that_failed_for_good_takes_its_replica_out_and_a_full_one_does_not(
    replicas: Replicas, leads: bool
) -> None:
    leader = replicas.leader()
    broken = leader if leads else next(b for b in replicas.brokers.values() if b is not leader)
    log = broken.group.log
    assert isinstance(log, BreakableLog)
    log.problem = DiskError("no space left", "d")
    leader.group.copy.inbox.offer(forward(1, b"x"), early=False)
    replicas.settle(2000)
    assert broken.group.failed is None, "room may come back"
    log.is_final = True
    replicas.leader().group.copy.inbox.offer(forward(1, b"x"), early=False)
    replicas.settle(2000)
    assert broken.group.failed is not None
    assert not broken.group.serves
    said = len(broken.events)
    replicas.settle(2000)
    assert len(broken.events) == said, "it is said once"
    assert replicas.leader() is not broken, "the others go on"


def create_consumer(leader: Broker, name: str) -> list[int]:
    """Ask for it; the number of the refusal appears in the list, 0 where there is none."""
    answers: list[int] = []

    def respond(answer: bytes | None) -> None:
        answers.append(json.loads(answer or b"{}").get("error", {}).get("err_code", 0))

    body = {"stream_name": "S", "config": {"durable_name": name, "ack_policy": "explicit"}}
    leader.ask(f"$JS.API.CONSUMER.CREATE.S.{name}", body, respond=respond)
    return answers


def replicas_of(**fields: Any) -> Replicas:
    """Replicas of a stream with these settings, whose leader knows ORIGIN."""
    config = read_stream({"name": "S", "subjects": ["s.>"], "num_replicas": 3, **fields})
    found = Replicas(dataclasses.replace(ASSIGNMENT, config=config))
    found.settle(2000)
    found.leader().group.copy.inbox.open_session(ORIGIN)
    found.settle()
    return found


@pytest.mark.covers("MV-10")
def test_an_interest_stream_keeps_nothing_that_changed_filters_leave_to_nobody() -> None:
    replicas = replicas_of(retention="interest")
    leader = replicas.leader()
    config = {"durable_name": "c", "ack_policy": "explicit", "filter_subjects": ["s.a", "s.b"]}
    leader.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    replicas.settle()
    both = block(message(b"s.a"), message(b"s.b"))
    leader.group.copy.inbox.offer(Forward(ORIGIN, 1, 0, ASSIGNMENT.version, both), early=False)
    replicas.settle(100)
    assert leader.group.state.messages == 2
    config["filter_subjects"] = ["s.b", "s.c"]
    leader.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    replicas.settle(200)
    for broker in replicas.brokers.values():
        assert (broker.group.state.messages, broker.group.state.first_seq) == (1, 2)
        assert sorted(broker.group.state.consumers) == ["c"]


@pytest.mark.covers("SF-12")
@pytest.mark.parametrize("removal", [(Section.PURGE, b"{}"), (Section.DELETE_MESSAGE, u64(1))])
def test_an_increment_behind_an_uncommitted_removal_begins_anew(removal: tuple[Section, bytes]) -> None:
    replicas = replicas_of(allow_msg_counter=True)
    leader = replicas.leader()

    def increment(number: int) -> None:
        counted = block(message(b"s.a", b"", Nats_Incr="5"))
        leader.group.copy.inbox.offer(Forward(ORIGIN, number, 0, ASSIGNMENT.version, counted), early=False)

    increment(1)
    replicas.settle()
    leader.group.copy.waiters.command(removal[0], [removal[1]], lambda result: None)
    replicas.turn(leader.node)
    increment(2)
    replicas.turn(leader.node)
    replicas.settle(100)
    found = leader.group.state.message(2)
    assert found is not None
    assert json.loads(found.payload) == {"val": "5"}
    assert leader.group.state.messages == 1


@pytest.mark.covers("SF-12")
def test_consumers_that_are_asked_for_at_once_do_not_exceed_what_the_account_allows(
    replicas: Replicas,
) -> None:
    leader = replicas.leader()
    replicas.limits = AccountLimits(consumers_per_stream_max=2)
    asked = [create_consumer(leader, name) for name in ("a", "b", "c")]
    replicas.settle()
    assert asked == [[0], [0], [10026]]
    assert create_consumer(leader, "a") == [0], "it is there"
    assert create_consumer(leader, "d") == [10026]
    replicas.limits = AccountLimits(consumers_per_stream_max=1)
    assert create_consumer(leader, "b") == [0], "a lowered limit takes nothing away"
    replicas.limits = AccountLimits(consumers_per_stream_max=3)
    assert create_consumer(leader, "d") == []
    replicas.settle()
    assert sorted(leader.group.state.consumers) == ["a", "b", "d"]
    assert leader.group.copy.coming == {}


def test_the_leaders_own_limits_hold_for_what_is_asked_for_and_not_for_what_is_there(
    replicas: Replicas,
) -> None:
    leader = replicas.leader()
    assert create_consumer(leader, "a") == []
    replicas.settle()
    replicas.server_limits = ServerLimits(max_request_batch=5, max_ack_pending=10)
    answers: list[int] = []
    ask_consumer(leader, "CREATE", "b", answers)
    ask_consumer(leader, "CREATE", "c", answers, max_batch=6)
    ask_consumer(leader, "CREATE", "d", answers, max_ack_pending=11)
    replicas.settle()
    assert sorted(answers) == [0, 10121, 10125]
    found = {name: state.config for name, state in leader.group.state.consumers.items()}
    assert {name: (config.max_batch, config.max_ack_pending) for name, config in found.items()} == {
        "a": (0, 1000),
        "b": (5, 10),
    }
    for broker in replicas.brokers.values():
        assert broker.group.state.consumers["b"].config == found["b"]


def ask_consumer(leader: Broker, call: str, name: str, answers: list[int], **config: Any) -> None:
    """Ask without waiting; the err_code of its answer (0: none) is added to `answers`."""

    def respond(answer: bytes | None) -> None:
        answers.append(json.loads(answer or b"{}").get("error", {}).get("err_code", 0))

    body: dict[str, Any] = {}
    if call == "CREATE":
        wanted = {"durable_name": name, "ack_policy": "explicit", **config}
        body = {"stream_name": "S", "config": wanted, "action": "create"}
    elif call == "PAUSE":
        body = {"pause_until": "2100-01-01T00:00:00Z"}
    leader.ask(f"$JS.API.CONSUMER.{call}.S.{name}", body, respond=respond)


@pytest.mark.covers("SF-12")
def test_of_two_different_creates_of_one_name_at_once_the_second_is_refused(replicas: Replicas) -> None:
    leader = replicas.leader()
    answers: list[int] = []
    ask_consumer(leader, "CREATE", "c", answers, max_deliver=3)
    ask_consumer(leader, "CREATE", "c", answers, max_deliver=4)
    ask_consumer(leader, "CREATE", "c", answers, max_deliver=3)
    replicas.settle()
    assert sorted(answers) == [0, 0, 10148]
    assert leader.group.state.consumers["c"].config.max_deliver == 3
    assert leader.group.copy.coming == {}


def work_queue() -> Replicas:
    """Three replicas of a work queue that are led."""
    config = dataclasses.replace(CONFIG, retention="workqueue")
    found = Replicas(dataclasses.replace(ASSIGNMENT, config=config))
    found.settle(2000)
    return found


def put_consumer(leader: Broker, name: str, filter_subject: str) -> list[int]:
    """Ask for it as it is to be, whether it is there or not; `create_consumer` has what is returned."""
    answers: list[int] = []

    def respond(answer: bytes | None) -> None:
        answers.append(json.loads(answer or b"{}").get("error", {}).get("err_code", 0))

    config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": filter_subject}
    leader.ask(f"$JS.API.CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}, respond=respond)
    return answers


def filters_of(broker: Broker) -> dict[str, tuple[str, ...]]:
    return {name: found.config.filter_subjects for name, found in broker.group.state.consumers.items()}


@pytest.mark.covers("SF-12")
def test_of_two_updates_at_once_that_would_meet_in_a_work_queue_the_second_is_refused() -> None:
    replicas = work_queue()
    leader = replicas.leader()
    for name, subject in (("a", "s.a"), ("b", "s.b")):
        put_consumer(leader, name, subject)
    replicas.settle()
    asked = [put_consumer(leader, "a", "s.c"), put_consumer(leader, "b", "s.c")]
    assert asked == [[], [10100]], "the first waits for its commit"
    swapped = [put_consumer(leader, "b", "s.a")]
    replicas.settle()
    assert [*asked, *swapped] == [[0], [10100], [0]], "what the first gave up is free behind it"
    for broker in replicas.brokers.values():
        assert filters_of(broker) == {"a": ("s.c",), "b": ("s.a",)}
    assert put_consumer(leader, "b", "") == [10099]
    assert leader.group.copy.coming == {}


@pytest.mark.covers("SF-12")
def test_an_update_that_is_not_taken_does_not_hide_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the log ends with is the update before: who asks for its subject is refused, though it is not committed yet."""
    replicas = work_queue()
    leader = replicas.leader()
    for name, subject in (("a", "s.a"), ("b", "s.b")):
        put_consumer(leader, name, subject)
    replicas.settle()
    replicas.lost = {node for node in NODES if node != leader.node}
    first = put_consumer(leader, "a", "s.c")
    replicas.turn(leader.node)
    with monkeypatch.context() as patch:
        patch.setattr(leader.group.raft, "propose", lambda *args, **kwargs: None)
        put_consumer(leader, "a", "s.d")
        replicas.turn(leader.node)
    assert (first, leader.group.serves) == ([], True)
    assert put_consumer(leader, "b", "s.c") == [10100]
    replicas.lost = set()
    replicas.settle(1000)
    assert first == [0]
    assert filters_of(leader) == {"a": ("s.c",), "b": ("s.b",)}


@pytest.mark.covers("SF-12")
def test_what_is_asked_of_a_consumer_behind_its_deletion_does_not_bring_it_back(replicas: Replicas) -> None:
    leader = with_consumer(replicas)
    answers: list[int] = []
    ask_consumer(leader, "DELETE", "c", answers)
    ask_consumer(leader, "PAUSE", "c", answers)
    replicas.settle()
    assert sorted(answers) == [0, 10014]
    assert "c" not in leader.group.state.consumers


@pytest.mark.covers("SF-12")
def test_a_consumer_that_is_deleted_and_made_in_one_entry_begins_anew(replicas: Replicas) -> None:
    leader = with_consumer(replicas)
    leader.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    assert leader.delivered == [1, 2]
    answers: list[int] = []
    ask_consumer(leader, "DELETE", "c", answers)
    ask_consumer(leader, "CREATE", "c", answers)
    replicas.settle(100)
    assert answers == [0, 0]
    leader.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    assert leader.delivered == [1, 2, 1, 2]


def test_a_leader_has_another_turn_when_a_configuration_comes_into_force() -> None:
    """Seed 23: a stream alone on its broker began to read its origin at the next message, which never came."""
    replicas = Replicas()
    replicas.settle(2000)
    leader = replicas.leader()
    newer = dataclasses.replace(leader.group.assignment, version=2, config=dataclasses.replace(CONFIG))
    leader.group.copy.set_assignment(newer)
    leader.group.turn(replicas.now_ms)
    leader.touched = False
    while not leader.touched and replicas.queue:
        sent = replicas.queue.pop(0)
        replicas.brokers[node_of(sent.to)].group.raft.step(sent, replicas.now_ms)
        replicas.turn(node_of(sent.to))
    assert leader.group.state.config_version == 2
    assert leader.touched


ACKS: list[Ack] = [
    (b"$JS.ACK.S.c.1.1.1.0.1", b"_R.1", b"+ACK"),
    (b"$JS.ACK.S.c.1.2.2.0.0", b"", b"-NAK"),
]


@pytest.mark.covers("SF-2", "MV-10")
def test_acknowledgements_that_come_during_a_hand_over_are_for_the_next_leader(replicas: Replicas) -> None:
    old = with_consumer(replicas)
    old.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    to = next(member for member in ASSIGNMENT.members if node_of(member) != old.node)
    old.group.copy.appender.acknowledge("d", ACKS)  # In the same turn, before the hand-over begins.
    assert old.group.raft.transfer_leadership(to, replicas.now_ms)
    old.group.copy.appender.acknowledge("e", ACKS[:1])
    replicas.settle(1000)
    assert replicas.leader() is not old
    assert old.acks_given_back == [("d", ACKS), ("e", ACKS[:1])]
    assert b"_R.1" not in old.replies


@pytest.mark.covers("SF-2", "MV-10")
def test_acknowledgements_wait_for_the_end_of_a_hand_over_that_fails(replicas: Replicas) -> None:
    old = with_consumer(replicas)
    old.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    replicas.hand_overs_are_lost = True
    to = next(member for member in ASSIGNMENT.members if node_of(member) != old.node)
    assert old.group.raft.transfer_leadership(to, replicas.now_ms)
    old.group.copy.appender.acknowledge("d", ACKS[:1])
    replicas.settle()
    assert b"_R.1" not in old.replies
    replicas.settle(1000)
    assert replicas.leader() is old
    assert old.replies.count(b"_R.1") == 1
    assert old.group.state.consumers["c"].ack_floor_sseq == 1
    assert old.acks_given_back == []


@pytest.mark.covers("SF-2")
def test_a_leader_that_was_cut_off_gives_back_what_says_the_same_a_second_time(replicas: Replicas) -> None:
    old = with_consumer(replicas)
    old.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    replicas.lost = {old.node}
    old.group.copy.appender.acknowledge("d", ACKS)
    replicas.turn(old.node)
    replicas.settle(2000)
    new = replicas.leader()
    replicas.lost = set()
    new.group.raft.wake(replicas.now_ms, old.node)
    replicas.settle(1000)
    assert old.acks_given_back == [("d", ACKS[:1])]
    assert b"_R.1" not in old.replies


INFO = "$JS.API.CONSUMER.INFO.S.c"


def floors(answers: list[bytes | None]) -> list[int]:
    """The acknowledgement floors that CONSUMER.INFO told."""
    return [json.loads(answer or b"")["ack_floor"]["stream_seq"] for answer in answers]


@pytest.mark.covers("SF-2")
def test_consumer_info_shows_the_acknowledgements_that_came_before_it(replicas: Replicas) -> None:
    leader = with_consumer(replicas)
    leader.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    answers: list[bytes | None] = []
    leader.ask(INFO, {}, respond=answers.append)
    assert floors(answers) == [0], "nothing came before it"
    leader.group.copy.appender.acknowledge("d", [(ACKS[0][0], b"", b"+ACK")])
    leader.ask(INFO, {}, respond=answers.append)
    replicas.turn(leader.node)
    leader.ask(INFO, {}, respond=answers.append)
    assert floors(answers) == [0], "the entry is not committed"
    replicas.settle()
    assert floors(answers) == [0, 1, 1]
    leader.group.copy.appender.acknowledge("d", [(ACKS[0][0], b"", b"+ACK")])
    leader.ask(INFO, {}, respond=answers.append)
    replicas.settle()
    assert floors(answers) == [0, 1, 1, 1], "it is answered where the acknowledgement changes nothing, too"


@pytest.mark.covers("SF-2")
def test_a_reset_begins_behind_the_acknowledgements_that_came_before_it(replicas: Replicas) -> None:
    leader = with_consumer(replicas)
    leader.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    answers: list[bytes | None] = []
    leader.group.copy.appender.acknowledge("d", [(ACKS[0][0], b"", b"+ACK")])
    leader.ask("$JS.API.CONSUMER.RESET.S.c", {}, respond=answers.append)
    replicas.settle()
    assert [json.loads(answer or b"")["reset_seq"] for answer in answers] == [2]


@pytest.mark.covers("SF-2")
def test_consumer_info_behind_acknowledgements_is_for_the_next_leader_where_this_one_is_deposed(
    replicas: Replicas,
) -> None:
    old = with_consumer(replicas)
    old.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    answers: list[bytes | None] = []
    again: list[str] = []
    replicas.lost = {old.node}
    request = Request("vol-d", 1, old.group.id, ClientInfo("$G", "u", False), INFO.encode(), b"r", b"", b"")
    for name in ("appended", "not appended"):
        old.group.copy.appender.acknowledge("d", ACKS[:1])
        api.answer(old.group.copy, request, answers.append, partial(again.append, name))
        if name == "appended":
            replicas.turn(old.node)
    replicas.settle(2000)
    new = replicas.leader()
    replicas.lost = set()
    new.group.raft.wake(replicas.now_ms, old.node)
    replicas.settle(1000)
    assert (answers, sorted(again)) == ([], ["appended", "not appended"])


@pytest.mark.covers("MV-10")
def test_a_broker_that_stops_ends_waiting_pulls_with_a_status_and_takes_no_more(replicas: Replicas) -> None:
    leader = with_consumer(replicas)
    leader.ask(NEXT, {"batch": 5, "expires": 60_000_000_000}, b"in")
    replicas.settle(100)
    assert leader.delivered == [1, 2]
    leader.statuses.clear()
    leader.group.consumers.shut_down()
    (header,) = leader.statuses
    assert header.startswith(b"NATS/1.0 409 Server Shutdown\r\n")
    assert b"Nats-Pending-Messages: 3\r\n" in header
    again: list[str] = []
    request = Request(
        "vol-d", 9, leader.group.id, ClientInfo("$G", "u", False), NEXT.encode(), b"in", b"", b"5"
    )
    api.answer(leader.group.copy, request, lambda answer: None, lambda: again.append("again"))
    assert again == ["again"], "it waits at the broker of its client"
    assert not leader.group.consumers.get("c").num_waiting  # type: ignore[union-attr]


def told(broker: Broker, kind: str) -> list[dict[str, Any]]:
    """What was told under such a subject."""
    subject = f"$JS.EVENT.ADVISORY.STREAM.{kind}.S".encode()
    return [json.loads(body) for told_at, _, body in broker.republished if told_at == subject]


def test_a_leader_that_loses_its_majority_says_so(replicas: Replicas) -> None:
    leader = replicas.leader()
    leader.listens = True
    others = [node for node in NODES if node != leader.node]
    replicas.lost = {others[0]}
    replicas.settle(5000)
    assert (leader.group.serves, told(leader, "QUORUM_LOST")) == (True, []), "two of three are a majority"
    replicas.lost = set(others)
    replicas.settle(5000)
    assert not leader.group.serves
    (found,) = told(leader, "QUORUM_LOST")
    assert found["type"] == "io.nats.jetstream.advisory.v1.stream_quorum_lost"
    assert sorted(replica["name"] for replica in found["replicas"]) == others


def test_what_nobody_listens_to_is_not_told(replicas: Replicas) -> None:
    leader = replicas.leader()
    assert create_consumer(leader, "c") == []
    replicas.settle()
    assert leader.republished == []
    leader.listens = True
    assert create_consumer(leader, "d") == []
    replicas.settle()
    assert [subject for subject, _, _ in leader.republished] == [b"$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.d"]


@pytest.mark.covers("SF-2", "SF-15")
def test_acknowledgements_beyond_those_that_may_wait_go_back(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "ACKS_MAX", 2)
    leader = with_consumer(replicas)
    acks: list[list[Ack]] = [[(b"$JS.ACK.S.c.1.%d.%d.0.0" % (seq, seq), b"", b"")] for seq in (1, 2, 3)]
    for number, each in enumerate(acks):
        leader.group.copy.appender.acknowledge(f"node-{number}", each)
    assert leader.acks_given_back == [("node-2", acks[2])]


def entry_bytes(broker: Broker, above: int) -> list[int]:
    log = broker.group.log
    return [len(entry.payload) for entry in log.entries(above + 1, log.last_index, 1 << 30)]


@pytest.mark.covers("SF-24", "SF-11")
def test_what_consumers_did_in_one_turn_becomes_entries_of_a_bounded_size(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K7: a million refusals in one turn were one entry, and above 64 MiB there is none."""
    monkeypatch.setattr(proposal, "ENTRY_BYTES_MAX", 500)
    monkeypatch.setattr(consumer_ops, "SEQS_MAX", 5)
    leader = with_consumer(replicas)
    leader.group.copy.inbox.offer(forward(3, *[b"z"] * 40), early=False)
    replicas.settle()
    leader.ask(NEXT, {"batch": 42}, b"in")
    replicas.settle(100)
    assert leader.delivered == list(range(1, 43))
    before = leader.group.log.last_index
    acks: list[Ack] = [
        (b"$JS.ACK.S.c.1.%d.%d.0.0" % (seq, seq), b"_R.%d" % seq, b"-NAK 3600s" if seq % 2 else b"+ACK")
        for seq in range(1, 43)
    ]
    leader.group.copy.appender.acknowledge("d", acks)
    replicas.turn(leader.node)
    sizes = entry_bytes(leader, before)
    assert len(sizes) > 1
    assert max(sizes) < 500 + 6 * 40
    assert not [reply for reply in leader.replies if reply.startswith(b"_R.")], "nothing is committed yet"
    replicas.settle(200)
    state = leader.group.state.consumers["c"]
    assert sorted(state.pending) == list(range(1, 43, 2))
    assert sorted(leader.replies) == sorted(b"_R.%d" % seq for seq in range(1, 43))
    for other in replicas.brokers.values():
        assert other.group.state.consumers["c"].snapshot() == state.snapshot()


@pytest.mark.covers("SF-24", "SF-11")
def test_commands_that_waited_become_entries_of_a_bounded_size(replicas: Replicas) -> None:
    leader = replicas.leader()
    before = leader.group.log.last_index
    done: list[int | None] = []
    for number in range(100):
        name = f"{number}".ljust(60_000, "x")
        leader.group.copy.waiters.command(Section.CONSUMER_DELETE, [text(name)], done.append)
    replicas.settle()
    assert done == [0] * 100
    assert max(entry_bytes(leader, before)) < proposal.ENTRY_BYTES_MAX + 65_536


@pytest.mark.covers("SF-24", "SF-2")
def test_of_entries_that_do_not_all_fit_on_the_disk_whoever_waits_hears_and_the_rest_is_judged_anew(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposal, "ENTRY_BYTES_MAX", 500)
    leader = with_consumer(replicas)
    leader.ask(NEXT, {"batch": 2}, b"in")
    replicas.settle(100)
    propose, room = leader.group.raft.propose, [2]

    def until_full(*given: Any, **named: Any) -> Entry | None:
        room[0] -= 1
        return propose(*given, **named) if room[0] >= 0 else None

    done: list[int | None] = []
    with monkeypatch.context() as patch:
        patch.setattr(leader.group.raft, "propose", until_full)
        for number in range(8):
            name = f"{number}".ljust(400, "x")
            leader.group.copy.waiters.command(Section.CONSUMER_DELETE, [text(name)], done.append)
        leader.group.copy.appender.acknowledge("d", [(b"$JS.ACK.S.c.1.1.1.0.0", b"_R.1", b"+ACK")])
        replicas.settle()
    replicas.settle(200)
    assert sorted(done, key=str) == [0] * 4 + [None] * 4
    assert leader.replies.count(b"_R.1") == 1
    assert leader.group.failed is None
    assert list(leader.group.state.consumers["c"].pending) == [2]


@pytest.mark.covers("SF-12", "SF-24")
def test_what_a_turn_writes_behind_an_entry_that_was_not_taken_follows_what_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was numbered behind messages that nobody has, and replicas have no message for such numbers."""
    monkeypatch.setattr(proposal, "ENTRY_BYTES_MAX", 500)
    config = read_stream(
        {
            "name": "S",
            "subjects": ["s.>"],
            "num_replicas": 3,
            "subject_delete_marker_ttl": 3600 * 10**9,
            "max_age": 10**9,
        }
    )
    replicas = Replicas(dataclasses.replace(ASSIGNMENT, config=config))
    replicas.settle(2000)
    leader = replicas.leader()
    leader.group.copy.inbox.open_session(ORIGIN)
    leader.group.copy.inbox.offer(forward(1, b"x"), early=False)
    replicas.settle()
    replicas.now_ms += 1500
    propose, room = leader.group.raft.propose, [False, True]

    def full_at_first(*given: Any, **named: Any) -> Entry | None:
        return propose(*given, **named) if room.pop(0) else None

    with monkeypatch.context() as patch:
        patch.setattr(leader.group.raft, "propose", full_at_first)
        leader.group.copy.inbox.offer(forward(2, b"y" * 600), early=False)
        leader.group.turn(replicas.now_ms)
    assert room == []
    replicas.settle(200)
    for broker in replicas.brokers.values():
        assert broker.group.failed is None
        state = broker.group.state
        assert [state.message(seq) is not None for seq in range(1, state.last_seq + 1)] == [False, True]


@pytest.mark.covers("SF-29")
def test_a_follower_that_is_behind_takes_removals_as_slowly_as_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = replicas_of()
    leader = replicas.leader()
    stored = block(*(message(b"s.a") for _ in range(60)))
    leader.group.copy.inbox.offer(Forward(ORIGIN, 1, 0, ASSIGNMENT.version, stored), early=False)
    replicas.settle(100)
    behind = next(broker for broker in replicas.brokers.values() if broker is not leader)
    replicas.lost = {behind.node}
    for seq in (10, 20, 30, 40, 50):
        leader.group.copy.waiters.command(Section.EXPIRE, [u64(seq)], lambda result: None)
        replicas.settle(50)
    assert leader.group.state.messages == 10
    monkeypatch.setattr(replica, "APPLY_TURN_MESSAGES", 10)
    replicas.lost = set()
    turn, removed = behind.group.turn, []

    def counted(now_ms: int) -> None:
        before = behind.group.state.messages
        turn(now_ms)
        removed.append(before - behind.group.state.messages)

    monkeypatch.setattr(behind.group, "turn", counted)
    replicas.settle(1000)
    assert behind.group.state.messages == 10
    assert [count for count in removed if count] == [10] * 5
