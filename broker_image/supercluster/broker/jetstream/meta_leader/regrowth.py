"""Gives a stream its replicas again after a forced recovery: learners on as many nodes as it lacks, by a move (SF-9).

The meta group's leader looks again and again, so whatever leaders do, a stream that is short is grown as soon as there are
nodes for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.operations import start_move
from supercluster.broker.jetstream.meta_leader.candidates import Candidates
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.map_tail import MapTail
from supercluster.broker.jetstream.meta_leader.moves import choose_targets, members_of
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError
from supercluster.broker.jetstream.placement.choice import Choice, NodeFacts
from supercluster.broker.jetstream.placement.dry_run import copy_bytes
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts

# Streams whose leaders are asked at a time; the others have their turn with the next look.
ASKED_MAX = 64


class Regrowth:
    """See the module."""

    def __init__(self, tail: MapTail, host: MetaHost, candidates: Candidates) -> None:
        self._tail = tail
        self._host = host
        self._candidates = candidates
        self._asking: set[str] = set()
        self._said: set[str] = set()

    def look(self, found: Assignment) -> None:
        """Ask the stream's leader how large it is, and start the move by its answer."""
        if found.group in self._asking or len(self._asking) >= ASKED_MAX:
            return
        self._asking.add(found.group)

        def answered(facts: StreamFacts | None) -> None:
            self._asking.discard(found.group)
            if facts is not None and self._tail.serves:
                self._grow(found.group, facts)
                self._tail.touch()

        self._host.ask_stream(found, answered)

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

    def _grow(self, group_id: str, facts: StreamFacts) -> None:
        state = self._tail.state
        found = state.by_group(group_id)
        if found is None or not found.is_short or not facts.voters:
            return
        known = self._candidates.facts(found.config.storage, without=group_id)
        choice = self._choose(found, facts, known)
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
        targets = members_of(choice.nodes, facts, state, self._host.new_token())
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
