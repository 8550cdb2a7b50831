"""Writes a configuration that the meta group decided into the stream's log, once the stream's messages fit
its limits.

If the retention becomes interest, or a consumer of such a stream gets other filters, messages without
interest have to go. Older brokers remove none when they apply a configuration or a consumer, and the effect
of an entry may never change (`docs/adr/versions.md`), or replicas would differ. All versions look for
messages without interest when a consumer is deleted. So a consumer is created and deleted right after the
configuration. It is never visible, and no client can give its name.
"""

from __future__ import annotations

import json

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import text, u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.meta.restoring import is_bare
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.jetstream.publish.trimming import Trimming

_NAME = "interest.begins"


class ConfigChange:
    """Of one stream's leader."""

    def __init__(self, trimming: Trimming) -> None:
        self._trimming = trimming

    def put(self, turn: LeaderTurn) -> None:
        """A lower limit takes messages away first."""
        assignment, state, admission = turn.stream.assignment, turn.stream.state, turn.admission
        # The map has what blue said when the copies began. The log has what the stream is handed over with.
        is_own = assignment.following is None
        turn.config_waits = is_own and assignment.version > admission.config_sent
        if not turn.config_waits or not self._trimming.made_way(turn, assignment.config):
            return
        admission.config_sent = assignment.version
        config = json.dumps(assignment.config.to_json()).encode()
        turn.proposal.add(Section.CONFIG_PUT, [u64(assignment.version) + u64(assignment.created_ns), config])
        turn.proposal.commands.append(lambda result: None)
        if state.config_version:
            put_interest(state.config, assignment.config, turn.proposal)
        admission.end.configured(assignment.config)


def put_interest(before: StreamConfig, wanted: StreamConfig, proposal: Proposal) -> None:
    """Behind the section that has the wanted configuration. A restored stream keeps what its backup had."""
    if wanted.retention != "interest" or before.retention == "interest" or is_bare(before):
        return
    for kind, body in passing_consumer():
        proposal.add(kind, [body])
        proposal.commands.append(lambda result: None)


def passing_consumer() -> list[tuple[Section, bytes]]:
    """The sections of a consumer that comes and goes: with it go the messages that nobody waits for."""
    config = {"deliver_policy": "all", "ack_policy": "none"}
    request = {"name": _NAME, "config": config, "start_seq": 1}
    return [(Section.CONSUMER_PUT, json.dumps(request).encode()), (Section.CONSUMER_DELETE, text(_NAME))]
