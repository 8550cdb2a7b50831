"""Streams after a forced recovery: it confirms their members in a recovered map (SF-5, SF-9), and restores
their replicas.

The meta group's leader asks each stream's leader repeatedly, so a stream is confirmed as soon as its leader
has reported its members. A stream with too few copies gets learners on as many nodes as it lacks, by a move,
as soon as there are nodes for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import StreamStage
from supercluster.broker.jetstream.meta.operations import confirm_stream, start_move
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.candidates import Candidates
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.moves import choose_targets, members_of
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.jetstream.placement.choice import Choice, NodeFacts
from supercluster.broker.jetstream.placement.dry_run import copy_bytes
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.jetstream.subjects.subject_set import SubjectSet

# Streams whose leaders are asked at a time, for either reason; the others have their turn with the next look.
ASKED_MAX = 64


class RecoveredStreams:
    def __init__(self, tail: MapTail, host: MetaHost, candidates: Candidates) -> None:
        self._tail = tail
        self._host = host
        self._candidates = candidates
        self._growing: set[str] = set()
        self._confirming: set[str] = set()
        """Groups whose leaders are asked."""
        self._said: set[str] = set()

    def look(self) -> None:
        """Ask the leaders of streams that are short, and of those whose members are not known for sure."""
        state = self._tail.state
        for key in sorted(state.short):
            self._ask(state.streams[key], self._growing, self._grow)
        for key in sorted(state.unconfirmed):
            self._ask(state.streams[key], self._confirming, self._confirm)

    def _ask(
        self, found: Assignment, asking: set[str], then: Callable[[Assignment, StreamFacts], None]
    ) -> None:
        group_id = found.group
        if group_id in asking or len(asking) >= ASKED_MAX:
            return
        asking.add(group_id)

        def answered(facts: StreamFacts | None) -> None:
            asking.discard(group_id)
            if facts is not None and self._tail.serves:
                now = self._tail.state.by_group(group_id)
                if now is not None and facts.voters:
                    then(now, facts)
                self._tail.touch()

        self._host.ask_stream(found, answered)

    def _confirm(self, found: Assignment, facts: StreamFacts) -> None:
        # A membership on its way may yet be another one: it comes to an end first, by itself.
        if not found.is_unconfirmed or not facts.is_settled:
            return
        if facts.migrating.get("stage") in ("fenced", "handed") and not _is_marked(found):
            return  # Its own log says that it is about to be green's: it asks for the mark, which the map has lost.
        config = _newer_config(found, facts, self._tail.state)
        try:
            self._tail.propose(confirm_stream(found, facts.voters, config, facts.config_version))
        except NotAppendedError:
            return  # The next look tries again.
        members = ", ".join(facts.voters)
        of_config = ", and has a newer configuration than the map had" if config is not None else ""
        self._host.event(
            found.group, "StreamConfirmed", f"stream {found.name} has the members {members}{of_config}"
        )

    def _grow(self, found: Assignment, facts: StreamFacts) -> None:
        if not found.is_short:
            return
        group_id = found.group
        choice = self._choose(found, facts, self._candidates.facts(found.config.storage, without=group_id))
        if choice.refusal:
            if group_id not in self._said:
                self._said = {*list(self._said)[-1023:], group_id}
                self._host.event(
                    group_id,
                    "ReplicasWait",
                    f"stream {found.name} has {len(facts.voters)} of {found.config.num_replicas} replicas since it was "
                    f"recovered: {choice.refusal}",
                )
            return
        targets = members_of(choice.nodes, facts, self._tail.state, self._host.new_token())
        move_id = f"regrow-{self._host.new_token()}"
        try:
            self._tail.propose(
                start_move(found, found.config, move_id, targets, facts.voters, 0, copy_bytes(facts))
            )
        except NotAppendedError:
            return  # The next look tries again.
        self._host.event(
            group_id, "MoveStarted", f"stream {found.name} is given its replicas again: {', '.join(targets)}"
        )

    def _choose(self, found: Assignment, facts: StreamFacts, known: Mapping[str, NodeFacts]) -> Choice:
        """As many as the stream is to have, or as many as can be had now: the largest odd number, for an even one tolerates no
        more failures than one less would."""
        wanted, there = found.config.num_replicas, len(facts.voters)
        whole = choose_targets(found.config, facts, known, self._tail.state)
        if not whole.refusal:
            return whole
        for count in (count for count in range(wanted - 1, there, -1) if count % 2):
            part = replace(found.config, num_replicas=count)
            choice = choose_targets(part, facts, known, self._tail.state)
            if not choice.refusal:
                return choice
        return whole


def _is_marked(found: Assignment) -> bool:
    return found.migration is not None and found.migration.stage is not StreamStage.LEARNING


def _newer_config(found: Assignment, facts: StreamFacts, state: MetaState) -> StreamConfig | None:
    """The stream's own configuration, where it is newer than the map's; with the map's subjects where others have its own
    by now."""
    if facts.config is None or facts.config_version <= found.version:
        return None
    config = StreamConfig.from_json(facts.config)
    own = SubjectSet(config.subjects)
    others = (
        subject
        for other in state.of_account(found.account)
        if other.group != found.group
        for subject in other.config.subjects
    )
    if any(map(own.overlapping, others)):
        return replace(config, subjects=found.config.subjects)
    return config
