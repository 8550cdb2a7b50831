"""NATS's newest Python clients need Python 3.13: `make smoke` runs their tests there."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.py_clients.site import Site

collect_ignore_glob = [] if sys.version_info >= (3, 13) else ["test_nats_core*.py"]


@pytest.fixture
async def site(tmp_path: Path, command: tuple[str, ...]) -> AsyncIterator[Site]:
    """Of a test that is marked `both`."""
    made = Site(tmp_path, command)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
