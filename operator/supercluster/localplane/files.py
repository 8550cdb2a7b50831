"""Replaces files in one step."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file whole and only for its owner."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content.encode() if isinstance(content, str) else content)
    temporary.replace(path)
