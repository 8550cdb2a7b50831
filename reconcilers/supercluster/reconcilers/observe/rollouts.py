"""What all brokers say of themselves and of their groups: what restarts and evictions have to wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from supercluster.reconcilers.observe.views import DEFAULT_ACCOUNT, stream_info
from supercluster.reconcilers.planners.cluster.restart_order import BrokerReport, GroupTrouble, Reports
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    mapping,
)


async def look_at_reports(brokers: Brokers, target: BrokerTarget | str) -> Reports | None:
    """None when one of the brokers that are ready does not answer: what it leads may be what is not whole."""
    if isinstance(target, str):
        return None
    try:
        states = await brokers.restart_states(target)
        if all(state is not None for state in states.values()):
            return reports_of({name: mapping(state) for name, state in states.items()})
        return await _reports_of_older(brokers, target, {n: s for n, s in states.items() if s is not None})
    except (BrokersUnreachableError, BrokersRefusedError):
        return None


async def _reports_of_older(
    brokers: Brokers, target: BrokerTarget, states: Mapping[str, Mapping[str, Any]]
) -> Reports:
    """Some brokers are of a version that has no such call, in the middle of an update: what the list of streams says. They
    hand over as lame ducks."""
    told = reports_of(states)
    found = [stream_info(answer) for answer in await brokers.stream_infos(target)]
    led = Counter(info.leader for info in found)
    groups = [
        (
            str(info.config.get("name", "")),
            info.leader,
            tuple(sorted(replica.name for replica in info.replicas if not replica.current)),
        )
        for info in found
    ]
    return Reports(
        brokers={name: told.brokers.get(name) or BrokerReport(leads=led[name]) for name in target.brokers},
        behind=tuple(GroupTrouble(name, behind) for name, _, behind in groups if behind),
        leaderless=tuple(GroupTrouble(name) for name, leader, _ in groups if not leader),
    )


def reports_of(states: Mapping[str, Mapping[str, Any]]) -> Reports:
    """The answers of all brokers, as one."""
    reports: dict[str, BrokerReport] = {}
    behind: list[GroupTrouble] = []
    leaderless: dict[str, GroupTrouble] = {}
    unnamed = 0
    for name, state in states.items():
        config = mapping(state.get("config"))
        reports[name] = BrokerReport(
            leads=int(state.get("leads", 0)),
            movable=int(state.get("movable", 0)),
            steps_aside=bool(state.get("stepsAside", False)),
            settings=str(config.get("digest", "")) or None,
            refused=str(config.get("refused", "")),
            lacking=frozenset(_texts(state, "lacking")) if "lacking" in state else None,
            leaderless=int(state.get("leaderlessTotal", 0)),
        )
        behind += [
            GroupTrouble(_name(entry), _texts(entry, "brokers"), _texts(entry, "members"))
            for entry in map(mapping, state.get("behind") or ())
        ]
        for entry in map(mapping, state.get("leaderless") or ()):
            # Each of its members may say so.
            known = leaderless.get(_name(entry))
            members = {*(known.members if known is not None else ()), name}
            leaderless[_name(entry)] = GroupTrouble(_name(entry), members=tuple(sorted(members)))
        for key in ("behind", "leaderless"):
            unnamed += max(0, int(state.get(f"{key}Total", 0)) - len(state.get(key) or ()))
    # Whoever is cut off knows no leader; one that says whom its group lacks is its leader.
    led = {group.name for group in behind}
    alone = tuple(group for name, group in leaderless.items() if name not in led)
    return Reports(reports, tuple(behind), alone, unnamed)


def _name(entry: Mapping[str, Any]) -> str:
    name, account = str(entry.get("name", "")), str(entry.get("account", ""))
    return name if account in ("", DEFAULT_ACCOUNT) else f"{name} of account {account}"


def _texts(entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(map(str, entry.get(key) or ()))
