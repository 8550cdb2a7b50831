"""State of the meta group: which streams there are and who holds them, and which brokers there are.

Replicated like a stream's state: a function of committed entries alone. What a broker acts on (its map of streams) is
always this state as of some applied index, so that "has the new map" is a number (SF-14).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from supercluster.broker.jetstream.config import StreamConfig
from supercluster.broker.jetstream.move_record import Move, MoveEnd, MoveReport, Outcome
from supercluster.broker.jetstream.sections import Section, sections
from supercluster.broker.raft.entry import Entry, EntryKind


@dataclass(frozen=True, slots=True)
class Assignment:
    """One stream: its configuration, and the members that its group was started with or that its last move ended with.
    For the membership in force the stream's own group has the last word (SF-5)."""

    account: str
    name: str
    group: str
    config: StreamConfig
    version: int
    """Meta index of the last change of the configuration."""
    members: tuple[str, ...]
    created_ns: int
    move: Move | None = None
    """The move that runs. From its start `config` has the new placement."""
    last_move: MoveReport | None = None

    @property
    def has_moved(self) -> bool:
        """Did a move of this very group end? One that began anew in memory has the last move of the group before it."""
        return self.last_move is not None and self.last_move.ended_ns > self.created_ns

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
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class MetaState:
    """All of it. Keys of `streams` are (account, stream name)."""

    streams: dict[tuple[str, str], Assignment] = field(default_factory=dict)
    brokers: dict[str, BrokerRecord] = field(default_factory=dict)
    applied_index: int = 0
    time_ns: int = 0
    moving: set[tuple[str, str]] = field(default_factory=set)
    """Keys of the streams that move."""

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
                op["node"], op["cluster"], op["incarnation"], entry.time_ns, tuple(op.get("tags", ()))
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
            self.streams[key] = replace(present, config=config, version=entry.index)
            return [present.group]
        if what != "delete" and what not in _CHANGES:
            raise AssertionError(f"meta group: unknown operation {what!r} in entry {entry.index}")
        if present is None or present.group != op["group"]:
            return []
        if what == "delete":
            del self.streams[key]
            self.moving.discard(key)
            return [present.group]
        changed = _CHANGES[what](present, op, entry)
        if changed is None:
            return []
        self.streams[key] = changed
        if changed.move is not None:
            self.moving.add(key)
        else:
            self.moving.discard(key)
        return [present.group, *([changed.group] if changed.group != present.group else [])]

    def of_account(self, account: str) -> Iterator[Assignment]:
        """The account's streams by name."""
        return (self.streams[key] for key in sorted(self.streams) if key[0] == account)

    def by_group(self, group: str) -> Assignment | None:
        return next((found for found in self.streams.values() if found.group == group), None)

    def snapshot(self) -> bytes:
        streams = [
            [
                *(s.account, s.name, s.group, s.config.to_json(), s.version, list(s.members), s.created_ns),
                s.move.to_json() if s.move is not None else None,
                s.last_move.to_json() if s.last_move is not None else None,
            ]
            for s in self.streams.values()
        ]
        brokers = [
            [b.node, b.cluster, b.incarnation, b.since_ns, list(b.tags)] for b in self.brokers.values()
        ]
        whole = {"streams": streams, "brokers": brokers, "applied": self.applied_index, "time": self.time_ns}
        return json.dumps(whole, sort_keys=True).encode()

    @classmethod
    def restore(cls, data: bytes) -> MetaState:
        whole = json.loads(data)
        state = cls(applied_index=whole["applied"], time_ns=whole["time"])
        for account, name, group, config, version, members, created_ns, *moves in whole["streams"]:
            move, last_move = moves or (None, None)  # A volume written before there were moves has none.
            state.streams[account, name] = Assignment(
                *(account, name, group, StreamConfig.from_json(config), version, tuple(members), created_ns),
                Move.from_json(move) if move is not None else None,
                MoveReport.from_json(last_move) if last_move is not None else None,
            )
            if move is not None:
                state.moving.add((account, name))
        for node, cluster, incarnation, since_ns, *tags in whole["brokers"]:
            state.brokers[node] = BrokerRecord(node, cluster, incarnation, since_ns, *map(tuple, tags))
        return state


# ---- operations on a stream that is there ----------------------------------------------------------------------------


