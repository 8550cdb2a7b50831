"""Dispatches frames of other brokers to the parts of the core, and lists the frames that a broker of another
super-cluster may send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.links.far_frames import FarFrames
from supercluster.broker.migration.worlds import MARK
from supercluster.broker.ports import Clock

Handler = Callable[[str, memoryview, int], None]
"""Takes the broker that sent the frame, the frame's body, and the time on the monotonic clock."""


class Dispatch:
    """See the module. The table is built once."""

    def __init__(self, clock: Clock, handlers: Mapping[int, Handler], far_frames: FarFrames) -> None:
        self._clock = clock
        self._handlers = dict(handlers)
        self._far_frames = far_frames

    def dispatch(self, node: str, frame: int, body: memoryview) -> None:
        """Do what a frame from `node` asks for.

        Raises:
            WireError, MessageError, UnicodeDecodeError: it is not what a broker sends.
        """
        now_ms = self._clock.monotonic_ms()
        if MARK in node:
            admitted = self._far_frames.admit(node, frame, body, now_ms)
            if admitted is None:
                return
            body = admitted
        handler = self._handlers.get(frame)
        if handler is None:
            raise WireError(f"type {frame} is unknown")
        handler(node, body, now_ms)
