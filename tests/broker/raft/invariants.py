"""What the Raft package says beside its fields, asked of a member after each of its turns."""

from __future__ import annotations

from supercluster.broker.raft.config import NEVER_MS, Role
from supercluster.broker.raft.node import RaftNode
from supercluster.broker.raft.progress import Progress, SendState


def check(node: RaftNode) -> None:
    """Raises AssertionError: a field is not as it is said to be."""
    state, leader, follower, log = node._state, node._leader, node._follower, node.log
    leads = state.role is Role.LEADER
    assert log.last_term <= state.term
    assert log.base_index <= state.commit_index
    assert state.handed_out <= state.commit_index
    assert leads == (state.leader == state.id)
    assert not (leads and state.doubtful)
    assert leads or (not node.progress and state.transfer_to is None)
    assert (leader.transfer_until_ms == NEVER_MS) == (state.transfer_to is None)
    assert not (state.quiesced and state.role in (Role.PRECANDIDATE, Role.CANDIDATE))
    assert state.leader is None or state.role in (Role.FOLLOWER, Role.LEADER)
    assert leader.active_ms <= state.now_ms
    assert leads or state.commit_index <= follower.matched
    assert leads or follower.acked_durable <= follower.matched
    assert node._timer.heard_leader_ms <= state.now_ms
    for progress in node.progress.values():
        _check_progress(node, progress)


def _check_progress(node: RaftNode, progress: Progress) -> None:
    state, sender = progress.state, node._sender
    assert progress.match >= 0
    # A late answer to an older snapshot sets next back: the leader repeats entries then.
    assert progress.next > 0
    assert progress.match < progress.next or state is not SendState.PROBE
    assert progress.match <= node.log.last_index
    assert state is SendState.PROBE or not progress.probe_sent
    assert state is SendState.REPLICATE or not progress.inflight
    assert state is SendState.SNAPSHOT or progress.snapshot is None
    assert progress.inflight_bytes == sum(size_bytes for _, size_bytes in progress.inflight)
    assert all(last < progress.next for last, _ in progress.inflight)
    assert progress.sent_commit <= node.commit_index
    assert progress.round <= sender.round
    snapshot = progress.snapshot
    assert snapshot is None or (
        0 <= snapshot.next <= snapshot.chunks and 0 <= snapshot.acked <= snapshot.chunks
    )
