"""Did a file change? Mounted Secrets and ConfigMaps are replaced while the broker runs, and nobody says so."""

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