def _renewed(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment:
    placement = present.config.placement
    last_move = present.last_move
    if present.move is not None:
        gone = MoveReport(present.move.id, Outcome.CANCELLED, "all copies were in memory and are gone")
        last_move = gone.of_move(present.move, entry.time_ns)
        placement = present.move.origin_placement
    config = replace(present.config, placement=placement)
    whole = (op["new_group"], config, entry.index, tuple(op["members"]), entry.time_ns)
    return Assignment(present.account, present.name, *whole, None, last_move)


def _move_started(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    if present.move is not None:
        return None
    move = Move(
        op["id"],
        tuple(op["targets"]),
        tuple(op["origin"]),
        present.config.placement,
        entry.time_ns,
        op["bytes_per_s"],
    )
    config = StreamConfig.from_json(op["config"])
    version = entry.index if config != present.config else present.version
    return replace(present, config=config, version=version, move=move)


def _of_move(present: Assignment, move_id: str) -> Move | None:
    return present.move if present.move is not None and present.move.id == move_id else None


def _target_replaced(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    move = _of_move(present, op["id"])
    if move is None or move.cancelled or op["old"] not in move.joining:
        return None
    return replace(present, move=move.with_target(op["old"], op["new"]))


def _move_cancelled(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    """Asked for, not done: the stream's own group says how the move ended, and until then the placement stays."""
    move = _of_move(present, op["id"])
    return replace(present, move=replace(move, cancelled=True)) if move is not None else None


def _move_ended(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    end = MoveEnd.from_json(op["end"])
    move = _of_move(present, end.report.id)
    if move is None:
        return None
    config = present.config
    if end.report.outcome is Outcome.CANCELLED:
        config = replace(config, placement=move.origin_placement)
    return replace(
        present,
        config=config,
        version=entry.index if config != present.config else present.version,
        members=end.members,
        move=None,
        last_move=end.report.of_move(move, entry.time_ns),
    )


_CHANGES: dict[str, Callable[[Assignment, dict[str, Any], Entry], Assignment | None]] = {
    "renew": _renewed,
    "move": _move_started,
    "move_target": _target_replaced,
    "move_cancel": _move_cancelled,
    "move_end": _move_ended,
}
"""What an operation makes of the assignment; None: nothing. One about another group or another move is void."""


# ---- what the leader appends -----------------------------------------------------------------------------------------


def _operation(what: str, found: Assignment, **fields: Any) -> bytes:
    op = {"op": what, "account": found.account, "name": found.name, "group": found.group}
    return json.dumps({**op, **fields}).encode()


def put_stream(account: str, name: str, group: str, config: StreamConfig, members: tuple[str, ...]) -> bytes:
    """The section body that creates a stream or changes its configuration."""
    op = {"op": "put", "account": account, "name": name, "group": group, "config": config.to_json()}
    return json.dumps({**op, "members": list(members)}).encode()


def renew_stream(found: Assignment, new_group: str, members: tuple[str, ...]) -> bytes:
    """The section body that begins a stream anew, with a group of its own, since every copy of it is gone."""
    return _operation("renew", found, new_group=new_group, members=list(members))


def delete_stream(found: Assignment) -> bytes:
    return _operation("delete", found)


def start_move(
    found: Assignment,
    config: StreamConfig,
    move_id: str,
    targets: tuple[str, ...],
    origin: tuple[str, ...],
    bytes_per_s: int = 0,
) -> bytes:
    """The section body that starts a move; `config` is the stream's from now on, with the new placement."""
    return _operation(
        "move",
        found,
        config=config.to_json(),
        id=move_id,
        targets=list(targets),
        origin=list(origin),
        bytes_per_s=bytes_per_s,
    )


def replace_target(found: Assignment, move_id: str, old: str, new: str) -> bytes:
    """The section body that has another node join in place of one that is gone."""
    return _operation("move_target", found, id=move_id, old=old, new=new)


def cancel_move(found: Assignment, move_id: str) -> bytes:
    return _operation("move_cancel", found, id=move_id)


def end_move(found: Assignment, end: MoveEnd) -> bytes:
    return _operation("move_end", found, end=end.to_json())


def put_broker(node: str, cluster: str, incarnation: str, tags: tuple[str, ...]) -> bytes:
    op = {"op": "broker", "node": node, "cluster": cluster, "incarnation": incarnation, "tags": list(tags)}
    return json.dumps(op).encode()
