"""Objects of Kubernetes and answers of brokers, in the form for the planners. All input is treated as
untrusted.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from supercluster.api.stream import ReplicaStatus
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.certificates import MarksView
from supercluster.reconcilers.planners.cluster.departure import PartingBroker
from supercluster.reconcilers.planners.cluster.restart_order import PodView
from supercluster.reconcilers.planners.cluster.volumes import ClaimView
from supercluster.reconcilers.planners.map_majority import MapView
from supercluster.reconcilers.planners.move.views import BrokersMove
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    IDENTITY_ANNOTATION,
    LABEL_SUPER_CLUSTER,
)
from supercluster.reconcilers.planners.replica.repair_moves import LivingStream
from supercluster.reconcilers.planners.stream.config import mark_of
from supercluster.reconcilers.planners.stream.stream import StreamInfo
from supercluster.reconcilers.planners.super_cluster.accounts import AccountView
from supercluster.reconcilers.planners.super_cluster.credentials import CredentialsView
from supercluster.reconcilers.ports import mapping

TROUBLE_CHARACTERS_MAX = 400
OOM_KILLED = "OOMKilled"
# How Kubernetes says that a volume could not be made larger.
RESIZE_FAILURES = frozenset({"ControllerResizeError", "NodeResizeError"})
# The account that declared streams live in.
DEFAULT_ACCOUNT = "$G"
CREDENTIAL_FILES = ("users.json", "cluster.json", "gateway.json", naming.MIGRATION_FILE)


def pod_view(pod: Mapping[str, Any]) -> PodView:
    metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    containers = [mapping(entry) for entry in status.get("containerStatuses") or ()]
    return PodView(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        ready=any(
            mapping(c).get("type") == "Ready" and mapping(c).get("status") == "True"
            for c in status.get("conditions") or ()
        ),
        running=any("running" in mapping(entry.get("state")) for entry in containers),
        started=any(map(_has_started, containers)),
        terminating=metadata.get("deletionTimestamp") is not None,
        revision=str(mapping(metadata.get("labels")).get("controller-revision-hash", "")),
        node=str(mapping(pod.get("spec")).get("nodeName", "")),
        ip=str(status.get("podIP", "")),
        restarts=sum(int(entry.get("restartCount", 0)) for entry in containers),
        trouble=next(filter(None, map(_trouble, containers)), ""),
        is_out_of_memory=any(_last_end(entry).get("reason") == OOM_KILLED for entry in containers),
        unplaced=_unplaced(status.get("conditions") or ()),
        created=str(metadata.get("creationTimestamp", "")),
    )


def _has_started(container: Mapping[str, Any]) -> bool:
    state = mapping(container.get("state"))
    has_run = "running" in state or "terminated" in state or bool(mapping(container.get("lastState")))
    return has_run or bool(container.get("restartCount"))


def _unplaced(conditions: Iterable[Any]) -> str:
    """Why a pod has no node; empty when it has one, or nobody has looked yet."""
    for entry in map(mapping, conditions):
        if (entry.get("type"), entry.get("status")) == ("PodScheduled", "False"):
            return str(entry.get("message") or entry.get("reason") or "")[:TROUBLE_CHARACTERS_MAX]
    return ""


def _trouble(container: Mapping[str, Any]) -> str:
    """Why a container does not run; empty when it runs, or was only just made."""
    if container.get("ready"):
        return ""
    ended = _last_end(container)
    if ended:
        lines = str(ended.get("message") or "").strip().splitlines()
        said = f": {lines[-1][:TROUBLE_CHARACTERS_MAX]}" if lines else ""
        killed = f" ({OOM_KILLED})" if ended.get("reason") == OOM_KILLED else ""
        return f"ended with exit code {ended['exitCode']}{killed}{said}"
    state = mapping(container.get("state"))
    waiting = mapping(state.get("waiting"))
    if waiting.get("reason") in (None, "ContainerCreating", "PodInitializing"):
        return ""
    return f"{waiting['reason']}: {str(waiting.get('message') or '')[:TROUBLE_CHARACTERS_MAX]}".rstrip(": ")


def _last_end(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """How a container that is not ready ended, with an exit code that is not 0; empty: it did not."""
    if container.get("ready"):
        return {}
    ends = (mapping(mapping(container.get(state)).get("terminated")) for state in ("state", "lastState"))
    return next((ended for ended in ends if ended.get("exitCode")), {})


def claim_view(claim: Mapping[str, Any]) -> ClaimView:
    metadata, spec, status = (mapping(claim.get(part)) for part in ("metadata", "spec", "status"))
    failures = [
        mapping(entry)
        for entry in status.get("conditions") or ()
        if mapping(entry).get("type") in RESIZE_FAILURES and mapping(entry).get("status") == "True"
    ]
    return ClaimView(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        terminating=metadata.get("deletionTimestamp") is not None,
        is_lost=status.get("phase") == "Lost",
        requested=str(mapping(mapping(spec.get("resources")).get("requests")).get("storage", "")),
        class_name=str(spec.get("storageClassName") or ""),
        trouble=str(failures[0].get("message") or failures[0]["type"]) if failures else "",
        super_cluster=str(mapping(metadata.get("labels")).get(LABEL_SUPER_CLUSTER, "")),
        identity=str(mapping(metadata.get("annotations")).get(IDENTITY_ANNOTATION, "")),
    )


def secret_json(secret: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """One JSON file of a Secret; empty when it is missing or not JSON."""
    try:
        return mapping(json.loads(b64decode(str(mapping(secret.get("data"))[key]))))
    except (KeyError, ValueError):
        return {}


def credentials_view(secret: Mapping[str, Any] | None) -> CredentialsView | None:
    if secret is None:
        return None
    broken = [file for file in CREDENTIAL_FILES if _is_broken(secret, file)]
    users = [mapping(user) for user in _list(secret_json(secret, "users.json").get("users"))]
    named = [
        user
        for user in users
        if user.get("user") and user.get("password") and user.get("account") in (None, "", DEFAULT_ACCOUNT)
    ]
    # Of several entries of one user the first is in use; a client that is called like the operator is not the operator.
    named.sort(key=lambda user: user.get("role") == "operator", reverse=True)
    return CredentialsView(
        passwords={str(user["user"]): str(user["password"]) for user in reversed(named)},
        operator_users=frozenset(str(user["user"]) for user in named if user.get("role") == "operator"),
        has_route=_has_link(secret_json(secret, "cluster.json")),
        has_gateway=_has_link(secret_json(secret, "gateway.json")),
        has_migration=_has_link(secret_json(secret, naming.MIGRATION_FILE)),
        has_migration_authorities=naming.MIGRATION_AUTHORITIES in mapping(secret.get("data")),
        broken=f"{', '.join(broken)} can't be read as a JSON object" if broken else "",
        marks=marks_view(secret),
    )


def marks_view(secret: Mapping[str, Any]) -> MarksView:
    metadata = mapping(secret.get("metadata"))
    return MarksView(
        labels={str(k): str(v) for k, v in mapping(metadata.get("labels")).items()},
        identity=str(mapping(metadata.get("annotations")).get(IDENTITY_ANNOTATION, "")),
        cluster=str(mapping(metadata.get("annotations")).get(CLUSTER_ANNOTATION, "")),
        owners=frozenset(str(mapping(each).get("uid")) for each in metadata.get("ownerReferences") or ()),
        uid=str(metadata.get("uid", "")),
        terminating=metadata.get("deletionTimestamp") is not None,
    )


def _is_broken(secret: Mapping[str, Any], file: str) -> bool:
    """It is there and is no JSON object, or its lists are none: a person has made a mistake that is not to be overwritten."""
    if file not in mapping(secret.get("data")):
        return False
    try:
        content = json.loads(b64decode(str(mapping(secret["data"])[file])))
    except ValueError:
        return True
    if not isinstance(content, dict):
        return True
    return any(not isinstance(content.get(key, []), list) for key in ("users", "accept"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _has_link(link: Mapping[str, Any]) -> bool:
    """Would a broker that sends these credentials be let in by one that has them too?"""
    send = mapping(link.get("send"))
    return bool(send.get("password")) and dict(send) in [dict(mapping(a)) for a in _list(link.get("accept"))]


def stream_info(answer: Mapping[str, Any]) -> StreamInfo:
    """A stream from STREAM.INFO's answer. The leader is not among its own `replicas` there; it is added."""
    cluster, state = mapping(answer.get("cluster")), mapping(answer.get("state"))
    leader = str(cluster.get("leader") or "")
    replicas = list(_followers(cluster.get("replicas") or ()))
    if leader:
        replicas = [entry for entry in replicas if entry.name != leader]
        replicas.append(ReplicaStatus(name=leader, leader=True, current=True))
    return StreamInfo(
        config=mapping(answer.get("config")),
        leader=leader,
        replicas=tuple(replicas),
        messages=int(state.get("messages", 0)),
        bytes=int(state.get("bytes", 0)),
        first_sequence=int(state.get("first_seq", 0)),
        last_sequence=int(state.get("last_seq", 0)),
        consumers=int(state.get("consumer_count", 0)),
        is_moving=bool(answer.get("move")),
    )


