"""A stream's leader answers what the meta group's leader asks before it decides about a move (`placement/stream_facts.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from supercluster.broker.jetstream.placement.stream_facts import MemberFacts, StreamFacts
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.raft.confchange import node_of


def answer(copy: StreamCopy, info: Mapping[str, Any]) -> bytes:
    """A stream's leader answers; `info` is STREAM.INFO's body."""
    replica, state = copy.replica, copy.stream.state
    raft, last, contact = replica.raft, replica.log.last_index, copy.host.brokers_in_contact()
    members: list[MemberFacts] = []
    for member in raft.membership.members:
        progress = raft.progress.get(member)
        match = progress.match if progress is not None else (last if member == replica.member else 0)
        members.append(
            MemberFacts(
                member,
                raft.membership.is_voter(member),
                node_of(member) in contact and match >= raft.commit_index,
                max(0, last - match),
            )
        )
    facts = StreamFacts(
        state.messages,
        state.bytes,
        replica.log.bytes_on_disk(),
        tuple(members),
        info.get("move") or {},
        node_of(replica.member),
        not raft.membership.is_joint and raft.membership.index <= raft.commit_index,
        state.config.to_json() if state.config_version else None,
        state.config_version,
    )
    return json.dumps(facts.to_json()).encode()
