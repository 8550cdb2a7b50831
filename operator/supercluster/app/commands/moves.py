"""`supercluster move`, `replica`, `moves` and `cancel-move`: move a stream, add or remove a replica by name,
list moves, cancel one.

A stream that a resource declares is moved by its own placement, as GitOps would do it. Only an undeclared
stream, and a dry run, get a StreamMove from here.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supercluster.api import API_VERSION, Stream, StreamMove
from supercluster.api.conditions import Reason
from supercluster.app.commands.errors import CommandError
from supercluster.app.commands.overview import condition, is_up_to_date
from supercluster.app.commands.tables import columns
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.move.views import ENDED
from supercluster.reconcilers.planners.stream.moves import move_name
from supercluster.reconcilers.ports import Json, KubeError, mapping

POLL_S = 0.2
# For the operator's first word on a move.
FIRST_WORD_S = 5.0
FORGET_ATTEMPTS = 5
# A move that lacks one of these waits for it; a person who mistyped a name does not want to.
NOT_FOUND = frozenset({Reason.STREAM_NOT_FOUND, Reason.SUPER_CLUSTER_NOT_FOUND, Reason.CLUSTER_NOT_FOUND})
NAME_CHARACTERS_MAX = 60
HEADER = ("NAME", "STREAM", "FROM", "TO", "PHASE", "COPIED", "STAGE", "ETA", "MESSAGE")
MESSAGE_CHARACTERS_MAX = 100


class MoveError(CommandError):
    """The move can't be asked for; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    stream: str
    cluster: str
    super_cluster: str | None = None
    bytes_per_s: str | None = None
    dry_run: bool = False


async def ask(kube: KubeClient, namespace: str, wish: Wish) -> tuple[str, str]:
    """Have the stream moved, or the move planned: the StreamMove's name, and a sentence that says what was done. The name
    is empty when there is nothing to move.

    Raises:
        MoveError: there is no such stream that could be meant.
        KubeError: the API server refused.
    """
    body = await kube.get(API_VERSION, "Stream", namespace, wish.stream)
    if body is not None and not wish.dry_run:
        return await _by_placement(kube, namespace, wish, Stream.model_validate(body))
    goal: Json = {"destination": {"cluster": wish.cluster}}
    return await _created(kube, namespace, wish, body, goal)


@dataclass(frozen=True, slots=True)
class ReplicaWish:
    """What the command line asks for: a replica on a broker, or none there, whatever the stream's count."""

    stream: str
    broker: str
    is_added: bool
    super_cluster: str | None = None
    bytes_per_s: str | None = None
    dry_run: bool = False


async def ask_for_replica(kube: KubeClient, namespace: str, wish: ReplicaWish) -> tuple[str, str]:
    """Have a replica added or removed by name, or that planned: the StreamMove's name, and what was done. Neither placement nor
    count of a declared stream is changed by it, so it gets a StreamMove too.

    Raises:
        MoveError: there is no such stream that could be meant.
        KubeError: the API server refused.
    """
    body = await kube.get(API_VERSION, "Stream", namespace, wish.stream)
    goal: Json = {"members": {"add" if wish.is_added else "remove": [wish.broker]}}
    return await _created(kube, namespace, wish, body, goal)


async def _created(
    kube: KubeClient, namespace: str, wish: Wish | ReplicaWish, body: Json | None, goal: Json
) -> tuple[str, str]:
    whom: Json = {"streamRef": wish.stream} if body is not None else {"stream": wish.stream}
    super_cluster = wish.super_cluster or str(mapping((body or {}).get("spec")).get("superCluster") or "")
    spec: Json = {
        "superCluster": super_cluster or await _only_super_cluster(kube, namespace),
        **goal,
        "dryRun": wish.dry_run,
        **whom,
    }
    if wish.bytes_per_s:
        spec["bandwidth"] = {"bytesPerS": wish.bytes_per_s}
    # The stream's name in the letters that names of objects have.
    stream = re.sub(r"[^a-z0-9]+", "-", wish.stream.lower()).strip("-")[:NAME_CHARACTERS_MAX] or "stream"
    name = f"{stream}-{secrets.token_hex(3)}"
    metadata = {"name": name, "namespace": namespace}
    if isinstance(wish, ReplicaWish) and wish.is_added:
        await _check_broker(kube, namespace, str(spec["superCluster"]), wish.broker)
    await kube.create({"apiVersion": API_VERSION, "kind": "StreamMove", "metadata": metadata, "spec": spec})
    if body is None and not wish.dry_run:
        await _check_found(kube, namespace, name)
    return name, f"streammove/{name} created"


