"""Which broker may be restarted next, so that no stream loses its majority and leaders change as seldom as can be."""

from __future__ import annotations

from dataclasses import dataclass


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
    pods: tuple[PodView, ...], replicas: int, revision: str, groups: tuple[GroupView, ...] | None
) -> Restart | Wait | None:
    """The next pod to restart for `revision`, why none may be, or None when all have it."""
    outdated = [pod for pod in pods if pod.revision != revision and not pod.terminating]
    if not revision or not outdated:
        return None
    if any(pod.terminating for pod in pods) or len(pods) < replicas:
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
    led = {pod.name: sum(group.leader == pod.name for group in groups) for pod in outdated}
    return Restart(min(outdated, key=lambda pod: (led[pod.name], pod.name)))
