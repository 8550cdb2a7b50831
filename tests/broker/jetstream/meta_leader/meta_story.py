"""A meta group of one voter that leads, and a broker around it: for tests of what a leader decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from supercluster.broker.jetstream.config.limits import NO_SERVER_LIMITS, ServerLimits
from supercluster.broker.jetstream.config.stream import Placement
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.meta.stream_recovery import CopiesTold, CopyFacts
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.meta_leader.stream_request import Decided, Fallen, StreamRequest
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts, StreamFacts
from supercluster.broker.jetstream.turn.slices import Job, JobOwner, at_once
from supercluster.broker.ports import ClientInfo, Ticket
from supercluster.broker.protocol.frames import VERSION
from supercluster.broker.raft.confchange import membership_of
from supercluster.broker.raft.config import RaftConfig
from supercluster.broker.raft.messages import Message
from supercluster.broker.raft.node import RaftNode
from supercluster.broker.storage.log.memory_log import MemoryLog

APP, OPERATOR = ClientInfo("$G", "app", False), ClientInfo("$G", "operator", True)


class Rng:
    def randrange(self, start: int, /) -> int:
        return 0

    def getrandbits(self, k: int, /) -> int:
        return 0


@dataclass
class Host:
    """A broker with a meta group of one voter, and peers that are in contact."""

    node: str = "east-0"
    now_ms: int = 0
    contact: dict[str, tuple[str, str]] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    """Of frames, of brokers that speak no longer, or not yet, this broker's."""
    rooms: dict[str, Room | None] = field(default_factory=dict)
    facts: dict[str, StreamFacts | None] = field(default_factory=dict)
    """By stream: what its leader says; without an entry it says what the map does."""
    copies: list[CopyFacts] = field(default_factory=list)
    """What brokers say of their copies when a recovery is to be forced."""
    silent: set[str] = field(default_factory=set)
    """Brokers that do not say it."""
    held_answers: list[Callable[[], None]] | None = None
    """Streams' leaders answer when the test lets them; None: at once."""
    server_limits: ServerLimits = NO_SERVER_LIMITS
    tokens: int = 0
    bytes_max: dict[str, int] = field(default_factory=dict)
    meta: MetaReplica | None = None
    world: str = "0b1e0b1e"
    dropped: list[tuple[str, str, int, str]] = field(default_factory=list)
    """What another super-cluster is to follow no more: world, group, attempt, migration."""
    cuts_asked: list[tuple[str, str, int]] = field(default_factory=list)
    clients_waiting: str = ""
    """Why clients are still to go to another super-cluster."""

    def __post_init__(self) -> None:
        self.clock: Any = self

    def now_ns(self) -> int:
        return 1_000_000 * self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def machine_ms(self) -> int:
        return self.now_ms

    def send_raft(self, group: str, message: Message) -> None: ...

    def serving(self, group: str) -> None: ...

    def save_vote(self, group: str, ticket: Ticket) -> None:
        raise AssertionError(f"{group} is kept in memory")

    def touch(self, group: str) -> None: ...

    def touch_next(self, group: str) -> None: ...

    def save_checkpoint(self, group: str, ticket: Ticket) -> None:
        raise AssertionError("a log in memory has no tickets")

    def in_slices(self, owner: JobOwner, job: Job) -> None:
        at_once(job)

    def event(self, group: str, reason: str, text: str) -> None:
        self.events.append(reason)
        self.texts.append(text)

    def map_changed(self, groups: list[str]) -> None: ...

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        return self.contact

    def tags_of(self, node: str) -> tuple[str, ...]:
        return self.tags.get(node, ())

    def version_of(self, node: str) -> int | None:
        return self.versions.get(node, VERSION) if node in self.contact else None

    def store_bytes_max(self, storage: str) -> int:
        return self.bytes_max.get(storage, 0)

    def room_of(self, node: str) -> Room | None:
        return self.rooms.get(node, Room(1 << 30, 1 << 30))

    def ask_stream(self, found: Assignment, then: Callable[[StreamFacts | None], None]) -> None:
        def answer() -> None:
            then(self.facts[found.name] if found.name in self.facts else facts_of(found))

        if self.held_answers is None:
            answer()
        else:
            self.held_answers.append(answer)

    def ask_copies(self, found: Assignment, then: CopiesTold) -> None:
        then(self.copies, frozenset(self.silent))

    def map_index_of(self, node: str) -> int:
        assert self.meta is not None
        return self.applied.get(node, self.meta.applied_index)

    def drop_far(self, world: str, group: str, attempt: int, migration_id: str) -> None:
        self.dropped.append((world, group, attempt, migration_id))

    def ask_cut(self, world: str, next_group: str, attempt: int) -> None:
        self.cuts_asked.append((world, next_group, attempt))

    def clients_left(self, migration: Migration) -> str:
        return self.clients_waiting

    def map_was_read(self) -> None: ...

    def map_read_failed(self) -> None: ...

    def meta_leader_heard(self, *, heard: bool) -> None: ...

    def process_count_of(self, node: str) -> int:
        return 0

    def meta_leadership_lost(self) -> None: ...

    def group_failed(self, group: str) -> None: ...

    def new_token(self) -> str:
        self.tokens += 1
        return f"t{self.tokens}"


