"""Decisions of the meta group's leader about streams, judged against the state at the end of its log.

A decision is a section body to append, or an error. A decision that depends on the stream itself (its size,
its membership in force) raises `FactsNeededError`; the request is repeated with the answer of the stream's
leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config import strict
from supercluster.broker.jetstream.config.limits import stream_within
from supercluster.broker.jetstream.config.metadata_keys import RESOURCE_KEY, check_metadata
from supercluster.broker.jetstream.config.source_checks import judge_origins, with_origin
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import check_create, check_not_sealed, check_update
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.operations import cancel_move, delete_stream, put_stream, start_move
from supercluster.broker.jetstream.meta.restoring import Restoring, begin_restore, end_restore
from supercluster.broker.jetstream.meta_leader import moves
from supercluster.broker.jetstream.meta_leader.candidates import Candidates
from supercluster.broker.jetstream.meta_leader.follow import (
    check_migration,
    follow,
    is_repeated,
    judge_follow,
    near_cluster,
    unfollow,
)
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.names_on_green import as_on_green
from supercluster.broker.jetstream.meta_leader.room_for_stream import RoomForStream
from supercluster.broker.jetstream.meta_leader.stream_request import Asked, FactsNeededError, StreamRequest
from supercluster.broker.jetstream.placement.choice import Choice, NodeFacts
from supercluster.broker.jetstream.placement.dry_run import MovePlan, copy_bytes, make_plan
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.raft.confchange import node_of


class StreamDecisions:
    """One request's decision: made, used and thrown away."""

    def __init__(
        self,
        tail: MapTail,
        candidates: Candidates,
        host: MetaHost,
        request: StreamRequest,
        asked: Asked | None,
    ) -> None:
        self._state = tail.state
        self._now_ns = tail.time_ns()
        self._candidates = candidates
        self._host = host
        self._request = request
        self._asked = asked
        self._present = self._state.streams.get(request.key)
        self._room = RoomForStream(self._state, candidates, host, request.key, request.asked_at)

    def decide(self) -> bytes | MovePlan | None:
        """The operation to append; None when all is as it is asked for; a plan for a dry run.

        Raises:
            ApiError: it is refused.
            FactsNeededError: the stream's leader has to be asked.
        """
        if self._request.config is not None and self._request.verb in ("create", "update", "restore"):
            if self._request.pedantic:
                strict.check_window(self._request.config, self._host.server_limits)
            config = stream_within(self._request.config, self._host.server_limits)
            self._request = replace(self._request, config=config)
        request, present = self._request, self._present
        self._check_who()
        if request.verb in ("follow", "unfollow"):
            return self._follow()
        if present is not None:
            check_migration(present, request)
        if request.verb == "restore":
            return self._restore()
        if present is not None and present.restoring is not None:
            return self._of_restored(present)
        if request.verb == "create":
            return self._create()
        if present is None or request.verb == "abandon":
            raise errors.error(10059)
        if request.verb == "restored":
            return self._was_restored(present)
        if request.verb == "update":
            return self._update(present)
        if request.verb == "delete":
            return delete_stream(present)
        if request.verb == "cancel_move":
            return self._cancel(present)
        if request.verb == "remove_peer":
            return self._remove_peer(present)
        if request.verb == "move":
            return self._move(present)
        assert request.verb == "plan_move", request.verb
        return self._plan(present)

    @cached_property
    def _nodes(self) -> dict[str, NodeFacts]:
        config = self._present.config if self._present is not None else self._request.config
        assert config is not None
        return self._room.nodes(config.storage)

    # ---- who may ask ----------------------------------------------------------------------------------------------

    def _check_who(self) -> None:
        """SF-23: a declared stream is the operator's alone; and nobody but the operator reaches into other accounts."""
        request, present, is_operator = self._request, self._present, self._request.info.is_operator
        if is_operator:
            return
        if request.key[0] != request.info.account:
            whose = f"streams of account {request.key[0]} are for its own users and for the operator"
            raise errors.error(errors.FOREIGN_ACCOUNT, whose)
        differs = present is not None and (request.verb != "create" or request.config != present.config)
        if present is not None and differs and present.declared_by:
            raise errors.declared_stream(present.name, present.declared_by, self._what_it_changes(present))
        claimed = dict(request.config.metadata).get(RESOURCE_KEY) if request.config is not None else None
        if claimed and (present is None or claimed != present.declared_by):
            raise errors.claimed_stream(request.name, claimed)

    def _what_it_changes(self, present: Assignment) -> str:
        if self._request.verb in ("cancel_move", "remove_peer", "move", "plan_move"):
            is_count = self._request.replicas or self._request.names_members
            return "the count of replicas" if is_count else "the placement"
        return changed_fields(present.config, self._request.config)

    # ---- streams --------------------------------------------------------------------------------------------------

    def _create(self) -> bytes | None:
        assert self._request.config is not None
        check_not_sealed(self._request.config)
        self._check_pedantic()
        config = with_origin(self._request.config, self._room.config_of)
        if self._present is not None:
            if self._present.config == config:
                return None
            raise errors.error(10058)
        check_create(config)
        judge_origins(config, self._room.config_of)
        self._room.check_overlap(config)
        self._room.check_account(config)
        members = self._room.place(config)
        account, name = self._request.key
        return put_stream(account, name, f"S.{account}.{name}.{self._host.new_token()}", config, members)

    def _follow(self) -> bytes | None:
        """A hidden stream that comes from another super-cluster (`docs/adr/cutover.md`), or blue's word that it does not."""
        request, present = self._request, self._present
        if request.verb == "unfollow":
            return unfollow(present, request)
        before = judge_follow(present, request)
        if before is not None and is_repeated(before, request):
            return None
        assert request.config is not None
        self._room.check_limits(request.config)
        judge_origins(request.config, self._room.config_of)
        self._room.check_overlap(request.config)
        self._room.check_account(request.config)
        cluster = near_cluster(before, request, self._room.nodes(request.config.storage).values())
        config = as_on_green(request.config, cluster, self._state.brokers)
        goes_on = before is not None and before.following is not None and before.following.cluster == cluster
        members = (
            before.members if before is not None and goes_on else self._room.place(config, is_new_copy=True)
        )
        return follow(request, members, self._host.world, cluster)

    def _check_pedantic(self) -> None:
        if self._request.pedantic and self._request.config is not None:
            strict.check_mirror(self._request.config, self._room.config_of)

    def _restore(self) -> bytes | None:
        """A stream that nobody sees until it is whole. While it is not, nobody else restores one of its name: who sends nothing
        for some seconds makes room by that."""
        request, present = self._request, self._present
        assert request.config is not None
        config = with_origin(request.config, self._room.config_of)
        if present is not None and present.restoring is None:
            raise errors.error(errors.RESTORE_NAME_IN_USE)
        if (
            present is not None
            and present.restoring is not None
            and present.restoring.id == request.restore_id
        ):
            return None  # A call that is repeated, since its answer was lost.
        if present is not None:
            raise errors.detailed(errors.RESTORE_NAME_IN_USE, "a restore of that name is under way")
        check_metadata(config.metadata, {})
        judge_origins(config, self._room.config_of)
        self._room.check_overlap(config)
        self._room.check_account(config)
        members = self._room.place(config)
        account, name = request.key
        group = f"S.{account}.{name}.{self._host.new_token()}"
        return begin_restore(account, name, group, Restoring(request.restore_id, config), members)

    def _of_restored(self, present: Assignment) -> bytes:
        """What may be asked of a stream that is not whole: that it is now, or that it goes."""
        request, restoring = self._request, present.restoring
        assert restoring is not None
        is_meant = restoring.id == request.restore_id
        if request.verb == "delete" or (request.verb == "abandon" and is_meant):
            return delete_stream(present)
        if request.verb == "restored" and is_meant:
            return end_restore(present.account, present.name, present.group, restoring.id)
        if request.verb == "create":
            raise errors.detailed(errors.STREAM_NAME_IN_USE, "a stream of that name is being restored")
        raise errors.error(10059)

    def _was_restored(self, present: Assignment) -> bytes | None:
        """The call is repeated, since its answer was lost; or it is about another stream."""
        if present.group != self._request.group:
            raise errors.error(10059)
        return None

    def _update(self, present: Assignment) -> bytes | None:
        config = self._request.config
        assert config is not None
        self._check_pedantic()
        check_update(present.config, config)
        if config.sources != present.config.sources or config.max_msg_size != present.config.max_msg_size:
            judge_origins(config, self._room.config_of)
        self._room.check_overlap(config)
        if config == present.config:
            return None
        self._room.check_account(config)
        return self._put(present, config)

    def _put(self, present: Assignment, config: StreamConfig) -> bytes:
        """Change the configuration; a placement that the present members do not satisfy is a move (MV-1), and another
        count of replicas is made as one."""
        scales = config.num_replicas != present.config.num_replicas
        if scales or moves.asks_elsewhere(present.config.placement, config.placement):
            if present.move is not None:
                raise moves.in_progress(present, self._facts(present))
            if scales or not moves.stays(present, config, self._nodes):
                return self._start(present, config)
        return put_stream(present.account, present.name, present.group, config, present.members)

    # ---- moves ----------------------------------------------------------------------------------------------------

    def _facts(self, present: Assignment) -> StreamFacts | None:
        if self._asked is None or self._asked.group != present.group:
            raise FactsNeededError(present)
        return self._asked.facts

    def _sure_facts(self, present: Assignment) -> StreamFacts:
        """What has to be known before a move: a stream without a leader cannot move, nor say how large it is."""
        facts = self._facts(present)
        if facts is None:
            raise errors.error(10118)
        count, voting = present.config.num_replicas, sorted(map(node_of, facts.voters))
        # Of copies beyond the count the map has to know too, and of those that are lacking since a forced recovery: else
        # somebody is just taking another one's place.
        another_count = len(voting) > count or present.is_short
        if len(voting) != count and not (another_count and voting == sorted(map(node_of, present.members))):
            raise errors.members_are_changing(present.name)
        return facts

    def _start(self, present: Assignment, config: StreamConfig) -> bytes:
        facts = self._sure_facts(present)
        choice = self._choose(present, config, facts)
        if choice.refusal:
            raise self._room.no_place(config, choice.refusal)
        return self._begin(present, config, facts, choice)

    def _choose(self, present: Assignment, config: StreamConfig, facts: StreamFacts) -> Choice:
        planned = self._request.nodes
        others = (
            {node: "is not in the plan" for node in self._nodes if node not in planned} if planned else {}
        )
        if self._request.replace:
            found = _exchange(
                present,
                config,
                facts,
                lambda wide: moves.choose_replacements(
                    wide, facts, self._nodes, self._request.replace, others
                ),
            )
        elif self._request.names_members:
            found = moves.choose_named(config, facts, self._nodes, self._request.add, self._request.remove)
        elif config.num_replicas != present.config.num_replicas:
            found = moves.choose_for_count(present.group, config, facts, self._nodes, self._state, others)
        else:
            found = moves.choose_targets(config, facts, self._nodes, self._state, not_planned=others)
        if planned and (found.refusal or set(found.nodes) != set(planned)):
            raise _outdated(planned, found)
        return found

    def _begin(self, present: Assignment, config: StreamConfig, facts: StreamFacts, choice: Choice) -> bytes:
        targets = moves.members_of(choice.nodes, facts, self._state, self._host.new_token())
        move_id = self._request.move_id or self._host.new_token()
        size_bytes, rate = copy_bytes(facts), self._request.bytes_per_s
        return start_move(present, config, move_id, targets, facts.voters, rate, size_bytes)

    def _moved_config(self, present: Assignment) -> StreamConfig:
        """What a call of the operator's asks for: a placement or a count of replicas, never both (MV-3)."""
        wanted = moves.with_changes(present.config, self._request.placement, self._request.replicas)
        check_update(present.config, wanted)
        self._room.check_account(wanted)
        return wanted

    def _move(self, present: Assignment) -> bytes | None:
        move_id, last = self._request.move_id, present.last_move
        if move_id and last is not None and any(found.id == move_id for found in last.known):
            return None  # It was started by an earlier call, and has ended, perhaps long ago.
        config = self._moved_config(present)
        if present.move is not None:
            is_same = config.num_replicas == present.config.num_replicas and not moves.asks_elsewhere(
                present.config.placement, config.placement
            )
            if move_id and present.move.id == move_id:
                return self._pace(present)
            if not move_id and is_same:
                return None  # A call that is repeated, since its answer was lost.
            raise moves.in_progress(present, self._facts(present))
        if self._request.replace:
            self._check_dead(present)
            return self._start(present, config)
        if self._request.names_members:
            changes = self._check_named(present)
            return self._start(present, config) if changes else None
        return self._put(present, config) if config != present.config else None

    def _check_dead(self, present: Assignment) -> None:
        request = self._request
        why = moves.why_not_dead(
            self._state,
            present.group,
            self._sure_facts(present),
            request.replace,
            request.away_ms,
            self._now_ns,
        )
        if why:
            raise errors.error(errors.NOT_DEAD, f": {why}")

    def _check_named(self, present: Assignment) -> bool:
        """False: whoever is named is there already, or gone."""
        request, facts = self._request, self._sure_facts(present)
        why = moves.why_not_named(
            self._state, present, facts, self._nodes, request.add, request.remove, request.min_usable
        )
        if why:
            raise errors.error(errors.MEMBERS_STAY, why)
        held = set(map(node_of, facts.voters))
        return bool(set(request.add) - held or set(request.remove) & held)

    def _pace(self, present: Assignment) -> bytes | None:
        """A call that is repeated, since its answer was lost; or one that gives the move another limit."""
        move, bytes_per_s = present.move, self._request.bytes_per_s
        assert move is not None
        if move.bytes_per_s == bytes_per_s:
            return None
        return start_move(present, present.config, move.id, move.targets, move.origin, bytes_per_s)

    def _plan(self, present: Assignment) -> MovePlan:
        if present.move is not None:
            raise moves.in_progress(present, self._facts(present))
        config, facts = self._moved_config(present), self._sure_facts(present)
        try:
            if self._request.replace:
                self._check_dead(present)
            if self._request.names_members:
                self._check_named(present)
            choice = self._choose(present, config, facts)
        except ApiError as refused:
            choice = Choice((), (), refused.description)
        return make_plan(choice, facts, self._nodes, self._request.bytes_per_s)

    def _cancel(self, present: Assignment) -> bytes | None:
        if present.move is None:
            raise errors.error(10129)
        wanted = self._request.move_id
        if wanted and wanted != present.move.id:
            raise errors.error(10129, f": {wanted} does not run, {present.move.id} does")
        return None if present.move.cancelled else cancel_move(present, present.move.id)

    def _remove_peer(self, present: Assignment) -> bytes:
        """Another node takes the place of the named one, in one change (SF-8)."""
        facts = self._facts(present)
        if present.move is not None:
            raise moves.in_progress(present, facts)
        facts = self._sure_facts(present)
        peer = self._request.peer
        if all(found.node != peer for found in facts.members):
            raise errors.error(10040)
        choice = _exchange(
            present,
            present.config,
            facts,
            lambda wide: moves.choose_targets(wide, facts, self._nodes, self._state, (peer,)),
        )
        if choice.refusal:
            raise errors.error(10075, f": {choice.refusal}")
        return self._begin(present, present.config, facts, choice)


