"""Messages of one client that wait for the windows of their streams (SF-15).

Order is kept per stream: while a message is held for a stream, no later message of the client passes it. The
held bytes are counted for the caller, which stops reading when there are too many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from supercluster.broker.protocol.parser import Message

HOLD_ALL = ""
"""What stands in for all windows while the map of streams is read calls its stream so (`hooks.Window.stream`)."""


class _Waiting:
    __slots__ = ("map_number", "messages", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.messages: deque[Message] = deque()
        self.since_ms = now_ms
        """When the stream last took one."""
        self.map_number = -1
        """By which map of streams each message was last looked at."""


class HeldMessages:
    """All that one client has waiting."""

    __slots__ = ("streams", "total_bytes")

    def __init__(self) -> None:
        self.streams: dict[str, _Waiting] = {}
        """Streams that are full for this client, also those that nothing waits for yet."""
        self.total_bytes = 0

    def open(self, stream: str, now_ms: int) -> None:
        """Hold what comes for the stream from now on."""
        if stream not in self.streams:
            self.streams[stream] = _Waiting(now_ms)

    def add(self, stream: str, message: Message, now_ms: int) -> None:
        """Keep a message."""
        self.open(stream, now_ms)
        self.streams[stream].messages.append(message)
        self.total_bytes += _size(message)

    def offer(
        self,
        stream: str,
        take: Callable[[str, Message], bool],
        now_ms: int,
        *,
        map_number: int = 0,
        goes_elsewhere: Callable[[str, Message], bool] = lambda stream, message: False,
    ) -> None:
        """Offer what waits for `stream`, in order, until `take` says no; a stream without anything waiting is closed.

        What was held for single streams came before what was held for all, and is offered before it. Once per map of streams
        what lies behind the first one is looked at, too: where it `goes_elsewhere` now, later messages would pass it (SF-3).
        """
        if stream == HOLD_ALL:
            for other in [name for name in self.streams if name != HOLD_ALL]:
                self._offer(other, take, now_ms, map_number, goes_elsewhere)
        self._offer(stream, take, now_ms, map_number, goes_elsewhere)

    def be_patient(self, now_ms: int) -> None:
        """Whoever waits begins to wait now."""
        for waiting in self.streams.values():
            waiting.since_ms = now_ms

    def give_up(self, now_ms: int, wait_ms: int) -> list[tuple[str, Message]]:
        """Take out what waits for streams that took nothing for so long."""
        given_up: list[tuple[str, Message]] = []
        for stream, waiting in self.streams.items():
            if waiting.messages and now_ms - waiting.since_ms >= wait_ms:
                for message in waiting.messages:
                    self.total_bytes -= _size(message)
                    given_up.append((stream, message))
                waiting.messages.clear()
                waiting.since_ms = now_ms
        return given_up

    def _offer(
        self,
        stream: str,
        take: Callable[[str, Message], bool],
        now_ms: int,
        map_number: int,
        goes_elsewhere: Callable[[str, Message], bool],
    ) -> None:
        waiting = self.streams.get(stream)
        if waiting is None:
            return
        messages = waiting.messages
        while messages:
            if not take(stream, messages[0]):
                if waiting.map_number != map_number:
                    waiting.map_number = map_number
                    moved = [message for message in messages if goes_elsewhere(stream, message)]
                    waiting.messages = deque(
                        message for message in messages if not goes_elsewhere(stream, message)
                    )
                    for message in moved:
                        self.total_bytes -= _size(message)
                        take(stream, message)
                return
            self.total_bytes -= _size(messages.popleft())
            waiting.since_ms = now_ms
        self.streams.pop(stream, None)


def _size(message: Message) -> int:
    return len(message[0]) + len(message[1]) + len(message[2]) + len(message[3])
