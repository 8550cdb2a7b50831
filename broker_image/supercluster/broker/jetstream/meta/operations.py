"""Operations as the meta group's leader appends them: each function returns the body of a META section.

`meta/state.py` defines their effect on the map, and `meta/changes.py` their effect on an existing stream.
They are JSON. An older broker ignores a field that it does not know; an operation that it does not know needs
a level (`meta/level.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.move_record import MoveEnd
from supercluster.broker.jetstream.meta.state import BrokerRecord
from supercluster.broker.jetstream.meta.stream_recovery import Recovery


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


def confirm_stream(
    found: Assignment, members: tuple[str, ...], config: StreamConfig | None, version: int = 0
) -> bytes:
    """The section body that says who the members of a stream in a recovered map are, by its own group's word; with the
    configuration, where the group's is newer than the map's. `version`: that of the group's."""
    told = config.to_json() if config is not None else None
    return _operation("confirm", found, members=list(members), config=told, version=version)


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
    node: str,
    cluster: str,
    incarnation: str,
    tags: tuple[str, ...],
    *,
    leaving: bool | None = None,
    declared_by: str = "",
    process: int = 0,
) -> bytes:
    """The section body that records a broker. `leaving` as somebody said just now; None: as it was, if it is the same. `process`
    is the number of its process; 0: nothing is said of it. Earlier versions pass `declared_by` over."""
    op: dict[str, Any] = {
        "op": "broker",
        "node": node,
        "cluster": cluster,
        "incarnation": incarnation,
        "tags": list(tags),
    }
    if leaving is not None:
        op["leaving"] = leaving
    if declared_by:
        op["declared_by"] = declared_by
    if process:
        op["process"] = process
    return json.dumps(op).encode()


def note_away(record: BrokerRecord, since_ns: int) -> bytes:
    """The section body that says since when a broker has been out of contact; 0: it is back. Brokers of before this take it
    for the same record."""
    told = json.loads(put_broker(record.node, record.cluster, record.incarnation, record.tags))
    return json.dumps({**told, "away_ns": since_ns}).encode()


def note_failed_copies(record: BrokerRecord, away_ns: int, copies: Mapping[str, int]) -> bytes:
    """The section body that says since when copies on a broker have been of no use, by their groups; 0: one is usable. What is
    noted of its absence stays. Brokers of before this take it for the same record."""
    told = json.loads(note_away(record, away_ns))
    return json.dumps({**told, "failed_copies": dict(copies)}).encode()


def forget_broker(record: BrokerRecord) -> bytes:
    """The section body that strikes a broker from the map: nothing of it is left. Brokers of before this keep the record."""
    op = {"op": "broker", "node": record.node, "cluster": record.cluster, "incarnation": record.incarnation}
    return json.dumps({**op, "tags": list(record.tags), "gone": True}).encode()
