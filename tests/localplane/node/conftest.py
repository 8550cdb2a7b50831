"""Fixtures: planes of this process, stopped after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.localplane.lab import Lab, Labs


@pytest.fixture
async def labs(tmp_path: Path) -> AsyncIterator[Labs]:
    found = Labs(tmp_path / "state")
    yield found
    await found.stop()


@pytest.fixture
async def lab(labs: Labs) -> Lab:
    return await labs.start()
