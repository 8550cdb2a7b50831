"""Chooses the next broker to restart, so that no stream loses its majority and leaders change as seldom as
possible.

Brokers restart one at a time in the whole super-cluster, starting with the one that leads the fewest streams.
Each first hands its leaderships over to brokers that need no restart any more. The next one follows when
every group, including the map of streams, is complete again. So the leaderships of the last broker go to
brokers that stay, and no broker restarts as a leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supercluster.api.conditions import Reason

# A restart waits for moves that its broker has a part in, so that they need not begin their copies anew. A move survives a
# restart, and one that takes longer than this is no reason to put off what the restart is for.
MOVE_PATIENCE = timedelta(minutes=30)
# A broker that cannot hand everything over within this time is restarted all the same: its lame duck tries once more.
HAND_OVER_PATIENCE = timedelta(seconds=30)
# For so long it takes no leaderships: longer than that, so that the restart falls into it.
HAND_OVER_HOLD = timedelta(seconds=60)
# For so long groups may lack nothing but a broker that is to be restarted itself before it is, with what it lacks: mostly it only
# catches up. One whom the others refuse for its version never would, and the spec that puts it right could not be carried out.
LAGGARD_PATIENCE = timedelta(seconds=30)
# As the brokers name the group that is no stream.
MAP_OF_STREAMS = "the map of streams"
# So many streams are named in a sentence.
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class PodView:
    """A broker's pod."""

    name: str
    uid: str
    ready: bool = False
    running: bool = False
    """Its container runs: even when not ready, it may be voting."""
    started: bool = False
    """Its container runs, or has run once."""
    terminating: bool = False
    revision: str = ""
    node: str = ""
    ip: str = ""
    restarts: int = 0
    trouble: str = ""
    """Why its container does not run: how it ended, or why it was not started."""
    is_out_of_memory: bool = False
    """That it does not run is for want of memory."""
    unplaced: str = ""
    """Why there is no Kubernetes node for it."""
    created: str = ""
    """When it was made, in Kubernetes' form."""


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """What a broker says of itself."""

    leads: int = 0
    movable: int = 0
    """Of these groups, the ones that another broker could lead."""
    steps_aside: bool = False
    """It is handing its leaderships over."""
    settings: str | None = None
    """Digest of the settings that it took over last; None: it does not say."""
    refused: str = ""
    """Why it did not take over those that are there now."""
    lacking: frozenset[str] | None = None
    """Brokers that some group lacks which it leads, and itself where its own copies are of no use; None: it does not say."""
    leaderless: int = 0
    """Groups that it holds and knows no leader of."""
    leaves_for: str = ""
    """The mark of the resource that says that it leaves; empty: none does."""


@dataclass(frozen=True, slots=True)
class GroupTrouble:
    """A group that is not whole: a stream, or the map of streams."""

    name: str
    brokers: tuple[str, ...] = ()
    """Those that are out of contact or lack what is committed; empty: nobody leads it."""
    members: tuple[str, ...] = ()
    """All brokers that hold it, as far as told."""

    @property
    def is_map(self) -> bool:
        return self.name == MAP_OF_STREAMS

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.brokers)})" if self.brokers else self.name


@dataclass(frozen=True, slots=True)
class Reports:
    """What all brokers that are ready say."""

    brokers: Mapping[str, BrokerReport] = field(default_factory=dict)
    behind: tuple[GroupTrouble, ...] = ()
    leaderless: tuple[GroupTrouble, ...] = ()
    unnamed: int = 0
    """More groups in trouble than were named."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is, from the status."""

    broker: str = ""
    since: datetime | None = None
    waiting_since: datetime | None = None
    """Since when this roll-out has waited for something to be whole."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the spec and the annotations say about restarts."""

    timeout: timedelta
    supervised: bool = False
    approvals: frozenset[str] = frozenset()
    release: tuple[str, frozenset[str]] = ("", frozenset())
    """A revision, and streams that its roll-out does not wait for."""

    def released(self, revision: str) -> frozenset[str]:
        return self.release[1] if self.release[0] == revision else frozenset()

    def approve(self, revision: str, broker: str) -> bool:
        return not self.supervised or bool({revision, f"{revision}/{broker}"} & self.approvals)


@dataclass(frozen=True, slots=True)
class Restart:
    pod: PodView
    left: int = 0
    """Leaderships that it could not hand over."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """The broker is next: its leaderships go to others first, and to those in `avoid` only if there is nobody else."""

    pod: PodView
    leads: int
    avoid: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now, and why."""

    reason: str
    kind: Reason = Reason.ROLLING_OUT
    broker: str = ""
    """Whose turn it is, when it is somebody's."""
    is_short: bool = False
    """It is over in a moment."""
    waits_for: tuple[GroupTrouble, ...] = ()
    """Groups that have to be whole first."""
    brokers: tuple[PodView, ...] = ()
    """Brokers that have to be back first, and that nobody restarts."""
    absent: int = 0
    """Pods that have to be made first."""

    @property
    def is_counted(self) -> bool:
        """Does it last until something is whole again, which may be never?"""
        return bool(self.waits_for or self.brokers or self.absent)


