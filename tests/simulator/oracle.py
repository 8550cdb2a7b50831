"""What Raft and its storage must never do, seen from above: the oracle knows every member's log and disk.

Its checks need no luck: a commit without a majority is noticed when it happens, not when a later failure would make it
a loss. They hang on the ends of turns and on votes that leave a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.replica.lineage import lineage_of
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.confchange import Membership, node_of
from supercluster.broker.raft.config import Role
from supercluster.broker.raft.messages import (
    AppendResponse,
    InstallSnapshot,
    Message,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.memory_log import MemoryLog
from supercluster.broker.storage.log.options import Fsync

if TYPE_CHECKING:
    from tests.simulator.stores import SimStore
    from tests.simulator.world import World


@dataclass(slots=True)
class _Seen:
    """One group of one process at the end of its last turn."""

    raft: object
    term: int
    led: bool
    commit_index: int
    silent: bool
    membership: Membership


class Oracle:
    """See the module."""

    def __init__(
        self,
        world: World,
        broken: Callable[[str], AssertionError],
        committed: Callable[[str], Mapping[int, tuple[int, int]]],
    ) -> None:
        """`committed` has the entries of a group that are known to be committed: index → term and checksum."""
        self._world = world
        self._broken = broken
        self._committed_entries = committed
        self._logs: dict[tuple[str, str], list[StreamLog]] = {}
        """(group, member) → its log in every process that had it."""
        self._destroyed: dict[tuple[str, str], list[tuple[int, dict[int, int | None]]]] = {}
        """(group, member) → base and terms of its logs in memory whose stream was deleted."""
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._votes: dict[tuple[str, str, int], str] = {}
        """(group, member, term) → for whom."""
        self._memberships: dict[str, Membership] = {}
        self._founders: dict[str, tuple[str, ...]] = {}
        """group → the voters it was begun with: nobody begins it a second time."""
        self._voted: dict[tuple[str, str], int] = {}
        """(group, member) → the newest term in which it voted."""
        self._put_back: set[str] = set()
        """Members whose disk went back to an earlier state: what they come back with is less than they said (SF-27)."""
        self._ends: dict[tuple[str, str], tuple[int, int]] = {}
        """(group, member) → term and index of the last entry that it confirmed."""
        self._asked: dict[tuple[str, str, int], tuple[int, int]] = {}
        """(group, candidate, term) → the end of its log."""
        self.on_vote: Callable[[str], None] = lambda node: None
        self.on_sent: Callable[[str, BrokerCore, str, Message], None] = lambda node, core, group, message: (
            None
        )
        self.on_begun: Callable[[Replica], None] = lambda group: None
        """A group was begun for the first time, by its first member."""
        self.on_hand_over: Callable[[str, str], None] = lambda node, to: None
        """The word that hands leadership over is about to leave a broker."""

    def put_back(self, node: str) -> None:
        """The broker's disk goes back to an earlier state."""
        self._put_back |= {member for _, member in self._logs if node_of(member) == node}

    def incarnation(self, node: str, before: str, store: SimStore) -> None:
        """SF-32: a volume stays the same one, unless it was put back, lost or damaged."""
        if before in ("", store.incarnation):
            return
        if not store.may_be_another:
            raise self._broken(
                f"SF-32: {node} starts as volume {store.incarnation}, and nothing has happened to {before}"
            )
        store.may_be_another = False

    def watch(self, node: str, core: BrokerCore) -> None:
        send_raft = core.host.send_raft

        def on_send(group: str, message: Message) -> None:
            self.on_sent(node, core, group, message)
            if isinstance(message, VoteRequest | VoteResponse) and not message.pre:
                self._vote(node, core, group, message)
            elif isinstance(message, AppendResponse):
                self._confirmed(core, group, message)
                self._note_end(core, group, message)
            elif isinstance(message, InstallSnapshot) and message.offset:
                self._world.met["snapshot in chunks"] += 1
            elif isinstance(message, TimeoutNow):
                self.on_hand_over(node, node_of(message.to))
            send_raft(group, message)

        core.host.send_raft = on_send

    def watch_group(self, replica: Replica) -> None:
        logs = self._logs.setdefault((replica.id, replica.member), [])
        self._came_back(replica, logs)
        logs.append(replica.log)
        if isinstance(replica.log, MemoryLog):
            self._remember(replica.id, replica.member, replica.log)
        voters = replica.raft.membership.voters
        if voters and replica.log.last_index == 0:
            known = self._founders.get(replica.id)
            if known is None:
                self._founders[replica.id] = voters
                self.on_begun(replica)
            elif known != voters:
                raise self._broken(
                    f"SF-4: {replica.id} was begun by {known}, {replica.member} begins one of {voters}"
                )

    def _remember(self, group: str, member: str, log: MemoryLog) -> None:
        """A log in memory is empty when its stream was deleted here, and what it had confirmed still counts where the
        deletion is not known yet. (One of a file remembers.)"""
        destroy = log.destroy

        def destroyed() -> None:
            held = {index: log.term(index) for index in range(log.base_index + 1, log.persisted_index + 1)}
            self._destroyed.setdefault((group, member), []).append((log.base_index, held))
            destroy()

        log.destroy = destroyed  # type: ignore[method-assign]

    def _came_back(self, replica: Replica, logs: list[StreamLog]) -> None:
        """SF-4: who is a member again has its votes and, unless it says that it is not sure, every entry that it had
        and that is committed."""
        raft, log = replica.raft, replica.log
        if replica.member in self._put_back:
            return
        voted = self._voted.get((replica.id, replica.member), 0)
        if raft.term < voted:
            raise self._broken(
                f"SF-4: {replica.member} voted in term {voted} of {replica.id} and comes back in term {raft.term}"
            )
        if raft.doubtful or not logs:
            return
        before, committed = logs[-1], self._committed_entries(replica.id)
        held = before.persisted_index
        # What it had there may be of another history, which is committed without it.
        while held > log.last_index and before.term(held) not in (None, committed.get(held, (-1, 0))[0]):
            held -= 1
        if log.last_index < held and held in committed:
            raise self._broken(
                f"SF-4: {replica.member} had entry {held} of {replica.id}, which is committed, and comes back with "
                f"{log.last_index}, sure of itself"
            )

    # ---- confirmations --------------------------------------------------------------------------------------------

    def _confirmed(self, core: BrokerCore, group: str, message: AppendResponse) -> None:
        """SF-4: the membership that a member goes by is durable before it confirms it, whatever the fsync policy."""
        held = core.groups.get(group)
        if held is None or not isinstance(held.log, FileLog) or not message.ok:
            return
        index = held.raft.membership.index
        if message.index >= index > held.log._synced_index:
            raise self._broken(
                f"SF-4: {message.frm} confirms membership {index} of {group}; only {held.log._synced_index} entries are "
                "durable"
            )

    def _note_end(self, core: BrokerCore, group: str, message: AppendResponse) -> None:
        held = core.groups.get(group)
        term = held.log.term(message.index) if held is not None and message.ok else None
        if term is not None:
            key = group, message.frm
            self._ends[key] = max(self._ends.get(key, (0, 0)), (term, message.index))

    # ---- votes ----------------------------------------------------------------------------------------------------

    def _vote(self, node: str, core: BrokerCore, group: str, message: VoteRequest | VoteResponse) -> None:
        """SF-4: a member votes once in a term, and its vote is on the platter before it leaves."""
        if isinstance(message, VoteResponse):
            if not message.granted:
                return
            voted_for = message.to
            self._compare_ends(group, message)
        else:
            voted_for = message.frm
            self._asked[group, message.frm, message.term] = message.last_term, message.last_index
        known = self._votes.setdefault((group, message.frm, message.term), voted_for)
        if known != voted_for:
            raise self._broken(
                f"SF-4: {message.frm} votes for {known} and for {voted_for} in term {message.term} of {group}"
            )
        key = (group, message.frm)
        self._voted[key] = max(self._voted.get(key, 0), message.term)
        held = core.groups.get(group)
        if held is None:
            return
        if isinstance(message, VoteResponse) and held.raft._state.is_unsure and not message.need_all:
            raise self._broken(f"SF-4: {message.frm} votes in {group} and is not sure of its log")
        if isinstance(held.log, MemoryLog):
            return
        term, vote = self._world.nodes[node].store.durable_vote(group)
        if term < message.term or (term == message.term and vote != voted_for):
            raise self._broken(
                f"SF-4: {message.frm} votes for {voted_for} in term {message.term} of {group}, its disk has {vote!r} "
                f"in term {term}"
            )
        if isinstance(message, VoteResponse):
            self.on_vote(node)

    def _compare_ends(self, group: str, message: VoteResponse) -> None:
        """SF-34: whatever a member's log has lost, it helps nobody to lead whose log ends before what it confirmed; where all
        members agree that it is gone, they say so."""
        key = group, message.frm
        if message.need_all:
            self._ends.pop(key, None)
            return
        end, asked = self._ends.get(key, (0, 0)), self._asked.get((group, message.to, message.term))
        if asked is not None and asked < end:
            raise self._broken(
                f"SF-34: {message.frm} confirmed entry {end[1]} of term {end[0]} of {group}, and votes for {message.to}, whose log "
                f"ends with entry {asked[1]} of term {asked[0]}"
            )

    # ---- disks ----------------------------------------------------------------------------------------------------

    def before_stop(self, node: str, core: BrokerCore) -> None:
        """RP-6: what a log takes for durable is on the platter. Not in the middle of an operation, nor after one that
        failed half-way."""
        disk = self._world.nodes[node].store.disk
        for group in core.groups.values():
            log = group.log
            if disk.crashing or not isinstance(log, FileLog) or log.failed is not None:
                continue
            if log.fsync is Fsync.NEVER:
                continue  # What rots before the kernel has written it back is found when it is read.
            for segment in log._segments.all:
                if segment.first_index <= log._synced_index and not disk.is_durable(
                    log._segments.path(segment), segment.synced_bytes
                ):
                    raise self._broken(
                        f"RP-6: {group.member} takes {log._segments.path(segment)} of {group.id} for durable up to byte "
                        f"{segment.synced_bytes}, and it is not"
                    )

    # ---- ends of turns --------------------------------------------------------------------------------------------

    def after_turn(self, node: str, core: BrokerCore) -> None:
        for group in core.groups.values():
            raft = group.raft
            seen = self._seen.get((node, group.id))
            leads = raft.role is Role.LEADER
            if seen is None or seen.raft is not raft:
                seen = self._seen[node, group.id] = _Seen(
                    raft, raft.term, False, raft.commit_index, False, raft.membership
                )
            if leads and raft.commit_index > seen.commit_index and seen.led and seen.term == raft.term:
                # A joint membership is left in the turn that commits it: then the one before is what counted, or, for
                # what stands between the two, already the new one, which is in force once it is in the leader's log.
                newest = raft.membership
                in_force = (newest,) if newest.index <= raft.commit_index else (seen.membership, newest)
                self._committed(group, in_force)
            if raft.quiesced and leads:
                self._leads_in_silence(group, core)
            elif raft.quiesced and not seen.silent:
                self._silent(group)
            seen.term, seen.led = raft.term, leads
            seen.commit_index, seen.silent, seen.membership = (
                raft.commit_index,
                raft.quiesced,
                raft.membership,
            )

    def _committed(self, replica: Replica, in_force: tuple[Membership, ...]) -> None:
        """A leader committed: by counting, an entry of its own term, which a majority of both halves of one of the
        memberships in force has durably."""
        raft = replica.raft
        index = raft.commit_index
        term = replica.log.term(index)
        if term is None:
            return
        if term != raft.term:
            raise self._broken(
                f"RP-8: {replica.member} leads {replica.id} in term {raft.term} and commits entry {index} of term {term}"
            )
        if in_force[0].index > index:
            return
        lacking = [self._lacking(replica, membership, index, term) for membership in in_force]
        if all(lacking):
            raise self._broken(
                f"SF-1: {replica.member} committed entry {index} of {replica.id}: {lacking[0]} have it"
            )

    def _lacking(self, replica: Replica, membership: Membership, index: int, term: int) -> str:
        """Which half of a membership has no majority with that entry; empty when both have."""
        for half in (membership.voters, membership.voters_outgoing):
            have = [member for member in half if self._holds(replica.id, member, index, term)]
            if half and len(have) <= len(half) // 2:
                return f"of {half} only {have}"
        return ""

    def _holds(self, group: str, member: str, index: int, term: int) -> bool:
        """Has (or had) the member that entry durably, as its fsync policy has it?"""
        for log in self._logs.get((group, member), ()):
            if log.base_index >= index or (log.persisted_index >= index and log.term(index) == term):
                return True
        return any(
            base_index >= index or held.get(index) == term
            for base_index, held in self._destroyed.get((group, member), ())
        )

    def _silent(self, replica: Replica) -> None:
        """SF-7: a follower falls silent only with the leader's log and commit index."""
        raft = replica.raft
        if raft.commit_index != replica.log.last_index:
            raise self._broken(
                f"SF-7: {replica.member} falls silent with entry {replica.log.last_index}, of which {raft.commit_index} "
                f"are committed in {replica.id}"
            )
        for name, node in self._world.nodes.items():
            if self._world.ledger_of(name).oracle is not self:
                continue  # A group of that name in another super-cluster.
            other = node.core.groups.get(replica.id) if node.core is not None else None
            if other is None or other.raft.role is not Role.LEADER or other.raft.term != raft.term:
                continue
            if other.raft.quiesced and other.log.last_index != replica.log.last_index:
                raise self._broken(
                    f"SF-7: {replica.id} is silent, {other.member} has {other.log.last_index} entries, {replica.member} "
                    f"has {replica.log.last_index}"
                )

    def _leads_in_silence(self, replica: Replica, core: BrokerCore) -> None:
        """SF-7: a silent leader lacks nobody's word that it is linked with; who was away woke it when it came back."""
        for member, progress in replica.raft.progress.items():
            if node_of(member) in core.peers.linked and progress.match != replica.log.last_index:
                raise self._broken(
                    f"SF-7: {replica.member} leads {replica.id} in silence with {replica.log.last_index} entries; {member} is "
                    f"linked, and has confirmed {progress.match}"
                )

    # ---- memberships ----------------------------------------------------------------------------------------------

    def membership(self, replica: Replica, membership: Membership) -> None:
        """A committed CONFIG entry, in order. SF-4: a new identity learns before it votes."""
        before = self._memberships.get(replica.id)
        self._memberships[replica.id] = membership
        if before is None:
            return
        strangers = set(membership.voters) - set(before.all_voters) - set(before.learners)
        begins = lineage_of(replica.id) > 0 and membership.all_voters == (replica.member,)
        if strangers and not begins:  # A lineage begins with one member, whom a person chose (SF-9).
            raise self._broken(f"SF-4: {sorted(strangers)} vote in {replica.id} and never learned")
