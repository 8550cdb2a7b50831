"""Fixtures for the API server's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from supercluster.localplane.apiserver.storage.store import Store


@pytest.fixture(autouse=True)
def stores_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every store that a test opened: a lab has no end of its own, and SQLite warns of what is left open."""
    opened: list[Store] = []
    initialise = Store.__init__

    def noted(self: Store, *arguments: Any, **options: Any) -> None:
        initialise(self, *arguments, **options)
        opened.append(self)

    monkeypatch.setattr(Store, "__init__", noted)
    yield
    for store in opened:
        # What is left unwritten in a store that a test broke or closed itself is of no interest.
        store._db.close()
