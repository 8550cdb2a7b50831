"""State of the meta group: which streams there are and who holds them, which accounts, and which brokers there are.

Replicated like a stream's state: a function of committed entries alone. What a broker acts on (its map of streams) is
always this state as of some applied index, so that "has the new map" is a number (SF-14).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from supercluster.broker.jetstream.accounts import Accounts
from supercluster.broker.jetstream.config import StreamConfig
from supercluster.broker.jetstream.cordons import Cordon
from supercluster.broker.jetstream.map_level import FIRST
from supercluster.broker.jetstream.map_recovery import MapRecovery, Standing
from supercluster.broker.jetstream.move_record import Move, MoveEnd, MoveReport, Outcome
from supercluster.broker.jetstream.own_metadata import RESOURCE_KEY
from supercluster.broker.jetstream.recovery import Recovery
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
    """The move that runs. From its start `config` has the new placement, or the new count of replicas."""
    last_move: MoveReport | None = None
    recovery: Recovery | None = None
    """The forced recovery that began the stream's present lineage (SF-9)."""
    standing: Standing = Standing.KNOWN

    @property
    def has_begun_before(self) -> bool:
        """Is there a group already, which nobody may begin empty? Of a stream that was there when the map was recovered
        nobody knows who had begun it, and who had dropped it since."""
        return self.has_moved or self.recovery is not None or self.standing is not Standing.KNOWN

    @property
    def is_unconfirmed(self) -> bool:
        """Is it as a recovered map has it, and its own group has not said who its members are (SF-5)?"""
        return self.standing is Standing.UNCONFIRMED

    @property
    def is_short(self) -> bool:
        """Does it lack members that a forced recovery left behind, and nobody brings any?"""
        lacks = len(self.members) < self.config.num_replicas
        return self.recovery is not None and self.move is None and lacks

    @property
    def has_moved(self) -> bool:
        """Did a move of this very group end? One that began anew in memory has the last move of the group before it."""
        return self.last_move is not None and self.last_move.ended_ns > self.created_ns

    @property
    def declared_by(self) -> str:
        """The resource that declares the stream (`namespace/name`), empty when none does (SF-23)."""
        return dict(self.config.metadata).get(RESOURCE_KEY, "")


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
    leaving: set[str] = field(default_factory=set)
    """Brokers that go for good, as somebody said."""
    away: dict[str, int] = field(default_factory=dict)
    """Node → since when it has been out of contact, by the clock of the leader that missed it. Kept here and not by a
    leader, so that who repairs need not remember it (MR-2)."""
    cordoned: dict[str, Cordon] = field(default_factory=dict)
    """Brokers that get no new copies, and why."""
    level: int = FIRST
    """Operations that came up to this frame version may follow: all brokers can read them (`map_level.py`)."""
    unusable: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node → group → since when its copy has been of no use although the node is there, as it said itself."""

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
        if "record" in op:
            self.accounts.told(op["account"], op["record"], has_streams=self._has_streams(op["account"]))
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
                self.accounts.has_stream(created.account)
                return [created.group]
            self.streams[key] = replace(present, config=config, version=entry.index)
            return [present.group]
        if what != "delete" and what not in _CHANGES:
            raise AssertionError(f"meta group: unknown operation {what!r} in entry {entry.index}")
        if present is None or present.group != op["group"]:
            return []
        if what == "delete":
            del self.streams[key]
            for keys in (self.moving, self.short, self.unconfirmed):
                keys.discard(key)
            if not self._has_streams(present.account):
                self.accounts.has_none(present.account)
            return [present.group]
        changed = _CHANGES[what](present, op, entry)
        if changed is None:
            return []
        self._put(key, changed)
        return [present.group, *([changed.group] if changed.group != present.group else [])]

    def _put(self, key: tuple[str, str], changed: Assignment) -> None:
        self.streams[key] = changed
        is_in = (
            (self.moving, changed.move is not None),
            (self.short, changed.is_short),
            (self.unconfirmed, changed.is_unconfirmed),
        )
        for keys, belongs in is_in:
            (keys.add if belongs else keys.discard)(key)

    def recovered(self, recovery: MapRecovery, index: int) -> None:
        """The map goes on as a new lineage, from this state on, which counts as that of entry `index`. What it says of any
        stream's members may be old: the streams' groups have to say it anew (SF-5)."""
        self.recovery, self.applied_index = recovery, index
        self.unusable.clear()  # Brokers say it anew.
        for key, found in self.streams.items():
            self._put(key, replace(found, standing=Standing.UNCONFIRMED))

    def _put_broker(self, op: dict[str, Any], entry: Entry) -> None:
        node, incarnation = op["node"], op["incarnation"]
        if op.get("gone"):
            self.brokers.pop(node, None)
            self.leaving.discard(node)
            self.away.pop(node, None)
            self.unusable.pop(node, None)
            self.cordoned.pop(node, None)
            return
        before = self.brokers.get(node)
        is_same = before is not None and before.incarnation == incarnation
        if op.get("leaving", is_same and node in self.leaving):
            self.leaving.add(node)
        else:
            self.leaving.discard(node)
        if "leaving" not in op or not is_same:
            # What somebody says of a broker says nothing about whether it is there; its own record does.
            self.away.pop(node, None)
        if op.get("away_ns"):
            self.away[node] = op["away_ns"]
        if not is_same:
            self.unusable.pop(node, None)  # Of its copies nothing is left.
        self._put_unusable(node, op.get("unusable", {}))
        self.brokers[node] = BrokerRecord(
            node, op["cluster"], incarnation, entry.time_ns, tuple(op.get("tags", ()))
        )

    def _put_cordon(self, op: dict[str, Any]) -> None:
        node = op["node"]
        if op["cordon"] is None:
            self.cordoned.pop(node, None)
        elif node in self.brokers:
            self.cordoned[node] = Cordon.from_json(op["cordon"])

    def _put_unusable(self, node: str, told: dict[str, int]) -> None:
        copies = self.unusable.get(node, {}) | told
        copies = {group: since_ns for group, since_ns in copies.items() if since_ns}
        if copies:
            self.unusable[node] = copies
        else:
            self.unusable.pop(node, None)

    def of_account(self, account: str) -> Iterator[Assignment]:
        """The account's streams by name."""
        return (self.streams[key] for key in sorted(self.streams) if key[0] == account)

    def _has_streams(self, account: str) -> bool:
        return any(key[0] == account for key in self.streams)

    def by_group(self, group: str) -> Assignment | None:
        return next((found for found in self.streams.values() if found.group == group), None)

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
            "unusable": self.unusable,
            "applied": self.applied_index,
            "time": self.time_ns,
        }
        if self.recovery is not None:
            whole["recovery"] = self.recovery.to_json()
        if self.level:
            whole["level"] = self.level
        if self.cordoned:
            whole["cordoned"] = {node: found.to_json() for node, found in self.cordoned.items()}
        return json.dumps(whole, sort_keys=True).encode()

    @classmethod
    def restore(cls, data: bytes) -> MetaState:
        whole = json.loads(data)
        state = cls(applied_index=whole["applied"], time_ns=whole["time"])
        for account, name, group, config, version, members, created_ns, *moves in whole["streams"]:
            # A volume written before there were moves has none, and most streams were never recovered.
            move, last_move, recovery, *standing = (*moves, None, None, None)[: max(3, len(moves))]
            restored = Assignment(
                *(account, name, group, StreamConfig.from_json(config), version, tuple(members), created_ns),
                Move.from_json(move) if move is not None else None,
                MoveReport.from_json(last_move) if last_move is not None else None,
                Recovery.from_json(recovery) if recovery is not None else None,
                Standing(standing[0] if standing else 0),
            )
            state._put((account, name), restored)
        for node, cluster, incarnation, since_ns, *tags in whole["brokers"]:
            state.brokers[node] = BrokerRecord(node, cluster, incarnation, since_ns, *map(tuple, tags))
        state.accounts = Accounts.from_json(whole.get("accounts", ()), (key[0] for key in state.streams))
        state.leaving.update(whole.get("leaving", ()))
        state.away.update(whole.get("away", {}))
        state.unusable.update(whole.get("unusable", {}))
        state.level = whole.get("level", FIRST)
        state.cordoned.update({n: Cordon.from_json(told) for n, told in whole.get("cordoned", {}).items()})
        if whole.get("recovery") is not None:
            state.recovery = MapRecovery.from_json(whole["recovery"])
        return state


