"""Assigns a pod to a node: a pure choice among the nodes, and the controller that carries it out.

Filters are hard (cordon, readiness, taints, node selector and affinity, required anti-affinity, DoNotSchedule
spread, claims that live on a node). Among the remaining nodes, preferences and then the fewest pods decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from supercluster.localplane.client import CLAIMS, NODES, PODS, Json, Key, key_of
from supercluster.localplane.controllers.base import (
    Cluster,
    Controller,
    condition,
    is_terminating,
    is_true,
    phase_of,
    selects,
)
from supercluster.localplane.event_recorder import EventRecorder
from supercluster.localplane.times import now_utc, stamp

SELECTED_NODE = "volume.kubernetes.io/selected-node"
HOSTNAME = "kubernetes.io/hostname"
PREFERENCE_WEIGHT = 100
RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Choice:
    """The node, or why there is none."""

    node: str = ""
    reason: str = ""


def choose(pod: Json, nodes: Sequence[Json], pods: Iterable[Json], claims: dict[str, Json]) -> Choice:
    """Pick a node. `pods` are those placed already (all namespaces), `claims` those of the pod's namespace."""
    placed = [other for other in pods if other["spec"].get("nodeName") and not _is_over(other)]
    names = list(claim_names(pod))
    missing = [name for name in names if name not in claims]
    if missing:
        return Choice(reason=f'persistentvolumeclaim "{missing[0]}" not found')
    pinned = {pin for name in names if (pin := _pin(claims[name]))}
    refusals: dict[str, int] = {}
    open_nodes = []
    for node in nodes:
        refusal = _refusal(pod, node, nodes, placed, pinned)
        if refusal:
            refusals[refusal] = refusals.get(refusal, 0) + 1
        else:
            open_nodes.append(node)
    if not open_nodes:
        told = ", ".join(f"{count} {why}" for why, count in sorted(refusals.items()))
        return Choice(reason=f"0/{len(nodes)} nodes are available: {told or 'there are no nodes'}.")
    best = min(open_nodes, key=lambda node: (_cost(pod, node, nodes, placed), node["metadata"]["name"]))
    return Choice(node=best["metadata"]["name"])


def claim_names(pod: Json) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield volume["persistentVolumeClaim"]["claimName"]


def _pin(claim: Json) -> str:
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE) or "")


def _is_over(pod: Json) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def _labels(obj: Json) -> Json:
    return obj["metadata"].get("labels") or {}


