"""Cordons: brokers that get no new copies for the time being. They are recorded in the map of streams.

A cordoned broker keeps its copies, leads, votes and serves clients. Every placement of a copy, whether
requested or automatic, passes it over and gives the reason. The record is in the map and does not come from
the broker itself, so it holds while that broker is away, and for every leader alike (docs/adr/cordons.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REASON_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Cordon:
    """Why a broker gets no copies, and who says so."""

    reason: str
    declared_by: str = ""
    """The resource that declares it, `<namespace>/<name>`; empty: a person did."""

    @property
    def text(self) -> str:
        return f"is cordoned ({self.reason})"

    def to_json(self) -> dict[str, str]:
        return {"reason": self.reason, "declaredBy": self.declared_by}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Cordon:
        return Cordon(str(data["reason"]), str(data.get("declaredBy", "")))


def put_cordon(node: str, cordon: Cordon | None) -> bytes:
    """The section body that cordons a broker; None: it gets copies again."""
    told = cordon.to_json() if cordon is not None else None
    return json.dumps({"op": "cordon", "node": node, "cordon": told}).encode()
