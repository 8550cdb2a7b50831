"""Placement strategies for new replicas: the built-in ones, and those of installed packages (MR-5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from supercluster.reconcilers.planners.strategies import BUILT_IN, ENTRY_POINT_GROUP, Strategy

log = logging.getLogger(__name__)


def installed_strategies(found: Iterable[EntryPoint] | None = None) -> Mapping[str, Strategy]:
    """By name. One that does not load is logged and left out: a ReplicaPolicy that names it says so, and all else goes on.
    A built-in name stays what it is."""
    strategies: dict[str, Strategy] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP) if found is None else found:
        try:
            loaded = point.load()
        except Exception:
            log.exception(
                "a placement strategy does not load", extra={"strategy": point.name, "of": point.value}
            )
            continue
        if not callable(loaded):
            log.error(
                "a placement strategy is no function", extra={"strategy": point.name, "of": point.value}
            )
            continue
        strategies[point.name] = loaded
    return {**strategies, **BUILT_IN}
