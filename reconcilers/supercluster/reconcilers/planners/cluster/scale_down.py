"""Scales a Cluster down: the brokers with the highest ordinals are drained, then removed.

1. The planner looks for a place for every copy that they hold. If one has none, nothing begins, and the
   condition gives the reason for each stream.
2. The names of the brokers are written into the Cluster's status.
3. The brokers' map records that they leave, and for which Cluster (`LeaveBrokers`): from then on they get no
   copies, and hand their votes over.
4. The SuperCluster's worker moves their copies off (`drain_moves.py`).
5. The StatefulSet is scaled down, from the highest ordinal, as far as brokers hold neither copy nor vote.
6. When the map has forgotten them, they leave the status.

Raising the count cancels the departure of brokers that are to stay. So does creating a Cluster again whose
predecessor was deleted: its brokers may return before the map has forgotten them. A departure that neither the
map nor the status ascribes to this Cluster was ordered by a person, and is not cancelled. Every step follows
from the observed state, so a killed operator continues where it was (OP-4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from supercluster.api import Cluster
from supercluster.api.cluster import DrainingBroker, DrainStatus
from supercluster.api.conditions import EventReason
from supercluster.api.super_cluster import LeavingStatus
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.departure import PartingBroker
from supercluster.reconcilers.planners.cluster.restart_order import Reports
from supercluster.reconcilers.planners.plan import LeaveBrokers, Note, StayBrokers, Step
from supercluster.reconcilers.planners.replica.drains import Obstacle
from supercluster.reconcilers.planners.status import timestamp

DRAIN_RECHECK_MS = 1_000
RECORDED_RECHECK_MS = 1
MESSAGE_CHARACTERS_MAX = 3_500


@dataclass(frozen=True, slots=True)
class GoingView:
    """What the brokers say of those that are to go."""

    known: Mapping[str, PartingBroker]
    """By name; the map knows no others."""
    impossible: tuple[Obstacle, ...] | None = None
    """Streams that would not fit on what is left; None: nobody asked, or nobody can say."""
    strangers: int = 0
    """Copies there of streams that the operator can't see, since they are in other accounts."""


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """What comes of a count that was lowered, or was and is not any more."""

    replicas: int
    """Brokers that are to run now."""
    step: Step | None = None
    status: DrainStatus | None = None
    doing: str = ""
    """What it waits for; empty: nothing."""
    refused: str = ""
    """Why nothing is begun."""
    is_to_be_recorded: bool = False
    """The status comes before anything else."""

    @property
    def recheck_after_ms(self) -> int | None:
        if self.is_to_be_recorded:
            return RECORDED_RECHECK_MS
        return DRAIN_RECHECK_MS if self.status is not None or self.doing else None


def brokers_there(desired: Cluster, running: int) -> int:
    """How many the StatefulSet was told to run; its own word counts, and ours where somebody deleted it."""
    return max(desired.status.replicas, running)


def victims(desired: Cluster, there: int) -> tuple[str, ...]:
    """Brokers that are too many."""
    return naming.brokers(desired.metadata.name, there)[desired.spec.replicas :]


def names_to_ask(desired: Cluster, there: int, reports: Reports | None) -> tuple[str, ...]:
    """Brokers that the map has to be asked about; none while nothing is to be done about any."""
    told = reports.brokers if reports is not None else {}
    marked = (name for name, report in told.items() if report.leaves_for == naming.mark(desired))
    return tuple(sorted({*recorded(desired), *victims(desired, there), *marked}))


def recorded(desired: Cluster) -> tuple[str, ...]:
    drain = desired.status.drain
    return tuple(broker.name for broker in drain.brokers) if drain is not None else ()


def new_victims(desired: Cluster, there: int) -> tuple[str, ...]:
    """Those that nothing was said of yet."""
    told = recorded(desired)
    return tuple(name for name in victims(desired, there) if name not in told)


