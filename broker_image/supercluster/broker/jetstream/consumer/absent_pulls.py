"""Pull requests whose client does not listen at present but may come back.

A client that reconnects, to another broker or to another super-cluster, subscribes to its inbox again but
does not repeat its request. So the request waits for the client for a bounded time, and gets no messages
meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

GRACE_NS = 5_000_000_000
"""Clients that are sent away are back within 2.1 s; nats-py waits for two seconds before it tries a server again."""
LOOK_NS = 50_000_000
"""When to look first whether somebody is back; then after twice the time, and so on."""


class Request(Protocol):
    """What is known of a pull here."""

    @property
    def inbox(self) -> bytes: ...


R = TypeVar("R", bound=Request)


class AbsentPulls(Generic[R]):
    """Of one consumer."""

    __slots__ = ("_look_ns", "_max", "_requests", "_wait_ns")

    def __init__(self, maximum: int) -> None:
        self._max = maximum
        self._requests: deque[tuple[int, R]] = deque()
        """Until when each waits, in this order."""
        self._look_ns = 0
        self._wait_ns = 0

    def __bool__(self) -> bool:
        return bool(self._requests)

    def put(self, request: R, now_ns: int) -> None:
        """Nobody listens to its inbox."""
        if len(self._requests) >= self._max:
            self._requests.popleft()
        self._requests.append((now_ns + GRACE_NS, request))
        self._wait_ns, self._look_ns = LOOK_NS, now_ns + LOOK_NS

    def back(self, now_ns: int, has_interest: Callable[[bytes], bool]) -> list[R]:
        """Those that somebody listens to again. The others are forgotten when their time is over."""
        if now_ns >= self._look_ns:
            self._wait_ns *= 2
            self._look_ns = now_ns + self._wait_ns
        found = [request for _, request in self._requests if has_interest(request.inbox)]
        self._requests = deque(
            (until_ns, request)
            for until_ns, request in self._requests
            if until_ns > now_ns and request not in found
        )
        return found

    def take(self) -> list[R]:
        """All of them."""
        found = [request for _, request in self._requests]
        self._requests.clear()
        return found

    def deadline_ns(self) -> int | None:
        """When to look."""
        return min(self._look_ns, self._requests[0][0]) if self._requests else None
