"""Detects changed files. Mounted Secrets and ConfigMaps are replaced while the broker runs, without a
notification.
"""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int, int]


def stamp_of(file: Path) -> Stamp | None:
    """Changes when the file's content does; None when it isn't there."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
