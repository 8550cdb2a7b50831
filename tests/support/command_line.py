"""`supercluster` as a user types it, against an API server of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

from supercluster.app.cli import session
from supercluster.app.cli.program import app
from supercluster.app.kube import KubeClient


async def run_line(kube: KubeClient, *words: str) -> int:
    """Its exit code. A command runs a loop of its own, so it gets a thread.

    Raises:
        CommandError: the command failed; `main` prints the message.
    """

    @asynccontextmanager
    async def connect(_: session.Connection) -> AsyncIterator[session.Site]:
        yield session.Site(kube, "ns")

    def line() -> int:
        try:
            app(list(words), prog_name="supercluster")
        except SystemExit as ended:
            return int(ended.code or 0)
        raise AssertionError("a command ends with an exit code")

    with patch.object(session, "connect", connect):
        return await asyncio.to_thread(line)
