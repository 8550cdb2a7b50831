"""Which broker may be restarted next, so that no stream loses its majority and leaders change as seldom as can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

# A restart waits for moves that its broker has a part in, so that they need not begin their copies anew. A move survives a
# restart, and one that takes longer than this is no reason to put off what the restart is for.
MOVE_PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class PodView:
    """A broker's pod."""

    name: str
    uid: str
    ready: bool = False
    running: bool = False
    """Its container runs: even when not ready, it may be voting."""
    terminating: bool = False
    revision: str = ""
    node: str = ""
    ip: str = ""
    restarts: int = 0
    trouble: str = ""
    """Why its container does not run: how it ended, or why it was not started."""
    created: str = ""
    """When it was made, in Kubernetes' form."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A stream's replicas, as its leader tells."""

    stream: str
    leader: str
    behind: tuple[str, ...] = ()
    """Replicas that are offline or lack committed entries."""
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Restart:
    pod: PodView


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now, and why."""

    reason: str


def next_restart(
    pods: tuple[PodView, ...],
    replicas: int,
    revision: str,
    groups: tuple[GroupView, ...] | None,
    busy: Mapping[str, str] | None = None,
) -> Restart | Wait | None:
    """The next pod to restart for `revision`, why none may be, or None when all have it. `revision` is empty while nobody
    can say which one is wanted. `busy`: brokers that have a part in a move, and of which stream."""
    if not revision:
        return Wait("the StatefulSet's controller has yet to take over the last change")
    outdated = [pod for pod in pods if pod.revision != revision and not pod.terminating]
    going = any(pod.terminating for pod in pods)
    if not outdated and not going:
        return None
    if going or len(pods) < replicas:
        return Wait("a broker is being restarted")
    # A broker that can't even run holds no quorum up; restarting it is how a bad image is put right.
    stuck = [pod for pod in outdated if not pod.ready and not pod.running]
    if stuck:
        return Restart(max(stuck, key=lambda pod: pod.name))
    unready = [pod.name for pod in pods if not pod.ready]
    if unready:
        return Wait(f"{', '.join(sorted(unready))} must be ready first")
    if groups is None:
        return Wait("no broker tells the state of the streams")
    behind = [f"{group.stream} ({', '.join(group.behind)})" for group in groups if group.behind]
    if behind:
        return Wait(f"replicas must catch up first: {'; '.join(sorted(behind)[:5])}")
    leaderless = sorted(group.stream for group in groups if not group.leader)
    if leaderless:
        return Wait(f"streams without a leader: {', '.join(leaderless[:5])}")
    moving = busy or {}
    held = {pod.name: moving[pod.name] for pod in outdated if pod.name in moving}
    outdated = [pod for pod in outdated if pod.name not in held]
    if not outdated:
        told = ", ".join(f"{stream} ({node})" for node, stream in sorted(held.items())[:5])
        minutes = MOVE_PATIENCE // timedelta(minutes=1)
        return Wait(f"streams move and are waited for, {minutes} minutes at most: {told}")
    led = {pod.name: sum(group.leader == pod.name for group in groups) for pod in outdated}
    return Restart(min(outdated, key=lambda pod: (led[pod.name], pod.name)))
