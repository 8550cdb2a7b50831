"""`supercluster` as a user types it, against an API server of the test's."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import typer

from supercluster.app.cli import session
from supercluster.app.cli.program import app
from supercluster.app.commands.errors import EXIT_OK
from supercluster.app.kube import KubeClient


async def run_line(kube: KubeClient, *words: str) -> int:
    """Its exit code. The work is done in the loop of the test, where its API server is.

    Raises:
        CommandError: the command failed; `main` prints the message.
    """

    @asynccontextmanager
    async def connect(_: session.Connection) -> AsyncIterator[session.Site]:
        yield session.Site(kube, "ns")

    work: list[Coroutine[Any, Any, int | None]] = []
    with patch.object(session, "connect", connect), patch.object(session, "finish", work.append):
        try:
            app(list(words), prog_name="supercluster")
        except SystemExit as ended:
            if not work:
                return int(ended.code or EXIT_OK)
        try:
            return await work.pop() or EXIT_OK
        except typer.TyperException as error:
            print(error.format_message(), file=sys.stderr)
            return error.exit_code