def _followers(entries: Iterable[Any]) -> Iterable[ReplicaStatus]:
    for entry in map(mapping, entries):
        if entry.get("observer"):
            # A learner of a move that is under way: no member, and nothing that the stream is not ready without.
            continue
        offline = bool(entry.get("offline", False))
        unusable = bool(entry.get("unusable", False))
        yield ReplicaStatus(
            name=str(entry.get("name", "")),
            current=bool(entry.get("current", False)) and not (offline or unusable),
            offline=offline,
            unusable=unusable,
            lag=int(entry.get("lag", 0)),
        )


def account_view(answer: Mapping[str, Any]) -> AccountView:
    """One entry of GET /admin/accounts."""
    use = mapping(answer.get("use"))
    return AccountView(
        name=str(answer.get("account", "")),
        is_declared=bool(answer.get("declared")),
        declared_by=str(answer.get("declaredBy") or ""),
        limits={str(name): int(value) for name, value in mapping(answer.get("limits")).items()},
        streams=int(use.get("streams", 0)),
        storage_bytes=int(use.get("storageBytes", 0)),
        memory_bytes=int(use.get("memoryBytes", 0)),
        streams_without_max_bytes=int(use.get("streamsWithoutMaxBytes", 0)),
    )


def brokers_move(answer: Mapping[str, Any]) -> BrokersMove:
    """One entry of GET /admin/moves. Streams of another account than the operator's are told with it."""
    name, account = str(answer.get("name", "")), str(answer.get("account", DEFAULT_ACCOUNT))
    halves = (tuple(map(str, answer.get(half) or ())) for half in ("origin", "targets"))
    return BrokersMove(
        id=str(answer.get("id", "")),
        stream=name if account == DEFAULT_ACCOUNT else f"{name} of account {account}",
        nodes=frozenset(map(str, answer.get("nodes") or ())),
        started=datetime.fromtimestamp(int(answer.get("startedNs", 0)) / 1_000_000_000, UTC),
        halves=tuple(halves) if account == DEFAULT_ACCOUNT else (),
    )


