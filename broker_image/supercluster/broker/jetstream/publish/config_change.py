"""A configuration that the meta group decided is written into the stream's log, when the stream has room for it."""

from __future__ import annotations

import json

from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.publish.interest_switch import put_interest
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.trimming import Trimming


class ConfigChange:
    """Of one stream's leader."""

    def __init__(self, trimming: Trimming) -> None:
        self._trimming = trimming

    def put(self, turn: LeaderTurn) -> None:
        """A lower limit takes messages away first."""
        assignment, state, admission = turn.stream.assignment, turn.stream.state, turn.admission
        turn.config_waits = assignment.version > admission.config_sent
        if not turn.config_waits or not self._trimming.made_way(turn, assignment.config):
            return
        admission.config_sent = assignment.version
        config = json.dumps(assignment.config.to_json()).encode()
        turn.proposal.add(Section.CONFIG_PUT, [u64(assignment.version) + u64(assignment.created_ns), config])
        turn.proposal.commands.append(lambda result: None)
        if state.config_version:
            put_interest(state.config, assignment.config, turn.proposal)
        admission.end.configured(assignment.config)
