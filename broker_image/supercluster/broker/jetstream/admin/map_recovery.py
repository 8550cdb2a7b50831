"""The forced recovery of the map over HTTP (`/admin/meta/recover`), at the broker whose copy becomes the new
map.

GET lists the copies and what choosing this broker's copy may lose. POST forces the recovery. With `dryRun` it
only reports what it would do; with `follow` this broker gives up a lineage that an administrator rejected.

The map has no leader then, so this broker surveys all others, decides, and begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.broker.bounds import I64_MAX
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin.call import Then, refusal
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.map_recovery import (
    MapRecovery,
    MapSituation,
    away,
    judge_map,
    map_alive,
    voters_before,
)
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.recovery.map_lineages import MapLineages
from supercluster.broker.jetstream.recovery.map_survey import MapSurvey
from supercluster.broker.jetstream.recovery.orphaned_copies import OrphanedCopies
from supercluster.broker.jetstream.replica.lineage import is_meta, lineage_of, next_meta
from supercluster.broker.raft.errors import DiskError

_ID = re.compile("[A-Za-z0-9-]{1,64}")
_FIELDS = ("node", "acceptLastIndex", "id", "dryRun", "acceptDoubtful", "follow")


@dataclass(frozen=True, slots=True)
class MapCall:
    """What a person asks."""

    accepted_index: int = 0
    id: str = ""
    dry_run: bool = True
    accepts_doubt: bool = False
    follow: str = ""


def read_call(body: object, node: str) -> MapCall:
    """A POST's body, at that broker.

    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    if not isinstance(body, Mapping) or not body.keys() <= set(_FIELDS):
        raise errors.error(10052, f"the body has to be an object with {', '.join(_FIELDS)}")
    named, accepted, act, dry_run, doubtful, follow = (body.get(field) for field in _FIELDS)
    if named != node:
        raise errors.error(
            10052,
            f"node is {named!r}, and this is {node}: the map has no leader to forward the call; ask the broker itself whose copy the "
            "map is to go on from",
        )
    for field, value in (("dryRun", dry_run), ("acceptDoubtful", doubtful)):
        if not isinstance(value, bool | None):
            raise errors.error(10052, f"{field} is {value!r}; it has to be true or false")
    if follow is not None:
        if not isinstance(follow, str) or not is_meta(follow) or len(follow) > 1024:
            raise errors.error(
                10052, f"follow is {follow!r}; it has to be the name of a lineage, as GET shows it of rivals"
            )
        return MapCall(dry_run=bool(dry_run), follow=follow)
    if type(accepted) is not int or not 0 <= accepted <= I64_MAX:
        raise errors.error(
            10052, f"acceptLastIndex is {accepted!r}; it has to be the last entry that the copy must have"
        )
    if not dry_run and (not isinstance(act, str) or not _ID.fullmatch(act)):
        raise errors.error(10052, f"id is {act!r}; it has to be 1 to 64 letters, digits and dashes")
    return MapCall(accepted, act or "", bool(dry_run), bool(doubtful))


