"""The brokers' side of migrations, as exact as the admin calls promise: known by the id that it was started with, started once, and
carried out by the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.reconcilers.builders import clone

from supercluster.reconcilers.ports import (
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    Json,
)

ORDER = ("pending", "learning", "fenced", "handed", "open", "redirected", "final", "cleaned")


class FakeMigrations:
    def __init__(self) -> None:
        self.sides: dict[str, Json] = {}
        """What brokers say of themselves, by the super-cluster's name or the first address; of others they are unreachable."""
        self.deaf: dict[str, Exception] = {}
        """The same, of those that do not answer."""
        self.findings: list[Json] = []
        self.stages: dict[str, str] = {"flights": "pending", "trains": "pending"}
        """Of streams, by name, whatever migration they are in."""
        self.opened: dict[str, Json] = {}
        """What green says otherwise than blue."""
        self.records: dict[str, Json] = {}
        self.started: list[Json] = []
        self.preflights: list[Json] = []
        self.stalled: list[Json] = []
        self.clients: Json = {"cannot": 0, "may": 3, "stillOnBlue": 0, "publishersStillOnBlue": 0}
        self.clean_ups: list[str] = []

    def all_to(self, stage: str) -> None:
        self.stages = dict.fromkeys(self.stages, stage)

    def _name(self, target: BrokerTarget) -> str:
        return target.super_cluster or target.monitors[0]

    def identity(self, target: BrokerTarget) -> Json:
        name = self._name(target)
        if name in self.deaf:
            raise self.deaf[name]
        if name not in self.sides:
            raise BrokersUnreachableError(f"GET of the identity: {name}: connection refused")
        return clone(self.sides[name])

    def _record(self, migration_id: str) -> Json:
        if migration_id not in self.records:
            raise BrokersRefusedError(404, 19023, f"no migration {migration_id}")
        return self.records[migration_id]

    def preflight(self, body: Mapping[str, Any]) -> Json:
        self.preflights.append(clone(dict(body)))
        return {"findings": clone(self.findings), "streams": len(self.stages), "bytes": 1024}

    def start(self, body: Mapping[str, Any]) -> Json:
        if body["id"] not in self.records:
            if any(each.get("level") == "refused" for each in self.findings):
                raise BrokersRefusedError(409, 19022, "preflight refuses")
            self.started.append(clone(dict(body)))
            self.records[body["id"]] = {**clone(dict(body)), "cancelled": False, "final": False}
        return {}

    def state(self, target: BrokerTarget, migration_id: str) -> Json | None:
        if self._name(target) in self.deaf:
            raise self.deaf[self._name(target)]
        record = self.records.get(migration_id)
        if record is None:
            return None
        counts = Counter(self.stages.values())
        on_the_way = sum(counts[stage] for stage in ORDER[:4])
        return {
            **clone(record),
            "startedNs": 1_767_323_045_000_000_000,
            "stages": dict(counts),
            "worstLag": {"entries": 12, "ms": 40},
            "stalled": clone(self.stalled),
            "stalledTotal": len(self.stalled),
            "clients": clone(self.clients),
            "done": record["final"] and set(self.stages.values()) == {"cleaned"},
            "aborted": record["cancelled"] and not on_the_way,
        }

    def streams(self, target: BrokerTarget, migration_id: str, blue: str) -> list[Json]:
        name = self._name(target)
        if name in self.deaf:
            raise self.deaf[name]
        cut = {"account": "$G", "attempt": 1, "lastSeq": 9, "digest": "ab"}
        if name == blue:
            return [{**cut, "name": stream, "stage": stage} for stream, stage in self.stages.items()]
        return [
            {**cut, "name": stream, "state": "open", "consumers": 2, **self.opened.get(stream, {})}
            for stream, stage in self.stages.items()
            if stage in ORDER[4:]
        ]

    def abort(self, migration_id: str) -> None:
        record = self._record(migration_id)
        if self.stages and set(self.stages.values()) <= set(ORDER[4:]):
            raise BrokersRefusedError(409, 19024, "every stream is open on green")
        record["cancelled"] = True

    def finalize(self, migration_id: str) -> None:
        record = self._record(migration_id)
        if not set(self.stages.values()) <= set(ORDER[5:]):
            raise BrokersRefusedError(409, 19025, "a client waits to be redirected")
        record["final"] = True
        self.clean_ups.append(migration_id)

    def handed(self) -> dict[str, Json]:
        return {
            name: {"account": "$G", "name": name, "stage": "open", "id": "m", "green": "green"}
            for name, stage in self.stages.items()
            if stage in ORDER[3:] and self.records
        }
