"""Lists in pages, and watches: their selection of objects, and the stream of events of a watch.

A list's pages all show the revision of its first page. A watch sends each change after the revision it starts
from exactly once, in order, or ends with 410.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from supercluster.localplane.apiserver.errors import ApiError, bad_request, expired
from supercluster.localplane.apiserver.storage.registry import Resource
from supercluster.localplane.apiserver.storage.selectors import Predicate, predicate
from supercluster.localplane.apiserver.storage.store import Change, Store
from supercluster.localplane.json_data import Json

# Bookmarks keep the revision of a quiet watch young enough to resume from.
BOOKMARK_INTERVAL_S = 30.0
DEFAULT_WATCH_S = 1_800.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a list or a watch."""

    namespace: str | None = None
    name: str = ""
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    # Exact: a list as it was at that version.
    version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    watch: bool = False
    bookmarks: bool = False
    send_initial_events: bool = False
    timeout_s: float = DEFAULT_WATCH_S

    def selects(self) -> Predicate:
        chosen = predicate(self.label_selector, self.field_selector)
        if not self.name:
            return chosen
        return lambda obj: obj["metadata"]["name"] == self.name and chosen(obj)


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Json]
    revision: int
    continue_token: str = ""
    remaining: int = 0


def _token(revision: int, last: Json) -> str:
    metadata = last["metadata"]
    raw = json.dumps([revision, metadata.get("namespace", ""), metadata["name"]])
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        revision, namespace, name = json.loads(raw)
        return int(revision), (str(namespace), str(name))
    except (ValueError, TypeError) as error:
        raise bad_request(f"continue token {token!r} is not one this server gave out") from error


def page(store: Store, resource: Resource, query: Query) -> Page:
    wanted = query.selects()
    if query.continue_token:
        revision, after = _from_token(query.continue_token)
        try:
            candidates = store.list_at(resource.storage, query.namespace, revision)
        except ApiError as error:
            raise expired(
                "the provided continue parameter is too old to display a consistent list result"
            ) from error
        candidates = [item for item in candidates if _key(item) > after]
    elif query.version_match == "Exact":
        revision = int(query.resource_version)
        candidates = store.list_at(resource.storage, query.namespace, revision)
    else:
        revision = store.revision
        candidates = store.all_of(resource.storage, query.namespace)
    found = [item for item in candidates if wanted(item)]
    if query.limit > 0 and len(found) > query.limit:
        shown = found[: query.limit]
        return Page(shown, revision, _token(revision, shown[-1]), len(found) - query.limit)
    return Page(found, revision)


def _key(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: str
    obj: Json


def _event(change: Change, query: Query, wanted: Predicate) -> WatchEvent | None:
    """What a change looks like to a watch: an object may come into or leave its selection."""
    shown = change.last
    if query.namespace is not None and shown["metadata"].get("namespace", "") != query.namespace:
        return None
    was = change.before is not None and wanted(change.before)
    now = change.after is not None and wanted(change.after)
    if now:
        return WatchEvent("MODIFIED" if was else "ADDED", shown)
    if not was:
        return None
    if change.after is None:
        return WatchEvent("DELETED", shown)
    assert change.before is not None
    revision = change.after["metadata"]["resourceVersion"]
    left = {**change.before, "metadata": {**change.before["metadata"], "resourceVersion": revision}}
    return WatchEvent("DELETED", left)


def _bookmark(resource: Resource, revision: int, initial: bool = False) -> WatchEvent:
    metadata: Json = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return WatchEvent(
        "BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    )


def _start(store: Store, resource: Resource, query: Query) -> tuple[int, list[Json]]:
    """The revision a watch starts after, and the objects it shows first."""
    fresh = query.resource_version in ("", "0")
    if query.send_initial_events or fresh:
        wanted = query.selects()
        initial = [item for item in store.all_of(resource.storage, query.namespace) if wanted(item)]
        return store.revision, initial
    try:
        return int(query.resource_version), []
    except ValueError:
        raise bad_request(f"resourceVersion {query.resource_version!r} is not a number") from None


def watch(
    store: Store, resource: Resource, query: Query, clock: Callable[[], float]
) -> AsyncIterator[WatchEvent | None]:
    """The events of a watch until its time is over; None says that everything until now was sent.

    What is wrong with the query is said by this call, before anything is sent.
    """
    wanted = query.selects()
    position, initial = _start(store, resource, query)
    return _events(store, resource, query, clock, wanted, position, initial)


async def _events(
    store: Store,
    resource: Resource,
    query: Query,
    clock: Callable[[], float],
    wanted: Predicate,
    position: int,
    initial: list[Json],
) -> AsyncIterator[WatchEvent | None]:
    for item in initial:
        yield WatchEvent("ADDED", item)
    if query.send_initial_events and query.bookmarks:
        yield _bookmark(resource, position, initial=True)
    deadline = clock() + query.timeout_s
    bookmark_at = clock() + BOOKMARK_INTERVAL_S
    with store.waker(resource.storage) as waker:
        while True:
            waker.clear()
            try:
                changes = store.changes_since(resource.storage, position)
            except ApiError as error:
                yield WatchEvent("ERROR", error.to_json())
                return
            # Nothing of this kind changed up to here, so this is as good a place to resume from as any.
            position = store.revision
            for change in changes:
                event = _event(change, query, wanted)
                if event is not None:
                    yield event
            yield None
            now = clock()
            if now >= deadline:
                return
            if query.bookmarks and now >= bookmark_at:
                yield _bookmark(resource, position)
                yield None
                bookmark_at = now + BOOKMARK_INTERVAL_S
            until = min(deadline, bookmark_at) if query.bookmarks else deadline
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waker.wait(), max(0.0, until - now))
