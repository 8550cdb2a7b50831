"""A group under random faults, from a seed: messages are lost, repeated and re-ordered, members crash with what was not
durable, disks fail, logs are cut behind snapshots, memberships change, leadership is handed over.

`harness.World` checks leaders and committed entries at every step; this adds leader completeness, and at the end that
the healed group converges.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.broker.raft.harness import World

from supercluster.broker.raft.confchange import Membership, MembershipChange, membership_of
from supercluster.broker.raft.config import RaftConfig
from supercluster.broker.raft.entry import EntryKind, decode_entry
from supercluster.broker.raft.node import RaftNode


@dataclass
class Chaos(World):
    """A world in which things go wrong by themselves."""

    initial: Membership = field(default_factory=Membership)
    doubt: bool = False
    """May one member at a time lose a confirmed tail?"""
    rots: bool = False
    """May one member at a time lose records of its middle?"""
    short: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The member that lost some, and the end that its log had."""
    loose: str = ""
    """The member that lost one and has not caught up since."""
    completed: set[int] = field(default_factory=set)
    proposals: int = 0
    log: list[str] = field(default_factory=list)
    _last_read: dict[int, int] = field(default_factory=dict)

    def begin(self, voters: int, spare: int) -> None:
        """Start `voters` members that form the group, and `spare` ones that know nothing."""
        self.rng = random.Random(self.seed)
        names = [f"n{number}@i" for number in range(voters + spare)]
        self.initial = membership_of(names[:voters])
        self.sync_at_once = self.rng.random() < 0.4
        for number, name in enumerate(names):
            self.add(name, self.initial if number < voters else Membership())

    def check_leader(self, member: str, node: RaftNode) -> None:
        super().check_leader(member, node)
        if node.is_leader and node.term not in self.completed:
            self.completed.add(node.term)
            held = self.disks[member].log
            for index, record in self.committed.items():
                if index > held.base_index:
                    assert held.term(index) == decode_entry(record).term, (
                        f"leader {member} lacks committed {index}"
                    )

    def membership_at(self, index: int) -> Membership:
        """The membership that the committed entries up to `index` set."""
        found = self.initial
        for at in range(1, index + 1):
            entry = decode_entry(self.committed[at])
            if entry.kind == EntryKind.CONFIG:
                found = Membership.decode(entry.payload)
        return found

    # One step of something.

    def step(self) -> None:
        roll = self.rng.random()
        if roll < 0.55 and self.queue:
            self._network()
        elif roll < 0.80:
            self._time()
        elif roll < 0.90:
            self._propose()
        else:
            self._trouble()

    def _network(self) -> None:
        # Mostly in order, sometimes not, sometimes lost, sometimes twice.
        position = 0 if self.rng.random() < 0.8 else self.rng.randrange(len(self.queue))
        message = self.queue.pop(position)
        fate = self.rng.random()
        if fate < 0.05:
            return
        if fate < 0.10:
            self.queue.append(message)
        self.send(message)

    def _time(self) -> None:
        self.now_ms += self.rng.choice((1, 5, 20, 60))
        for member, node in list(self.nodes.items()):
            if node.next_deadline_ms() <= self.now_ms:
                node.tick(self.now_ms)
                self.collect(member)
            log = self.disks[member].log
            if log.persisted_index < log.last_index and self.rng.random() < 0.5:
                log.sync()
                node.persisted(self.now_ms)
                self.collect(member)

    def _propose(self) -> None:
        leaders = [member for member, node in self.nodes.items() if node.is_leader]
        if leaders:
            self.proposals += 1
            self.propose(self.rng.choice(leaders), f"p{self.proposals}" + "x" * self.rng.randrange(200))

    def _trouble(self) -> None:
        self.rng.choice(
            (
                self._rot if self.rots else self._crash,
                self._restart,
                self._restart,
                self._cut,
                self.heal,
                self.heal,
                self._change,
                self._change,
                self._transfer,
                self._drop_head,
                self._disk,
                self._read,
                self._wake,
            )
        )()

    def _crash(self) -> None:
        if not self.nodes:
            return
        member = self.rng.choice(list(self.nodes))
        lose_after = None
        log = self.disks[member].log
        # A group of one voter that loses its tail loses it for good: that is not what is tested.
        alone = any(other.membership.all_voters == (member,) for other in self.nodes.values())
        if (
            self.doubt
            and not alone
            and not self.loose
            and log.last_index > log.base_index
            and self.rng.random() < 0.5
        ):
            self.loose = member
            lose_after = self.rng.randrange(
                max(log.base_index, self.disks[member].commit), log.last_index + 1
            )
        late = [message for message in self.queue if message.frm == member]
        self.crash(member, lose_after=lose_after)
        if self.rng.random() < 0.5:
            self.queue.extend(late)
        log.fail = False

    def _restart(self) -> None:
        down = [member for member in self.disks if member not in self.nodes]
        if down:
            self._start(self.rng.choice(down))

    def _start(self, member: str) -> None:
        self.start(member, doubtful=member == self.loose, end=self.short.get(member, (0, 0)))

    def _is_covered(self, member: str) -> bool:
        """Do all others, as they would start again, have a log that goes as far? Where only this one's does, and its vote is
        needed, the group rightly stops."""
        ends = {
            name: (disk.log.term(disk.log.persisted_index) or 0, disk.log.persisted_index)
            for name, disk in self.disks.items()
        }
        voters = {*self.initial.voters}.union(*(node.membership.all_voters for node in self.nodes.values()))
        return all(ends[name] >= ends[member] for name in voters)

    def _rot(self) -> None:
        member = self.rng.choice(list(self.disks))
        log = self.disks[member].log
        alone = any(other.membership.all_voters == (member,) for other in self.nodes.values())
        if member not in self.nodes or alone or self.short or not self._is_covered(member):
            self._crash()
            return
        late = [message for message in self.queue if message.frm == member]
        log.fail = False
        self.short[member] = self.rot(member, self.rng.randint(log.base_index, log.persisted_index))
        if self.rng.random() < 0.5:
            self.queue.extend(late)

    def collect(self, member: str) -> None:
        super().collect(member)
        if member == self.loose and member in self.nodes and not self.nodes[member].doubtful:
            self.loose = ""
        if member in self.nodes and not self.nodes[member].doubtful:
            self.short.pop(member, None)

    def _cut(self) -> None:
        if len(self.disks) < 2:
            return
        one, two = self.rng.sample(list(self.disks), 2)
        self.cut.add((one, two))
        if self.rng.random() < 0.7:
            self.cut.add((two, one))

    def _change(self) -> None:
        leader = self.leader()
        if leader is None:
            return
        current = leader.membership
        everyone = list(self.disks)
        size = self.rng.choice((1, 2, 3, 3, 5))
        able = list(current.members)
        voters = (
            current.voters if self.rng.random() < 0.3 else tuple(self.rng.sample(able, min(size, len(able))))
        )
        learners = tuple(member for member in everyone if member not in voters and self.rng.random() < 0.4)
        if current.is_joint:
            voters = self.rng.choice((current.voters, current.voters_outgoing))
            learners = tuple(member for member in learners if member not in voters)
        change = MembershipChange(current.index, voters, learners, auto_leave=self.rng.random() < 0.7)
        leader.propose_membership(change, self.now_ms)
        self.collect(leader.id)

    def _transfer(self) -> None:
        leader = self.leader()
        if leader is not None and leader.progress:
            leader.transfer_leadership(self.rng.choice(list(leader.progress)), self.now_ms)
            self.collect(leader.id)

    def _drop_head(self) -> None:
        if not self.nodes:
            return
        member = self.rng.choice(list(self.nodes))
        node, disk = self.nodes[member], self.disks[member]
        if node.commit_index > disk.log.base_index and disk.log.persisted_index >= node.commit_index:
            base = self.rng.randrange(disk.log.base_index + 1, node.commit_index + 1)
            disk.membership = self.membership_at(max(base, disk.commit))
            disk.commit = max(base, disk.commit)
            disk.log.drop_before(base)

    def _disk(self) -> None:
        member = self.rng.choice(list(self.disks))
        log = self.disks[member].log
        log.fail = not log.fail and self.rng.random() < 0.5

    def _read(self) -> None:
        if self.nodes:
            member = self.rng.choice(list(self.nodes))
            context = len(self._last_read) + 1
            self._last_read[context] = max(self.committed, default=0)
            self.nodes[member].read_index(context)
            self.collect(member)
            self._check_reads()

    def _check_reads(self) -> None:
        for member, reads in self.reads.items():
            for context, index in reads:
                assert index >= self._last_read[context], f"{member}: read {context} at {index} is stale"
            reads.clear()

    def _wake(self) -> None:
        if self.nodes:
            member = self.rng.choice(list(self.nodes))
            lost = self.rng.choice(list(self.disks)).partition("@")[0]
            self.nodes[member].wake(self.now_ms, lost)
            self.collect(member)

    # The end.

    def settle(self) -> None:
        """Heal everything: the group must elect, commit what is new, and agree."""
        self.heal()
        for member, disk in self.disks.items():
            disk.log.fail = False
            disk.log.sync_at_once = True
            if member not in self.nodes:
                self._start(member)
        for node in self.nodes.values():
            disk = self.disks[node.id]
            disk.log.sync()
            node.persisted(self.now_ms)
            self.collect(node.id)
        self.run(15_000)
        self._check_reads()
        leader = self.leader()
        assert leader is not None, "no leader after all was healed"
        assert self.propose(leader.id, "last") is not None
        self.run(10_000)
        leader = self.leader()
        assert leader is not None
        end = leader.commit_index
        assert end == leader.log.last_index
        assert (
            decode_entry(self.committed[end]).payload.tobytes() in (b"last", b"") or leader.membership.index
        )
        for member in leader.membership.members:
            assert self.nodes[member].commit_index == end, f"{member} did not catch up"
            assert not self.nodes[member].doubtful, f"{member} still doubts"
        self._agree()

    def _agree(self) -> None:
        """Log matching, over everything that two members hold."""
        logs = [self.disks[member].log for member in self.nodes]
        for one in logs:
            for two in logs:
                top = min(one.last_index, two.last_index)
                while top > max(one.base_index, two.base_index) and one.term(top) != two.term(top):
                    top -= 1
                for index in range(max(one.base_index, two.base_index) + 1, top + 1):
                    assert one.entries(index, index, 1)[0].record == two.entries(index, index, 1)[0].record


def run_seed(seed: int, steps: int = 1500, *, doubt: bool = False, rots: bool = False) -> Chaos:
    """One world from its seed."""
    rng = random.Random(seed)
    config = {
        "append_bytes_max": rng.choice((200, 1000, 1 << 20)),
        "inflight_max": rng.choice((1, 4, 64)),
        "snapshot_chunk_bytes": rng.choice((3, 100)),
        "quiesce_after_ms": rng.choice((300, 2000)),
    }
    world = Chaos(seed=seed, config=config, doubt=doubt, rots=rots)
    world.begin(rng.choice((1, 3, 3, 5)), 1 if rng.random() < 0.7 else 0)
    assert RaftConfig("x", **config)  # type: ignore[arg-type]  # Numbers.
    for _ in range(steps):
        world.step()
    world.settle()
    return world
