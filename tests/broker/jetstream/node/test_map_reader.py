"""When a broker's map of streams may be believed: from a read in the contact with a meta leader until that contact ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame, Leadership
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.replica import MetaReplica
from supercluster.broker.jetstream.node.map_reader import MAP_RETRY_MS, MAP_WAIT_MS
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.ports import Channel, ClientInfo, PeerInfo
from supercluster.broker.raft.confchange import membership_of
from supercluster.broker.raft.config import RaftConfig, Role
from supercluster.broker.raft.messages import Append, Message, ReadRequest, ReadResponse
from supercluster.broker.raft.node import RaftNode
from supercluster.broker.storage.log.memory_log import MemoryLog

MEMBERS = membership_of(("n@vol", "a@vol", "b@vol"))
SUBJECT = b"orders.1"


class Machine:
    """A volume that joined the meta group, a network that takes everything, and a clock that is set."""

    incarnation = "vol"
    process_count = 3

    def __init__(self) -> None:
        self.now = 1000

    def tick(self, now_ms: int) -> None: ...

    def registered(self) -> dict[str, str]:
        return {}

    def note(self) -> bytes:
        return b""

    def room_bytes(self, *, memory: bool) -> int:
        return 1 << 30

    def now_ns(self) -> int:
        return 1_000_000 * self.now

    def monotonic_ms(self) -> int:
        return self.now

    def machine_ms(self) -> int:
        return self.now

    def send(self, node: str, frame: int, body: Any, channel: Channel) -> bool:
        return True

    def randrange(self, start: int, /) -> int:
        return 0

    def getrandbits(self, k: int, /) -> int:
        return 0


class Replica:
    """The meta group's replica as the core sees it: knows one index, and which read the core waits for."""

    id, member, applied_index = META_GROUP, "n@vol", 7
    failed = None
    serves = False
    last_index = 7
    role = Role.FOLLOWER
    leader: str | None = None

    def __init__(self) -> None:
        self.state = MetaState()
        self.raft = self.log = self
        self.membership = MEMBERS
        self.asked: list[int] = []
        self.waits_for: int | None = None
        self.has_majority = True

    def could_win(self) -> bool:
        return self.has_majority

    def read_map(self, number: int) -> None:
        self.asked.append(number)
        self.waits_for = number

    def forget_read(self) -> None:
        self.waits_for = None

    def wake(self, now_ms: int, node: str, spread_ms: int | None = None) -> None: ...

    def turn(self, now_ms: int) -> None: ...

    def tick(self, now_ms: int) -> bool:
        return False

    def deadline_ms(self) -> int | None:
        return None


@dataclass
class Broker:
    machine: Machine
    core: BrokerCore
    meta: Replica = field(default_factory=Replica)

    def news(self, leader: str, term: int) -> None:
        body = frames.encode_leaderships([Leadership(META_GROUP, term, leader, MEMBERS.encode())])
        self.core.on_frame(leader, Frame.LEADER, memoryview(b"".join(body)))

    def link(self, node: str) -> None:
        self.core.on_link_up(PeerInfo(node, "east", "vol", f"{node}-1", "", 7, 1))

    def believes(self) -> tuple[bool, bool]:
        """(the map is fresh, captures are held)"""
        return self.core.map.is_fresh, self.core.ingest.held


@pytest.fixture
def broker() -> Broker:
    """Linked with `a`, which leads, and `b`; its map was read."""
    machine = Machine()
    core = BrokerCore(
        CoreSettings("n", "east", ("n", "a", "b")),
        machine,  # type: ignore[arg-type]  # What a core without streams asks of its volume and its network.
        machine,  # type: ignore[arg-type]
        machine,
        machine,
    )
    found = Broker(machine, core)
    core.map.replica = core.groups[META_GROUP] = found.meta  # type: ignore[assignment]  # Stands in for the replica.
    for node in ("a", "b"):
        found.link(node)
    found.news("a", 1)
    assert found.believes() == (False, True)
    core.host.map_was_read()
    assert found.believes() == (True, False)
    return found


@pytest.mark.covers("SF-14")
def test_a_map_is_doubtful_without_its_leader_even_when_one_of_two_reads_had_failed(broker: Broker) -> None:
    broker.core.map_reader.is_doubtful()
    broker.news("a", 1)
    broker.news("a", 1)
    broker.core.host.map_read_failed()
    broker.core.host.map_was_read()
    broker.core.on_link_down("a")
    assert broker.believes() == (False, False)
    broker.link("a")
    broker.news("a", 1)
    assert broker.believes() == (False, True), "read again before anything is captured"


@pytest.mark.covers("SF-14")
def test_what_the_last_leader_said_is_not_the_next_leaders_map(broker: Broker) -> None:
    broker.news("b", 2)
    assert broker.believes() == (False, True)
    broker.core.host.map_was_read()
    broker.news("b", 2)
    assert broker.believes() == (True, False), "the same leadership, said twice"
    broker.news("b", 4)
    assert broker.believes() == (False, True), "somebody else may have led in between"


@pytest.mark.covers("SF-14")
def test_who_hears_no_leader_reads_the_map_when_it_hears_one(broker: Broker) -> None:
    broker.core.host.meta_leader_heard(heard=False)
    assert broker.believes() == (False, False)
    broker.core.host.meta_leader_heard(heard=True)
    assert broker.believes() == (False, True)


