"""The second go of tests with real processes: who gets one, and what is said about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tiers import case

ROOT = Path(__file__).parents[2]
# The number of goes is in a file; a test passes from the go on that its name ends with.
TESTS = """
import pathlib
import pytest

@pytest.mark.parametrize("passes_in", {passes_in})
def test_it(passes_in):
    goes = pathlib.Path(f"goes-{{passes_in}}")
    number = len(goes.read_text()) + 1 if goes.exists() else 1
    goes.write_text("x" * number)
    assert number >= int(passes_in[0])
"""

# Most of the time that a pytest takes here would be the import of the others.
NO_OTHER_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
ALL_PASS = (["1a", "1b"], 0, {"1a": 1, "1b": 1})
ONE_IS_UNSTABLE = (["1a", "2a"], 0, {"1a": 1, "2a": 2})
ONE_FAILS_AGAIN = (["2a", "3a"], 1, {"2a": 2, "3a": 2})
TOO_MANY_FAIL = (["2a", "2b", "2c", "2d", "2e", "2f"], 1, {"2a": 1, "2f": 1})


def run(folder: Path, *passes_in: str, processes: int = 0) -> tuple[int, str]:
    (folder / "test_some.py").write_text(TESTS.format(passes_in=list(passes_in)))
    command = [sys.executable, "-m", "tests.support.two_goes", "test_some.py"]
    command += ["--numprocesses", str(processes)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **NO_OTHER_PLUGINS, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("passes_in", "code", "goes", "processes"),
    [
        case(*ALL_PASS, 0, id="all pass", is_short=True),
        case(*ONE_IS_UNSTABLE, 0, id="one is unstable", is_short=True),
        case(*ONE_FAILS_AGAIN, 0, id="one fails again", is_short=True),
        case(*TOO_MANY_FAIL, 0, id="too many fail", is_short=True),
        case(*ALL_PASS, 2, id="all pass, side by side", is_short=False),
        case(*ONE_IS_UNSTABLE, 2, id="one is unstable, side by side", is_short=False),
        case(*ONE_FAILS_AGAIN, 2, id="one fails again, side by side", is_short=True),
        case(*TOO_MANY_FAIL, 2, id="too many fail, side by side", is_short=False),
    ],
)
def test_few_failures_get_a_second_go(
    tmp_path: Path, passes_in: list[str], code: int, goes: dict[str, int], processes: int
) -> None:
    found, said = run(tmp_path, *passes_in, processes=processes)
    assert found == code
    assert {name: len((tmp_path / f"goes-{name}").read_text()) for name in goes} == goes
    unstable = {name for name, count in goes.items() if count == 2 and name[0] == "2"}
    assert {
        line.partition("[")[2].rstrip("]") for line in said.splitlines() if "UNSTABLE" in line
    } == unstable
    assert ("failed again" in said) == ("3a" in passes_in)
