"""The parameters of a request from its query, headers and body, parsed once and validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from supercluster.localplane.apiserver import errors
from supercluster.localplane.apiserver.http import bodies, listing
from supercluster.localplane.apiserver.http.paths import Target
from supercluster.localplane.apiserver.http.protobuf import ACCEPTED
from supercluster.localplane.apiserver.objects.writes import DeleteOptions, Write
from supercluster.localplane.apiserver.storage import selectors

DUPLICATES: web.RequestKey[list[str]] = web.RequestKey("duplicates", list)
PROPAGATIONS = ("Background", "Foreground", "Orphan")


def flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("true", "1")


def number(request: web.Request, name: str, at_least: int | None = 0) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        raise errors.bad_request(f"{name}={text!r} in the query is not a whole number") from None
    if at_least is not None and value < at_least:
        raise errors.bad_request(f"{name}={text!r} in the query must not be negative")
    return value


async def body(request: web.Request) -> Any:
    kind = media_type(request)
    if request.method in ("POST", "PUT") and "patch" in kind:
        raise errors.unsupported_media_type(kind, ACCEPTED)
    duplicates: list[str] = []
    found = bodies.decode(await request.read(), kind, duplicates)
    request[DUPLICATES] = duplicates
    return found


def media_type(request: web.Request) -> str:
    return request.headers.get("Content-Type", "").split(";")[0].strip().lower()


def _manager(request: web.Request) -> str:
    agent = request.headers.get("User-Agent", "").split("/")[0].strip()
    return request.query.get("fieldManager", "") or agent or "unknown"


def writing(request: web.Request) -> Write:
    """How a write is meant."""
    dry_run = request.query.getall("dryRun", [])
    if any(value not in ("", "All") for value in dry_run):
        raise _unsupported(request, "dryRun", dry_run, "All")
    validation = request.query.get("fieldValidation", "") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        raise _unsupported(request, "fieldValidation", validation, "Ignore", "Warn", "Strict")
    duplicates = request.get(DUPLICATES, [])
    return Write(_manager(request), "All" in dry_run, validation, duplicates=duplicates)


def _unsupported(request: web.Request, name: str, value: Any, *supported: str) -> errors.ApiError:
    kind = {"POST": "Create", "PUT": "Update", "PATCH": "Patch"}.get(request.method, "Delete") + "Options"
    told = f"Unsupported value: {value!r}: supported values: {', '.join(supported)}"
    return errors.invalid("meta.k8s.io", kind, "", [errors.Cause(name, told, "FieldValueNotSupported")])


def _match(request: web.Request) -> str:
    """How the version that a list names is meant: Exact, NotOlderThan, or empty."""
    match, version = request.query.get("resourceVersionMatch", ""), request.query.get("resourceVersion", "")
    initial = flag(request, "sendInitialEvents")
    told = ""
    if initial and match != "NotOlderThan":
        told = "must be NotOlderThan with sendInitialEvents"
    elif match and flag(request, "watch") and not initial:
        told = "may not be set for a watch without sendInitialEvents"
    elif match and not version and not initial:
        told = "may not be set without resourceVersion"
    if told:
        cause = errors.Cause("resourceVersionMatch", f"Forbidden: {told}", "FieldValueForbidden")
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
    if match not in ("", "Exact", "NotOlderThan"):
        supported = f"Unsupported value: {match!r}: supported values: Exact, NotOlderThan"
        cause = errors.Cause("resourceVersionMatch", supported, "FieldValueNotSupported")
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
    if version and not version.isdecimal():
        raise errors.bad_request(f"resourceVersion {version!r} is not a number")
    return match


def query(request: web.Request, target: Target) -> listing.Query:
    """What a list or a watch selects."""
    seconds = number(request, "timeoutSeconds")
    selectors.check_fields(request.query.get("fieldSelector", ""), target.resource)
    return listing.Query(
        namespace=target.namespace or None,
        name=target.name,
        label_selector=request.query.get("labelSelector", ""),
        field_selector=request.query.get("fieldSelector", ""),
        resource_version=request.query.get("resourceVersion", ""),
        version_match=_match(request),
        limit=number(request, "limit", at_least=None) or 0,
        continue_token=request.query.get("continue", ""),
        watch=flag(request, "watch"),
        bookmarks=flag(request, "allowWatchBookmarks"),
        send_initial_events=flag(request, "sendInitialEvents"),
        timeout_s=float(seconds) if seconds else listing.DEFAULT_WATCH_S,
    )


def delete_options(request: web.Request, given: Any) -> tuple[DeleteOptions, bool]:
    """The options of a delete from its body and its query, and whether it is only tried."""
    options = given if given is not None else {}
    if not isinstance(options, dict):
        raise errors.bad_request("the body of a delete is a DeleteOptions object")
    if options.get("kind", "DeleteOptions") != "DeleteOptions":
        raise errors.bad_request(f"the body of a delete is a DeleteOptions object, not a {options['kind']!r}")
    preconditions = options.get("preconditions") or {}
    propagation = request.query.get("propagationPolicy") or options.get("propagationPolicy")
    orphan = options.get("orphanDependents")
    if propagation is None and orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    elif orphan is not None:
        told = "Invalid value: orphanDependents and propagationPolicy can't both be set"
        cause = errors.Cause("propagationPolicy", told)
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    if propagation is not None and propagation not in PROPAGATIONS:
        raise _unsupported(request, "propagationPolicy", propagation, *PROPAGATIONS)
    grace = number(request, "gracePeriodSeconds")
    found = DeleteOptions(
        grace_seconds=options.get("gracePeriodSeconds") if grace is None else grace,
        propagation=propagation,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
    )
    return found, "All" in (options.get("dryRun") or [])


@dataclass(frozen=True, slots=True)
class Form:
    """In what form a client wants objects: as they are, as tables, or only their metadata."""

    table: bool = False
    partial: bool = False
    include: str = "Metadata"


def form(request: web.Request) -> Form:
    """The first form of the Accept header that this server has."""
    for option in request.headers.get("Accept", "").split(","):
        parts = [part.strip() for part in option.split(";")]
        wanted = dict(part.split("=", 1) for part in parts[1:] if "=" in part)
        if parts[0] not in ("application/json", "*/*", ""):
            continue
        shape = wanted.get("as", "")
        if shape == "Table" and wanted.get("v") == "v1":
            return Form(table=True, include=request.query.get("includeObject", "Metadata"))
        if shape.startswith("PartialObjectMetadata") and wanted.get("v") == "v1":
            return Form(partial=True)
        if not shape:
            break
    return Form()


def wants_aggregated(request: web.Request) -> bool:
    return "as=APIGroupDiscoveryList" in request.headers.get("Accept", "") and "v=v2;" in (
        request.headers.get("Accept", "").replace(" ", "") + ";"
    ).replace(",", ";")


AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
