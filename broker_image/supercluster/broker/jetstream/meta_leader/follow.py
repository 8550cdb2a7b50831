"""Requests about streams that come from another super-cluster (blue) or go to one (green), as the map's
leader judges them. Pure.

Blue repeats its request for a hidden stream whose copies follow its group, and withdraws it if it keeps the
stream after all (`docs/adr/cutover.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.carried import why_not_carried
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import StreamStage
from supercluster.broker.jetstream.meta.migration_changes import follow_stream, unfollow_stream
from supercluster.broker.jetstream.meta_leader.names_on_green import (
    NameUnknownError,
    Unknown,
    cluster_on_green,
)
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError, StreamRequest
from supercluster.broker.jetstream.placement.choice import NodeFacts
from supercluster.broker.migration.worlds import far_member

_MOVES = ("move", "plan_move", "remove_peer")
_OWNERS = ("create", "update", "delete", "restore")
"""Green carries these out. They were sent here by a broker whose map did not show yet that green has the stream."""


def check_migration(present: Assignment, request: StreamRequest) -> None:
    """May the request be judged here, of a stream that is about to go, went, or comes?

    Raises:
        ApiError: it is not this super-cluster's.
        NotAppendedError: nobody knows yet whose it is; it is asked again.
    """
    if present.following is not None:
        if request.verb in ("create", "restore"):
            raise errors.detailed(
                errors.STREAM_NAME_IN_USE,
                f"a stream of that name comes from super-cluster {present.following.world}",
            )
        raise errors.error(10059)
    found = present.migration
    if found is None:
        return
    if present.far_world:
        if request.verb in _OWNERS:
            raise NotAppendedError
        raise errors.error(errors.STREAM_FAR, f"{present.name} was handed over by migration {found.id}")
    if request.verb == "cancel_move":
        return
    if found.stage is StreamStage.HANDING:
        raise NotAppendedError
    if request.verb == "update" and request.config is not None and (why := why_not_carried(request.config)):
        raise errors.error(
            errors.STREAM_MIGRATES,
            f"{present.name} is part of migration {found.id}, which cannot hand over a stream that {why[0]}",
        )
    is_repair = request.verb == "remove_peer" or (request.verb == "move" and bool(request.replace))
    scales = (
        request.verb == "update"
        and request.config is not None
        and (
            request.config.num_replicas != present.config.num_replicas
            or request.config.placement != present.config.placement
        )
    )
    if (request.verb in _MOVES or scales) and not is_repair:
        raise errors.error(errors.STREAM_MIGRATES, f"{present.name} is part of migration {found.id}")


def judge_follow(present: Assignment | None, request: StreamRequest) -> Assignment | None:
    """The hidden stream that follows the same group already, perhaps of an earlier attempt: its copies go on, where they can; None: there
    is none.

    Raises:
        ApiError: the name is taken, or the request is late.
    """
    wanted = request.following
    assert wanted is not None
    if present is None:
        return None
    found = present.following
    if found is None or found.world != wanted.world:
        what = "is being restored" if present.restoring is not None else "is there"
        raise errors.detailed(errors.STREAM_NAME_IN_USE, f"stream {present.name} {what}")
    same = (found.migration, found.source) == (wanted.migration, wanted.source)
    if found.attempt > wanted.attempt or (found.attempt == wanted.attempt and not same):
        raise errors.detailed(
            errors.STREAM_NAME_IN_USE,
            f"attempt {found.attempt} of migration {found.migration} came later than attempt {wanted.attempt} of {wanted.migration}",
        )
    if found.attempt == wanted.attempt and found.version > wanted.version:
        raise errors.detailed(
            errors.STREAM_NAME_IN_USE,
            f"version {wanted.version} of the configuration is older than version {found.version}, which came first",
        )
    return present if found.source == wanted.source else None


def is_repeated(before: Assignment, request: StreamRequest) -> bool:
    """Is it a call whose answer was lost?"""
    wanted, found = request.following, before.following
    assert wanted is not None
    assert found is not None
    is_same = (before.config, before.group) == (request.config, request.group)
    return is_same and found.version == wanted.version


def near_cluster(before: Assignment | None, request: StreamRequest, known: Iterable[NodeFacts]) -> str:
    """What the stream's cluster is called here. Attempts of one migration go on with what the first one found: clusters that are added
    meanwhile change nothing.

    Raises:
        NameUnknownError: something that the stream's placement names is not here.
    """
    wanted, config = request.following, request.config
    assert wanted is not None
    assert config is not None
    if before is not None and before.following is not None:
        is_same = before.following.migration == wanted.migration
        if is_same and before.config.placement == config.placement:
            return before.following.cluster
    found = cluster_on_green(config, wanted.cluster, known)
    if isinstance(found, Unknown):
        raise NameUnknownError(found)
    return found


def follow(request: StreamRequest, members: tuple[str, ...], world: str, cluster: str) -> bytes:
    """The operation; `members` under their near names, `world` that of this super-cluster, and `cluster` what it calls the stream's."""
    wanted, config = request.following, request.config
    assert wanted is not None
    assert config is not None
    account, name = request.key
    far = tuple(far_member(member, world) for member in members)
    following = replace(wanted, members=far, cluster=cluster)
    return follow_stream(account, name, request.group, config, following, members, request.created_ns)


def unfollow(present: Assignment | None, request: StreamRequest) -> bytes | None:
    """The operation; None: nothing follows that attempt.

    Raises:
        ApiError: there is no such stream, since the operation is repeated.
    """
    if present is None:
        raise errors.error(10059)
    wanted, found = request.following, present.following
    assert wanted is not None
    if found is None:
        return None
    is_meant = (found.migration, found.source) == (wanted.migration, wanted.source)
    return (
        unfollow_stream(present, found.migration, found.attempt)
        if is_meant and found.attempt <= wanted.attempt
        else None
    )