@pytest.mark.covers("SF-14")
def test_a_read_that_fails_is_repeated_and_captures_are_held_for_a_bounded_time(broker: Broker) -> None:
    core, machine = broker.core, broker.machine
    broker.news("b", 2)
    for _ in range(MAP_WAIT_MS // MAP_RETRY_MS + 2):
        core.host.map_read_failed()
        machine.now += MAP_RETRY_MS
        core.tick()
    assert broker.believes() == (False, False), "the state on disk serves, and is not held for once more"
    assert len(set(broker.meta.asked)) == len(broker.meta.asked) > MAP_WAIT_MS // MAP_RETRY_MS
    assert min(broker.meta.asked) > 3 << 32, "no former process used these numbers"
    core.host.map_was_read()
    assert broker.believes() == (True, False)


@pytest.mark.covers("SF-14")
def test_a_leader_without_a_linked_majority_does_not_believe_its_map_and_reads_it_in_the_next_contact(
    broker: Broker,
) -> None:
    """Seed 188: the others elected somebody and made a stream before the leader noticed by time that nobody follows."""
    broker.news("n", 2)
    assert broker.believes() == (True, False)
    broker.core.on_link_down("a")
    assert broker.believes() == (True, False), "it has b"
    broker.meta.has_majority = False
    broker.core.on_link_down("b")
    assert broker.believes() == (False, False)
    asked = len(broker.meta.asked)
    broker.meta.has_majority = True
    broker.link("b")
    assert broker.believes() == (False, True)
    assert len(broker.meta.asked) > asked
    broker.core.host.map_was_read()
    assert broker.believes() == (True, False)


@pytest.mark.covers("OP-6")
def test_the_time_without_a_leader_counts_from_the_loss_of_the_last_one(broker: Broker) -> None:
    broker.machine.now = 5_000
    broker.core.on_link_down("a")
    assert broker.core.map.unread_since_ms == 5_000
    broker.machine.now = 6_000
    broker.core.map_reader.is_doubtful()
    broker.news("b", 2)
    assert broker.core.map.unread_since_ms == 5_000, "it was not read in between"
    broker.core.host.map_was_read()
    broker.machine.now = 7_000
    broker.core.on_link_down("b")
    assert broker.core.map.unread_since_ms == 7_000


class Host(Machine):
    """What the replica tells its broker."""

    node = "n"

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.sent: list[Message] = []

    @property
    def clock(self) -> Host:
        return self

    def send_raft(self, group: str, message: Message) -> None:
        self.sent.append(message)

    def map_changed(self, groups: list[str]) -> None: ...

    def map_was_read(self) -> None:
        self.told.append("read")

    def map_read_failed(self) -> None:
        self.told.append("failed")

    def meta_leader_heard(self, *, heard: bool) -> None:
        self.told.append("heard" if heard else "lost")


@pytest.mark.covers("SF-14")
def test_only_the_last_read_counts_and_none_after_contact_was_lost() -> None:
    host, log = Host(), MemoryLog()
    raft = RaftNode(
        RaftConfig("n@vol"), log, term=0, vote="", membership=MEMBERS, commit_index=0, rng=host, now_ms=1000
    )
    replica = MetaReplica("n@vol", log, raft, host)  # type: ignore[arg-type]  # What a follower's replica asks of it.

    def turn(*messages: Message) -> list[str]:
        for message in messages:
            raft.step(message, host.now)
        replica.turn(host.now)
        told, host.told = host.told, []
        return told

    replica.read_map(1)
    assert turn() == ["failed"], "nobody leads"
    assert turn(Append("a@vol", "n@vol", 1, 0, 0, 0, 0)) == ["heard"]
    replica.read_map(2)
    replica.read_map(3)
    assert turn() == []
    assert [message.context for message in host.sent if isinstance(message, ReadRequest)] == [2, 3]
    assert turn(ReadResponse("a@vol", "n@vol", 1, 0, 2, 0)) == []
    assert turn(ReadResponse("a@vol", "n@vol", 1, 0, 3, 0)) == ["read"]
    replica.read_map(4)
    replica.forget_read()
    assert turn(ReadResponse("a@vol", "n@vol", 1, 0, 4, 0)) == []
    assert turn(Append("b@vol", "n@vol", 2, 0, 0, 0, 0)) == ["heard"], "another leader"
    host.now += 2000
    replica.tick(host.now)
    assert turn() == ["lost"]


@pytest.mark.covers("SF-2")
def test_what_a_lost_leader_may_have_deleted_fails_at_once_and_a_read_waits_for_the_next(
    broker: Broker,
) -> None:
    heard: list[tuple[bytes, bytes | None]] = []
    for subject in (b"$JS.API.STREAM.DELETE.S", b"$JS.API.STREAM.LIST"):
        broker.core.clients.requests.send(
            META_GROUP,
            ClientInfo("$G", "u", is_operator=False),
            *(subject, b"", b"", b"", broker.machine.now),
            on_answer=lambda answer, subject=subject: heard.append((subject, answer)),  # type: ignore[misc]
        )
    broker.core.on_link_down("b")
    assert heard == []
    broker.core.on_link_down("a")
    assert heard == [(b"$JS.API.STREAM.DELETE.S", None)]