def facts_of(found: Assignment, **fields: Any) -> StreamFacts:
    """What a stream's leader says when all is well."""
    members = tuple(MemberFacts(member, True, True, 0) for member in found.members)
    told: dict[str, Any] = {
        "messages": 1000,
        "message_bytes": 100_000,
        "bytes_on_disk": 120_000,
        "members": members,
    }
    return StreamFacts(**told | fields)


Outcome = Decided | MovePlan | ApiError | Fallen | None


@dataclass
class Meta:
    """A leader to ask."""

    host: Host
    replica: MetaReplica

    def turn(self, after_ms: int = 0) -> None:
        self.host.now_ms += after_ms
        self.replica.tick(self.host.now_ms)
        for _ in range(3):
            self.replica.turn(self.host.now_ms)

    def call(self, verb: str, info: ClientInfo = APP, name: str = "S", **fields: Any) -> list[Outcome]:
        """Hand a request in; the answer appears in the list."""
        answers: list[Outcome] = []
        self.replica.request(
            StreamRequest(verb, info, name, fields.pop("config", None), answers.append, **fields)
        )
        self.turn()
        assert len(answers) <= 1
        return answers

    def ask(
        self, verb: str, info: ClientInfo = APP, name: str = "S", *, asked_at: str = "", **fields: Any
    ) -> Outcome:
        config = None
        if verb in ("create", "update"):
            config = read_stream({"name": name, "subjects": [name.lower()], "num_replicas": 1, **fields})
            fields = {}
        elif "placement" in fields:
            fields["placement"] = Placement.from_json(fields["placement"])
        answers = self.call(verb, info, name, config=config, asked_at=asked_at or self.host.node, **fields)
        return answers[0] if answers else None

    def stream(self, name: str = "S", account: str = "$G") -> Assignment:
        return self.replica.state.streams[account, name]

    def refused(self, verb: str, info: ClientInfo = APP, name: str = "S", **fields: Any) -> ApiError:
        answer = self.ask(verb, info, name, **fields)
        assert isinstance(answer, ApiError), answer
        return answer

    def done(self, verb: str, info: ClientInfo = APP, name: str = "S", **fields: Any) -> Decided:
        answer = self.ask(verb, info, name, **fields)
        assert isinstance(answer, Decided), answer
        return answer


def meta(**clusters: str) -> Meta:
    """One voter; brokers `east_1="east"` are in contact."""
    host = Host()
    host.contact = {"east-0": ("east", "vol-0")}
    host.contact |= {name.replace("_", "-"): (cluster, f"vol-{name}") for name, cluster in clusters.items()}
    log = MemoryLog()
    member = "east-0@vol-0"
    raft = RaftNode(
        RaftConfig(member=member, heartbeat_ms=100, election_timeout_ms=500, quiesce_after_ms=2000),
        log,
        term=0,
        vote="",
        membership=membership_of((member,)),
        commit_index=0,
        rng=Rng(),
        now_ms=0,
        doubtful=False,
    )
    replica = host.meta = MetaReplica(member, log, raft, host)
    replica.recover(0)
    found = Meta(host, replica)
    while not replica.serves:
        found.turn(200)
    return found
