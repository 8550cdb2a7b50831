"""What each frame between brokers does to the core that receives it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.frontend import router as api_routing
from supercluster.broker.jetstream.links import comparison_frames as move_frames
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.source_frames import OriginAsk
from supercluster.broker.jetstream.node.drain import decode_aside
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.recovery import map_survey
from supercluster.broker.jetstream.recovery import stream_survey as copy_facts
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.confchange import node_of
from supercluster.broker.raft.messages import Message, decode

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore


def dispatch(core: BrokerCore, node: str, frame: int, body: memoryview) -> None:
    """Do what a frame from `node` asks for.

    Raises:
        WireError, MessageError, UnicodeDecodeError: it is not what a broker sends.
    """
    now_ms = core.clock.monotonic_ms()
    if frame == Frame.RAFT:
        for group_id, raw in frames.decode_raft(body):
            _raft_message(core, group_id, decode(raw), now_ms)
    elif frame == Frame.FORWARD:
        group_id, forward, early = frames.decode_forward(body)
        group = _serving_stream(core, group_id, node)
        if group is not None:
            group.guarded(partial(group.intake.offer, forward, early=early))
    elif frame == Frame.VERDICTS:
        group_id, key, appended, runs = frames.decode_verdicts(body)
        core.ingest.verdicts(group_id, key, runs, appended=appended, now_ms=now_ms)
    elif frame == Frame.AGAIN:
        core.ingest.again(*frames.decode_numbered(body), now_ms)
    elif frame == Frame.OPEN:
        group_id, key = frames.decode_open(body)
        group = _serving_stream(core, group_id, node)
        if group is not None:
            group.guarded(partial(group.intake.open_session, key))
    elif frame == Frame.OPENED:
        group_id, key, is_open = frames.decode_numbered(body)
        core.ingest.opened(group_id, key, bool(is_open), now_ms)
    elif frame == Frame.REQUEST:
        request = frames.decode_request(body)
        api_routing.answer(core, node, request, now_ms)
        core.touch(request.group)
    elif frame == Frame.RESPONSE:
        origin, number, status, payload = frames.decode_response(body)
        # An answer to the broker that ran here on a volume that is lost: its numbers began where these do.
        if origin == core.store.incarnation:
            core.requests.response(number, status, payload, now_ms, node)
    elif frame == Frame.ACKS:
        group_id, acks = frames.decode_acks(body)
        group = _serving_stream(core, group_id, node)
        if group is not None:
            group.guarded(partial(_acknowledge, group, node, acks))
        else:
            core.acks_back(node, group_id, acks)
    else:
        _dispatch_rare(core, node, frame, body, now_ms)


def _dispatch_rare(core: BrokerCore, node: str, frame: int, body: memoryview, now_ms: int) -> None:
    if frame == Frame.LEADER:
        for news in frames.decode_leaderships(body):
            core.leader_news(news)
    elif frame == Frame.NOT_LEADER:
        group_id, _ = frames.decode_texts(body, 2)
        core.leaderships.forget(group_id, node)
        core.origin_links.leader_changed(group_id)
        _leads_no_more(core, group_id, node, now_ms)
    elif frame == Frame.WHO_LEADS:
        (group_id,) = frames.decode_texts(body, 1)
        group = core.groups.get(group_id)
        if group is not None and group.serves:
            core.leaderships.notify((group,), node)
    elif frame == Frame.MAP_APPLIED:
        core.map.on_map_index(node, frames.decode_number(body))
        core.touch(core.meta_id)
    elif frame == Frame.JOIN:
        group_id, member = frames.decode_texts(body, 2)
        if node_of(member) != node:
            raise WireError(f"{member[:64]!r} is no member of {node}")
        group = core.groups.get(group_id)
        if group is not None:
            group.guarded(partial(group.join_requested, member))
            core.touch(group_id)
    elif frame == Frame.COPY_LOST:
        group_id, member = frames.decode_texts(body, 2)
        if core.meta is not None and core.meta.serves:
            core.meta.copy_lost(node, group_id, member, now_ms)
            core.touch(core.meta_id)
    elif frame == Frame.UNUSABLE:
        if core.meta is not None and core.meta.serves:
            core.meta.on_failed_copies(node, frames.decode_unusable(body), now_ms)
            core.touch(core.meta_id)
    elif frame == Frame.PULL_BACK:
        left = frames.decode_request(body)
        core.requests.send(left.group, left.info, left.subject, left.reply, b"", left.payload, now_ms)
    elif frame == Frame.ACKS_BACK:
        core.acks.back(node, *frames.decode_acks(body), now_ms)
    elif frame == Frame.LOAD:
        core.surroundings.load.took(node, Room(*frames.decode_load(body)), now_ms)
    elif frame == Frame.MOVE_END:
        if core.meta is not None:
            core.meta.move_ended(frames.decode_move_end(body))
            core.touch(core.meta_id)
    elif frame == Frame.MOVE_HASHES:
        ask = move_frames.decode_ask(body)
        group = core.groups.get(ask.group)
        if isinstance(group, StreamReplica) and group.member == ask.member and group.failed is None:
            group.guarded(partial(group.auditor.ask, ask, partial(_tell_hashes, core, node), now_ms))
            core.touch(ask.group)
    elif frame == Frame.MOVE_HASHED:
        told = move_frames.decode_told(body)
        group = core.groups.get(told.group)
        if isinstance(group, StreamReplica) and group.move.mover is not None:
            group.guarded(partial(group.move.mover.on_hashes, told))
            core.touch(told.group)
    elif frame == Frame.COPY_ASK:
        copy_facts.asked(core, node, body)
    elif frame == Frame.COPY_TOLD:
        core.survey.on_answer(node, body)
    elif frame == Frame.TAGS:
        core.tags_told(node, frames.decode_tags(body))
    elif frame == Frame.ASIDE:
        core.aside.on_drain(node, decode_aside(body))
    elif frame == Frame.META_LINEAGE:
        core.meta_lineages.heard(node, *frames.decode_lineage(body))
    elif frame == Frame.MAP_ASK:
        map_survey.asked(core, node, body)
    elif frame == Frame.MAP_TOLD:
        core.map_survey.on_answer(node, body)
    elif frame == Frame.ORIGIN_ASK:
        asked = OriginAsk.decode(body)
        group = _serving_stream(core, asked.group, node)
        if group is not None:
            group.guarded(partial(group.origin_reads.asked, node, asked, now_ms))
    elif frame == Frame.ORIGIN_TOLD:
        core.origin_links.on_origin_told(body)
    elif frame == Frame.BOOTSTRAP:
        core.founding.bootstrap_received(bytes(body))
    else:
        raise WireError(f"type {frame} is unknown")


def _leads_no_more(core: BrokerCore, group_id: str, node: str, now_ms: int) -> None:
    """Who followed that broker in silence looks for another leader: its link is up, and nothing else would tell (SF-7). A
    word that comes late does no harm; who hears a leader in time refuses the pre-vote."""
    group = core.groups.get(group_id)
    if group is None or group.failed is not None or not group.raft.quiesced:
        return
    if group.raft.leader is not None and node_of(group.raft.leader) == node:
        group.raft.wake(now_ms, node)
        core.touch(group_id)


def _acknowledge(group: StreamReplica, node: str, acks: list[Ack]) -> None:
    group.appender.acknowledge(node, group.snapshots.take_acks(acks))


def _tell_hashes(core: BrokerCore, node: str, told: move_frames.HashesTold) -> None:
    core.post(node, Frame.MOVE_HASHED, move_frames.encode_told(told))


def _raft_message(core: BrokerCore, group_id: str, message: Message, now_ms: int) -> None:
    group = core.groups.get(group_id)
    if group is None or message.to != group.member or group.failed is not None:
        return  # For a member that this volume is not (any more): SF-4.
    group.guarded(partial(group.raft.step, message, now_ms))
    core.touch(group_id)


def _serving_stream(core: BrokerCore, group_id: str, node: str) -> StreamReplica | None:
    """The stream that this broker leads; where it does not, the sender is told who may."""
    group = core.groups.get(group_id)
    if isinstance(group, StreamReplica) and group.serves:
        core.touch(group_id)
        return group
    hint = core.leader_of(group_id)
    core.post(node, Frame.NOT_LEADER, frames.encode_texts(group_id, hint or ""))
    return None
