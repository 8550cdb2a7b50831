"""State of the meta group: which streams there are and who holds them, and which brokers there are.

Replicated like a stream's state: a function of committed entries alone. What a broker acts on (its map of streams) is
always this state as of some applied index, so that "has the new map" is a number (SF-14).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from supercluster.broker.jetstream.config import StreamConfig
from supercluster.broker.jetstream.sections import Section, sections
from supercluster.broker.raft.entry import Entry, EntryKind


@dataclass(frozen=True, slots=True)
class Assignment:
    """One stream: its configuration and the members its group was started with. For the membership in force the
    stream's own group has the last word (SF-5)."""

    account: str
    name: str
    group: str
    config: StreamConfig
    version: int
    """Meta index of the last change of the configuration."""
    members: tuple[str, ...]
    created_ns: int

    @property
    def declared_by(self) -> str:
        """The resource that declares the stream (`namespace/name`), empty when none does (SF-23)."""
        return dict(self.config.metadata).get(RESOURCE_KEY, "")


RESOURCE_KEY = "supercluster.dev/resource"
ACK_POLICY_KEY = "supercluster.dev/ack-policy"
FSYNC_KEY = "supercluster.dev/fsync"
PREFERRED_LEADER_KEY = "supercluster.dev/preferred-leader"


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """One broker as the meta group knows it."""

    node: str
    cluster: str
    incarnation: str
    since_ns: int


@dataclass(slots=True)
class MetaState:
    """All of it. Keys of `streams` are (account, stream name)."""

    streams: dict[tuple[str, str], Assignment] = field(default_factory=dict)
    brokers: dict[str, BrokerRecord] = field(default_factory=dict)
    applied_index: int = 0
    time_ns: int = 0

    def apply(self, entry: Entry) -> list[str]:
        """Apply the next entry. Returns the groups that it made, changed or removed."""
        touched: list[str] = []
        self.time_ns = max(self.time_ns, entry.time_ns)
        if entry.kind == EntryKind.BATCH:
            for kind, body in sections(entry.payload):
                if kind != Section.META:
                    raise AssertionError(f"meta group: section of kind {kind} in entry {entry.index}")
                touched += self._operate(json.loads(bytes(body)), entry)
        self.applied_index = entry.index
        return touched

    def _operate(self, op: dict[str, Any], entry: Entry) -> list[str]:
        what = op["op"]
        if what == "broker":
            self.brokers[op["node"]] = BrokerRecord(
                op["node"], op["cluster"], op["incarnation"], entry.time_ns
            )
            return []
        key = (op["account"], op["name"])
        present = self.streams.get(key)
        if what == "put":
            config = StreamConfig.from_json(op["config"])
            if present is None:
                created = Assignment(
                    *key, op["group"], config, entry.index, tuple(op["members"]), entry.time_ns
                )
                self.streams[key] = created
                return [created.group]
            self.streams[key] = Assignment(
                *key, present.group, config, entry.index, present.members, present.created_ns
            )
            return [present.group]
        if what == "renew":
            if present is None or present.group != op["group"]:
                return []
            self.streams[key] = Assignment(
                *key, op["new_group"], present.config, entry.index, tuple(op["members"]), entry.time_ns
            )
            return [present.group, str(op["new_group"])]
        if what == "delete":
            if present is None or present.group != op["group"]:
                return []
            del self.streams[key]
            return [present.group]
        raise AssertionError(f"meta group: unknown operation {what!r} in entry {entry.index}")

    def of_account(self, account: str) -> Iterator[Assignment]:
        """The account's streams by name."""
        return (self.streams[key] for key in sorted(self.streams) if key[0] == account)

    def by_group(self, group: str) -> Assignment | None:
        return next((found for found in self.streams.values() if found.group == group), None)

    def snapshot(self) -> bytes:
        streams = [
            [s.account, s.name, s.group, s.config.to_json(), s.version, list(s.members), s.created_ns]
            for s in self.streams.values()
        ]
        brokers = [[b.node, b.cluster, b.incarnation, b.since_ns] for b in self.brokers.values()]
        whole = {"streams": streams, "brokers": brokers, "applied": self.applied_index, "time": self.time_ns}
        return json.dumps(whole, sort_keys=True).encode()

    @classmethod
    def restore(cls, data: bytes) -> MetaState:
        whole = json.loads(data)
        state = cls(applied_index=whole["applied"], time_ns=whole["time"])
        for account, name, group, config, version, members, created_ns in whole["streams"]:
            state.streams[account, name] = Assignment(
                account, name, group, StreamConfig.from_json(config), version, tuple(members), created_ns
            )
        state.brokers = {row[0]: BrokerRecord(*row) for row in whole["brokers"]}
        return state


def put_stream(account: str, name: str, group: str, config: StreamConfig, members: tuple[str, ...]) -> bytes:
    """The section body that creates a stream or changes its configuration."""
    op = {"op": "put", "account": account, "name": name, "group": group, "config": config.to_json()}
    return json.dumps({**op, "members": list(members)}).encode()


def renew_stream(found: Assignment, new_group: str, members: tuple[str, ...]) -> bytes:
    """The section body that begins a stream anew, with a group of its own, since every copy of it is gone."""
    op = {"op": "renew", "account": found.account, "name": found.name, "group": found.group}
    return json.dumps({**op, "new_group": new_group, "members": list(members)}).encode()


def delete_stream(account: str, name: str, group: str) -> bytes:
    return json.dumps({"op": "delete", "account": account, "name": name, "group": group}).encode()


def put_broker(node: str, cluster: str, incarnation: str) -> bytes:
    return json.dumps({"op": "broker", "node": node, "cluster": cluster, "incarnation": incarnation}).encode()