def plan_scale_down(
    desired: Cluster, there: int, view: GoingView | None, leaving: LeavingStatus | None, now: datetime
) -> ScaleDown:
    """`there`: how many brokers run. `view` is None while no broker says. `leaving`: what the SuperCluster says of them."""
    wanted, before = desired.spec.replicas, desired.status.drain
    going = victims(desired, there)
    if view is None:
        waits = (
            f"spec.replicas is {wanted}, and no broker says what the last of {there} hold" if going else ""
        )
        return ScaleDown(max(wanted, there), status=before, doing=waits)
    mark = naming.mark(desired)
    told = {*recorded(desired), *(name for name, each in view.known.items() if each.leaves_for == mark)}
    new = new_victims(desired, there)
    refused = _refusal(desired, there, new, view) if new else ""
    if new and not refused and view.impossible is None:
        return ScaleDown(there, status=before, doing="no broker says whether its streams fit on fewer")
    begun = (told & set(going)) | (set() if refused else set(new))
    # Names that the StatefulSet has no pod for any more stay until the map has forgotten them: they might come back.
    parted = {
        name for name in told - set(going) if (found := view.known.get(name)) is not None and found.leaves
    }
    status = _status(begun | parted, view, before.since if before is not None else timestamp(now))
    if begun - told:
        return ScaleDown(there, status=status, doing=_doing(begun, view, leaving), is_to_be_recorded=True)
    back = tuple(name for name in sorted(parted) if name in naming.brokers(desired.metadata.name, wanted))
    if back:
        note = Note.done(
            EventReason.DRAIN_CANCELLED, f"spec.replicas is {wanted}: {', '.join(back)} stays after all"
        )
        return ScaleDown(
            max(wanted, there), StayBrokers(back, note=note), status, f"next: keep {', '.join(back)}"
        )
    silent = tuple(name for name in sorted(begun) if name in view.known and not view.known[name].leaves)
    if silent:
        note = Note.done(
            EventReason.DRAIN_STARTED,
            f"spec.replicas is {wanted}: draining {', '.join(silent)}; next their copies and votes are handed over",
        )
        return ScaleDown(
            there, LeaveBrokers(silent, note=note), status, f"next: tell that {', '.join(silent)} go", refused
        )
    replicas = _as_few(desired, there, begun, view)
    left = begun & set(naming.brokers(desired.metadata.name, replicas))
    doing = _doing(left, view, leaving) if left else ""
    return ScaleDown(max(wanted, replicas), status=status, doing=doing, refused=refused)


def _as_few(desired: Cluster, there: int, begun: set[str], view: GoingView) -> int:
    """From the highest number down, as far as brokers hold nothing: Kubernetes takes them in that order."""
    count = there
    while count > desired.spec.replicas:
        name = naming.broker(desired.metadata.name, count - 1)
        found = view.known.get(name)
        is_empty = found is None or (found.leaves and not found.votes and not found.copies)
        if name not in begun or not is_empty:
            break
        count -= 1
    return count


def _status(names: set[str], view: GoingView, since: str) -> DrainStatus | None:
    if not names:
        return None
    found = (view.known.get(name, PartingBroker(name)) for name in sorted(names, key=_by_number))
    return DrainStatus(
        since=since,
        brokers=tuple(DrainingBroker(name=each.name, copies=each.copies, votes=each.votes) for each in found),
    )


def _by_number(name: str) -> tuple[int, str]:
    return (len(name), name)


def _refusal(desired: Cluster, there: int, new: Sequence[str], view: GoingView) -> str:
    """Why brokers are not told to go; empty: nothing speaks against it."""
    wanted = desired.spec.replicas
    found = [f"stream {each.stream}: {each.reason}" for each in view.impossible or ()]
    if view.strangers:
        found.append(
            f"{view.strangers} copies belong to streams of other accounts, which the operator does not move: move them off "
            "with /admin/streams/<account>/<stream>/move (docs/admin.md); or they halted, and wait for a person "
            "(docs/adr/faults-of-groups.md)"
        )
    if not found:
        return ""
    head = f"spec.replicas is {wanted}, and {', '.join(new)} can't go; set it back to {there}, or: "
    return _cut(head, found)


def _cut(head: str, parts: Sequence[str]) -> str:
    """As many parts as a condition has room for, and how many more there are."""
    text = head
    for number, part in enumerate(parts):
        if len(text) + len(part) > MESSAGE_CHARACTERS_MAX:
            return f"{text}; and {len(parts) - number} more"
        text += part if number == 0 else f"; {part}"
    return text


def _doing(names: set[str], view: GoingView, leaving: LeavingStatus | None) -> str:
    """What is left to be handed over, and what holds it up."""
    parts = []
    for name in sorted(names, key=_by_number):
        found = view.known.get(name, PartingBroker(name))
        vote = " and a vote in the map of streams" if found.votes else ""
        parts.append(f"{name} has {found.copies} cop{'y' if found.copies == 1 else 'ies'}{vote}")
    text = f"brokers go: {', '.join(parts)}"
    waiting = (
        [f"stream {each.stream}: {each.reason}" for each in leaving.waiting] if leaving is not None else []
    )
    return _cut(f"{text}; waiting: ", waiting) if waiting else text
