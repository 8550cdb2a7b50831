"""The reference of the command line is made of the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from supercluster.app.cli.reference import text


def run(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "supercluster.app.cli.reference", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_it_has_every_command_with_arguments_options_defaults_and_exit_codes() -> None:
    page = text()
    assert "| 3 | not ready in time, or waiting for a person |" in page
    move = page[page.index("\n## supercluster move\n") :]
    move = move[: move.index("\n## supercluster moves\n")]
    assert "```text\nsupercluster move [OPTIONS] {STREAM}\n```" in move
    assert "| `STREAM <str>` | Name of the Stream" in move
    assert "| `--to CLUSTER` | Name of the Cluster. [required] |" in move
    assert "| `--timeout SECONDS` | Limit for the wait. [default: 600.0] |" in move
    assert "| `-n, --namespace NAME` |" in move
    assert str(Path.home()) not in page


def test_a_page_that_is_out_of_date_is_named(tmp_path: Path) -> None:
    page = tmp_path / "cli.md"
    assert run("--check", str(page)).returncode == 1
    assert run("--write", str(page)).returncode == 0
    assert page.read_text() == text() == run().stdout
    assert run("--check", str(page)).returncode == 0
    page.write_text(text() + "\n")
    done = run("--check", str(page))
    assert done.returncode == 1
    assert f"--write {page} makes it anew" in done.stderr
