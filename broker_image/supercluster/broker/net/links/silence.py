"""Heartbeats: quiet connections get one, and silent ones are given up."""

from __future__ import annotations

from supercluster.broker.net.links.link import Link
from supercluster.broker.own_time import OwnTime, patience_ms
from supercluster.broker.ports import Channel
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameType

HEARTBEAT_MS = 200
CLOCK_MS = 1000
"""A broker says this often what its clock shows, however busy the link is."""
SILENCE_MAX_MS = {Channel.CONTROL: 1000, Channel.BULK: 5000}
"""The bulk connection may be slow for a while: its loss is judged more patiently."""

FAR_SILENCE_MAX_MS = {Channel.CONTROL: 2000, Channel.BULK: 10_000}
"""Between clusters: three packets lost in a row on a long way (repeated after 0.2, 0.4 and 0.8 s) lose no link. No more
than that: a change of the map of streams waits for brokers in contact for less time than clients wait (SF-14,
`jetstream/meta_leader/replica.py`)."""


def check(link: Link, clock: OwnTime, now_ms: int, *, is_far: bool) -> None:
    """Silence is measured by the time of this process itself (`own_time.py`), and the stalls of both are allowed for."""
    silence_max_ms = FAR_SILENCE_MAX_MS if is_far else SILENCE_MAX_MS
    for connection in link.connections:
        if connection.is_held or (connection.has_ended and connection.successor is not None):
            continue  # Nothing is expected to come.
        channel = connection.channel
        assert channel is not None
        silent_ms = now_ms - connection.heard_ms
        if silent_ms > silence_max_ms[channel] + patience_ms(max(link.stall_ms, clock.stall_ms)):
            connection.close(f"silent for {silent_ms} ms")
            return
        if connection.successor is not None:
            continue
        stall_ms = clock.stall_ms
        is_quiet = now_ms - connection.sent_ms >= HEARTBEAT_MS and not connection.pending_bytes()
        is_news = stall_ms != link.stall_told_ms or now_ms - link.clock_told_ms >= CLOCK_MS
        if is_quiet or (channel is Channel.CONTROL and is_news):
            connection.write_frame(FrameType.PING, [frames.encode_ping(stall_ms, clock.now_ns())])
            connection.flush()
            link.clock_told_ms = now_ms
        if channel is Channel.CONTROL:
            link.stall_told_ms = stall_ms
