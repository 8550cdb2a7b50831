"""`supercluster migrate`: plan, start, watch, approve, abort and finalize the cutover of a super-cluster to
another one.

All of it works through the Migration resource, so manifests in git have the same effect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from supercluster.api import API_VERSION, Migration
from supercluster.api.conditions import ConditionType
from supercluster.api.migration import Finding, MigrationStatus, StageCounts
from supercluster.app.commands.errors import CommandError, NotReadyError
from supercluster.app.commands.tables import columns
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.planners.migration.views import ENDED
from supercluster.reconcilers.ports import Json, KubeError

POLL_S = 0.2
MESSAGE_CHARACTERS_MAX = 100
BAR_CHARACTERS = 24
HEADER = ("NAME", "BLUE", "GREEN", "PHASE", "STREAMS", "ON GREEN", "STALLED", "CLIENTS ON BLUE", "MESSAGE")
# Phases in which a report is made, or will not be made by itself.
REPORTED = frozenset({"Refused", "AwaitingApproval"})
# Where `start --wait` has come to its end.
ARRIVED = frozenset({"AwaitingFinalize", "Succeeded"})
INVALID = 422


class MigrateError(CommandError):
    """It can't be done; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    name: str
    blue: Json
    green: Json
    account: str | None = None
    cannot_follow: str = "Refuse"
    clusters: tuple[tuple[str, str], ...] = ()
    """Blue's names, each with the name on green."""
    waits_for_approval: bool = False

    def manifest(self, namespace: str) -> Json:
        spec: Json = {
            "blue": self.blue,
            "green": self.green,
            "clients": {"cannotFollow": self.cannot_follow},
            "approval": "Manual" if self.waits_for_approval else "Automatic",
        }
        if self.account:
            spec["scope"] = {"account": self.account}
        if self.clusters:
            spec["clusters"] = dict(self.clusters)
        metadata = {"name": self.name, "namespace": namespace}
        return {"apiVersion": API_VERSION, "kind": "Migration", "metadata": metadata, "spec": spec}


def cluster_names(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Of the command line, each as BLUE=GREEN.

    Raises:
        MigrateError: one is none, or a cluster of blue's is named twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        blue, _, green = text.partition("=")
        if not blue or not green or blue in found:
            raise MigrateError(
                f"--cluster is {text}; it has to be BLUE=GREEN, such as west=east, and each cluster of blue is named once"
            )
        found[blue] = green
    return tuple(found.items())


def side(which: str, super_cluster: str | None, urls: list[str], secret: str | None, ca: str | None) -> Json:
    """Blue or green, as the command line names it.

    Raises:
        MigrateError: it names none, or both a resource and addresses.
    """
    if bool(super_cluster) == bool(urls):
        raise MigrateError(
            f"give either --{which} with the name of a SuperCluster, or --{which}-url with the URL of a monitoring port"
        )
    if super_cluster:
        return {"superCluster": super_cluster}
    if not secret:
        raise MigrateError(
            f"--{which}-url needs --{which}-secret: a Secret with user and password of an operator there"
        )
    return {"urls": urls, "credentialsSecret": secret, **({"caSecret": ca} if ca else {})}


async def create(kube: KubeClient, namespace: str, wish: Wish) -> str:
    """
    Raises:
        MigrateError: there is one of that name.
        KubeError: the API server refused.
    """
    if await kube.get(API_VERSION, "Migration", namespace, wish.name) is not None:
        raise MigrateError(
            f"there is a Migration {wish.name} in namespace {namespace} already; `supercluster migrate status {wish.name}` shows it"
        )
    await kube.create(wish.manifest(namespace))
    return f"migration/{wish.name} created"


async def find(kube: KubeClient, namespace: str, name: str) -> Migration:
    """
    Raises:
        MigrateError: there is none.
    """
    body = await kube.get(API_VERSION, "Migration", namespace, name)
    if body is None:
        raise MigrateError(
            f"there is no Migration {name} in namespace {namespace}; `supercluster migrate status` lists them"
        )
    return Migration.model_validate(body)


async def watch(
    kube: KubeClient,
    namespace: str,
    name: str,
    until: Callable[[Migration], bool],
    timeout_s: float,
    say: Callable[[str], None],
) -> Migration:
    """Follow it.

    Raises:
        NotReadyError: it did not come so far in time; the message says how far it is.
    """
    deadline, told = time.monotonic() + timeout_s, ""
    while time.monotonic() < deadline:
        found = await find(kube, namespace, name)
        if is_current(found):
            text = f"{found.status.phase}: {found.status.message}"
            if text != told:
                told = text
                say(text)
            if until(found):
                return found
        await asyncio.sleep(POLL_S)
    left = await find(kube, namespace, name)
    raise NotReadyError(f"Migration {name} is not done after {timeout_s:g} s\n{described(left)}")


def is_current(found: Migration) -> bool:
    """Is what its status says about the spec as it is now?"""
    is_seen = found.status.observed_generation >= found.metadata.generation
    return is_seen and found.status.phase is not None


def is_reported(found: Migration) -> bool:
    """Was preflight made, or is there nothing more to wait for?"""
    return found.status.phase in REPORTED | ENDED or found.status.started_at is not None


def is_over(found: Migration) -> bool:
    return found.status.phase in ARRIVED | ENDED | {"Refused"}


async def change(kube: KubeClient, namespace: str, name: str, **spec: Any) -> str:
    """Set fields of its spec.

    Raises:
        MigrateError: there is none, or the API server says why it can't be changed so.
    """
    found = await find(kube, namespace, name)
    if found.status.phase in ENDED:
        raise MigrateError(f"Migration {name} has ended: {found.status.phase}")
    try:
        await kube.merge_patch(API_VERSION, "Migration", namespace, name, {"spec": spec})
    except KubeError as error:
        if error.status == INVALID:
            raise MigrateError(error.message) from error
        raise
    said = ", ".join(f"spec.{field} is {str(value).lower()}" for field, value in spec.items())
    return f"migration/{name}: {said}"


def statement(found: Migration) -> str:
    """What passing the point of no return means.

    Raises:
        MigrateError: it was not stated yet.
    """
    told = next(
        (each for each in found.status.conditions if each.type == ConditionType.POINT_OF_NO_RETURN), None
    )
    if found.status.point_of_no_return_at is None or told is None:
        raise MigrateError(
            f"Migration {found.metadata.name} cannot be finalized yet ({found.status.phase or 'Pending'}: {found.status.message or 'not seen yet'}); blue's copies "
            "stay until green has everything"
        )
    return told.message


async def fetch(kube: KubeClient, namespace: str) -> list[Json]:
    return list((await kube.list(API_VERSION, "Migration", namespace)).get("items") or ())


def table(bodies: Sequence[Json]) -> str:
    """The youngest last."""
    found = sorted(map(Migration.model_validate, bodies), key=lambda each: each.metadata.age_key)
    return columns([HEADER, *map(_row, found)])


def _row(found: Migration) -> tuple[str, ...]:
    status, message = found.status, found.status.message or ""
    clients = status.clients
    return (
        found.metadata.name,
        found.spec.blue.super_cluster or found.spec.blue.urls[0],
        found.spec.green.super_cluster or found.spec.green.urls[0],
        status.phase or "Pending",
        _shown(status.streams),
        _shown(status.on_green),
        _shown(status.stalled_total),
        _shown(clients.still_on_blue if clients is not None else None),
        message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[: MESSAGE_CHARACTERS_MAX - 1]}…",
    )


