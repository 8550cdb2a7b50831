"""Which part takes which frame of another broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.ports import Clock

Handler = Callable[[str, memoryview, int], None]
"""Takes the broker that sent the frame, the frame's body, and the time on the monotonic clock."""


class Dispatch:
    """See the module. The table is built once."""

    def __init__(self, clock: Clock, handlers: Mapping[int, Handler]) -> None:
        self._clock = clock
        self._handlers = dict(handlers)

    def dispatch(self, node: str, frame: int, body: memoryview) -> None:
        """Do what a frame from `node` asks for.

        Raises:
            WireError, MessageError, UnicodeDecodeError: it is not what a broker sends.
        """
        handler = self._handlers.get(frame)
        if handler is None:
            raise WireError(f"type {frame} is unknown")
        handler(node, body, self._clock.monotonic_ms())
