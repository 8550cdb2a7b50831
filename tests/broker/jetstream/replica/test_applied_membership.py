"""The membership that a checkpoint keeps is a committed one (SF-5)."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.stream.test_replica import ASSIGNMENT, Replicas

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.confchange import Membership, membership_of
from supercluster.broker.raft.config import RaftConfig
from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.raft.node import RaftNode
from supercluster.broker.storage.log.memory_log import MemoryLog


@pytest.mark.covers("SF-5")
def test_a_copy_without_a_checkpoint_keeps_no_membership_that_may_be_truncated() -> None:
    replicas = Replicas()
    host = replicas.brokers["a"]
    member, before = "a@1", membership_of(ASSIGNMENT.members)
    appended = membership_of([*ASSIGNMENT.members[:2], "d@1"])
    log = MemoryLog()
    log.append(
        [
            make_entry(index=1, term=1, kind=EntryKind.NOOP, time_ns=1, first_seq=0, count=0, payload=b""),
            make_entry(
                index=2,
                term=1,
                kind=EntryKind.CONFIG,
                time_ns=1,
                first_seq=0,
                count=0,
                payload=appended.encode(),
            ),
        ]
    )
    raft = RaftNode(
        RaftConfig(member), log, term=1, vote="", membership=before, commit_index=1, rng=host, now_ms=0
    )
    replica = StreamReplica(ASSIGNMENT, member, log, raft, host)
    replica.recover(1)
    replica.turn(0)
    assert (replica.applied_index, raft.membership.voters) == (1, appended.voters)
    replica.checkpoint()
    found = log.load_checkpoint()
    assert found is not None
    assert Membership.decode(Reader(found[1]).blob()).voters == before.voters
