"""Several members in one process, on virtual time, with a network that a test can cut, delay and shuffle.

The safety properties of Raft are checked while it runs: at most one leader per term, committed entries never change,
and logs that agree at a place agree before it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.broker.raft import invariants
from tests.broker.raft.memory_log import MemoryLog

from supercluster.broker.raft.confchange import Membership, membership_of
from supercluster.broker.raft.config import RaftConfig, Ready, Role
from supercluster.broker.raft.entry import Entry
from supercluster.broker.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    InstallSnapshot,
    Message,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
    decode,
    encode,
)
from supercluster.broker.raft.node import RaftNode


@dataclass
class Disk:
    """What survives a crash of a member."""

    log: MemoryLog
    membership: Membership
    term: int = 0
    vote: str = ""
    commit: int = 0
    """The checkpoint: entries up to here are never handed out again."""


@dataclass(frozen=True)
class Seen:
    role: tuple[Role, int, str | None]
    """With term and leader."""
    poll: Any
    """The votes of the last campaign: each campaign has its own."""
    memberships: tuple[Membership, Membership]
    """In force, and committed."""


def seen_of(node: RaftNode) -> Seen:
    memberships = node.membership, node.committed_membership
    return Seen((node.role, node.term, node.leader), node._election.poll, memberships)


@dataclass
class World:
    """The members of one group."""

    seed: int = 1
    now_ms: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    starts: int = 0
    """Of all members: each process has a number of its own."""
    nodes: dict[str, RaftNode] = field(default_factory=dict)
    queue: list[Message] = field(default_factory=list)
    cut: set[tuple[str, str]] = field(default_factory=set)
    """Directed pairs (from, to) whose messages are lost."""
    events: list[str] = field(default_factory=list)
    """What happened, in short lines: scripted tests show them."""
    leaders: dict[int, str] = field(default_factory=dict)
    committed: dict[int, bytes] = field(default_factory=dict)
    """index -> record, as soon as any member calls it committed."""
    reads: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    failed_reads: dict[str, list[int]] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    """What was noted of each member."""
    doubtful_elections: list[str] = field(default_factory=list)
    sync_at_once: bool = True
    trace: bool = False
    """Note every message, not only what it led to."""

    def add(
        self,
        member: str,
        membership: Membership,
        *,
        doubtful: bool = False,
        base: tuple[int, int] | None = None,
    ) -> RaftNode:
        """A member with an empty log."""
        log = MemoryLog(sync_at_once=self.sync_at_once)
        if base is not None:
            log.reset(*base)
        self.disks[member] = Disk(log, membership)
        return self.start(member, doubtful=doubtful)

    def start(self, member: str, *, doubtful: bool = False, end: tuple[int, int] = (0, 0)) -> RaftNode:
        """Start a member from its disk. One that lost records of its middle knows the `end` of its log."""
        disk = self.disks[member]
        self.starts += 1
        node = RaftNode(
            self.settings(member),
            disk.log,
            term=disk.term,
            vote=disk.vote,
            membership=disk.membership,
            commit_index=disk.commit,
            rng=random.Random(f"{self.seed}/{member}/{self.now_ms}"),
            now_ms=self.now_ms,
            doubtful=doubtful or end != (0, 0),
            end=end,
        )
        self.nodes[member] = node
        self.seen[member] = seen_of(node)
        self.collect(member)
        return node

    def settings(self, member: str) -> RaftConfig:
        return RaftConfig(member, self.starts, **self.config)

    def crash(self, member: str, *, lose_after: int | None = None) -> None:
        """Stop a member; what was not durable is lost, and on request what was, too."""
        del self.nodes[member]
        log = self.disks[member].log
        log.crash()
        if lose_after is not None:
            log.lose_after(lose_after)
            self.disks[member].commit = min(self.disks[member].commit, lose_after)
        self.queue = [message for message in self.queue if message.frm != member]

    def rot(self, member: str, keep: int) -> tuple[int, int]:
        """Stop a member whose log loses what stands behind the entry `keep`. Returns the end that it had."""
        self.crash(member)
        disk = self.disks[member]
        end = disk.log.last_term, disk.log.last_index
        disk.log.truncate_after(keep)
        disk.commit = min(disk.commit, keep)
        return end

    def group(self, voters: str, learners: str = "") -> Membership:
        """Start members named by single words, all knowing the same membership."""
        membership = membership_of(voters.split(), learners.split())
        for member in membership.members:
            self.add(member, membership)
        return membership

    # Running.

    def collect(self, member: str) -> None:
        """Do what the member's `ready` says, as its caller must."""
        node, disk = self.nodes[member], self.disks[member]
        ready = node.ready()
        if ready.hard_state is not None:
            disk.term, disk.vote = ready.hard_state
        if ready.snapshot is not None:
            disk.commit = ready.snapshot.base_index
            disk.membership = ready.snapshot.membership
            self.note(f"{member} installs snapshot {ready.snapshot.base_index} {ready.snapshot.state!r}")
            node.snapshot_installed(ready.snapshot.base_index, self.now_ms)
        self.check_leader(member, node)
        invariants.check(node)
        self._note_ready(member, node, ready)
        if ready.committed is not None:
            self._apply(member, node, *ready.committed)
        for to in ready.snapshot_wanted:
            node.provide_snapshot(to, self.state_at(disk.log.base_index))
        self.queue.extend(ready.messages)
        if ready.snapshot is not None or ready.snapshot_wanted:
            self.collect(member)

    @staticmethod
    def state_at(index: int) -> bytes:
        """The snapshot's bytes: any function of the index will do."""
        return f"state@{index}".encode()

    def _note_ready(self, member: str, node: RaftNode, ready: Ready) -> None:
        before, now = self.seen[member], seen_of(node)
        self.seen[member] = now
        if now.role != before.role or now.poll is not before.poll:
            leader = f", leader {node.leader}" if node.leader and node.leader != member else ""
            self.note(f"{member} is {node.role.name.lower()} in term {node.term}{leader}")
        if ready.doubtful_election:
            self.doubtful_elections.append(member)
            self.note(f"{member} was elected by doubtful members")
            self._forget_lost(node)
        if now.memberships != before.memberships:
            self.note(f"{member} has membership {show_membership(node.membership)}")
        if ready.disk_error is not None:
            self.note(f"{member} disk error: {ready.disk_error}")
        for read in ready.reads:
            self.reads.setdefault(member, []).append((read.context, read.index))
            self.note(f"{member} may read {read.context} at {read.index}")
        for context in ready.failed_reads:
            self.failed_reads.setdefault(member, []).append(context)
            self.note(f"{member} cannot read {context}")

    def _forget_lost(self, node: RaftNode) -> None:
        """An election by doubtful members is the one case in which committed entries may be gone; it says so."""
        lost = [index for index in sorted(self.committed) if index > node.log.last_index - 1]
        for index in lost:
            del self.committed[index]
        if lost:
            self.note(f"lost: committed entries {', '.join(map(str, lost))}")

    def note(self, line: str) -> None:
        self.events.append(line)

    def check_leader(self, member: str, node: RaftNode) -> None:
        if node.role is Role.LEADER:
            known = self.leaders.setdefault(node.term, member)
            assert known == member, f"term {node.term} has two leaders: {known} and {member}"

    def _apply(self, member: str, node: RaftNode, first: int, last: int) -> None:
        log = self.disks[member].log
        entries = log.entries(first, last, 1 << 40)
        assert [entry.index for entry in entries] == list(range(first, last + 1)), (
            "committed entries are not in the log"
        )
        for entry in entries:
            known = self.committed.setdefault(entry.index, entry.record)
            assert known == entry.record, f"{member}: committed entry {entry.index} differs"
        self.note(f"{member} commits {first}" if first == last else f"{member} commits {first}-{last}")

    def send(self, message: Message) -> None:
        """Deliver one message through its bytes."""
        node = self.nodes.get(message.to)
        lost = node is None or (message.frm, message.to) in self.cut
        if self.trace:
            self.note(f"  {message.frm} -> {message.to} {show_message(message)}{' (lost)' if lost else ''}")
        if node is None or lost:
            return
        wire = b"".join(bytes(part) for part in encode(message))
        node.step(decode(memoryview(wire)), self.now_ms)
        self.collect(message.to)

    def deliver(self, rounds_max: int = 10_000) -> None:
        """Deliver until nothing is on its way and nobody has more to send."""
        for _ in range(rounds_max):
            if self.queue:
                self.send(self.queue.pop(0))
                continue
            busy = [m for m, n in self.nodes.items() if n.is_leader and n.next_deadline_ms() <= self.now_ms]
            ticked = False
            for member in busy:
                before = len(self.queue)
                self.collect(member)
                ticked = ticked or len(self.queue) > before
            if not ticked:
                return
        raise AssertionError("messages never end")

    def run(self, for_ms: int) -> None:
        """Let time pass; messages arrive at once."""
        end_ms = self.now_ms + for_ms
        while True:
            self.deliver()
            due_ms = min((node.next_deadline_ms() for node in self.nodes.values()), default=end_ms + 1)
            if due_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, due_ms)
            for member, node in list(self.nodes.items()):
                if node.next_deadline_ms() <= self.now_ms:
                    node.tick(self.now_ms)
                    self.collect(member)

    # Looking.

    def leader(self) -> RaftNode | None:
        """The leader of the newest term, if there is one."""
        leaders = [node for node in self.nodes.values() if node.is_leader]
        return max(leaders, key=lambda node: node.term, default=None)

    def elect(self, member: str) -> RaftNode:
        """Make `member` stand now."""
        node = self.nodes[member]
        self.now_ms = max(self.now_ms, min(node.next_deadline_ms(), self.now_ms + 2000))
        node.tick(self.now_ms)
        self.collect(member)
        self.deliver()
        assert node.is_leader, f"{member} is {node.role.name}"
        return node

    def propose(self, member: str, text: str) -> Entry | None:
        entry = self.nodes[member].propose(text.encode(), time_ns=self.now_ms * 1_000_000)
        self.collect(member)
        return entry

    def isolate(self, member: str) -> None:
        for other in self.disks:
            if other != member:
                self.cut |= {(member, other), (other, member)}

    def heal(self) -> None:
        self.cut.clear()