async def _check_found(kube: KubeClient, namespace: str, name: str) -> None:
    """Which streams there are without a resource only the operator can say. A move of none would wait for it for good."""
    deadline = time.monotonic() + FIRST_WORD_S
    while time.monotonic() < deadline:
        body = await kube.get(API_VERSION, "StreamMove", namespace, name)
        move = StreamMove.model_validate(body) if body is not None else None
        if move is not None and move.status.phase is not None:
            if lacks_something(move):
                await forget(kube, namespace, name)
                raise MoveError(str(move.status.message))
            return
        await asyncio.sleep(POLL_S)


def lacks_something(move: StreamMove) -> bool:
    """Does it wait for a stream, SuperCluster or Cluster that is not there?"""
    return move.status.phase == "Pending" and any(each.reason in NOT_FOUND for each in move.status.conditions)


async def _by_placement(kube: KubeClient, namespace: str, wish: Wish, stream: Stream) -> tuple[str, str]:
    spec: Json = {"placement": {"cluster": wish.cluster}}
    if wish.bytes_per_s:
        spec["move"] = {"bandwidth": {"bytesPerS": wish.bytes_per_s}}
    if stream.status.cluster != wish.cluster:
        await _check_cluster(kube, namespace, stream.spec.super_cluster, wish.cluster)
    patched = await kube.merge_patch(API_VERSION, "Stream", namespace, wish.stream, {"spec": spec})
    if stream.status.cluster == wish.cluster:
        return "", f"stream/{wish.stream}: it is in {wish.cluster} already"
    name = move_name(Stream.model_validate(patched))
    return name, f"stream/{wish.stream}: spec.placement.cluster is {wish.cluster}; streammove/{name} moves it"


async def _check_cluster(kube: KubeClient, namespace: str, super_cluster: str, wanted: str) -> None:
    """A placement in a Cluster that does not exist would have the whole Stream refused until a person sets it back."""
    names = sorted(await _clusters(kube, namespace, super_cluster))
    if wanted not in names:
        raise MoveError(
            f"--to is {wanted!r}, and SuperCluster {super_cluster} has no such Cluster; its Clusters are: {', '.join(names) or 'none'}"
        )


async def _check_broker(kube: KubeClient, namespace: str, super_cluster: str, wanted: str) -> None:
    found = await _clusters(kube, namespace, super_cluster)
    names = [each for name, replicas in sorted(found.items()) for each in naming.brokers(name, replicas)]
    if wanted not in names:
        raise MoveError(
            f"SuperCluster {super_cluster} has no broker {wanted!r}; its brokers are: {', '.join(names) or 'none'}"
        )


async def _clusters(kube: KubeClient, namespace: str, super_cluster: str) -> dict[str, int]:
    """Names of Clusters, and how many brokers each declares."""
    found = (await kube.list(API_VERSION, "Cluster", namespace)).get("items") or ()
    return {
        str(body["metadata"]["name"]): int(mapping(body.get("spec")).get("replicas") or 0)
        for body in found
        if mapping(body.get("spec")).get("superCluster") == super_cluster
    }


async def _only_super_cluster(kube: KubeClient, namespace: str) -> str:
    found = (await kube.list(API_VERSION, "SuperCluster", namespace)).get("items") or ()
    names = sorted(str(body["metadata"]["name"]) for body in found)
    if len(names) != 1:
        there = ", ".join(names) or "no SuperCluster"
        raise MoveError(
            f"no Stream resource declares this stream, and namespace {namespace} has {there}; name its SuperCluster with "
            "--super-cluster"
        )
    return names[0]