Choice = Restart | HandOver | Wait | None


def next_restart(
    pods: tuple[PodView, ...],
    replicas: int,
    revision: str,
    reports: Reports | None,
    rules: Rules,
    now: datetime,
    turn: Turn | None = None,
    busy: Mapping[str, str] | None = None,
    others: str = "",
) -> Choice:
    """What is to be done next for `revision`, why nothing may be, or None when all pods have it. `revision` is empty while
    nobody can say which one is wanted. `busy`: brokers that have a part in a move, and of which stream; `others`: a Cluster
    that restarts its brokers first."""
    turn = turn or Turn()
    if not revision:
        return Wait("the StatefulSet's controller has yet to take over the last change")
    outdated = [pod for pod in pods if pod.revision != revision and not pod.terminating]
    going = any(pod.terminating for pod in pods)
    # One that goes though it is up to date was evicted, or deleted by a person: nothing is rolled out.
    if not outdated and not any(_is_last_to_go(pod, revision, turn) for pod in pods):
        if all(pod.ready for pod in pods) or not turn.broker:
            return None
        return _why_not_back(pods, revision, turn, rules, now)
    if going or len(pods) < replicas:
        ends = tuple(pod for pod in pods if pod.terminating)
        return Wait("a broker is being restarted", brokers=ends, absent=max(0, replicas - len(pods)))
    # A broker that can't even run holds no quorum up; restarting it is how a bad image is put right. Nor does one that was
    # restarted by this very roll-out and has not been ready since, while all others are.
    stuck = [pod for pod in outdated if not pod.ready and (not pod.running or _is_alone(pod, pods, turn))]
    if stuck:
        return Restart(max(stuck, key=lambda pod: pod.name))
    if any(not pod.ready for pod in pods):
        return _why_not_back(pods, revision, turn, rules, now)
    if reports is None or not {pod.name for pod in pods} <= reports.brokers.keys():
        return Wait("no broker tells the state of the streams")
    unsafe = _why_unsafe(reports, rules.released(revision))
    if unsafe is not None:
        laggard = _laggard(reports, outdated, turn, now)
        if laggard is None:
            return unsafe
        outdated = [laggard]
    moving = busy or {}
    held = {pod.name: moving[pod.name] for pod in outdated if pod.name in moving}
    free = [pod for pod in outdated if pod.name not in held]
    if not free:
        told = ", ".join(f"{stream} ({node})" for node, stream in sorted(held.items())[:NAMED_MAX])
        minutes = MOVE_PATIENCE // timedelta(minutes=1)
        return Wait(f"streams move and are waited for, {minutes} minutes at most: {told}")
    chosen = min(free, key=lambda pod: (reports.brokers[pod.name].leads, pod.name))
    if not rules.approve(revision, chosen.name):
        approved = [pod for pod in free if rules.approve(revision, pod.name)]
        if not approved:
            told = (
                f"spec.rollout.mode is Supervised: the restart of {chosen.name}, of {len(outdated)} that are to be restarted, "
                f"waits for approval. Annotate this Cluster with supercluster.dev/approve-restart={revision} to approve all of "
                f"them, with {revision}/{chosen.name} to approve this one"
            )
            return Wait(told, Reason.AWAITING_RESTART)
        chosen = min(approved, key=lambda pod: (reports.brokers[pod.name].leads, pod.name))
    if others:
        return Wait(f"Cluster {others} restarts its brokers first")
    return _in_turn(chosen, outdated, reports.brokers[chosen.name], turn, now)


def _in_turn(
    chosen: PodView, outdated: list[PodView], report: BrokerReport, turn: Turn, now: datetime
) -> Restart | HandOver | Wait:
    """Hand-over first, within a time limit, then the restart."""
    since = turn.since if turn.broker == chosen.name else None
    if not report.movable:
        return Restart(chosen)
    if report.steps_aside and since is not None:
        if now - since >= HAND_OVER_PATIENCE:
            return Restart(chosen, report.movable)
        left = f"{report.movable} leaderships are on their way to others"
        return Wait(f"{chosen.name} is restarted next; {left}", broker=chosen.name, is_short=True)
    avoid = tuple(sorted(pod.name for pod in outdated if pod.name != chosen.name))
    return HandOver(chosen, report.movable, avoid)


