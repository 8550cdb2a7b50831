"""docs/quick-start.md, followed word by word in an empty directory: the package is installed, and no path of this checkout is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.support.guides import BLOCK, blocks, not_shown

GUIDE = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = "".join(blocks(GUIDE, "sh"))
SECONDS = 300


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
    tidy = "set -eux\ntrap 'supercluster dev down || true' EXIT\n"
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
    assert not_shown(GUIDE, done.stdout) == [], done.stdout
    assert str(ROOT) not in done.stdout