# ---- operations on a stream that is there ----------------------------------------------------------------------------


def _renewed(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment:
    config, last_move = present.config, present.last_move
    if present.move is not None:
        gone = MoveReport(present.move.id, Outcome.CANCELLED, "all copies were in memory and are gone")
        last_move = gone.of_move(present.move, entry.time_ns, last_move)
        config = present.move.undone(config)
    whole = (op["new_group"], config, entry.index, tuple(op["members"]), entry.time_ns)
    return Assignment(present.account, present.name, *whole, None, last_move)


def _recovered(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment:
    """A new lineage, of one member so far. A move that ran is over: nobody knows how far it was."""
    config, last_move = present.config, present.last_move
    if present.move is not None:
        over = MoveReport(present.move.id, Outcome.CANCELLED, "the stream was recovered by force")
        last_move = over.of_move(present.move, entry.time_ns, last_move)
        config = present.move.undone(config)
    recovery = Recovery.from_json(op["recovery"]).after(present.recovery, entry.time_ns)
    return replace(
        present,
        group=op["new_group"],
        config=config,
        version=entry.index,
        members=(recovery.member,),
        # Sequences behind the copy's end will mean other messages: who stored a position has to notice.
        created_ns=max(entry.time_ns, present.created_ns + 1),
        move=None,
        last_move=last_move,
        recovery=recovery,
        standing=present.standing.after_word(),
    )


def _move_started(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    running = _of_move(present, op["id"])
    if running is not None:
        return replace(present, move=replace(running, bytes_per_s=op["bytes_per_s"]))
    if present.move is not None:
        return None
    config, before = StreamConfig.from_json(op["config"]), present.config
    move = Move(
        op["id"],
        tuple(op["targets"]),
        tuple(op["origin"]),
        before.placement,
        entry.time_ns,
        op["bytes_per_s"],
        origin_replicas=before.num_replicas if before.num_replicas != config.num_replicas else 0,
        copy_bytes=op.get("copy_bytes", 0),
    )
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
    if move is None or move.cancelled:
        return None
    reason = str(op.get("reason", ""))
    return replace(present, move=replace(move, cancelled=True, cancel_reason=reason))


def _move_ended(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    end = MoveEnd.from_json(op["end"])
    move = _of_move(present, end.report.id)
    if move is None:
        return None
    config = present.config
    if end.report.outcome is Outcome.CANCELLED:
        config = move.undone(config)
    return replace(
        present,
        config=config,
        version=entry.index if config != present.config else present.version,
        members=end.members,
        move=None,
        last_move=end.report.of_move(move, entry.time_ns, present.last_move),
        standing=present.standing.after_word(),
    )


def _confirmed(present: Assignment, op: dict[str, Any], entry: Entry) -> Assignment | None:
    """The stream's own group has said who its members are, and what its configuration is, where that is newer. A move that
    the map knows starts from those members."""
    if not present.is_unconfirmed:
        return None
    members, move = tuple(map(str, op["members"])), present.move
    config = StreamConfig.from_json(op["config"]) if op.get("config") is not None else present.config
    return replace(
        present,
        config=config,
        version=entry.index,
        members=members,
        move=replace(move, origin=members) if move is not None else None,
        standing=Standing.CONFIRMED,
    )


_CHANGES: dict[str, Callable[[Assignment, dict[str, Any], Entry], Assignment | None]] = {
    "renew": _renewed,
    "recover": _recovered,
    "confirm": _confirmed,
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


def recover_stream(found: Assignment, new_group: str, recovery: Recovery) -> bytes:
    """The section body that has a stream go on from one copy, as a new lineage."""
    return _operation("recover", found, new_group=new_group, recovery=recovery.to_json())


def confirm_stream(found: Assignment, members: tuple[str, ...], config: StreamConfig | None) -> bytes:
    """The section body that says who the members of a stream in a recovered map are, by its own group's word; with the
    configuration, where the group's is newer than the map's."""
    told = config.to_json() if config is not None else None
    return _operation("confirm", found, members=list(members), config=told)


def delete_stream(found: Assignment) -> bytes:
    return _operation("delete", found)


def start_move(
    found: Assignment,
    config: StreamConfig,
    move_id: str,
    targets: tuple[str, ...],
    origin: tuple[str, ...],
    bytes_per_s: int = 0,
    copy_bytes: int = 0,
) -> bytes:
    """The section body that starts a move; `config` is the stream's from now on, with the new placement or count. For the
    move that runs only the limit is new."""
    return _operation(
        "move",
        found,
        config=config.to_json(),
        id=move_id,
        targets=list(targets),
        origin=list(origin),
        bytes_per_s=bytes_per_s,
        copy_bytes=copy_bytes,
    )


def replace_target(found: Assignment, move_id: str, old: str, new: str) -> bytes:
    """The section body that has another node join in place of one that is gone."""
    return _operation("move_target", found, id=move_id, old=old, new=new)


def cancel_move(found: Assignment, move_id: str, reason: str = "") -> bytes:
    """The section body that calls a move off; the reason is for one that nobody asked for."""
    return _operation("move_cancel", found, id=move_id, reason=reason)


def end_move(found: Assignment, end: MoveEnd) -> bytes:
    return _operation("move_end", found, end=end.to_json())


def put_broker(
    node: str, cluster: str, incarnation: str, tags: tuple[str, ...], *, leaving: bool | None = None
) -> bytes:
    """The section body that records a broker. `leaving` as somebody said just now; None: as it was, if it is the same."""
    op: dict[str, Any] = {
        "op": "broker",
        "node": node,
        "cluster": cluster,
        "incarnation": incarnation,
        "tags": list(tags),
    }
    if leaving is not None:
        op["leaving"] = leaving
    return json.dumps(op).encode()


def note_away(record: BrokerRecord, since_ns: int) -> bytes:
    """The section body that says since when a broker has been out of contact; 0: it is back. Brokers of before this take it
    for the same record."""
    told = json.loads(put_broker(record.node, record.cluster, record.incarnation, record.tags))
    return json.dumps({**told, "away_ns": since_ns}).encode()


def note_unusable(record: BrokerRecord, away_ns: int, copies: Mapping[str, int]) -> bytes:
    """The section body that says since when copies on a broker have been of no use, by their groups; 0: one is usable. What is
    noted of its absence stays. Brokers of before this take it for the same record."""
    told = json.loads(note_away(record, away_ns))
    return json.dumps({**told, "unusable": dict(copies)}).encode()


def forget_broker(record: BrokerRecord) -> bytes:
    """The section body that strikes a broker from the map: nothing of it is left. Brokers of before this keep the record."""
    op = {"op": "broker", "node": record.node, "cluster": record.cluster, "incarnation": record.incarnation}
    return json.dumps({**op, "tags": list(record.tags), "gone": True}).encode()