class MapRecoveryCalls:
    """The calls at one broker."""

    def __init__(
        self,
        env: Environment,
        map_view: MapView,
        map_survey: MapSurvey,
        map_lineages: MapLineages,
        orphans: OrphanedCopies,
    ) -> None:
        self._env = env
        self._map = map_view
        self._map_survey = map_survey
        self._map_lineages = map_lineages
        self._orphans = orphans

    def call(self, method: str, body: object, then: Then) -> None:
        """One call of the admin API; `then` is called once, within the survey's time."""
        try:
            wanted = MapCall() if method == "GET" else read_call(body, self._env.node)
            if wanted.follow:
                then(*self._follow(wanted))
                return
            record = self._map.replica.replica.recovery if self._map.replica is not None else None
            if not wanted.dry_run and record is not None and wanted.id in record.known:
                then(200, self._show())
                return
            if self._map_survey.is_busy:
                raise errors.map_recovery_not_now(f"another call about it is under way on {self._env.node}")
        except ApiError as refused:
            then(*refusal(refused))
            return

        def told(found: MapSituation) -> None:
            try:
                if wanted.dry_run:
                    then(200, {**self._show(), **_dry(found, wanted)})
                else:
                    self._force(found, wanted)
                    then(202, self._show())
            except ApiError as refused:
                self._env.event(self._map.meta_id, "RecoveryRefused", refused.description)
                then(*refusal(refused))

        self._map_survey.ask(told, None if wanted.dry_run else wanted.id)

    def _follow(self, wanted: MapCall) -> tuple[int, dict[str, Any]]:
        if wanted.follow == self._map.meta_id:
            return 200, self._show()
        rivals = self._map_lineages.rivals
        if wanted.follow not in rivals.values():
            known = ", ".join(sorted(set(rivals.values()))) or "none"
            raise errors.map_recovery_refused(
                f"no broker that is linked with {self._env.node} has lineage {wanted.follow}; rivals of {self._map.meta_id} that are: {known}"
            )
        if not wanted.dry_run:
            self._env.event(
                self._map.meta_id,
                "LineageGivenUp",
                f"{self._env.node} is to follow {wanted.follow}, as a person says",
            )
            self._map_lineages.consent(wanted.follow)
        return 202, self._show()

    def _force(self, found: MapSituation, wanted: MapCall) -> None:
        """
        Raises:
            ApiError: why not.
        """
        copy, may_lose = judge_map(found, wanted.accepted_index, accepts_doubt=wanted.accepts_doubt)
        meta, token = self._map.replica, self._env.new_token()
        before = meta.replica.recovery if meta is not None else None
        recovery = MapRecovery(
            wanted.id,
            next_meta(self._map.meta_id, token),
            f"{self._env.volume_member}.{token}",
            copy.group,
            wanted.accepted_index,
            copy.last_index,
            copy.commit_index,
            max(voters_before(found), before.voters if before is not None else 0)
            or len(self._env.settings.meta_voters),
            may_lose,
            self._env.clock.now_ns(),
            before.known if before is not None else (),
        )
        try:
            self._map_lineages.begin(recovery)
        except DiskError as error:
            raise errors.map_recovery_refused(
                f"{self._env.node} could not write it, and nothing has happened: {error}"
            ) from error

    def _show(self) -> dict[str, Any]:
        record = self._map.replica.replica.recovery if self._map.replica is not None else None
        return {
            "node": self._env.node,
            "lineage": self._map.meta_id,
            "recoveries": lineage_of(self._map.meta_id),
            "rivals": self._map_lineages.rivals,
            "kept": self._orphans.to_json(),
            "unconfirmed": sorted("/".join(key) for key in self._map.replica.replica.unconfirmed)
            if self._map.replica is not None
            else [],
            "recovery": None
            if record is None
            else {
                "id": record.id,
                "node": record.node,
                "acceptedIndex": record.accepted_index,
                "lastIndex": record.last_index,
                "committedIndex": record.commit_index,
                "mayLose": record.may_lose,
                "atNs": record.at_ns,
                "known": list(record.known),
            },
        }


def _dry(found: MapSituation, wanted: MapCall) -> dict[str, Any]:
    told: dict[str, Any] = {
        "alive": map_alive(found),
        "copies": [_copy(copy) for copy in found.copies],
        "outOfContact": away(found),
        "silent": sorted(found.silent),
    }
    try:
        _, may_lose = judge_map(found, wanted.accepted_index, accepts_doubt=wanted.accepts_doubt)
        return {**told, "mayLose": may_lose, "refusal": ""}
    except ApiError as refused:
        return {**told, "mayLose": "", "refusal": refused.description}


def _copy(copy: CopyFacts) -> dict[str, Any]:
    return {
        "node": copy.node,
        "lineage": copy.group,
        "lost": copy.is_lost,
        "doubtful": copy.is_doubtful,
        "open": copy.is_open,
        "votes": copy.member in (*copy.voters, *copy.voters_outgoing),
        "lastTerm": copy.last_term,
        "lastIndex": copy.last_index,
        "committedIndex": copy.commit_index,
    }
