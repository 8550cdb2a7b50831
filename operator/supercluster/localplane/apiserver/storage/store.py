"""All objects with one global revision, the recent changes for watches, and SQLite under both.

Every change gets the next integer revision. Changes before a completed `flush` survive the end of the
process, with their revision. A watch gets either every change after its revision or the error that the
revision is too old. Objects that the store takes or returns belong to it and must not be changed in place:
copy them with `clone` first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supercluster.localplane.apiserver.errors import expired
from supercluster.localplane.apiserver.storage.registry import Storage
from supercluster.localplane.json_data import Json

# Enough for any watcher that reads at all; an older one lists again, as it must with a real API server. Up to twice as
# many are kept, of some 10 KiB each, so that half a dozen busy kinds stay below the plane's memory.
HISTORY_EVENTS_PER_STORAGE = 300
# Only somebody who looks into the state file with another program can hold it up.
BUSY_TIMEOUT_S = 1.0


def clone(value: Any) -> Any:
    """A deep copy of JSON data; copy.deepcopy takes ten times as long."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Change:
    """One step of one object; `before` is None for the first, `after` for the last.

    `last` is the object as it is shown for this change: a removed one with the revision of its removal.
    """

    revision: int
    before: Json | None
    after: Json | None
    last: Json


class _Table:
    """The objects of one kind and their recent changes."""

    def __init__(self, lost_before: int) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.changes: list[Change] = []
        # A watch from a smaller revision than this may have missed changes.
        self.lost_before = lost_before
        self.wakers: set[asyncio.Event] = set()


class Store:
    """Objects by (group, plural), namespace and name."""

    def __init__(
        self,
        path: Path | None,
        history_events: int = HISTORY_EVENTS_PER_STORAGE,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self._history_events = history_events
        self._tables: dict[Storage, _Table] = {}
        self._unsaved: dict[tuple[str, str, str, str], tuple[int, Json | None]] = {}
        self.revision = 1
        self._db = sqlite3.connect(
            str(path) if path is not None else ":memory:", isolation_level=None, timeout=busy_timeout_s
        )
        self._db.execute("PRAGMA journal_mode=WAL")
        # The operating system keeps what was written when this process dies; a power cut may cost a laptop's
        # demo its last seconds, which is not worth an fsync per write.
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA cache_size=-512")  # KiB; everything is in memory anyhow
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS objects (grp TEXT, plural TEXT, namespace TEXT, name TEXT, body TEXT NOT NULL,"
            " PRIMARY KEY (grp, plural, namespace, name)) WITHOUT ROWID"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
        )
        self._load()

    def _load(self) -> None:
        revision = self.meta("revision")
        self.revision = int(revision) if revision is not None else 1
        rows = self._db.execute("SELECT grp, plural, namespace, name, body FROM objects")
        for group, plural, namespace, name, body in rows:
            self._table((group, plural)).objects[namespace, name] = json.loads(body)

    def meta(self, key: str) -> str | None:
        """A value kept beside the objects, such as the key that signs tokens."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _table(self, storage: Storage) -> _Table:
        table = self._tables.get(storage)
        if table is None:
            table = self._tables[storage] = _Table(self.revision)
        return table

    def get(self, storage: Storage, namespace: str, name: str) -> Json | None:
        return self._table(storage).objects.get((namespace, name))

    def all_of(self, storage: Storage, namespace: str | None = None) -> list[Json]:
        """The objects in the order of (namespace, name); of one namespace if it is given."""
        objects = self._table(storage).objects
        return [objects[key] for key in sorted(objects) if namespace is None or key[0] == namespace]

    def everything(self) -> Iterator[tuple[Storage, Json]]:
        """All objects of all kinds, as a copy of the index."""
        for storage, table in list(self._tables.items()):
            for found in list(table.objects.values()):
                yield storage, found

    def put(self, storage: Storage, obj: Json) -> Json:
        """Store a new version of an object, which gets the next revision, and tell the watchers."""
        table = self._table(storage)
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        self.revision += 1
        obj = {**obj, "metadata": {**metadata, "resourceVersion": str(self.revision)}}
        before = table.objects.get(key)
        table.objects[key] = obj
        self._record(storage, table, key, Change(self.revision, before, obj, obj))
        return obj

    def remove(self, storage: Storage, namespace: str, name: str) -> Json:
        """Take an object out; the last version, with the revision of its removal, is returned."""
        table = self._table(storage)
        before = table.objects.pop((namespace, name))
        self.revision += 1
        gone = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.revision)}}
        self._record(storage, table, (namespace, name), Change(self.revision, before, None, gone))
        return gone

    def _record(self, storage: Storage, table: _Table, key: tuple[str, str], change: Change) -> None:
        table.changes.append(change)
        if len(table.changes) >= 2 * self._history_events:
            dropped = len(table.changes) - self._history_events
            table.lost_before = table.changes[dropped - 1].revision
            del table.changes[:dropped]
        self._unsaved[(*storage, *key)] = (change.revision, change.after)
        for waker in table.wakers:
            waker.set()

    def changes_since(self, storage: Storage, revision: int) -> list[Change]:
        """The changes after a revision, or 410 when some of them are no longer known."""
        table = self._table(storage)
        if revision < table.lost_before:
            raise expired(f"too old resource version: {revision} ({self.revision})")
        start = bisect_right(table.changes, revision, key=lambda change: change.revision)
        return table.changes[start:]

    def list_at(self, storage: Storage, namespace: str | None, revision: int) -> list[Json]:
        """The objects as they were at a revision, for the later pages of a list."""
        changes = self.changes_since(storage, revision)
        then = dict(self._table(storage).objects)
        for change in reversed(changes):
            metadata = change.last["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            if change.before is None:
                then.pop(key, None)
            else:
                then[key] = change.before
        return [then[key] for key in sorted(then) if namespace is None or key[0] == namespace]

    @contextlib.contextmanager
    def waker(self, storage: Storage) -> Iterator[asyncio.Event]:
        """An event that is set whenever an object of this kind changes."""
        event = asyncio.Event()
        wakers = self._table(storage).wakers
        wakers.add(event)
        try:
            yield event
        finally:
            wakers.discard(event)

    def drop_storage(self, storage: Storage) -> None:
        """Forget the history of a kind that is no longer served; its objects must be gone."""
        table = self._table(storage)
        assert not table.objects, f"{storage} still has objects"
        table.lost_before = self.revision + 1
        table.changes.clear()
        for waker in table.wakers:
            waker.set()

    def flush(self) -> None:
        """Write everything that changed since the last flush, in one transaction.

        A disk that refuses leaves the state file as it was and the changes for the next flush.
        """
        if not self._unsaved:
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._write_unsaved()
            self._db.execute("COMMIT")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._unsaved.clear()

    def _write_unsaved(self) -> None:
        for key, (_, obj) in self._unsaved.items():
            if obj is None:
                self._db.execute(
                    "DELETE FROM objects WHERE grp = ? AND plural = ? AND namespace = ? AND name = ?", key
                )
            else:
                body = json.dumps(obj, separators=(",", ":"))
                self._db.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", (*key, body))
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('revision', ?)", (str(self.revision),))

    def close(self) -> None:
        self.flush()
        self._db.close()
