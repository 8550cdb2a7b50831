"""Priority groups of a pull consumer: they decide which request is served, where that is not simply the
first.

`overflow`: a request is served only if enough messages wait. `prioritized`: the lowest number first.
`pinned_client`: one client at a time, which identifies itself by the id that its messages carry. A pin is
volatile state of the leader: the next leader pins the first client that asks, and the others get status 423,
as with nats-server. All texts are nats-server's.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.consumer.pull import (
    Delivery,
    Item,
    PullLine,
    PullRefusedError,
    PullSpec,
    Waiting,
)

PRIORITY_MAX = 9
_OVERFLOW, _PINNED, _PRIORITIZED = "overflow", "pinned_client", "prioritized"


def check_priority(spec: PullSpec, config: ConsumerConfig) -> None:
    """
    Raises:
        PullRefusedError: the request says something that this consumer's policy has no room for.
    """
    policy = config.priority_policy
    if policy != "none":
        if not spec.group:
            raise PullRefusedError(400, "Bad Request - Priority Group missing")
        if spec.group not in config.priority_groups:
            raise PullRefusedError(400, "Bad Request - Invalid Priority Group")
    if spec.pin_id and policy != _PINNED:
        raise PullRefusedError(400, "Bad Request - Not a Pinned Client Priority consumer")
    if (spec.min_pending or spec.min_ack_pending) and policy != _OVERFLOW:
        raise PullRefusedError(400, "Bad Request - Not a Overflow Priority consumer")
    if not 0 <= spec.priority <= PRIORITY_MAX:
        raise PullRefusedError(400, f"Bad Request - Priority must be between 0 and {PRIORITY_MAX}")


class Priority:
    """Who is next in the line of one consumer."""

    __slots__ = ("_config", "_name", "_news", "pin_id", "pinned_ns", "until_ns")

    def __init__(self, name: str, config: ConsumerConfig) -> None:
        self._name = name
        self._config = config
        self.pin_id = ""
        """The pinned client's; empty: nobody is pinned."""
        self.pinned_ns = 0
        self.until_ns: int | None = None
        """When the pin ends unless its client asks again."""
        self._news: list[tuple[str, str]] = []

    @property
    def is_plain(self) -> bool:
        """Is the first in the line the next one?"""
        return self._config.priority_policy == "none"

    def adapt(self, config: ConsumerConfig) -> None:
        """The configuration has changed."""
        self._config = config
        if config.priority_policy != _PINNED:
            self.pin_id, self.until_ns = "", None

    def take_news(self) -> list[tuple[str, str]]:
        """(id, "") for each pin since the last call, ("", why) for each that ended."""
        news, self._news = self._news, []
        return news

    # ---- requests -------------------------------------------------------------------------------------------------

    def admit(self, spec: PullSpec, now_ns: int) -> None:
        """A request comes.

        Raises:
            PullRefusedError: its client believes to be pinned, and another one is.
        """
        if not spec.pin_id or not self.pin_id:
            return
        if spec.pin_id != self.pin_id:
            raise PullRefusedError(423, "Nats-Pin-Id mismatch")
        self._put_off(now_ns)

    def next(
        self, line: PullLine, pending: Callable[[], int], ack_pending: int, said: list[Delivery]
    ) -> Waiting | None:
        """Bring whoever is next to the front of the line. Requests under a pin that is over are ended; `said` takes what they
        are told."""
        policy = self._config.priority_policy
        if policy == "none":
            return line.front() if line else None
        if policy == _OVERFLOW:
            there = pending()
            return line.bring(lambda request: _overflows(request.spec, there, ack_pending))
        if policy == _PRIORITIZED:
            lowest = min((request.spec.priority for request in line), default=0)
            return line.bring(lambda request: request.spec.priority == lowest)
        said += line.end_where(
            lambda request: bool(request.pin_id) and request.pin_id != self.pin_id, 423, "Nats-Wrong-Pin-Id"
        )
        return line.bring(lambda request: request.pin_id == self.pin_id)

    def served(self, request: Waiting, items: list[Item], cseq: int, now_ns: int) -> list[Item]:
        """The request got these messages: they carry the pin, which is its own from now on."""
        if self._config.priority_policy != _PINNED:
            return items
        if not self.pin_id:
            seed = f"{self._name} {cseq} {now_ns}".encode()
            self.pin_id = blake2b(seed, digest_size=11).hexdigest()
            self.pinned_ns = now_ns
            self._news.append((self.pin_id, ""))
        request.pin_id = self.pin_id
        self._put_off(now_ns)
        line = f"Nats-Pin-Id: {self.pin_id}\r\n\r\n".encode()
        return [
            (subject, reply, (header[:-2] if header else b"NATS/1.0\r\n") + line, payload)
            for subject, reply, header, payload in items
        ]

    # ---- the end of a pin -----------------------------------------------------------------------------------------

    def unpin(self, why: str) -> None:
        """Whoever asks next is pinned. Told even if nobody was."""
        self.pin_id, self.until_ns = "", None
        self._news.append(("", why))

    def expire(self, now_ns: int) -> None:
        """Has the pinned client said nothing for too long?"""
        if self.until_ns is not None and now_ns >= self.until_ns:
            self.unpin("timeout")

    def _put_off(self, now_ns: int) -> None:
        self.until_ns = now_ns + self._config.priority_timeout_ns


def _overflows(spec: PullSpec, pending: int, ack_pending: int) -> bool:
    """Is enough waiting for this request, in one way or the other?"""
    if not spec.min_pending and not spec.min_ack_pending:
        return True
    if spec.min_pending and pending >= spec.min_pending:
        return True
    return bool(spec.min_ack_pending) and ack_pending >= spec.min_ack_pending
