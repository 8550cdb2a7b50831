"""The reports of all brokers on themselves and their groups, which restarts and evictions depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supercluster.reconcilers.observe.targets import answer_of
from supercluster.reconcilers.observe.views import DEFAULT_ACCOUNT
from supercluster.reconcilers.planners.cluster.restart_order import BrokerReport, GroupTrouble, Reports
from supercluster.reconcilers.ports import Brokers, BrokerTarget, mapping


async def look_at_reports(brokers: Brokers, target: BrokerTarget | str) -> Reports | None:
    """None when one of the brokers that are ready does not answer: what it leads may be what is not whole."""
    states = await answer_of(target, brokers.restart_states)
    return reports_of(states) if states is not None else None


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
            leaves_for=str(state.get("leavesFor") or ""),
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