def show_message(message: Message) -> str:
    """One line that says what matters of a message."""
    kind = type(message).__name__
    parts = [f"{kind} term {message.term}"]
    if isinstance(message, Append):
        parts.append(f"behind {message.prev_index}/{message.prev_term}")
        parts.append("entries " + (" ".join(f"{e.index}/{e.term}" for e in message.entries) or "none"))
        parts.append(f"commit {message.commit}")
    elif isinstance(message, AppendResponse):
        if message.ok:
            parts.append(f"has {message.index}")
        else:
            parts.append(f"refuses {message.index}, hint {message.hint_index}/{message.hint_term}")
    elif isinstance(message, VoteRequest):
        parts.append(f"log {message.last_index}/{message.last_term}")
        parts += [flag for flag in ("pre", "need_all", "transfer") if getattr(message, flag)]
    elif isinstance(message, VoteResponse):
        parts.append("granted" if message.granted else "refused")
        parts += [flag for flag in ("pre", "need_all", "doubtful") if getattr(message, flag)]
    elif isinstance(message, Heartbeat):
        parts.append(f"commit {message.commit}")
        parts += ["quiesce"] if message.quiesce else []
    elif isinstance(message, InstallSnapshot):
        parts.append(
            f"base {message.base_index}/{message.base_term} bytes {message.offset}+{len(message.data)}"
        )
    elif isinstance(message, SnapshotResponse):
        parts.append("done" if message.done else f"holds {message.received} bytes")
    return ", ".join(parts)


def show_membership(membership: Membership) -> str:
    parts = ["+".join(membership.voters)]
    if membership.voters_outgoing:
        parts.append("leaving " + "+".join(membership.voters_outgoing))
    if membership.learners:
        parts.append("learning " + "+".join(membership.learners))
    return f"{membership.index}: " + ", ".join(parts)
