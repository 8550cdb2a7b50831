"""The store: revisions, history, and what survives a restart."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.storage.store import Store

MAPS = ("", "configmaps")
Json = dict[str, Any]


def a_map(name: str, value: str = "x", namespace: str = "default") -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "data": {"k": value}}


def test_each_change_has_the_next_revision() -> None:
    store = Store(None)
    first = store.put(MAPS, a_map("a"))
    second = store.put(MAPS, a_map("b"))
    gone = store.remove(MAPS, "default", "a")
    revisions = [int(item["metadata"]["resourceVersion"]) for item in (first, second, gone)]
    assert revisions == [2, 3, 4]
    assert store.revision == 4


def test_objects_and_the_revision_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state"
    store = Store(path)
    store.put(MAPS, a_map("a"))
    store.put(MAPS, a_map("b"))
    store.remove(MAPS, "default", "a")
    store.flush()
    # No close: the process may have been killed.
    again = Store(path)
    assert again.revision == 4
    assert [item["metadata"]["name"] for item in again.all_of(MAPS)] == ["b"]
    store.close()
    again.close()


def test_what_was_not_flushed_is_not_there_after_a_kill(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    store.put(MAPS, a_map("a"))
    again = Store(tmp_path / "state")
    assert again.all_of(MAPS) == []
    again.close()
    store.close()


def test_a_watch_sees_every_change_after_its_revision_or_is_told_that_it_is_too_old() -> None:
    store = Store(None, history_events=4)
    for number in range(10):
        store.put(MAPS, a_map("a", str(number)))
    known = store.changes_since(MAPS, store.revision - 3)
    assert [change.last["data"]["k"] for change in known] == ["7", "8", "9"]
    with pytest.raises(ApiError) as refusal:
        store.changes_since(MAPS, 2)
    assert (refusal.value.code, refusal.value.reason) == (410, "Expired")


def test_a_list_can_be_had_as_it_was_at_an_older_revision() -> None:
    store = Store(None)
    store.put(MAPS, a_map("a", "1"))
    store.put(MAPS, a_map("b", "1"))
    then = store.revision
    store.put(MAPS, a_map("a", "2"))
    store.remove(MAPS, "default", "b")
    store.put(MAPS, a_map("c", "1"))
    shown = store.list_at(MAPS, None, then)
    assert [(item["metadata"]["name"], item["data"]["k"]) for item in shown] == [("a", "1"), ("b", "1")]


def test_a_disk_that_refuses_loses_nothing_that_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "state"
    store = Store(path, busy_timeout_s=0)
    store.put(MAPS, a_map("a"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError):
        store.flush()
    other.execute("ROLLBACK")
    other.close()
    store.flush()
    store.close()
    again = Store(path)
    assert [item["metadata"]["name"] for item in again.all_of(MAPS)] == ["a"]
    again.close()
