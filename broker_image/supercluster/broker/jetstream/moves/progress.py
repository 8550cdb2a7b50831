"""The progress of a move's copies on the stream's leader: copies without progress, whether all fall behind,
and the estimated end.

It only observes and reports. The meta leader chooses other targets, and the move's limits hold regardless of
the progress.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from supercluster.broker.jetstream.meta.move_record import Move
from supercluster.broker.jetstream.moves.moving_stream import MovingStream
from supercluster.broker.moves.catch_up import CatchUp, Sample
from supercluster.broker.moves.pace import Pace
from supercluster.broker.moves.plan import NEAR_BYTES, ReplicaProgress
from supercluster.broker.moves.watch import AWAY_MS, STUCK_MS, UNANSWERED_MS, Sight, TargetWatch
from supercluster.broker.raft.confchange import node_of

# A limit that lets nothing go for longer than this is told of: to whoever looks, the move stands still.
PACE_WAIT_MS = 60_000


class MoveProgress:
    def __init__(self, moving: MovingStream) -> None:
        self._replica, self._host, self._grown_bytes = moving.replica, moving.host, moving.grown_bytes
        self._watch = TargetWatch()
        self._catch_up = CatchUp()
        self._away_ms: dict[str, int] = {}
        """Member that the move needs → for how long its broker has been out of contact."""
        self._unanswered_ms: dict[str, int] = {}
        """Member → for how long it has not told the hashes that it was asked for."""
        self._said: set[str] = set()
        """Members for whom the move waits, as was said."""
        self._too_slow = ""
        self._bytes_per_s = 0

    @property
    def stuck(self) -> dict[str, str]:
        """Target → why it is said to make no headway."""
        return self._watch.stuck()

    @property
    def trouble(self) -> str:
        """What people should do something about; empty: nothing."""
        found = [f"{target} makes no progress: {why}" for target, why in self.stuck.items()]
        found += [f"{member} {why}" for member, why in self._out_of_contact().items()]
        found += [f"{member} {why}" for member, why in self._unanswered().items()]
        return "; ".join([*found, *([self._too_slow] if self._too_slow else [])])

    @property
    def is_below_ingest_rate(self) -> bool:
        """Do the copies come no nearer at the rate at which they are sent?"""
        return bool(self._too_slow)

    def why(self, why: str) -> str:
        """Why the move is where it is, with those who are out of contact."""
        away = ", ".join(f"{member} for {ms // 1000} s" for member, ms in sorted(self._away_ms.items()))
        return f"{why}; out of contact: {away}" if away else why

    def _out_of_contact(self) -> dict[str, str]:
        return {
            member: f"has been out of contact for {ms // 1000} s: bring its broker back{self._otherwise}"
            for member, ms in sorted(self._away_ms.items())
            if ms >= AWAY_MS
        }

    def _unanswered(self) -> dict[str, str]:
        """Copies that a comparison waits for though their brokers are in contact."""
        return {
            member: f"has not answered hashes of its ranges for {ms // 1000} s"
            for member, ms in sorted(self._unanswered_ms.items())
            if ms >= UNANSWERED_MS and member not in self._away_ms
        }

    @property
    def _otherwise(self) -> str:
        if self._replica.raft.membership.is_joint:
            return ""
        return f" (after {STUCK_MS // 1000} s another one joins in its place, if one fits)"

    def left_ns(self) -> int | None:
        """Time until the copies are there; None while it can't be told, or there is no end of it."""
        return self._catch_up.left_ns(self._bytes_per_s)

    def look(
        self,
        move: Move,
        targets: Collection[str],
        waiting: Collection[str],
        replicas: Mapping[str, ReplicaProgress],
        sent_bytes: int,
        unanswered_ms: Mapping[str, int],
        now_ms: int,
    ) -> None:
        """`waiting` are targets that ask to be taken in, `sent_bytes` what targets were sent so far, `unanswered_ms` who has
        been asked for hashes for how long."""
        is_early = not self._replica.raft.membership.is_joint and not move.cancelled
        joining = [target for target in move.joining if is_early and target in targets]
        # Of a target that is silent altogether the watch says so.
        silent = {target for target in joining if target in replicas and not replicas[target].in_contact}
        self._unanswered_ms = {member: ms for member, ms in unanswered_ms.items() if member not in silent}
        self._watch_targets(move, joining, waiting, replicas, now_ms)
        learners = self._replica.raft.membership.learners
        fed = {
            target: replicas[target]
            for target in joining
            if target in replicas and target in learners and replicas[target].in_contact
        }
        before = self._too_slow
        self._too_slow = self._held_back(fed, now_ms) or self._measure(move, fed, sent_bytes, now_ms)
        if self._too_slow and not before:
            self._host.event(self._replica.id, "MoveTooSlow", f"move {move.id}: {self._too_slow}")

    def _watch_targets(
        self,
        move: Move,
        joining: Collection[str],
        waiting: Collection[str],
        replicas: Mapping[str, ReplicaProgress],
        now_ms: int,
    ) -> None:
        raft, contact = self._replica.raft, self._host.brokers_in_contact()
        sights: dict[str, Sight] = {}
        for target in joining:
            found = raft.progress.get(target)
            snapshot = found.snapshot if found is not None else None
            sights[target] = Sight(
                is_linked=node_of(target) in contact,
                is_open=target in waiting or target in raft.membership,
                is_heard=target not in replicas or replicas[target].in_contact,
                taken=(
                    found.match if found is not None else 0,
                    snapshot.acked if snapshot is not None else 0,
                ),
                is_owing=found is not None
                and (bool(found.inflight) or found.probe_sent or snapshot is not None),
            )
        # With new voters it needs a majority of both halves, until it is through or taken back.
        needed = raft.membership.all_voters if raft.membership.is_joint else joining
        away = [m for m in needed if node_of(m) not in contact and m != self._replica.member]
        self._watch.look(sights, now_ms, away)
        self._away_ms = self._watch.away_ms(now_ms)
        silent = self._unanswered() | self._out_of_contact()
        waits = self.stuck | {member: f"it {why}" for member, why in silent.items()}
        for target in sorted(waits.keys() - self._said):
            text = f"move {move.id} waits for {target}: {waits[target]}"
            self._host.event(self._replica.id, "MoveWaits", text)
        self._said = set(waits)

    def _held_back(self, fed: Mapping[str, ReplicaProgress], now_ms: int) -> str:
        """What one message more than the limit allows costs: the next ones wait until it is paid for."""
        pace = self._replica.raft.learner_pace
        wait_ms = pace.next_ms(now_ms) - now_ms if isinstance(pace, Pace) else 0
        if wait_ms <= PACE_WAIT_MS or not any(replica.lag_entries for replica in fed.values()):
            return ""
        assert isinstance(pace, Pace)
        return (
            f"raise the bandwidth of the move: at {pace.bytes_per_s} bytes/s nothing is sent to the new copies for the "
            f"next {wait_ms // 1000} s"
        )

    def _measure(self, move: Move, fed: Mapping[str, ReplicaProgress], sent_bytes: int, now_ms: int) -> str:
        """Do the copies come no nearer? Empty: they do, or it is too early to tell."""
        self._bytes_per_s = move.bytes_per_s
        left = sum(replica.lag_bytes for replica in fed.values())
        self._catch_up.look(frozenset(fed), Sample(now_ms, left, sent_bytes, self._grown_bytes()))
        rates = self._catch_up.falls_behind()
        if rates is None or max(replica.lag_bytes for replica in fed.values()) <= NEAR_BYTES:
            return ""
        needed = rates.grown * len(fed)
        if move.bytes_per_s:
            advice = (
                f"raise the bandwidth of the move well above {needed} bytes/s (it is {move.bytes_per_s}), or wait for "
                "less traffic"
            )
        else:
            advice = "the move has no limit, so their disks or the network to them are too slow"
        return (
            f"the new copies do not catch up: {advice}; they are sent {rates.sent} bytes/s together, and the stream grows "
            f"by {needed} bytes/s for {len(fed)} of them"
        )
