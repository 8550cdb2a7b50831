"""`supercluster status`: super-clusters, clusters and streams with their conditions, as a table or as JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from supercluster.api import API_VERSION
from supercluster.api.conditions import Reason
from supercluster.api.crd import KINDS
from supercluster.app import lease, namespace_leases
from supercluster.app.commands.errors import NotReadyError
from supercluster.app.commands.tables import columns
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.planners.status import NEGATIVE
from supercluster.reconcilers.ports import Json, KubeError, mapping

NOTE_CHARACTERS_MAX = 100
POLL_S = 0.1
# Of a Lease's duration without a renewal: clocks may differ.
LATE_SHARE = 2


@dataclass(frozen=True, slots=True)
class Row:
    kind: str
    namespace: str
    name: str
    ready: str
    what: str
    note: str


async def fetch(kube: KubeClient, namespace: str | None) -> dict[str, list[Json]]:
    """All resources of ours, by kind; namespace None is all of them."""
    found = {}
    for kind in KINDS:
        answer = await kube.list(API_VERSION, kind.name, namespace)
        items = list(answer.get("items") or ())
        for item in items:
            item["metadata"].pop("managedFields", None)
        found[kind.name] = items
    return found


async def away(kube: KubeClient, namespaces: Iterable[str]) -> list[str]:
    """A sentence for each namespace whose operator has released its Lease, or has not renewed it for long."""
    found = []
    for namespace in sorted(set(namespaces)):
        try:
            body = await kube.get(lease.API_VERSION, "Lease", namespace, namespace_leases.NAME)
        except KubeError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            continue
        spec = mapping((body or {}).get("spec"))
        renewed = str(spec.get("renewTime") or "")
        if not renewed:
            continue  # Nobody serves it yet, or without a Lease.
        late = timedelta(seconds=LATE_SHARE * float(spec.get("leaseDurationSeconds") or 0))
        if not spec.get("holderIdentity") or datetime.now(UTC) - datetime.fromisoformat(renewed) > late:
            found.append(
                f"the operator of namespace {namespace} is away since {renewed}: states may be outdated"
            )
    return found


async def wait_until_ready(
    kube: KubeClient, namespaces: Iterable[str | None], timeout_s: float, names: Container[str] | None = None
) -> None:
    """Wait for the resources of these namespaces, or for those of them that have these names, each with its kind.

    Raises:
        NotReadyError: some were not ready in time.
        KubeError: the API server refused.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = [each for where in namespaces for each in (await fetch(kube, where)).items()]
        unready = [
            f"{kind} {body['metadata']['name']}"
            for kind, bodies in found
            for body in bodies
            if not is_ready(body)
        ]
        left = [each for each in unready if names is None or each in names]
        if not left:
            return
        if time.monotonic() > deadline:
            raise NotReadyError(f"not ready after {timeout_s:g} s: {', '.join(left)}")
        await asyncio.sleep(POLL_S)