async def watch(
    kube: KubeClient,
    namespace: str,
    name: str,
    timeout_s: float,
    say: Callable[[str], None],
    stream: str = "",
) -> StreamMove | None:
    """Follow a move until it has ended or waits for a person; None when it had not in time. `stream`: the Stream whose placement asks
    for it.

    Raises:
        MoveError: the Stream is not accepted, so nothing will make the move.
    """
    deadline, told = time.monotonic() + timeout_s, ""
    while time.monotonic() < deadline:
        body = await kube.get(API_VERSION, "StreamMove", namespace, name)
        # The operator makes the StreamMove of a Stream in a moment.
        if body is None and stream:
            await _check_accepted(kube, namespace, stream)
        if body is not None:
            move = StreamMove.model_validate(body)
            text = f"{move.status.phase}: {move.status.message}"
            if move.status.phase is not None and text != told:
                told = text
                say(text)
            if move.status.phase in (*ENDED, "Refused", "AwaitingApproval", "AwaitingWindow"):
                return move
            if lacks_something(move):
                return move
            if move.spec.dry_run and move.status.phase == "Planned":
                return move
        await asyncio.sleep(POLL_S)
    return None


async def _check_accepted(kube: KubeClient, namespace: str, stream: str) -> None:
    body = await kube.get(API_VERSION, "Stream", namespace, stream) or {}
    accepted = condition(body, "Accepted")
    if accepted.get("status") == "False" and is_up_to_date(body):
        raise MoveError(
            f"stream/{stream} is not accepted: {accepted.get('reason')}: {accepted.get('message')}"
        )


async def forget(kube: KubeClient, namespace: str, name: str) -> None:
    """Delete a dry run, whatever became of it. The operator may write its status between the read and the deletion."""
    for attempts_left in reversed(range(FORGET_ATTEMPTS)):
        body = await kube.get(API_VERSION, "StreamMove", namespace, name)
        if body is None:
            return
        uid, version = (str(body["metadata"][key]) for key in ("uid", "resourceVersion"))
        try:
            await kube.delete(API_VERSION, "StreamMove", namespace, name, uid, version)
        except KubeError as error:
            if error.status != 409 or not attempts_left:
                raise
        else:
            return


async def cancel(kube: KubeClient, namespace: str, name: str) -> str:
    """Call a move off.

    Raises:
        MoveError: there is no such move, or it has ended.
    """
    body = await kube.get(API_VERSION, "StreamMove", namespace, name)
    if body is None:
        raise MoveError(
            f"there is no StreamMove {name} in namespace {namespace}; `supercluster moves` lists them"
        )
    phase = str(mapping(body.get("status")).get("phase") or "Pending")
    if phase in ENDED:
        raise MoveError(f"StreamMove {name} has ended: {phase}")
    await kube.merge_patch(API_VERSION, "StreamMove", namespace, name, {"spec": {"cancel": True}})
    return f"streammove/{name} is being cancelled"


async def fetch(kube: KubeClient, namespace: str) -> list[Json]:
    """All moves of a namespace, the youngest last."""
    items = (await kube.list(API_VERSION, "StreamMove", namespace)).get("items") or ()
    return sorted(items, key=lambda body: str(body["metadata"].get("creationTimestamp", "")))


def table(bodies: Sequence[Json]) -> str:
    return columns([HEADER, *map(_row, bodies)])


def _row(body: Mapping[str, Any]) -> tuple[str, ...]:
    status = mapping(body.get("status"))
    progress = mapping(status.get("progress"))
    eta = progress.get("etaSeconds")
    message = str(status.get("message") or "")
    return (
        str(mapping(body.get("metadata")).get("name", "")),
        str(status.get("streamName") or "-"),
        str(status.get("source") or "-"),
        str(status.get("destination") or "-"),
        str(status.get("phase") or "Pending"),
        str(status.get("percent") or "-"),
        str(progress.get("stage") or "-"),
        f"{eta} s" if eta is not None else "unknown" if progress.get("stage") else "-",
        message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[: MESSAGE_CHARACTERS_MAX - 1]}…",
    )


def described(move: StreamMove) -> str:
    """A plan, for people."""
    plan = move.status.plan
    if plan is None:
        return f"{move.status.phase}: {move.status.message}"
    lines = [str(move.status.message or ""), ""]
    lines += [f"  {found.name}  chosen: {found.reason}" for found in plan.targets]
    lines += [f"  {found.name}  {found.reason}" for found in plan.rejected]
    for when, quorum in (("now", plan.quorum_before), ("afterwards", plan.quorum_after)):
        lines.append(f"{when}: {quorum.well} of {quorum.voters} replicas well, {quorum.majority} must agree")
    lines += [
        f"disk of {room.name}: {room.before_bytes} bytes free, {room.after_bytes} afterwards"
        for room in plan.head_room
    ]
    lines += [f"disturbs: {text}" for text in plan.disturbs]
    return "\n".join(lines)
