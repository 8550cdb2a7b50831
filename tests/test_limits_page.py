"""docs/limits.md names settings and constants that exist, with the values that they have."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from supercluster.api.accounts import AccountLimits
from supercluster.broker.ports import Channel
from supercluster.broker.settings import settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/limits.md").read_text()
SECTIONS = settings._SECTIONS


def shown(value: int, name: str) -> str:
    if "bytes" not in name.lower():
        return f"{value:,}"
    size, unit = (value >> 20, "MiB") if value >= 1 << 20 else (value >> 10, "KiB")
    return f"{size} {unit}"


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if "` `" in line])
def test_constants_have_the_values_that_the_page_says(line: str) -> None:
    for path, name in re.findall(r"`([\w/]+)\.py` `([A-Z_]+)`", line):
        value = getattr(importlib.import_module(f"supercluster.broker.{path.replace('/', '.')}"), name)
        if name == "LINKS_MAX":
            continue
        if isinstance(value, dict):
            (value,) = {value[channel] for channel in Channel}
        assert f"| {shown(value, name)} |" in line


def test_settings_exist_and_their_defaults_are_as_the_page_says() -> None:
    named = re.findall(r"`(\w+)\.(\w+)`", PAGE)
    assert len(named) > 8
    for section, name in named:
        if section in ("broker", "benchmarks", "bounds"):
            continue
        found = {settings.camel(item.name): item for item in fields(SECTIONS[section])}
        assert name in found, f"{section}.{name}"
    defaults: dict[str, Any] = {settings.camel(item.name): item.default for item in fields(settings.Limits)}
    for name in ("maxPendingBytes", "maxPayloadBytes", "windowBytesPerStream"):
        assert f"| {shown(defaults[name], name)} | `limits.{name}` |" in PAGE
    for name in re.findall(r"the account's `(\w+)`", PAGE):
        aliases = {field.alias or key for key, field in AccountLimits.model_fields.items()}
        assert name in aliases


def test_every_thing_that_is_measured_has_a_row() -> None:
    things = ("connection", "subscription", "not taken", "stream", "subject in a stream", "message id")
    others = ("consumer", "pending message", "session", "link")
    table = PAGE.split("## What a client")[0]
    for thing in (*things, *others):
        rows = [line for line in table.splitlines() if line.startswith("|") and thing in line.split("|")[1]]
        assert rows, thing
        assert all(cells.split("|")[4].strip() for cells in rows), thing
