"""`supercluster status --watch` where standard output is no terminal."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.app.commands.test_tree import FOUND, body
from tests.support.command_line import run_line

from supercluster.app.cli import status
from supercluster.app.commands.errors import EXIT_OK, EXIT_USAGE
from supercluster.app.kube import KubeClient


class Kube:
    """An API server whose stream changes when the test says, and which then interrupts whoever watches."""

    def __init__(self, *messages: int) -> None:
        self.messages = list(messages)

    async def list(self, api_version: str, kind: str, namespace: str | None) -> Any:
        if kind != "Stream":
            return {"items": FOUND.get(kind, []) if kind == "SuperCluster" else []}
        if not self.messages:
            raise asyncio.CancelledError
        spec = {"superCluster": "demo", "replicas": 1}
        return {"items": [body("flights", spec, messages=self.messages.pop(0))]}


async def test_a_tree_is_printed_again_when_something_changed_and_ctrl_c_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "WATCH_INTERVAL_S", 0.0)
    kube = cast("KubeClient", Kube(1, 1, 1, 2))
    assert await run_line(kube, "status", "--watch") == EXIT_OK
    told = [line for line in capsys.readouterr().out.splitlines() if "flights" in line]
    assert [line.rpartition(", ")[2] for line in told] == ["1 messages", "2 messages"]


@pytest.mark.parametrize("word", ["--wait", "--output=json"])
async def test_a_watch_has_no_end_to_wait_for(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_line(cast("KubeClient", Kube()), "status", "--watch", word) == EXIT_USAGE
    assert "--watch goes with neither" in capsys.readouterr().err