def _refusal(pod: Json, node: Json, nodes: Sequence[Json], placed: Sequence[Json], pinned: set[str]) -> str:
    """Why a node is no use for a pod; "" when it is."""
    spec = pod["spec"]
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    if not is_true(node, "Ready"):
        return "node(s) were not ready"
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] != "PreferNoSchedule" and not _tolerates(spec.get("tolerations") or (), taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if pinned and pinned != {node["metadata"]["name"]}:
        return "node(s) had volume node affinity conflict"
    selector = spec.get("nodeSelector") or {}
    if any(_labels(node).get(name) != value for name, value in selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required and not any(_matches_term(term, node) for term in required["nodeSelectorTerms"]):
        return "node(s) didn't match Pod's node affinity/selector"
    by_name = {found["metadata"]["name"]: found for found in nodes}
    for term in (affinity.get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or ():
        if _beside(term, pod, node, by_name, placed):
            return "node(s) didn't match pod anti-affinity rules"
    for term in (affinity.get("podAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or ():
        matches_itself = selects(term.get("labelSelector"), _labels(pod))
        if not matches_itself and not _beside(term, pod, node, by_name, placed):
            return "node(s) didn't match pod affinity rules"
    for rule in spec.get("topologySpreadConstraints") or ():
        if (
            rule["whenUnsatisfiable"] == "DoNotSchedule"
            and _skew(rule, pod, node, nodes, placed) > rule["maxSkew"]
        ):
            return "node(s) didn't match pod topology spread constraints"
    return ""


def _tolerates(tolerations: Sequence[Json], taint: Json) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("operator", "Equal") == "Exists":
            if toleration.get("key") in (None, "", taint["key"]):
                return True
        elif toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def _matches_term(term: Json, node: Json) -> bool:
    fields = [
        {**rule, "key": HOSTNAME} if rule["key"] == "metadata.name" else rule
        for rule in term.get("matchFields") or ()
    ]
    return selects({"matchExpressions": [*(term.get("matchExpressions") or ()), *fields]}, _labels(node))


def _beside(term: Json, pod: Json, node: Json, nodes: dict[str, Json], placed: Sequence[Json]) -> int:
    """How many pods that `term` selects are in the node's topology domain."""
    domain = _labels(node).get(term["topologyKey"])
    if domain is None:
        return 0
    namespaces = term.get("namespaces") or (pod["metadata"]["namespace"],)
    return sum(
        other["metadata"]["namespace"] in namespaces
        and selects(term.get("labelSelector"), _labels(other))
        and _labels(nodes.get(other["spec"]["nodeName"], {"metadata": {}})).get(term["topologyKey"]) == domain
        for other in placed
        if other["metadata"].get("uid") != pod["metadata"].get("uid")
    )


def _skew(rule: Json, pod: Json, node: Json, nodes: Sequence[Json], placed: Sequence[Json]) -> int:
    """By how much the node's domain would exceed the emptiest domain with the pod on it."""
    by_name = {found["metadata"]["name"]: found for found in nodes}
    counts: dict[str, int] = {}
    for found in nodes:
        domain = _labels(found).get(rule["topologyKey"])
        if domain is not None and domain not in counts:
            counts[domain] = _beside(rule, pod, found, by_name, placed)
    here = counts.get(_labels(node).get(rule["topologyKey"], ""), 0)
    return here + 1 - min(counts.values(), default=0)


def _cost(pod: Json, node: Json, nodes: Sequence[Json], placed: Sequence[Json]) -> tuple[int, int]:
    """Lower is better: first the stated preferences, then pods of the same owner, then pods at all."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    by_name = {found["metadata"]["name"]: found for found in nodes}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    cost = 0
    for wish in (affinity.get("podAntiAffinity") or {}).get(preferred) or ():
        cost += wish["weight"] * _beside(wish["podAffinityTerm"], pod, node, by_name, placed)
    for wish in (affinity.get("podAffinity") or {}).get(preferred) or ():
        cost -= wish["weight"] * min(1, _beside(wish["podAffinityTerm"], pod, node, by_name, placed))
    for wish in (affinity.get("nodeAffinity") or {}).get(preferred) or ():
        cost -= wish["weight"] * _matches_term(wish["preference"], node)
    for rule in spec.get("topologySpreadConstraints") or ():
        if rule["whenUnsatisfiable"] == "ScheduleAnyway":
            cost += PREFERENCE_WEIGHT * max(0, _skew(rule, pod, node, nodes, placed))
    owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
    here = [other for other in placed if other["spec"]["nodeName"] == node["metadata"]["name"]]
    siblings = sum(
        any(owner["uid"] in owners for owner in other["metadata"].get("ownerReferences") or ())
        for other in here
    )
    # Pods of one owner are spread by default, as a scheduler's own default constraints do.
    return cost, siblings * 1000 + len(here)


class Scheduler(Controller):
    """Binds pods to nodes, and pins their claims to the node, as volumes on local disks are."""

    kind = PODS

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder)
        self.watch(NODES, lambda node: self._waiting())
        self.watch(CLAIMS, lambda claim: self._waiting())

    def _waiting(self) -> list[Key]:
        return [key_of(pod) for pod in self.cluster[PODS].all() if _is_unplaced(pod)]

    async def reconcile(self, pod: Json) -> float | None:
        if not _is_unplaced(pod):
            return None
        key = key_of(pod)
        claims = {
            claim["metadata"]["name"]: claim
            for claim in self.cluster[CLAIMS].in_namespace(key[0])
            if not is_terminating(claim)
        }
        nodes = list(self.cluster[NODES].all())
        choice = choose(pod, nodes, self.cluster[PODS].all(), claims)
        if not choice.node:
            await self._refuse(pod, choice.reason)
            return RETRY_S
        for name in claim_names(pod):
            if not _pin(claims[name]):
                pin = {"metadata": {"annotations": {SELECTED_NODE: choice.node}}}
                await self.cluster.patch(CLAIMS, (key[0], name), pin)
        await self._bind(pod, choice.node)
        told = f"Successfully assigned {key[0]}/{key[1]} to {choice.node}"
        self.recorder.normal(pod, "Scheduled", told)
        return None

    async def _bind(self, pod: Json, node: str) -> None:
        namespace, name = key_of(pod)
        body: Json = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.cluster.client.request("POST", PODS.path(namespace, name, "binding"), body=body)
        # The next pod's place depends on this one's.
        await self.cluster.refresh(PODS, (namespace, name))

    async def _refuse(self, pod: Json, reason: str) -> None:
        held = condition(pod, "PodScheduled")
        if held is not None and held["status"] == "False" and held.get("message") == reason:
            return
        self.recorder.warning(pod, "FailedScheduling", reason)
        others = [
            found
            for found in (pod.get("status") or {}).get("conditions") or ()
            if found["type"] != "PodScheduled"
        ]
        told = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": reason,
            "lastTransitionTime": stamp(now_utc()),
        }
        await self.cluster.patch_status(PODS, pod, {"phase": "Pending", "conditions": [*others, told]})


def _is_unplaced(pod: Json) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and not is_terminating(pod)
        and not _is_over(pod)
        and not pod["spec"].get("schedulingGates")
        and pod["spec"].get("schedulerName", "default-scheduler") == "default-scheduler"
    )
