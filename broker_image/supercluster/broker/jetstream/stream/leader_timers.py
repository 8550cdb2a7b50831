"""When a stream's leader has something to do by time alone."""

from __future__ import annotations

from collections.abc import Iterator

from supercluster.broker.jetstream.encoding.codec import text
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.publish.carrying import Carrying
from supercluster.broker.jetstream.publish.expiry import Expiry
from supercluster.broker.jetstream.publish.scheduling import Scheduling
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.leader_advisories import LeaderAdvisories
from supercluster.broker.jetstream.stream.preferred_leader import PreferredLeader


class LeaderTimers:
    """See the module. One per term of leadership."""

    def __init__(
        self,
        copy: StreamCopy,
        advisories: LeaderAdvisories,
        preferred_leader: PreferredLeader,
        carrying: Carrying,
        expiry: Expiry,
        scheduling: Scheduling,
    ) -> None:
        self._copy = copy
        self._advisories = advisories
        self._preferred_leader = preferred_leader
        self._carrying = carrying
        self._expiry = expiry
        self._scheduling = scheduling

    def tick(self, now_ms: int) -> bool:
        """Do what is due; True when a turn is needed."""
        copy, state, now_ns = self._copy, self._copy.stream.state, self._copy.host.clock.now_ns()
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

    def _always_ms(self) -> tuple[int | None, ...]:
        """Of a stream that is hidden, too."""
        copy, stream = self._copy, self._copy.stream
        return (
            copy.move.deadline_ms(),
            copy.puller.deadline_ms(),
            copy.origin_reads.deadline_ms(stream.state),
            copy.snapshots.deadline_ms(),
            copy.restores.deadline_ms() if stream.is_hidden else None,
        )

    def deadlines_ms(self) -> Iterator[int | None]:
        """When `tick` has something to do, per cause; None: not before something else happens."""
        copy, clock = self._copy, self._copy.host.clock
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
