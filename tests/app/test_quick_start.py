"""docs/quick-start.md, followed word by word in an empty directory: the package is installed, and no path of this checkout is used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.support.guides import BLOCK, blocks

GUIDE = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = "".join(blocks(GUIDE, "sh"))
# Most of it is pip: half a minute, and some minutes beside other work.
SECONDS = 900


def pattern_of(shown: str) -> re.Pattern[str]:
    """Matches exactly what is shown: `…` stands for any words of a line, and on a line of its own for any lines."""
    lines = (
        "(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in shown.splitlines()
    )
    return re.compile("".join(lines))


@pytest.mark.parametrize(
    ("printed", "is_shown"),
    [
        ("a\nb 1\nc\n", True),
        ("a\nx\ny\nb 2\nc\n", True),
        ("a\nb 1\nx\nc\n", False),
        ("a\nb  1\nd\n", False),
        ("b 1\nc\n", False),
    ],
)
def test_what_is_shown_is_all_that_is_printed(printed: str, is_shown: bool) -> None:
    assert (pattern_of("a\n…\nb …\nc\n").fullmatch(printed) is not None) is is_shown


def test_every_block_is_run_or_compared() -> None:
    assert {language for language, _ in BLOCK.findall(GUIDE)} == {"sh", "text"}


def test_the_readme_has_commands_of_the_guide_in_its_order() -> None:
    lines = iter(COMMANDS.splitlines())
    for line in "".join(blocks(README, "sh")).splitlines():
        assert line in lines, line


@pytest.mark.e2e
@pytest.mark.timeout(2 * SECONDS)
def test_the_commands_install_publish_move_and_read(tmp_path: Path) -> None:
    subprocess.run(
        ["git", "clone", "--quiet", str(ROOT), str(tmp_path / "supercluster")], check=True, timeout=60
    )
    # A path that has this Python and the machine's programs, and nothing of the environment that the tests run in.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    machine = [each for each in os.environ["PATH"].split(":") if not each.startswith(sys.prefix)]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "KUBECONFIG"))
    }
    environment |= {
        "PATH": ":".join([str(tmp_path / "bin"), *machine]),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    tidy = "set -eux\ntrap 'supercluster dev down >/dev/null 2>&1' EXIT\n"
    done = subprocess.run(
        ["bash", "-c", tidy + COMMANDS],
        cwd=tmp_path / "supercluster",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    # pip may have remarks of its own.
    installed = done.stdout.index("starting the embedded control plane")
    printed = [line for line in done.stdout[installed:].splitlines() if not line.startswith("+")]
    assert pattern_of("".join(blocks(GUIDE, "text"))).fullmatch("\n".join(printed) + "\n"), done.stdout
    assert str(ROOT) not in done.stdout
