"""Stories here say who is behind by themselves: their disks are quick, so that no copy is late by chance."""

from __future__ import annotations

import pytest
from tests.simulator.seams import SimCore


@pytest.fixture(autouse=True)
def _quick_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimCore, "_disk_ms", lambda self: 0.0)
