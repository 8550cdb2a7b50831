"""`supercluster status --watch` where standard output is no terminal."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from tests.app.commands.test_tree import FOUND, body
from tests.support.command_line import run_line

from supercluster.app.cli import status
from supercluster.app.commands.errors import EXIT_OK, EXIT_USAGE
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import KubeError


class Kube:
    """An API server whose stream changes or which fails when the test says, and which then interrupts whoever watches."""

    def __init__(self, *messages: int | KubeError) -> None:
        self.messages = list(messages)

    async def list(self, api_version: str, kind: str, namespace: str | None) -> Any:
        if kind != "Stream":
            return {"items": FOUND.get(kind, []) if kind == "SuperCluster" else []}
        if not self.messages:
            raise asyncio.CancelledError
        spec, told = {"superCluster": "demo", "replicas": 1}, self.messages.pop(0)
        if isinstance(told, KubeError):
            raise told
        return {"items": [body("flights", spec, messages=told)]}


async def test_a_tree_is_printed_again_when_something_changed_and_ctrl_c_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "WATCH_INTERVAL_S", 0.0)
    kube = cast("KubeClient", Kube(1, 1, 1, 2))
    assert await run_line(kube, "status", "--watch") == EXIT_OK
    told = [line for line in capsys.readouterr().out.splitlines() if "flights" in line]
    assert [line.rpartition(", ")[2] for line in told] == ["1 messages", "2 messages"]


async def test_a_watch_goes_on_while_the_api_server_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "WATCH_INTERVAL_S", 0.0)
    away = [KubeError(number, "R", "away") for number in (0, 500, 503, 429)]
    kube = cast("KubeClient", Kube(*away, 1, *away, 1))
    assert await run_line(kube, "status", "--watch") == EXIT_OK
    out, err = capsys.readouterr()
    assert out.count("flights") == 2, "the tree is printed again when the server is back"
    for line in (told := err.splitlines()):
        assert re.fullmatch(r"no answer from the API server since \d\d:\d\d:\d\d", line)
    assert len(told) == 2, "once for each time that it was away"


async def test_a_terminal_shows_the_last_tree_and_since_when_there_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "WATCH_INTERVAL_S", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert (
        await run_line(cast("KubeClient", Kube(1, KubeError(0, "R", "away"))), "status", "--watch") == EXIT_OK
    )
    shown = capsys.readouterr().out.rpartition("SuperCluster demo")[2]
    assert "Stream flights" in shown
    assert "no answer from the API server since " in shown


@pytest.mark.parametrize("code", [401, 403, 404])
async def test_a_refusal_ends_a_watch(code: int) -> None:
    with pytest.raises(KubeError, match="not for you"):
        await run_line(cast("KubeClient", Kube(KubeError(code, "R", "not for you"))), "status", "--watch")


def test_ctrl_c_ends_a_watch_that_never_got_an_answer(kubeconfig: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "supercluster.app.cli",
        "status",
        "--watch",
        "--kubeconfig",
        str(kubeconfig),
    ]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stderr is not None
            assert "no answer from the API server since" in watch.stderr.readline()
            watch.send_signal(signal.SIGINT)
            assert watch.wait(30) == EXIT_OK
            assert watch.stderr.read() == ""
        finally:
            watch.kill()


def lease(holder: str, age_s: float) -> Any:
    renewed = datetime.now(UTC) - timedelta(seconds=age_s)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.isoformat()}
    return {"spec": spec}


@pytest.mark.parametrize(
    ("lease_of", "is_away"),
    [
        (("one", 5), False),
        (("one", 60), True),
        (("", 5), True),  # It was stopped.
        (None, False),  # It acts without a Lease, or has not begun.
        (KubeError(403, "Forbidden", "not for you"), False),
    ],
)
async def test_an_operator_that_is_away_is_told(
    lease_of: Any, is_away: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    there = lease(*lease_of) if isinstance(lease_of, tuple) else lease_of

    class Served(Kube):
        async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Any:
            assert (kind, namespace, name) == ("Lease", "ns", "supercluster-operator")
            if isinstance(there, KubeError):
                raise there
            return there

    assert await run_line(cast("KubeClient", Served(1)), "status") == EXIT_OK
    out, err = capsys.readouterr()
    assert "flights" in out
    assert ("the operator of namespace ns is away since" in err) is is_away


@pytest.mark.parametrize("word", ["--wait", "--output=json"])
async def test_a_watch_has_no_end_to_wait_for(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_line(cast("KubeClient", Kube()), "status", "--watch", word) == EXIT_USAGE
    assert "--watch goes with neither" in capsys.readouterr().err
