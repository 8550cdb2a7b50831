"""Frames for the groups that a broker holds: Raft's messages, and requests to a stream's leader."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from supercluster.broker.jetstream.core.dispatch import Handler
from supercluster.broker.jetstream.core.host import ReplicaHost
from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.links import comparison_frames, frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.migration_frames import DROPPED, CutAsk, CutTold, Prepared, Told
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.links.source_frames import OriginAsk
from supercluster.broker.jetstream.meta_leader.migrations import OpenWord
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.messages import Message, decode


class StreamFrames:
    def __init__(self, peers: Peers, copies: Copies, leaderships: Leaderships, host: ReplicaHost) -> None:
        self._peers = peers
        self._copies = copies
        self._leaderships = leaderships
        self._host = host
        self.handlers: dict[int, Handler] = {
            Frame.RAFT: self._on_raft,
            Frame.FORWARD: self._on_forward,
            Frame.OPEN: self._on_open,
            Frame.ACKS: self._on_acks,
            Frame.WHO_LEADS: self._on_who_leads,
            Frame.JOIN: self._on_join,
            Frame.MOVE_HASHES: self._on_hashes_asked,
            Frame.MOVE_HASHED: self._on_hashes,
            Frame.ORIGIN_ASK: self._on_origin_asked,
            Frame.PREPARED: self._on_prepared,
            Frame.CUT_ASK: self._on_cut_asked,
            Frame.CUT_TOLD: self._on_cut_told,
        }

    def _on_raft(self, node: str, body: memoryview, now_ms: int) -> None:
        for group_id, raw in frames.decode_raft(body):
            self._raft_message(group_id, decode(raw), now_ms)

    def _raft_message(self, group_id: str, message: Message, now_ms: int) -> None:
        group = self._copies.groups.get(group_id)
        if group is None or message.to != group.member or group.failed is not None:
            return  # For a member that this volume is not (any more): SF-4.
        group.guarded(partial(group.raft.step, message, now_ms))
        self._copies.touch(group_id)

    def _on_forward(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, forward, early = frames.decode_forward(body)
        copy = self._serving_stream(group_id, node)
        if copy is not None:
            copy.replica.guarded(partial(copy.inbox.offer, forward, early=early))

    def _on_open(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, key = frames.decode_open(body)
        copy = self._serving_stream(group_id, node)
        if copy is not None:
            copy.replica.guarded(partial(copy.inbox.open_session, key))

    def _on_acks(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, acks = frames.decode_acks(body)
        copy = self._serving_stream(group_id, node)
        if copy is not None:
            copy.replica.guarded(partial(_acknowledge, copy, node, acks))
        else:
            self._host.acks_back(node, group_id, acks)

    def _serving_stream(self, group_id: str, node: str) -> StreamCopy | None:
        """The stream that this broker leads; where it does not, the sender is told who may."""
        copy = self._copies.streams.get(group_id)
        if copy is not None and copy.replica.serves:
            self._copies.touch(group_id)
            return copy
        hint = self._leaderships.leader_of(group_id)
        self._peers.post(node, Frame.NOT_LEADER, frames.encode_texts(group_id, hint or ""))
        return None

    def _on_who_leads(self, node: str, body: memoryview, now_ms: int) -> None:
        (group_id,) = frames.decode_texts(body, 1)
        group = self._copies.groups.get(group_id)
        if group is not None and group.serves:
            self._leaderships.notify((group,), node)

    def leads_no_more(self, group_id: str, node: str, now_ms: int) -> None:
        """Who followed that broker in silence looks for another leader: its link is up, and nothing else would tell (SF-7). A
        word that comes late does no harm; who hears a leader in time refuses the pre-vote."""
        group = self._copies.groups.get(group_id)
        if group is None or group.failed is not None or not group.raft.quiesced:
            return
        leader = group.raft.leader
        if leader is not None and self._peers.far_groups.broker_of(group_id, node_of(leader)) == node:
            group.raft.wake(now_ms, node)
            self._copies.touch(group_id)

    def _on_join(self, node: str, body: memoryview, now_ms: int) -> None:
        group_id, member = frames.decode_texts(body, 2)
        if node_of(member) != node:
            raise WireError(f"{member[:64]!r} is no member of {node}")
        group = self._copies.groups.get(group_id)
        if group is not None:
            group.guarded(partial(group.join_requested, member))
            self._copies.touch(group_id)

    def _on_hashes_asked(self, node: str, body: memoryview, now_ms: int) -> None:
        ask = comparison_frames.decode_ask(body)
        copy = self._copies.streams.get(ask.group)
        if copy is not None and copy.replica.member == ask.member and copy.replica.failed is None:
            copy.replica.guarded(
                partial(copy.range_hasher.ask, ask, partial(self._tell_hashes, node), now_ms)
            )
            self._copies.touch(ask.group)

    def _tell_hashes(self, node: str, told: comparison_frames.HashesTold) -> None:
        self._peers.post(node, Frame.MOVE_HASHED, comparison_frames.encode_told(told))

    def _on_hashes(self, node: str, body: memoryview, now_ms: int) -> None:
        told = comparison_frames.decode_told(body)
        copy = self._copies.streams.get(told.group)
        if copy is not None and copy.move.mover is not None:
            copy.replica.guarded(partial(copy.move.mover.on_hashes, told))
            self._copies.touch(told.group)

    def _on_origin_asked(self, node: str, body: memoryview, now_ms: int) -> None:
        asked = OriginAsk.decode(body)
        copy = self._serving_stream(asked.group, node)
        if copy is not None:
            copy.replica.guarded(partial(copy.origin_reads.asked, node, asked, now_ms))

    # ---- a stream between two super-clusters ----------------------------------------------------------------------

    def _on_prepared(self, node: str, body: memoryview, now_ms: int) -> None:
        told, leader = Prepared.decode(body), self._copies.map
        if told.refusal == DROPPED and leader is not None:
            leader.migrations.on_dropped(world_of(node), told.group, told.attempt)
        self._migrating(told.group, lambda copy: copy.migration.on_prepared(told))

    def _on_cut_asked(self, node: str, body: memoryview, now_ms: int) -> None:
        asked = CutAsk.decode(body)
        self._migrating(asked.group, lambda copy: copy.migration.on_asked(node, asked))

    def _on_cut_told(self, node: str, body: memoryview, now_ms: int) -> None:
        told, leader = CutTold.decode(body), self._copies.map
        self._migrating(told.group, lambda copy: copy.migration.on_told(told))
        if leader is not None and told.told is Told.OPEN:
            word = OpenWord(told.next_group, told.migration, told.attempt, told.digest.hex(), told.last_seq)
            leader.migrations.on_open(word)
            self._copies.touch(leader.id)

    def _migrating(self, group_id: str, act: Callable[[StreamCopy], None]) -> None:
        """Only the leader is meant: who asks tells all, and asks again."""
        copy = self._copies.streams.get(group_id)
        if copy is not None and copy.replica.serves:
            copy.replica.guarded(lambda: act(copy))
            self._copies.touch(group_id)


def _acknowledge(copy: StreamCopy, node: str, acks: list[Ack]) -> None:
    copy.appender.acknowledge(node, copy.snapshots.take_acks(acks))
