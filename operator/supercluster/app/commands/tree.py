"""`supercluster status --watch`: super-clusters with their clusters and streams as a tree, and moves and migrations under way.

A condition that is not as it should be stands beneath its resource. Resources of other kinds are shown only for such a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text
from rich.tree import Tree

from supercluster.api.conditions import ConditionType
from supercluster.app.commands.overview import conditions_to_read, is_up_to_date, row
from supercluster.reconcilers.planners.migration.views import ENDED as MIGRATION_ENDED
from supercluster.reconcilers.planners.move.views import ENDED as MOVE_ENDED
from supercluster.reconcilers.ports import Json, mapping

_ECHOES = frozenset({ConditionType.RECONCILING, ConditionType.STALLED})
"""They say once more, to tools, what other conditions say."""
_ENDED = {"StreamMove": MOVE_ENDED, "Migration": MIGRATION_ENDED}
_IN_TREE = ("SuperCluster", "Cluster", "Stream")

Key = tuple[str, str, str]
"""Kind, namespace and name."""


def tree(found: Mapping[str, Sequence[Json]], *, with_namespace: bool) -> Tree:
    """`found`: resources by kind, as the API server has them."""
    root = Tree("supercluster", hide_root=True)
    branches: dict[Key, Tree] = {}
    for kind in (*_IN_TREE, *(kind for kind in found if kind not in _IN_TREE)):
        for body in found.get(kind, ()):
            wrong = list(_wrong(body))
            if not (kind in _IN_TREE or (_is_under_way(kind, body) if kind in _ENDED else wrong)):
                continue
            above = next((branches[key] for key in _above(kind, body) if key in branches), root)
            branch = above.add(_title(kind, body, is_well=not wrong, with_namespace=with_namespace))
            branches[kind, _namespace(body), body["metadata"]["name"]] = branch
            for text in wrong:
                branch.add(Text(text, "yellow"))
    return root


def _above(kind: str, body: Json) -> Iterator[Key]:
    """What it stands beneath, the nearest first."""
    namespace, spec = _namespace(body), mapping(body.get("spec"))
    cluster = mapping(body.get("status")).get("cluster")
    if kind == "Stream" and cluster:
        yield "Cluster", namespace, str(cluster)
    if kind == "Migration":
        yield "SuperCluster", namespace, str(mapping(spec.get("blue")).get("superCluster"))
    elif kind != "SuperCluster":
        yield "SuperCluster", namespace, str(spec.get("superCluster"))


def _title(kind: str, body: Json, *, is_well: bool, with_namespace: bool) -> Text:
    shown = row(kind, body)
    name = f"{shown.namespace}/{shown.name}" if with_namespace else shown.name
    replicas = mapping(body.get("status")).get("replicas") if kind == "Stream" else ()
    lag = max((int(mapping(entry).get("lag") or 0) for entry in replicas or ()), default=0)
    behind = f", lag {lag}" if replicas else ""
    return Text.assemble(
        (f"{kind} {name}", "bold green" if is_well else "bold yellow"), f"  {shown.what}{behind}"
    )


def _wrong(body: Mapping[str, Any]) -> Iterator[str]:
    if not is_up_to_date(body):
        yield "the operator has not seen the newest spec yet"
    for entry in conditions_to_read(body):
        if entry.get("type") not in _ECHOES:
            yield f"{entry.get('type')} is {entry.get('status')}: {entry.get('reason')}: {entry.get('message', '')}"


def _is_under_way(kind: str, body: Json) -> bool:
    phase, spec = mapping(body.get("status")).get("phase"), mapping(body.get("spec"))
    return phase not in _ENDED[kind] and not (phase == "Planned" and spec.get("dryRun"))


def _namespace(body: Json) -> str:
    return str(body["metadata"].get("namespace", ""))
