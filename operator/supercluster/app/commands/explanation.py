"""`supercluster explain`: the reasons for a stream's location, or for its absence. It prints the stream's
conditions, and each broker with its reason.

All of it comes from the status of the Stream; the output puts the reason first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from supercluster.api import API_VERSION
from supercluster.app.commands.errors import CommandError
from supercluster.app.commands.overview import conditions_to_read, is_as_it_should_be
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


def facts(body: Mapping[str, Any]) -> Json:
    """What there is to say of a Stream, for programs: of its conditions those that are not as they should be."""
    status, spec = mapping(body.get("status")), mapping(body.get("spec"))
    return {
        "name": mapping(body.get("metadata")).get("name"),
        "replicasWanted": spec.get("replicas"),
        "placement": dict(mapping(spec.get("placement"))),
        "replicas": [mapping(entry) for entry in status.get("replicas") or ()],
        "conditions": [
            entry for entry in map(mapping, status.get("conditions") or ()) if not is_as_it_should_be(entry)
        ],
        "move": status.get("move"),
        "rejected": [mapping(entry) for entry in status.get("rejected") or ()],
    }


def text_of(body: Mapping[str, Any]) -> str:
    """For people, who read a message once."""
    return "\n".join(_lines({**facts(body), "conditions": list(conditions_to_read(body))}))


def _lines(found: Json) -> Iterator[str]:
    replicas, placement, wrong = found["replicas"], found["placement"], found["conditions"]
    where = ", ".join(_replica(entry) for entry in replicas) or "no broker"
    asked = [f"{found['replicasWanted']} wanted"]
    asked += [f"cluster {placement['cluster']}"] if placement.get("cluster") else []
    asked += [f"tags {', '.join(placement['tags'])}"] if placement.get("tags") else []
    yield f"stream/{found['name']}: {len(replicas)} replicas ({'; '.join(asked)}) on {where}"
    for entry in wrong:
        yield f"{entry.get('type')} is {entry.get('status')}: {entry.get('reason')}: {entry.get('message', '')}"
    move = mapping(found["move"])
    if move and wrong:
        yield f"move: {move.get('name')}, {move.get('phase')} (supercluster moves)"
    if found["rejected"]:
        rows = [(f"  {entry.get('name')}", str(entry.get("reason", ""))) for entry in found["rejected"]]
        yield columns(rows, has_header=False)
    if not wrong:
        yield "the stream is as it is declared"


def _replica(entry: Mapping[str, Any]) -> str:
    notes = [word for word in ("leader", "offline", "unusable") if entry.get(word)]
    if not entry.get("current"):
        notes.append(f"{entry.get('lag', 0)} entries behind")
    return f"{entry.get('name')}{' (' + ', '.join(notes) + ')' if notes else ''}"