def condition(body: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    for entry in mapping(body.get("status")).get("conditions") or ():
        if mapping(entry).get("type") == type_:
            return mapping(entry)
    return {}


def is_ready(body: Mapping[str, Any]) -> bool:
    """Ready and whole, and about the spec as it is now. Moves and migrations are something that happens: they are never waited for here."""
    if body.get("kind") in ("StreamMove", "Migration"):
        return True
    return is_up_to_date(body) and all(
        condition(body, type_).get("status") == "True" for type_ in ("Ready", "Whole")
    )


def is_up_to_date(body: Mapping[str, Any]) -> bool:
    """Has the operator seen the spec as it is now? What the status says is of an older one otherwise."""
    observed = mapping(body.get("status")).get("observedGeneration", 0)
    return bool(observed >= mapping(body.get("metadata")).get("generation", 0))


def row(kind: str, body: Mapping[str, Any]) -> Row:
    metadata, spec, status = (mapping(body.get(part)) for part in ("metadata", "spec", "status"))
    settled = "Complete" if kind == "StreamMove" else "Ready"
    return Row(
        kind,
        str(metadata.get("namespace", "")),
        str(metadata.get("name", "")),
        str(condition(body, settled).get("status", "Unknown")) if is_up_to_date(body) else "Unknown",
        _STATES[kind](spec, status) if kind in _STATES else "",
        _note(body),
    )


def _super_cluster(_: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    members, streams = len(status.get("members") or ()), int(status.get("streams", 0))
    return f"{_counted(members, 'cluster')}, {_counted(streams, 'stream')}"


def _cluster(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    return f"{status.get('readyReplicas', 0)}/{spec.get('replicas')} brokers, {status.get('url') or '-'}"


def _stream(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    replicas = f"{status.get('readyReplicas', 0)}/{spec.get('replicas')} replicas"
    return f"{replicas}, leader {status.get('leader') or '-'}, {status.get('messages', 0)} messages"


def _stream_move(_: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    way = f"{status.get('streamName') or '-'} to {status.get('destination') or '-'}"
    copied = f", {status['percent']} copied" if status.get("percent") else ""
    return f"{way}, {status.get('phase') or 'Pending'}{copied}"


def _replica_policy(_: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    selected = f"selects {_counted(int(status.get('selected', 0)), 'stream')}"
    below = f"{status.get('belowMinimum', 0)} below minimum"
    return f"{selected}, in force for {status.get('inForce', 0)}, {below}, {status.get('repairing', 0)} repairing"


def _migration(_: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    on_green, streams = int(status.get("onGreen", 0)), int(status.get("streams", 0))
    percent = f" ({100 * on_green // streams}%)" if streams else ""
    return f"{status.get('phase') or 'Pending'}, {on_green}/{streams} streams on green{percent}"


def _user(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    name = f"{status.get('user') or '-'} of {spec.get('account', '$G')}"
    rotation = mapping(status.get("rotation"))
    former = (
        f", {rotation.get('stage')}, {rotation.get('connections', 0)} on the former one" if rotation else ""
    )
    return f"{name}, credential {status.get('credential') or '-'}{former}"


_STATES = {
    "SuperCluster": _super_cluster,
    "Cluster": _cluster,
    "Stream": _stream,
    "StreamMove": _stream_move,
    "ReplicaPolicy": _replica_policy,
    "Migration": _migration,
    "User": _user,
}


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def is_as_it_should_be(entry: Mapping[str, Any]) -> bool:
    """Is it a condition that nobody needs to read?"""
    if (entry.get("type"), entry.get("reason")) == ("Progressing", Reason.ROTATED):
        return True
    return (entry.get("status") == "True") is (entry.get("type") not in NEGATIVE)


def conditions_to_read(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Those that are not as they should be, Accepted first. One that only repeats another is left out, and so is the last
    step of a move that is complete."""
    entries = map(mapping, mapping(body.get("status")).get("conditions") or ())
    wrong = [entry for entry in entries if not is_as_it_should_be(entry)]
    is_refused = condition(body, "Accepted").get("status") == "False"
    is_complete = condition(body, "Complete").get("status") == "True"
    said = set[str]()
    for entry in sorted(wrong, key=lambda entry: entry.get("type") != "Accepted"):
        message = str(entry.get("message") or "")
        is_repeated = message in said or (is_refused and entry.get("reason") == Reason.NOT_ACCEPTED)
        if not is_repeated and not (is_complete and entry.get("type") == "Progressing"):
            yield entry
            said |= {message} - {""}


def _note(body: Mapping[str, Any]) -> str:
    """The first condition to read."""
    if not is_up_to_date(body):
        return "the operator has not seen the newest spec yet"
    for entry in conditions_to_read(body):
        text = f"{entry.get('type')}: {entry.get('reason')}: {entry.get('message', '')}"
        return text if len(text) <= NOTE_CHARACTERS_MAX else f"{text[: NOTE_CHARACTERS_MAX - 1]}…"
    return ""


def table(found: Mapping[str, Sequence[Mapping[str, Any]]], *, with_namespace: bool) -> str:
    """Columns as wide as their content."""
    header = ["KIND", "NAMESPACE", "NAME", "READY", "STATE", "NOTE"]
    lines = [header]
    for kind, bodies in found.items():
        lines += [list(astuple(row(kind, body))) for body in bodies]
    if not with_namespace:
        lines = [[*line[:1], *line[2:]] for line in lines]
    return columns(lines)
