"""helm as a person runs it, with a home directory of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TIMEOUT_S = 120


def run_helm_in(
    home: Path, helm: Path, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """What it wrote and how it ended; with `check`, it has to end well."""
    done = subprocess.run(
        [str(helm), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "HOME": str(home), "HELM_CACHE_HOME": str(home)},
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done
