"""Green's copies as blue's leader sees them: learners of its group whose brokers have a world in their names."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.cut import Cut
from supercluster.broker.migration.plan import Copy
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.raft.confchange import MembershipChange, node_of

# Of a copy that lacks what is not in the log any more, or has no time, nobody knows for how long.
LAG_MS_UNKNOWN = 1 << 40


def far_learners(replica: Replica) -> tuple[str, ...]:
    """Learners of another super-cluster."""
    return tuple(m for m in replica.raft.membership.learners if world_of(node_of(m)))


def copies_seen(
    replica: Replica, members: Iterable[str], cut: Cut, linked: Collection[str]
) -> dict[str, Copy]:
    """Those of these members that are learners. `linked`: brokers of green."""
    log, raft, found = replica.log, replica.raft, {}
    silent_ms = replica.host.clock.monotonic_ms() - raft.config.election_timeout_ms
    for member in members:
        progress = raft.progress.get(member)
        if progress is not None:
            has_fence = cut.is_closed and progress.match >= cut.fenced_index
            lag = log.last_index - progress.match
            # A silent group was in contact when it fell silent, and a lost link wakes it.
            is_heard = raft.quiesced or progress.heard_ms > silent_ms
            in_contact = node_of(member) in linked and is_heard and not progress.doubtful
            lag_ms = max(0, _age_ms(replica, progress.match) - progress.round_trip_ms)
            found[member] = Copy(lag, lag_ms, in_contact, has_fence, progress.round_trip_ms)
    return found


def _age_ms(replica: Replica, match: int) -> int:
    """How long ago the first entry came that the copy is not known to have: in a round trip, and what the copy lags."""
    log = replica.log
    if match >= log.last_index:
        return 0
    entry = log.entry(match + 1) if match >= log.base_index else None
    if entry is None or not entry.time_ns:
        return LAG_MS_UNKNOWN
    return max(0, (replica.leader_time_ns() - entry.time_ns) // 1_000_000)


def change_learners(replica: Replica, learners: tuple[str, ...]) -> str:
    """Have the group feed these learners. Returns why Raft does not take that now."""
    membership = replica.raft.membership
    change = MembershipChange(membership.index, membership.voters, learners)
    refusal = replica.raft.propose_membership(change, replica.leader_time_ns())
    return refusal.message if refusal is not None else ""
