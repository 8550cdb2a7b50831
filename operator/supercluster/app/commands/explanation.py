"""`supercluster explain`: the reasons for a stream's location, or for its absence: its conditions, and each
broker with its reason.

All of it comes from the status of the Stream; the output puts the reason first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from supercluster.api import API_VERSION
from supercluster.app.commands.errors import CommandError
from supercluster.app.commands.overview import is_as_it_should_be
from supercluster.app.commands.tables import columns
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import Json, mapping


async def find(kube: KubeClient, namespace: str, name: str) -> Json:
    """
    Raises:
        CommandError: there is no such Stream.
        KubeError: the API server refused.
    """
    body = await kube.get(API_VERSION, "Stream", namespace, name)
    if body is None:
        raise CommandError(
            f"there is no Stream {name} in namespace {namespace}; `supercluster status` lists them"
        )
    return body


def text_of(body: Mapping[str, Any]) -> str:
    return "\n".join(_lines(body))


def _lines(body: Mapping[str, Any]) -> Iterator[str]:
    status, spec = mapping(body.get("status")), mapping(body.get("spec"))
    name = mapping(body.get("metadata")).get("name")
    replicas = [mapping(entry) for entry in status.get("replicas") or ()]
    where = ", ".join(_replica(entry) for entry in replicas) or "no broker"
    placement = mapping(spec.get("placement"))
    asked = [f"{spec.get('replicas')} wanted"]
    asked += [f"cluster {placement['cluster']}"] if placement.get("cluster") else []
    asked += [f"tags {', '.join(placement['tags'])}"] if placement.get("tags") else []
    yield f"stream/{name}: {len(replicas)} replicas ({'; '.join(asked)}) on {where}"
    wrong = [entry for entry in map(mapping, status.get("conditions") or ()) if not is_as_it_should_be(entry)]
    for entry in wrong:
        yield f"{entry.get('type')} is {entry.get('status')}: {entry.get('reason')}: {entry.get('message', '')}"
    move = mapping(status.get("move"))
    if move and wrong:
        yield f"move: {move.get('name')}, {move.get('phase')} (supercluster moves)"
    rejected = [mapping(entry) for entry in status.get("rejected") or ()]
    if rejected:
        yield columns(
            [(f"  {entry.get('name')}", str(entry.get("reason", ""))) for entry in rejected], has_header=False
        )
    if not wrong:
        yield "everything is as it is declared"


def _replica(entry: Mapping[str, Any]) -> str:
    notes = [word for word in ("leader", "offline", "unusable") if entry.get(word)]
    if not entry.get("current"):
        notes.append(f"{entry.get('lag', 0)} entries behind")
    return f"{entry.get('name')}{' (' + ', '.join(notes) + ')' if notes else ''}"
