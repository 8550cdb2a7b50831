"""The status of a pod as a pure function of its containers' states."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from supercluster.localplane.client import Json
from supercluster.localplane.controllers.base import condition, is_terminating
from supercluster.localplane.times import stamp

OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    started_at: str


@dataclass(frozen=True, slots=True)
class Terminated:
    exit_code: int
    reason: str
    started_at: str
    finished_at: str
    signal: int = 0
    message: str = ""
    container_id: str = ""


State = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container, as far as the status shows it."""

    name: str
    image: str
    state: State
    last: Terminated | None
    restarts: int
    is_ready: bool
    is_started: bool
    container_id: str
    is_init: bool = False
    is_sidecar: bool = False


def state_json(state: State | None) -> Json:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        case Running(started_at):
            return {"running": {"startedAt": started_at}}
        case Terminated() as over:
            told: Json = {
                "exitCode": over.exit_code,
                "reason": over.reason,
                "startedAt": over.started_at,
                "finishedAt": over.finished_at,
            }
            for name, value in (
                ("signal", over.signal),
                ("message", over.message),
                ("containerID", over.container_id),
            ):
                if value:
                    told[name] = value
            return {"terminated": told}
    return {}


def state_of(told: Json | None) -> State | None:
    """The state that a status holds; the reverse of `state_json`."""
    told = told or {}
    if "terminated" in told:
        over = told["terminated"]
        return Terminated(
            exit_code=int(over.get("exitCode", 0)),
            reason=over.get("reason", ""),
            started_at=over.get("startedAt") or "",
            finished_at=over.get("finishedAt") or "",
            signal=int(over.get("signal") or 0),
            message=over.get("message", ""),
            container_id=over.get("containerID", ""),
        )
    if "running" in told:
        return Running(told["running"].get("startedAt") or "")
    if "waiting" in told:
        return Waiting(told["waiting"].get("reason", ""), told["waiting"].get("message", ""))
    return None


def container_json(view: ContainerView) -> Json:
    return {
        "name": view.name,
        "image": view.image,
        "imageID": f"localplane://{view.image}",
        "containerID": view.container_id,
        "ready": view.is_ready,
        "started": view.is_started,
        "restartCount": view.restarts,
        "state": state_json(view.state),
        "lastState": state_json(view.last),
    }


def phase(
    policy: str, inits: Sequence[ContainerView], mains: Sequence[ContainerView], is_initialized: bool
) -> str:
    """Pending, Running, Succeeded or Failed."""
    if not is_initialized:
        is_lost = any(
            isinstance(view.state, Terminated) and view.state.exit_code and policy == "Never"
            for view in inits
        )
        return "Failed" if is_lost else "Pending"
    if not mains:
        return "Pending"
    if all(isinstance(view.state, Terminated) for view in mains) and policy != "Always":
        codes = [view.state.exit_code for view in mains if isinstance(view.state, Terminated)]
        if not any(codes):
            return "Succeeded"
        if policy == "Never":
            return "Failed"
    has_run = any(not isinstance(view.state, Waiting) or view.last is not None for view in mains)
    return "Running" if has_run else "Pending"


def _conditions(pod: Json, wanted: dict[str, tuple[bool, str, str]], now: dt.datetime) -> list[Json]:
    """The pod's conditions with ours brought up to date; transition times change only with the status."""
    kept = [
        found
        for found in (pod.get("status") or {}).get("conditions") or ()
        if found["type"] not in OWN_CONDITIONS
    ]
    result = []
    for kind, (is_on, reason, message) in wanted.items():
        held = condition(pod, kind)
        told: Json = {"type": kind, "status": "True" if is_on else "False"}
        if reason:
            told["reason"] = reason
        if message:
            told["message"] = message
        is_same = held is not None and held["status"] == told["status"]
        moment = held.get("lastTransitionTime") if held is not None and is_same else None
        told["lastTransitionTime"] = moment or stamp(now)
        result.append(told)
    return result + kept


def build(
    pod: Json,
    views: Sequence[ContainerView],
    *,
    is_initialized: bool,
    address: str,
    host_address: str,
    started_at: str,
    now: dt.datetime,
) -> Json:
    """The whole status, as far as a node agent writes it."""
    inits = [view for view in views if view.is_init]
    mains = [view for view in views if not view.is_init]
    policy = pod["spec"].get("restartPolicy", "Always")
    is_over = phase(policy, inits, mains, is_initialized) in ("Succeeded", "Failed")
    unready = [view.name for view in mains if not view.is_ready]
    unready += [view.name for view in inits if view.is_sidecar and not view.is_ready and not is_over]
    are_ready = is_initialized and not unready and not is_terminating(pod)
    why, told = "", ""
    if not are_ready:
        why = "PodCompleted" if is_over else "ContainersNotReady"
        told = "" if is_over else f"containers with unready status: [{' '.join(unready)}]"
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    closed = [gate for gate in gates if (condition(pod, gate) or {}).get("status") != "True"]
    is_ready = are_ready and not closed
    if are_ready and closed:
        why, told = "ReadinessGatesNotReady", f"readiness gates not true: [{' '.join(closed)}]"
    conditions = {
        "PodReadyToStartContainers": (bool(address), "", ""),
        "Initialized": (is_initialized, "" if is_initialized else "ContainersNotInitialized", ""),
        "Ready": (is_ready, why, told),
        "ContainersReady": (are_ready, "" if are_ready else why, "" if are_ready else told),
        "PodScheduled": (True, "", ""),
    }
    status: Json = {
        "phase": phase(policy, inits, mains, is_initialized),
        "conditions": _conditions(pod, conditions, now),
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "startTime": started_at,
        "containerStatuses": [container_json(view) for view in mains],
    }
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    if inits:
        status["initContainerStatuses"] = [container_json(view) for view in inits]
    return status
