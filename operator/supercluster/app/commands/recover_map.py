"""`supercluster recover meta`: continues the map of streams from one copy after a super-cluster lost most of
the map's voters (RP-8, SF-9).

Without `--node`, or with `--dry-run`, it lists the copies and the data that choosing each of them may lose,
and changes nothing. It needs the monitoring ports of the remaining brokers. The map has no leader, so the
call goes to the broker whose copy is chosen.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.recover_stream import Outcome, RecoverError, copies_table, verdict
from supercluster.reconcilers.ports import BrokersError, BrokerTarget, Json, mapping

FIGURES = ("lineage", "lastIndex", "committedIndex", "lastTerm")
HEADER = ("BROKER", "LINEAGE", "LAST INDEX", "COMMITTED", "LAST TERM", "STATE")


@dataclass(frozen=True, slots=True)
class MapWish:
    """What the command line asks for."""

    node: str = ""
    accepted_index: int = 0
    dry_run: bool = False
    accepts_doubt: bool = False
    follow: str = ""


async def recover_map(
    admin: BrokerAdmin, target: BrokerTarget, monitors: Mapping[str, str], wish: MapWish
) -> Outcome:
    """Do it, or say what it would do. `monitors` are the monitoring ports of all brokers that have an address, by name.

    Raises:
        BrokersUnreachableError, BrokersRefusedError: the broker cannot be asked, or refused it.
        RecoverError: there is no such broker.
    """
    if not wish.node:
        return await _show(admin, target, monitors)
    if wish.node not in monitors:
        known = ", ".join(sorted(monitors)) or "none"
        raise RecoverError(f"broker {wish.node} has no pod with an address; brokers that have one: {known}")
    one = replace(target, monitors=(monitors[wish.node],))
    if wish.follow:
        body: dict[str, Any] = {"node": wish.node, "follow": wish.follow, "dryRun": wish.dry_run}
        told = await admin.recover_map(one, body)
        had = f"it had {told.get('lineage')}"
        return Outcome(True, f"broker {wish.node} drops its lineage and follows {wish.follow}; {had}", told)
    body = {"node": wish.node, "acceptLastIndex": wish.accepted_index, "acceptDoubtful": wish.accepts_doubt}
    if wish.dry_run:
        told = await admin.recover_map(one, {**body, "dryRun": True})
        return verdict(told, described(told))
    told = await admin.recover_map(one, {**body, "id": f"cli-{uuid.uuid4()}"})
    done = mapping(told.get("recovery"))
    return Outcome(True, f"lineage {told.get('lineage')}: {done.get('mayLose', '')}", told)


async def _show(admin: BrokerAdmin, target: BrokerTarget, monitors: Mapping[str, str]) -> Outcome:
    """Every broker is asked about its own copy: each can only speak for whom it is in contact with."""
    lines: list[str] = []
    copies: Json = {}
    is_possible = False
    for node, url in sorted(monitors.items()):
        try:
            told = await admin.map_recovery_state(replace(target, monitors=(url,)))
        except BrokersError as error:
            lines.append(f"{node}: {error}")
            copies[node] = {"error": str(error)}
            continue
        copies[node] = told
        if not is_possible and not told.get("alive"):
            lines.insert(0, described(told))
        is_possible = is_possible or not told.get("alive")
        words = told.get("alive") or told.get("refusal") or told.get("mayLose")
        lines.append(f"{node}: {words}")
        lines += [
            f"{node}: broker {other} has another lineage, {name}"
            for other, name in mapping(told.get("rivals")).items()
        ]
        lines += [
            f"{node}: keeps a copy of {kept.get('group')}" for kept in map(mapping, told.get("kept") or ())
        ]
    return Outcome(is_possible, "\n".join(lines) or "no broker has an address", {"brokers": copies})


def described(told: Json) -> str:
    """What copies there are, for people."""
    lines = [copies_table(told, HEADER, FIGURES, "learns")]
    away = told.get("outOfContact") or ()
    if away:
        lines.append(f"voters that are out of contact: {', '.join(map(str, away))}")
    return "\n".join(lines)
