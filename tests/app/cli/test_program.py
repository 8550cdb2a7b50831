"""How `supercluster` begins and ends: its names, its connection, its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from supercluster.app.cli import main, program, session
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from supercluster.app.kubeconfig import KubeconfigError, load


@pytest.mark.covers("CL-5")
def test_what_cannot_be_done_with_a_user_is_a_sentence_and_ends_with_one(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["users", "show", "billing"]) == EXIT_FAILED
    told = capsys.readouterr().err
    assert told.startswith("supercluster: ")
    assert "http://127.0.0.1:9" in told


@pytest.mark.parametrize(
    ("words", "server", "namespace"),
    [
        ((), "http://127.0.0.1:9", "shop"),
        (("-n", "other"), "http://127.0.0.1:9", "other"),
        (("--context", "b"), "http://127.0.0.2:9", "default"),
    ],
)
def test_every_command_takes_context_and_namespace(
    kubeconfig: Path, words: tuple[str, ...], server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    async def look(site: session.Site) -> None:
        seen.append((site.kube._connection.server, site.namespace))

    monkeypatch.setattr(program, "app", typer.Typer(callback=lambda: None))
    session.command(program.app)(look)
    assert main(["look", *words]) == EXIT_OK
    assert seen == [(server, namespace)]


def test_a_context_that_is_not_there_is_named(kubeconfig: Path) -> None:
    with pytest.raises(KubeconfigError, match="no context named 'c'; correct --context"):
        load(context="c")


def test_the_plugin_of_kubectl_calls_itself_by_the_name_that_was_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-supercluster"])
    assert main(["move", "--help"]) == EXIT_OK
    assert capsys.readouterr().out.startswith("Usage: kubectl supercluster move [OPTIONS]")
    assert main(["--install-completion"]) == EXIT_USAGE, "it would take kubectl's own completion away"
    assert "`supercluster --install-completion`" in capsys.readouterr().err


def test_no_command_of_help_and_version_waits_for_models_and_clients() -> None:
    """They take longer to import than everything else; completion runs at each TAB."""
    code = (
        "import sys; from supercluster.app.cli import main; main(['users', '--help']);"
        "sys.exit(', '.join(sys.modules.keys() & {'aiohttp', 'kubernetes', 'supercluster.api', 'rich'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""