def _laggard(reports: Reports, outdated: list[PodView], turn: Turn, now: datetime) -> PodView | None:
    """The broker that is all that anything lacks, if it is to be restarted itself and has been waited for: no majority counts
    on what it lacks, so its restart costs no more than that of one that is well."""
    if turn.waiting_since is None or now - turn.waiting_since < LAGGARD_PATIENCE:
        return None
    lacking: set[str] = set()
    for report in reports.brokers.values():
        if report.lacking is None:
            return None
        lacking |= report.lacking
    # What it knows no leader of itself is led by somebody else, or others would say so too.
    if len(lacking) != 1 or any(r.leaderless for name, r in reports.brokers.items() if name not in lacking):
        return None
    return next((pod for pod in outdated if pod.name in lacking), None)


def _is_last_to_go(pod: PodView, revision: str, turn: Turn) -> bool:
    return pod.terminating and (pod.revision != revision or pod.name == turn.broker)


def _is_alone(pod: PodView, pods: tuple[PodView, ...], turn: Turn) -> bool:
    return pod.name == turn.broker and all(other.ready for other in pods if other.name != pod.name)


def _why_not_back(pods: tuple[PodView, ...], revision: str, turn: Turn, rules: Rules, now: datetime) -> Wait:
    """Some broker is not ready: does it come up, or does the roll-out end here?"""
    unready = [pod for pod in pods if not pod.ready]
    names = ", ".join(sorted(pod.name for pod in unready))
    restarted = next((pod for pod in unready if pod.name == turn.broker and pod.revision == revision), None)
    if restarted is None or turn.since is None:
        return Wait(f"{names} must be ready first", brokers=tuple(sorted(unready, key=lambda pod: pod.name)))
    waited = now - turn.since
    if not restarted.trouble and waited < rules.timeout:
        return Wait(f"{names} must be ready first", broker=turn.broker)
    why = (
        restarted.trouble
        or restarted.unplaced
        or f"it is not ready {_minutes(rules.timeout)} after its turn began"
    )
    return Wait(
        f"{restarted.name} was restarted and does not come up: {why}; no other broker is restarted. Put the spec right, or "
        f"back: {restarted.name} is then restarted at once",
        Reason.ROLLOUT_STOPPED,
        turn.broker,
    )


def _minutes(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    return f"{seconds // 60} min" if seconds % 60 == 0 else f"{seconds} s"


def _why_unsafe(reports: Reports, released: frozenset[str]) -> Wait | None:
    """Why no broker may be restarted, whichever it is. What a person released is not waited for; the map of streams always is."""
    behind = tuple(group for group in reports.behind if group.name not in released or group.is_map)
    leaderless = tuple(group for group in reports.leaderless if group.name not in released or group.is_map)
    if behind:
        return Wait(f"replicas must catch up first: {named(behind)}", waits_for=(*behind, *leaderless))
    if leaderless:
        return Wait(f"streams without a leader: {named(leaderless)}", waits_for=leaderless)
    if reports.unnamed:
        return Wait(f"{reports.unnamed} more streams are not whole")
    return None


def named(groups: tuple[GroupTrouble, ...]) -> str:
    """Some of them, by name."""
    return "; ".join(sorted(map(str, groups))[:NAMED_MAX])


def why_not_drainable(
    cluster_pods: tuple[PodView, ...], replicas: int, reports: Reports | None, choice: Choice
) -> tuple[Reason, str] | None:
    """Why none of a cluster's brokers may be evicted now; None when one may. A budget of Kubernetes counts pods that are
    ready, and a broker is ready before its replicas have caught up."""
    if isinstance(choice, Restart | HandOver):
        return Reason.ROLLING_OUT, f"{choice.pod.name} is being restarted"
    if choice is not None and choice.kind is not Reason.AWAITING_RESTART:
        return Reason.ROLLING_OUT, choice.reason
    away = [pod.name for pod in cluster_pods if not pod.ready or pod.terminating]
    if away or len(cluster_pods) < replicas:
        names = ", ".join(sorted(away)) or f"{replicas - len(cluster_pods)} of {replicas} brokers"
        return Reason.BROKERS_STARTING, f"not ready: {names}"
    if reports is None or not {pod.name for pod in cluster_pods} <= reports.brokers.keys():
        return Reason.BROKERS_UNREACHABLE, "no broker tells the state of the streams"
    own = {pod.name for pod in cluster_pods}
    short = tuple(
        group
        for group in (*reports.behind, *reports.leaderless)
        if not group.members or own & {*group.members, *group.brokers}
    )
    if short or reports.unnamed:
        return Reason.REPLICAS_CATCHING_UP, f"not whole: {named(short)}"
    return None
