"""Manifests as files have them. Pure but for reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def documents(folder: Path) -> list[dict[str, Any]]:
    """Every object in the folder's YAML files, in the files' order.

    Raises:
        FileNotFoundError: there is none.
    """
    found = [
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document
    ]
    if not found:
        raise FileNotFoundError(f"no manifests in {folder}")
    return found
