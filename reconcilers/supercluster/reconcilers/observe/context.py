"""The context of a round, which observers and planners of all kinds get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.credential_reports import CredentialReports
from supercluster.reconcilers.observe.handed import HandedStreams
from supercluster.reconcilers.observe.lists import StreamLists
from supercluster.reconcilers.observe.refused_creates import RefusedCreates
from supercluster.reconcilers.observe.repairs import Hosts
from supercluster.reconcilers.observe.stream_figures import StreamFigures
from supercluster.reconcilers.observe.waiting_moves import WaitingMoves
from supercluster.reconcilers.planners.cluster.manifests import OperatorDefaults
from supercluster.reconcilers.planners.plan import SetAside
from supercluster.reconcilers.planners.strategies import Strategy
from supercluster.reconcilers.ports import Brokers


@dataclass(frozen=True, slots=True)
class Context:
    cache: ObjectCache
    brokers: Brokers
    hosts: Hosts
    lists: StreamLists
    waiting: WaitingMoves
    refused: RefusedCreates
    figures: StreamFigures
    handed: HandedStreams
    credentials: CredentialReports
    defaults: OperatorDefaults
    strategies: Mapping[str, Strategy]
    """By the names that spec.placementStrategy has."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of the steps of this round so far."""

    refusal: str | None = None
    """Why a step was refused for good."""
    refusal_code: int = 0
    failure: str | None = None
    """Why a step failed for now."""
    aside: tuple[SetAside, ...] = ()
