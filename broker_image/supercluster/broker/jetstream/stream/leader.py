"""A stream's replica while it leads: it builds an entry in each turn, and answers the callers that wait for
its commits.

Only the log outlasts a term: a new leader begins with the log as it is (SF-12).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supercluster.broker.jetstream.consumer.ready_set import StoredSubjects
from supercluster.broker.jetstream.encoding.codec import text
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.migration.turn_fence import TurnFence
from supercluster.broker.jetstream.publish.carrying import Carrying
from supercluster.broker.jetstream.publish.config_change import ConfigChange
from supercluster.broker.jetstream.publish.expiry import Expiry
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn, Proposer
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.jetstream.publish.scheduling import Scheduling
from supercluster.broker.jetstream.state.stream import Applied
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.leader_advisories import LeaderAdvisories
from supercluster.broker.jetstream.stream.preferred_leader import PreferredLeader
from supercluster.broker.raft.config import ReadState, Role
from supercluster.broker.raft.entry import Entry


class StreamLeader:
    def __init__(self, copy: StreamCopy, carrying: Carrying) -> None:
        self._copy = copy
        self._replica, self._stream, self._host = copy.replica, copy.stream, copy.host
        self._appender, self._consumers, self._inbox = copy.appender, copy.consumers, copy.inbox
        self._carrying = carrying
        self._advisories = LeaderAdvisories(copy)
        self._preferred_leader = PreferredLeader(copy.replica, copy.stream, copy.host)
        self._stored = StoredSubjects()
        self._read_number = 0
        """Of the newest question whether this replica still leads."""
        self._begin_term()

    def _begin_term(self) -> None:
        copy = self._copy
        self._expiry, self._scheduling = Expiry(), Scheduling()
        self._proposers: Sequence[Proposer] = (
            TurnFence(copy.migration, copy.inbox),
            ConfigChange(copy.trimming),
            copy.inbox,
            copy.puller,
            copy.waiters,
            copy.sink,
            copy.trimming,
            self._carrying,
            self._advisories,
            copy.restores,
            self._expiry,
            self._scheduling,
            copy.appender,
            copy.consumers,
        )
        """In the order in which they stand in an entry."""

    def begin(self, now_ms: int) -> None:
        """This replica leads."""
        copy, stream = self._copy, self._stream
        self._appender.begin()
        self._begin_term()
        copy.sink.begin()
        self._consumers.open(stream.state, self._host.clock.now_ns())
        stream.read_anew()
        stream.state.on_removed = self._removed
        self._count_pending()
        self._advisories.begin()
        copy.move.follow(now_ms)
        copy.migration.follow(now_ms)
        copy.restores.start(now_ms)
        if copy.puller.is_behind(stream.state.config):
            # A leader of one replica may begin behind its part of this turn.
            self._host.touch_next(self._replica.id)

    def end(self) -> None:
        """It does not any more: those who wait ask the next leader."""
        copy = self._copy
        copy.snapshots.stop("the stream has another leader")
        copy.restores.stop()
        copy.move.stop()
        copy.migration.stop()
        if self._appender.admission is not None:
            self._advisories.end()
        self._appender.end()
        self._carrying.give_up()
        copy.trimming.give_up()
        self._stream.state.on_removed = None
        left = self._consumers.give_back(self._replica.applied_index)
        if next(left, None) is not None:
            self._host.in_slices(self._replica, left)
        self._inbox.clear()
        copy.puller.close()
        copy.origin_reads.clear()
        self._appender.give_acks_back()

    def _removed(self, seq: int, subject: bytes, *, is_first: bool) -> None:
        if is_first:
            self._stream.source.note_gone(seq, subject)
        self._consumers.removed(seq, subject, is_first=is_first)

    def _count_pending(self) -> None:
        """What is left for consumers is counted in slices, where that takes long."""
        if self._consumers.has_uncounted and not self._consumers.is_counting:
            self._host.in_slices(self._replica, self._consumers.count(self._stream.source))

    # ---- the turn -------------------------------------------------------------------------------------------------

    def propose(self, now_ms: int) -> None:
        """Append what this turn brought, as few entries as possible."""
        appender, replica, stream = self._appender, self._replica, self._stream
        admission = appender.admission
        if admission is None:
            return
        turn = LeaderTurn(
            stream, replica.log, appender, admission, now_ms, replica.leader_time_ns(), stream.is_hidden
        )
        for proposer in self._proposers:
            proposer.put(turn)
            if turn.is_closed:
                replica.newcomers.advance(now_ms)
                return
        appender.put_answers(turn)
        appender.propose(turn.proposal)
        if appender.admission is not None:
            self._copy.puller.advance(appender.admission, now_ms)
        self._copy.move.advance(now_ms)
        replica.newcomers.advance(now_ms)
        self._copy.migration.advance(now_ms)

    def applied(self, entry: Entry, done: Applied) -> None:
        """A committed entry was applied."""
        copy, state, replica_id = self._copy, self._stream.state, self._replica.id
        if entry.count:
            self._stored.note(entry, state.reader, are_consumers=len(state.consumers) > 0)
        opens = done.cut and not self._stream.is_closed
        if opens:
            self._appender.opened()
        if self._appender.admission is not None:
            end = self._appender.admission.end
            was_removing = end.is_removing
            end.applied(done.index)
            if was_removing and not end.is_removing and self._inbox.has_waiting:
                self._host.touch_next(replica_id)
        self._advisories.config_applied()
        self._inbox.applied(done)
        if copy.puller.is_behind(state.config):
            self._host.touch(replica_id)  # Nothing else may ever happen here, and there may be origins now.
        if done.consumers:
            self._consumers.follow(state, done.consumers, self._host.clock.now_ns())
        copy.waiters.applied(done.index, done.results)
        copy.trimming.applied()
        if not self._consumers.committed(done.index):
            self._ask_whether_it_leads()
        if self._stream.is_hidden:
            copy.restores.applied()
        if done.cut:
            copy.migration.wake()
        if opens:
            copy.waiters.opened()
            self._host.touch_next(replica_id)

    def after_turn(self, now_ms: int) -> None:
        """Commits of this turn are applied: hand out answers and deliveries."""
        copy, stream = self._copy, self._stream
        grown = self._inbox.send_verdicts() or self._stored.any_stored
        if self._stored.any_stored:
            self._consumers.stored(self._stored.take())
        copy.snapshots.serve(now_ms)
        if self._appender.is_closed:
            return
        if (copy.origin_reads or stream.state.readers) and copy.origin_reads.serve(
            stream.state, stream.source, now_ms, grown=grown
        ):
            self._host.touch_next(self._replica.id)
        copy.waiters.version_applied(stream.state.config_version)
        # While leadership is on its way, what would be handed out could not be noted.
        if not self._replica.raft.is_handing_over and not stream.is_hidden:
            self._pump_consumers()

    def _pump_consumers(self) -> None:
        """Serve those that wait; what that changes is proposed in the same turn, and they get it when it is committed."""
        log = self._replica.log
        pumped = self._consumers.pump(self._stream.source, is_scarce=log.is_scarce)
        self._count_pending()
        if not pumped:
            return
        proposal = self._consumers.put_ops(Proposal(), self._appender.append)
        self._appender.propose(proposal)
        last = log.last_index
        if self._consumers.pumped(last, log.term(last) or 0):
            self._host.touch_next(self._replica.id)
        if proposal.payload:
            self._host.touch(self._replica.id)

    # ---- the leadership -------------------------------------------------------------------------------------------

    def _ask_whether_it_leads(self) -> None:
        """After its process stood still nobody knows whether another one leads: what consumers are handed out waits for the voters'
        answer."""
        self._read_number += 1
        self._replica.raft.read_index(self._read_number)
        self._host.touch_next(self._replica.id)

    def reads_ready(self, reads: list[ReadState], failed: list[int]) -> None:
        """A majority has answered, or it could not be asked."""
        replica = self._replica
        if any(read.context == self._read_number for read in reads):
            self._consumers.leads_surely(replica.applied_index)
        if self._read_number in failed and replica.raft.role is Role.LEADER and replica.serves:
            self._ask_whether_it_leads()

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> bool:
        """Do what is due; True when a turn is needed."""
        copy, state, now_ns = self._copy, self._copy.stream.state, self._copy.host.clock.now_ns()
        if copy.appender.is_closed:
            return any(at is not None and at <= now_ms for at in self._closed_ms())
        due = self._preferred_leader.advance(now_ms)
        due |= any(at is not None and at <= now_ms for at in self._always_ms())
        if copy.stream.is_hidden:
            return due
        found = copy.consumers.tick(now_ms, now_ns)
        for name in found.inactive:
            copy.waiters.command(Section.CONSUMER_DELETE, [text(name)], lambda result: None)
        if copy.appender.admission is not None:
            self._advisories.sweep(copy.appender.admission, now_ns)
        carry_ms = self._carrying.deadline_ms()
        due |= carry_ms is not None and now_ms >= carry_ms
        due |= self._scheduling.is_due(state, now_ns, now_ms)
        return due or found.any_due or self._expiry.is_due(state, now_ms)

    def _closed_ms(self) -> tuple[int | None, ...]:
        """Of a stream that is closed."""
        return self._copy.migration.deadline_ms(), self._copy.snapshots.deadline_ms()

    def _always_ms(self) -> tuple[int | None, ...]:
        """Of a stream that is hidden, too."""
        copy, stream = self._copy, self._copy.stream
        return (
            copy.move.deadline_ms(),
            copy.migration.deadline_ms(),
            copy.puller.deadline_ms(),
            copy.origin_reads.deadline_ms(stream.state),
            copy.snapshots.deadline_ms(),
            copy.restores.deadline_ms() if stream.is_hidden else None,
            copy.sink.deadline_ms(),
        )

    def deadlines_ms(self) -> Iterator[int | None]:
        """When `tick` has something to do, per cause; None: not before something else happens."""
        copy, clock = self._copy, self._copy.host.clock
        if copy.appender.is_closed:
            yield from self._closed_ms()
            return
        yield from self._always_ms()
        if copy.stream.is_hidden:
            return
        state, now_ms, now_ns = copy.stream.state, clock.monotonic_ms(), clock.now_ns()
        yield self._carrying.deadline_ms()
        yield self._preferred_leader.deadline_ms()
        yield from copy.consumers.deadlines_ms(now_ms, now_ns)
        admission = copy.appender.admission
        batch_ns = admission.batches.next_ns() if admission is not None else None
        if batch_ns is not None:
            yield now_ms + max(0, -(-(batch_ns - now_ns) // 1_000_000))
        yield self._expiry.deadline_ms(state, now_ms, now_ns)
        yield self._scheduling.deadline_ms(state, now_ms, now_ns)