def _shown(count: int | None) -> str:
    return "-" if count is None else str(count)


def described(found: Migration) -> str:
    """One of them, for people: what it does, its stages, what stalls, who is still on blue, what preflight found."""
    status, spec = found.status, found.spec
    scope = f"account {spec.scope.account}" if spec.scope.account else "all accounts"
    lines = [f"{found.metadata.name}: {spec.blue.text} to {spec.green.text}, {scope}"]
    lines += [f"{status.phase or 'Pending'}: {status.message or 'the operator has not seen it yet'}"]
    if status.stages is not None:
        lines += ["", *_stages(status.stages)]
    if status.worst_lag is not None and status.started_at is not None and status.opened_at is None:
        lines += [f"worst lag: {status.worst_lag.entries} entries, {status.worst_lag.milliseconds} ms"]
    lines += _stalled(status) + _clients(status)
    if status.proof is not None:
        differing = f"; not confirmed: {', '.join(status.proof.differing)}" if status.proof.differing else ""
        lines += [f"green confirms {status.proof.streams} streams{differing}"]
    if status.started_at is None and status.preflight is not None:
        lines += ["", *report(found)]
    return "\n".join(lines)


def _stages(stages: StageCounts) -> list[str]:
    total = max(1, stages.total)
    rows = [
        (name, str(count), f"{'#' * (BAR_CHARACTERS * count // total)}".ljust(BAR_CHARACTERS, "."))
        for name, count in stages.model_dump().items()
    ]
    return columns([("STAGE", "STREAMS", ""), *rows]).splitlines()


def _stalled(status: MigrationStatus) -> list[str]:
    if not status.stalled:
        return []
    rows = [(each.name, each.account, each.stage, each.reason) for each in status.stalled]
    more = (status.stalled_total or 0) - len(rows)
    table = columns([("STALLED", "ACCOUNT", "STAGE", "REASON"), *rows]).splitlines()
    return ["", *table, *([f"and {more} more"] if more > 0 else [])]


def _clients(status: MigrationStatus) -> list[str]:
    told = status.clients
    if told is None:
        return []
    lines = [
        "",
        f"clients: {told.still_on_blue} still on blue, {told.publishers_still_on_blue} of them publish there; {told.cannot} cannot follow",
    ]
    rows = [
        (
            *(each.name or "-", each.account, each.user or "-", each.address, each.language or "-"),
            *(str(each.messages), ", ".join(each.streams)),
        )
        for each in told.publishers
    ]
    return lines + (
        columns(
            [("PUBLISHER", "ACCOUNT", "USER", "ADDRESS", "LANGUAGE", "MESSAGES", "STREAMS"), *rows]
        ).splitlines()
        if rows
        else []
    )


def report(found: Migration) -> list[str]:
    """What preflight found, those findings first that refuse the start."""
    made = found.status.preflight
    if made is None:
        return [f"no preflight yet: {found.status.message}"]
    lines = [
        (
            f"preflight: {made.streams} streams, {made.bytes} bytes; clients: {made.clients_cannot} cannot follow, {made.clients_may} may; "
            f"{made.refused} refused, {made.warnings} warnings"
        )
    ]
    lines += [_finding(each) for each in made.findings]
    more = made.refused + made.warnings - len(made.findings)
    return [*lines, f"and {more} more"] if more > 0 else lines


def _finding(each: Finding) -> str:
    subject, remedy = f" {each.subject}" if each.subject else "", f"; {each.remedy}" if each.remedy else ""
    return f"  {each.level.lower()}: {each.code}{subject}: {each.message}{remedy}"