def living_stream(answer: Mapping[str, Any]) -> LivingStream:
    """An entry of STREAM.LIST, or STREAM.INFO, as repair is planned from it."""
    info = stream_info(answer)
    placement = mapping(info.config.get("placement"))
    return LivingStream(
        name=str(info.config.get("name", "")),
        members=tuple(sorted(info.members)),
        leader=info.leader,
        replicas=info.replicas_configured,
        declared_by=mark_of(info.config) or "",
        tags=tuple(map(str, placement.get("tags") or ())),
        bytes=max(info.bytes, int(answer.get("copy_bytes") or 0)),
        is_moving=info.is_moving,
        in_memory=info.config.get("storage") == "memory",
    )


def members_of(cluster: str, told: Mapping[str, Any] | None) -> tuple[PartingBroker, ...] | None:
    """The brokers of a cluster that the map of streams has, those without a pod too. `told`: what a broker says of all brokers. None: it
    says nothing, or is out of contact with the map's leader."""
    if told is None or not told.get("mapIsFresh", False):
        return None
    entries = (mapping(entry) for entry in told.get("brokers") or ())
    return tuple(
        PartingBroker(str(entry.get("node")), bool(entry.get("leaves")), votes=bool(entry.get("votes")))
        for entry in entries
        if naming.cluster_of(str(entry.get("node"))) == cluster
    )


def map_view(told: Mapping[str, Any] | None) -> MapView:
    """`told`: what a broker says of all brokers, one whose map is fresh if there is any. An older broker does not say for how long
    its map is not."""
    if told is None or told.get("mapIsFresh", False):
        return MapView()
    entries = (mapping(entry) for entry in told.get("brokers") or ())
    away = (str(entry.get("node")) for entry in entries if entry.get("votes") and not entry.get("inContact"))
    return MapView(int(told.get("mapUnreadMs") or 0), tuple(sorted(away)))
