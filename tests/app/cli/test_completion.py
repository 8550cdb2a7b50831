"""Completion as a shell asks for it: the words so far in the environment, the names on standard output."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.app.test_adapters import Server, kube, server

from supercluster.app.cli import completion, main
from supercluster.app.commands.errors import EXIT_OK
from supercluster.app.kube import KubeClient

__all__ = ["kube", "server"]


Complete = Callable[[str, str, Path], Awaitable[tuple[list[str], str]]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What a shell would offer for the last word, and what would disturb its user."""
    monkeypatch.setattr(completion, "LIMIT_S", 60.0)

    async def ask(shell: str, line: str, kubeconfig: Path) -> tuple[list[str], str]:
        for key, value in {
            "KUBECONFIG": str(kubeconfig),
            "_SUPERCLUSTER_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }.items():
            monkeypatch.setenv(key, value)
        assert await asyncio.to_thread(main, []) == EXIT_OK
        printed = capsys.readouterr()
        return printed.out.split(), printed.err

    return ask


def listed(*names: str) -> tuple[int, dict[str, Any]]:
    return 200, {"items": [{"metadata": {"name": name}} for name in names]}


@pytest.fixture
def of_server(server: Server, kube: KubeClient, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: a, namespace: shop}}]\n"
        f"clusters: [{{name: a, cluster: {{server: '{kube._connection.server}'}}}}]\n"
    )
    return path


@pytest.mark.parametrize(
    ("shell", "line", "path", "found"),
    [
        ("bash", "supercluster move fl", "shop/streams", ["flights"]),
        ("fish", "supercluster move flights --to ", "shop/clusters", ["flights", "orders"]),
        ("bash", "supercluster users rotate -n other ", "other/users", ["flights", "orders"]),
        ("fish", "supercluster cancel-move ", "shop/streammoves", ["flights", "orders"]),
    ],
)
async def test_names_come_from_the_api_server(
    complete: Complete, shell: str, line: str, path: str, found: list[str], server: Server, of_server: Path
) -> None:
    server.answers = [listed("orders", "flights")]
    assert await complete(shell, line, of_server) == (found, "")
    assert [asked for _, asked, *_ in server.asked] == [f"/apis/supercluster.dev/v1alpha1/namespaces/{path}"]


async def test_whatever_goes_wrong_there_are_no_names_and_no_words(
    complete: Complete, server: Server, of_server: Path, kubeconfig: Path, tmp_path: Path
) -> None:
    server.answers = [(403, {"message": "no"})]
    for config in (of_server, kubeconfig, tmp_path / "none"):
        assert await complete("bash", "supercluster move fl", config) == ([], "")


async def test_commands_and_options_are_completed_without_an_api_server(
    complete: Complete, kubeconfig: Path
) -> None:
    found, told = await complete("bash", "supercluster re", kubeconfig)
    assert (sorted(found), told) == (["rebalance", "recover", "replica", "report"], "")
    assert await complete("bash", "supercluster moves --ou", kubeconfig) == (["--output"], "")


async def test_an_api_server_that_is_silent_is_not_waited_for_long(
    complete: Complete, server: Server, of_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "LIMIT_S", 0.0)
    server.answers = [listed("flights")]
    assert await complete("bash", "supercluster move fl", of_server) == ([], "")
