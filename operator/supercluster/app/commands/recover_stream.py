"""`supercluster recover stream`: continues a stream from one copy after it lost its majority (RP-8, SF-9).

Without `--node`, or with `--dry-run`, it lists the copies and the data that choosing each of them may lose,
and changes nothing. It needs monitoring ports of brokers that are reachable from here; a Stream resource has
an annotation for the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from supercluster.api import API_VERSION, Cluster
from supercluster.api.recovery import FORCE_RECOVER
from supercluster.app.admin import BrokerAdmin
from supercluster.app.brokers import STREAM_NOT_FOUND
from supercluster.app.commands.encryption import encryption_in
from supercluster.app.commands.errors import CommandError
from supercluster.app.commands.tables import columns
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.observe.views import credentials_view, pod_view
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import LABEL_CLUSTER
from supercluster.reconcilers.ports import BrokersRefusedError, BrokerTarget, Json, mapping

FIGURES = ("lineage", "lastSeq", "committedSeq", "lastTerm", "lastIndex")
HEADER = ("BROKER", "LINEAGE", "LAST SEQ", "COMMITTED", "LAST TERM", "LAST INDEX", "STATE")


class RecoverError(CommandError):
    """It can't be done; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    stream: str
    node: str = ""
    accepted_sequence: int = 0
    dry_run: bool = False
    super_cluster: str = ""


async def find(kube: KubeClient, namespace: str, super_cluster: str) -> BrokerTarget:
    """Any broker of the super-cluster that is ready.

    Raises:
        RecoverError: there is none, or no one super-cluster.
        KubeError: the API server refused.
    """
    target, _ = await find_all(kube, namespace, super_cluster)
    if not target.monitors:
        raise RecoverError(f"no broker of SuperCluster {target.super_cluster} is ready")
    return target


async def find_all(
    kube: KubeClient, namespace: str, super_cluster: str
) -> tuple[BrokerTarget, dict[str, str]]:
    """The brokers of the super-cluster that are ready; and the monitoring ports of all that have an address, by name.

    Raises:
        RecoverError: there is no one super-cluster.
        KubeError: the API server refused.
    """
    listed = await kube.list(API_VERSION, "Cluster", namespace)
    clusters = [Cluster.model_validate(body) for body in listed.get("items") or ()]
    names = sorted({found.spec.super_cluster for found in clusters})
    if super_cluster:
        names = [name for name in names if name == super_cluster]
    if len(names) != 1:
        raise RecoverError(
            f"namespace {namespace} has Clusters of {', '.join(names) or 'no SuperCluster'}; choose one with --super-cluster"
        )
    secret = naming.credentials_secret(names[0])
    credentials = credentials_view(await kube.get("v1", "Secret", namespace, secret))
    password = credentials.passwords.get(naming.OPERATOR_USER) if credentials else None
    if password is None:
        raise RecoverError(f"Secret {secret} has no user {naming.OPERATOR_USER} yet; the operator adds it")
    tls = await encryption_in(kube, namespace, names[0])
    monitors: list[str] = []
    by_name: dict[str, str] = {}
    for cluster in clusters:
        if cluster.spec.super_cluster == names[0]:
            pods = await kube.list("v1", "Pod", namespace, f"{LABEL_CLUSTER}={cluster.metadata.name}")
            found = [pod_view(pod) for pod in pods.get("items") or ()]
            port = cluster.spec.ports.monitor
            urls = {pod.name: naming.pod_url(tls.http, pod.ip, port) for pod in found if pod.ip}
            by_name |= urls
            monitors += [urls[pod.name] for pod in found if pod.ready and pod.ip]
    login = (naming.OPERATOR_USER, password)
    target = BrokerTarget(
        namespace, names[0], (), *login, tuple(monitors), ca=tls.authorities, tls_name=tls.name
    )
    return target, by_name


class Outcome(NamedTuple):
    """What was done, or would be: whether it is possible, the words for it, and what brokers said."""

    is_possible: bool
    text: str
    told: Json


async def recover(admin: BrokerAdmin, target: BrokerTarget, wish: Wish) -> Outcome:
    """Do it, or say what it would do.

    Raises:
        RecoverError: there is no such stream.
        BrokersUnreachableError, BrokersRefusedError: nobody could be asked, or it was refused.
    """
    try:
        return await _recover(admin, target, wish)
    except BrokersRefusedError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        raise RecoverError(
            f"the brokers have no stream {wish.stream}; `supercluster status` lists the streams that there are"
        ) from error


async def _recover(admin: BrokerAdmin, target: BrokerTarget, wish: Wish) -> Outcome:
    if not wish.node:
        told = await admin.recovery_state(target, wish.stream)
        return Outcome(not told.get("alive"), described(told), told)
    if wish.dry_run:
        told = await admin.plan_recovery(target, wish.stream, wish.node, wish.accepted_sequence)
        return verdict(told, described(told))
    told = await admin.recover_stream(
        target, wish.stream, wish.node, wish.accepted_sequence, f"cli-{uuid.uuid4()}"
    )
    done = mapping(told.get("recovery"))
    declared = str(told.get("declaredBy", ""))
    trace = (
        f"\nStream {declared} declares it: its annotation {FORCE_RECOVER} does the same" if declared else ""
    )
    return Outcome(True, f"lineage {told.get('lineage')}: {done.get('mayLose', '')}{trace}", told)


def described(told: Json) -> str:
    """What copies there are, for people."""
    lines = [copies_table(told, HEADER, FIGURES, "whole")]
    away = told.get("outOfContact") or ()
    if away:
        lines.append(f"out of contact: {', '.join(map(str, away))}")
    if told.get("alive"):
        lines.append(f"nothing has to be forced: {told['alive']}")
        return "\n".join(lines)
    copies = map(mapping, told.get("copies") or ())
    lines += [f"{copy.get('node')}: {copy['mayLose']}" for copy in copies if copy.get("mayLose")]
    return "\n".join(lines)


def verdict(told: Json, text: str) -> Outcome:
    """Of a dry run: whether it would be done, and `text` with the words for it."""
    refusal = str(told.get("refusal", ""))
    said = f"refused: {refusal}" if refusal else f"it would be so: {told.get('mayLose', '')}"
    return Outcome(not refusal, f"{text}\n{said}", told)


def copies_table(told: Json, header: Sequence[str], figures: Sequence[str], otherwise: str) -> str:
    """The copies, with these figures of each. `otherwise`: the state of one of which there is nothing to say."""
    rows = []
    for copy in map(mapping, told.get("copies") or ()):
        states = {name: copy.get(name) for name in ("lost", "doubtful")}
        states["closed"] = not copy.get("open") and not copy.get("lost")
        states["votes"] = copy.get("votes")
        flags = ", ".join(name for name, holds in states.items() if holds)
        shown = (str(copy.get(key, "")) for key in figures)
        rows.append((str(copy.get("node", "")), *shown, flags or otherwise))
    return columns([header, *rows]) if rows else "no broker in contact has a copy"
