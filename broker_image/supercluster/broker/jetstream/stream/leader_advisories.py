"""Advisories of a stream's leader about the stream and its own leadership."""

from __future__ import annotations

from typing import Any

from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.stream.call import cluster_info
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.raft.confchange import node_of


class LeaderAdvisories:
    """Of one stream's leader."""

    def __init__(self, copy: StreamCopy) -> None:
        self._copy = copy
        self._advisories = copy.consumers.advisories
        self._config_told = 0

    def begin(self) -> None:
        """This replica leads."""
        copy = self._copy
        self._config_told = copy.stream.state.config_version
        if len(copy.replica.raft.membership.voters) > 1:
            consumers = list(copy.stream.state.consumers)
            self._advisories.leader_elected(copy.host.node, self._replicas(), consumers)

    def end(self) -> None:
        """It does not any more; a leader that hears a majority was asked to, or another one was elected."""
        voters, contact = self._copy.replica.raft.membership.voters, self._copy.host.brokers_in_contact()
        if 2 * sum(node_of(voter) in contact for voter in voters) <= len(voters):
            self._advisories.quorum_lost(self._replicas())

    def _replicas(self) -> list[dict[str, Any]]:
        return [replica.to_json() for replica in cluster_info(self._copy).replicas]

    def config_applied(self) -> None:
        """Perhaps the stream is new, or its configuration is another."""
        stream = self._copy.stream
        if stream.state.config_version != self._config_told and not stream.is_hidden:
            self._advisories.stream_action("modify" if self._config_told else "create")
            self._config_told = stream.state.config_version

    # ---- atomic batches -------------------------------------------------------------------------------------------

    def put(self, turn: LeaderTurn) -> None:
        """Batches whose time is over are given up."""
        self.sweep(turn.admission, turn.time_ns)

    def sweep(self, admission: Admission, now_ns: int) -> None:
        """Give up batches whose time is over, and say so."""
        admission.batches.sweep(now_ns)
        if admission.batches.abandoned:
            for batch, reason in admission.batches.take_abandoned():
                self._advisories.batch_abandoned(batch, reason)
