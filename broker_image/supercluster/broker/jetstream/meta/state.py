"""The state of the meta group: the streams and their members, the accounts, and the brokers.

It is replicated like a stream's state: a function of committed entries alone. A broker acts on its map of
streams, which is always this state as of some applied index, so "has the new map" is a number (SF-14).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.meta.accounts import Accounts
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.changes import CHANGES
from supercluster.broker.jetstream.meta.cordons import Cordon
from supercluster.broker.jetstream.meta.level import FIRST
from supercluster.broker.jetstream.meta.map_recovery import MapRecovery, Standing
from supercluster.broker.jetstream.meta.migration import (
    ATTEMPTS_SKIPPED,
    Arrival,
    Following,
    Migration,
    StreamMigration,
)
from supercluster.broker.jetstream.meta.migration_changes import (
    PREFIX as MIGRATION_PREFIX,
)
from supercluster.broker.jetstream.meta.migration_changes import (
    change_migrations,
    followed,
    is_unfollowed,
    note_dropped,
)
from supercluster.broker.jetstream.meta.move_record import Move, MoveReport
from supercluster.broker.jetstream.meta.restoring import Restoring
from supercluster.broker.jetstream.meta.stream_recovery import Recovery
from supercluster.broker.raft.entry import Entry, EntryKind


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """One broker as the meta group knows it."""

    node: str
    cluster: str
    incarnation: str
    since_ns: int
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class MetaState:
    """All of it. Keys of `streams` are (account, stream name)."""

    streams: dict[tuple[str, str], Assignment] = field(default_factory=dict)
    brokers: dict[str, BrokerRecord] = field(default_factory=dict)
    accounts: Accounts = field(default_factory=Accounts)
    """Of every account that somebody declared or that has a stream."""
    applied_index: int = 0
    time_ns: int = 0
    moving: set[tuple[str, str]] = field(default_factory=set)
    """Keys of the streams that move."""
    short: set[tuple[str, str]] = field(default_factory=set)
    """Keys of the streams that lack members since they were recovered by force."""
    unconfirmed: set[tuple[str, str]] = field(default_factory=set)
    """Keys of the streams of which a recovered map does not know the members in force."""
    recovery: MapRecovery | None = None
    """The forced recovery that began the map's present lineage (SF-9)."""
    leaving: dict[str, str] = field(default_factory=dict)
    """Brokers that go for good, and the resource that says so, `<namespace>/<name>`; empty: a person does."""
    away: dict[str, int] = field(default_factory=dict)
    """Node → since when it has been out of contact, by the clock of the leader that missed it. Kept here and not by a
    leader, so that who repairs need not remember it (MR-2)."""
    cordoned: dict[str, Cordon] = field(default_factory=dict)
    """Brokers that get no new copies, and why."""
    level: int = FIRST
    """Operations that came up to this frame version may follow: all brokers can read them (`meta/level.py`)."""
    failed_copies: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node → group → since when its copy has been of no use although the node is there, as it said itself."""
    processes: dict[str, int] = field(default_factory=dict)
    """Node → the number of the last process that was recorded on its volume (`process_count.py`): it rises (SF-27)."""
    migrations: dict[str, Migration] = field(default_factory=dict)
    """Migrations to other super-clusters, by their ids: those that run, and the last ones that ended."""
    migrating: set[tuple[str, str]] = field(default_factory=set)
    """Keys of the streams that are on their way to another super-cluster, or have gone there."""
    coming: set[tuple[str, str]] = field(default_factory=set)
    """Keys of the streams that are on their way here."""
    other_groups: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Groups, besides their own, under which streams are known that went, come or came; with the streams' keys."""
    bootstrap_id: str = ""
    """Which beginning this map goes back to: the volume of the first broker that it recorded, and when. Empty before that, and
    where a version began it that did not say (SF-26)."""

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
            self._put_broker(op, entry)
            return []
        if what == "level":
            self.level = max(self.level, op["level"])
            return []
        if what == "cordon":
            self._put_cordon(op)
            return []
        if what.startswith(MIGRATION_PREFIX):
            change_migrations(self.migrations, op, entry, self.ways)
            return []
        if "record" in op:
            self.accounts.set_totals(
                op["account"], op["record"], has_streams=self._has_streams(op["account"])
            )
            return []
        key = (op["account"], op["name"])
        present = self.streams.get(key)
        if what == "restore":
            return self._begin_restore(key, present, op, entry)
        if what == "follow":
            return self._follow(key, present, op, entry)
        if what == "put":
            config = StreamConfig.from_json(op["config"])
            if present is None:
                created = Assignment(
                    *key, op["group"], config, entry.index, tuple(op["members"]), entry.time_ns
                )
                self.streams[key] = created
                self.accounts.has_stream(created.account)
                return [created.group]
            self.streams[key] = replace(present, config=config, version=present.next_version(entry.index))
            return [present.group]
        if what not in ("delete", "unfollow") and what not in CHANGES:
            raise AssertionError(f"meta group: unknown operation {what!r} in entry {entry.index}")
        if present is None or present.group != op["group"]:
            return []
        if what == "delete" or (what == "unfollow" and is_unfollowed(present, op)):
            return self._delete(key, present)
        changed = CHANGES[what](present, op, entry) if what != "unfollow" else None
        if changed is None:
            return []
        way, now = present.migration, changed.migration
        if way is not None and (now is None or now.source != way.source):
            note_dropped(self.migrations, present)
        self._put(key, changed)
        return _touched(present, changed)

    def _delete(self, key: tuple[str, str], present: Assignment) -> list[str]:
        del self.streams[key]
        note_dropped(self.migrations, present)
        for keys in (self.moving, self.short, self.unconfirmed, self.migrating, self.coming):
            keys.discard(key)
        for group in present.other_groups:
            self.other_groups.pop(group, None)
        if not self._has_streams(present.account):
            self.accounts.has_none(present.account)
        return _touched(present, present)

    def _follow(
        self, key: tuple[str, str], present: Assignment | None, op: dict[str, Any], entry: Entry
    ) -> list[str]:
        begun = followed(key, present, op, entry)
        if begun is None:
            return []
        self._put(key, begun)
        self.accounts.has_stream(begun.account)
        return _touched(present or begun, begun)

    def _begin_restore(
        self, key: tuple[str, str], present: Assignment | None, op: dict[str, Any], entry: Entry
    ) -> list[str]:
        if present is not None and present.restoring is None:
            return []
        config, members = StreamConfig.from_json(op["config"]), tuple(op["members"])
        begun = Assignment(*key, op["group"], config, entry.index, members, entry.time_ns)
        self._put(key, replace(begun, restoring=Restoring.from_json(op["restoring"])))
        self.accounts.has_stream(begun.account)
        return [begun.group, *([present.group] if present is not None else [])]

    def _put(self, key: tuple[str, str], changed: Assignment) -> None:
        before = self.streams.get(key)
        for group in before.other_groups if before is not None else ():
            self.other_groups.pop(group, None)
        self.other_groups.update(dict.fromkeys(changed.other_groups, key))
        self.streams[key] = changed
        is_in = (
            (self.moving, changed.move is not None),
            (self.short, changed.is_short),
            (self.unconfirmed, changed.is_unconfirmed),
            (self.migrating, changed.migration is not None),
            (self.coming, changed.following is not None),
        )
        for keys, belongs in is_in:
            (keys.add if belongs else keys.discard)(key)

    def recovered(self, recovery: MapRecovery, index: int) -> None:
        """The map goes on as a new lineage, from this state on, which counts as that of entry `index`. What it says of any
        stream's members may be old: the streams' groups have to say it anew (SF-5)."""
        self.recovery, self.applied_index = recovery, index
        self.failed_copies.clear()  # Brokers say it anew.
        for key, found in self.streams.items():
            # Of streams that are green's, or still blue's, no group here can say anything.
            is_here = not found.far_world and found.following is None
            standing = Standing.UNCONFIRMED if is_here else found.standing
            self._put(key, replace(found, standing=standing, attempts=found.attempts + ATTEMPTS_SKIPPED))

    def _put_broker(self, op: dict[str, Any], entry: Entry) -> None:
        node, incarnation = op["node"], op["incarnation"]
        if op.get("gone"):
            self.brokers.pop(node, None)
            self.leaving.pop(node, None)
            self.away.pop(node, None)
            self.failed_copies.pop(node, None)
            self.cordoned.pop(node, None)
            self.processes.pop(node, None)
            return
        before = self.brokers.get(node)
        is_same = before is not None and before.incarnation == incarnation
        if "leaving" in op or not is_same:
            self.leaving.pop(node, None)
        if op.get("leaving"):
            self.leaving[node] = op.get("declared_by", "")
        if "leaving" not in op or not is_same:
            # What somebody says of a broker says nothing about whether it is there; its own record does.
            self.away.pop(node, None)
        if op.get("away_ns"):
            self.away[node] = op["away_ns"]
        if not is_same:
            self.failed_copies.pop(node, None)  # Of its copies nothing is left.
            self.processes.pop(node, None)
        if op.get("process", 0) > self.processes.get(node, 0):
            self.processes[node] = op["process"]
        self._put_failed_copies(node, op.get("failed_copies", {}))
        if not self.bootstrap_id and not self.brokers:
            self.bootstrap_id = f"{incarnation}-{entry.time_ns:x}"
        self.brokers[node] = BrokerRecord(
            node, op["cluster"], incarnation, entry.time_ns, tuple(op.get("tags", ()))
        )

    def _put_cordon(self, op: dict[str, Any]) -> None:
        node = op["node"]
        if op["cordon"] is None:
            self.cordoned.pop(node, None)
        elif node in self.brokers:
            self.cordoned[node] = Cordon.from_json(op["cordon"])

    def _put_failed_copies(self, node: str, told: dict[str, int]) -> None:
        copies = self.failed_copies.get(node, {}) | told
        copies = {group: since_ns for group, since_ns in copies.items() if since_ns}
        if copies:
            self.failed_copies[node] = copies
        else:
            self.failed_copies.pop(node, None)

    def shown(self) -> list[Assignment]:
        """Every stream that is whole, and here or in green."""
        return [found for found in self.streams.values() if found.is_shown]

    @property
    def ways(self) -> list[StreamMigration]:
        """Of streams that go to another super-cluster, or went."""
        found = (self.streams[key].migration for key in self.migrating)
        return [way for way in found if way is not None]

    def of_account(self, account: str) -> Iterator[Assignment]:
        """The account's streams by name, also those that are being restored."""
        return (self.streams[key] for key in sorted(self.streams) if key[0] == account)

    def _has_streams(self, account: str) -> bool:
        return any(key[0] == account for key in self.streams)

    def by_group(self, group: str) -> Assignment | None:
        """The stream that has the group; also by the group that it has, or is to have, in another super-cluster."""
        found = next((found for found in self.streams.values() if found.group == group), None)
        if found is None and group in self.other_groups:
            return self.streams.get(self.other_groups[group])
        return found

    def snapshot(self) -> bytes:
        streams = [
            [
                *(s.account, s.name, s.group, s.config.to_json(), s.version, list(s.members), s.created_ns),
                s.move.to_json() if s.move is not None else None,
                s.last_move.to_json() if s.last_move is not None else None,
                *([s.recovery.to_json() if s.recovery else None] if s.recovery or s.standing else []),
                *([int(s.standing)] if s.standing else []),
            ]
            for s in self.streams.values()
        ]
        brokers = [
            [b.node, b.cluster, b.incarnation, b.since_ns, list(b.tags)] for b in self.brokers.values()
        ]
        whole: dict[str, Any] = {
            "streams": streams,
            "brokers": brokers,
            "accounts": self.accounts.to_json(),
            "leaving": sorted(self.leaving),
            "away": self.away,
            "failed_copies": self.failed_copies,
            "applied": self.applied_index,
            "time": self.time_ns,
        }
        if declared := {node: by for node, by in self.leaving.items() if by}:
            whole["leaving_declared_by"] = declared
        if self.bootstrap_id:
            whole["bootstrap_id"] = self.bootstrap_id
        if self.recovery is not None:
            whole["recovery"] = self.recovery.to_json()
        if self.level:
            whole["level"] = self.level
        if restoring := {s.group: s.restoring.to_json() for s in self.streams.values() if s.restoring}:
            whole["restoring"] = restoring
        whole |= {name: found for name, found in self._of_migrations() if found}
        if self.cordoned:
            whole["cordoned"] = {node: found.to_json() for node, found in self.cordoned.items()}
        if self.processes:
            whole["processes"] = self.processes
        return json.dumps(whole, sort_keys=True).encode()

    def _of_migrations(self) -> list[tuple[str, dict[str, Any] | list[Any]]]:
        streams = self.streams.values()
        return [
            ("migrations", [found.to_json() for found in self.migrations.values()]),
            ("migration", {s.group: s.migration.to_json() for s in streams if s.migration is not None}),
            ("following", {s.group: s.following.to_json() for s in streams if s.following is not None}),
            ("arrival", {s.group: s.arrival.to_json() for s in streams if s.arrival is not None}),
            ("attempts", {s.group: s.attempts for s in streams if s.attempts}),
        ]

    @classmethod
    def restore(cls, data: bytes) -> MetaState:
        whole = json.loads(data)
        state = cls(
            applied_index=whole["applied"], time_ns=whole["time"], bootstrap_id=whole.get("bootstrap_id", "")
        )
        migrations, followings, arrivals = (
            whole.get(name, {}) for name in ("migration", "following", "arrival")
        )
        for account, name, group, config, version, members, created_ns, *moves in whole["streams"]:
            # A volume written before there were moves has none, and most streams were never recovered.
            move, last_move, recovery, *standing = (*moves, None, None, None)[: max(3, len(moves))]
            restored = Assignment(
                *(
                    account,
                    name,
                    group,
                    StreamConfig.from_json(config),
                    version,
                    tuple(members),
                    created_ns,
                ),
                Move.from_json(move) if move is not None else None,
                MoveReport.from_json(last_move) if last_move is not None else None,
                Recovery.from_json(recovery) if recovery is not None else None,
                Standing(standing[0] if standing else 0),
                Restoring.from_json(told) if (told := whole.get("restoring", {}).get(group)) else None,
                StreamMigration.from_json(migrations[group]) if group in migrations else None,
                Following.from_json(followings[group]) if group in followings else None,
                Arrival.from_json(arrivals[group]) if group in arrivals else None,
                whole.get("attempts", {}).get(group, 0),
            )
            state._put((account, name), restored)
        for node, cluster, incarnation, since_ns, *tags in whole["brokers"]:
            state.brokers[node] = BrokerRecord(node, cluster, incarnation, since_ns, *map(tuple, tags))
        state.accounts = Accounts.from_json(whole.get("accounts", ()), (key[0] for key in state.streams))
        for told in map(Migration.from_json, whole.get("migrations", ())):
            state.migrations[told.id] = told
        state.leaving.update(dict.fromkeys(whole.get("leaving", ()), ""))
        state.leaving.update(whole.get("leaving_declared_by", {}))
        state.away.update(whole.get("away", {}))
        state.failed_copies.update(whole.get("failed_copies", {}))
        state.processes.update(whole.get("processes", {}))
        state.level = whole.get("level", FIRST)
        state.cordoned.update({n: Cordon.from_json(told) for n, told in whole.get("cordoned", {}).items()})
        if whole.get("recovery") is not None:
            state.recovery = MapRecovery.from_json(whole["recovery"])
        return state


def _touched(before: Assignment, after: Assignment) -> list[str]:
    """The groups under which a stream is or was known."""
    groups = (before.group, *before.other_groups, after.group, *after.other_groups)
    return list(dict.fromkeys(groups))