def _exchange(
    present: Assignment, config: StreamConfig, facts: StreamFacts, choose: Callable[[StreamConfig], Choice]
) -> Choice:
    """Nodes for copies in the places of others. Those beyond the count are kept; and where a stream lacks some since it was
    recovered by force, one that goes is exchanged also where there are not enough nodes for all that it lacks."""
    there = len(facts.voters)
    found = choose(replace(config, num_replicas=max(config.num_replicas, there)))
    if found.refusal and present.is_short:
        found = choose(replace(config, num_replicas=there))
    return found


def _outdated(planned: Sequence[str], found: Choice) -> ApiError:
    """What was planned, and perhaps approved, is done or nothing is: the brokers of the plan, or a new plan (MV-13)."""
    rejected = {entry.node: entry.why for entry in found.rejected}
    flaws = "; ".join(f"{node} {rejected[node]}" for node in planned if node in rejected)
    why = flaws or found.refusal or f"it would be {', '.join(found.nodes)} now"
    return errors.error(errors.PLAN_OUTDATED, f": it was to go to {', '.join(planned)}; {why}")


def changed_fields(present: StreamConfig, wanted: StreamConfig | None) -> str:
    """The names of the fields that a refused request wanted to change, for the answer."""
    if wanted is None:
        return "the stream itself"
    before: dict[str, Any] = present.to_json()
    after: dict[str, Any] = wanted.to_json()
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return ", ".join(names)
