"""Where these brokers differ from nats-server on purpose: both behaviours, each asserted on its own server, and why.

Every difference is two functions and a reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import nats.errors
import pytest
from nats.aio.subscription import Subscription
from tests.compat.bench import Bench
from tests.compat.table import EVERYWHERE, PLAIN, Row, Run, Settings, register


@dataclass(frozen=True)
class Difference:
    """One behaviour that is not NATS's."""

    id: str
    title: str
    nats: str
    ours: str
    reason: str


DIFFERENCES: list[Difference] = []


class Differs:
    """Registers one difference as a row: `@Differs(...)` goes on what nats-server does, `.ours` on what ours do."""

    def __init__(
        self,
        name: str,
        title: str,
        *,
        nats: str,
        ours: str,
        reason: str,
        on: tuple[str, ...] = EVERYWHERE,
        settings: Settings = PLAIN,
    ) -> None:
        assert reason, f"{name}: a difference needs a reason"
        DIFFERENCES.append(Difference(name, title, nats, ours, reason))
        self._nats: Run | None = None
        self._ours: Run | None = None
        register(Row(f"differs.{name}", title, self._run, on, settings))

    def __call__(self, run: Run) -> Differs:
        """What nats-server does."""
        self._nats = run
        return self

    def ours(self, run: Run) -> Differs:
        """What these brokers do."""
        self._ours = run
        return self

    async def _run(self, b: Bench) -> None:
        run = self._ours if b.is_ours else self._nats
        assert run is not None, "a difference asserts both behaviours"
        await run(b)


wildcard_interest = Differs(
    "push.wildcard",
    "a wildcard subscription and a push consumer's deliver subject",
    nats="only a subscription to just the deliver subject makes the consumer deliver",
    ours="any subscription that would get the messages does",
    reason="whoever would be given the messages listens for them",
)


async def _wildcard_listener(b: Bench) -> Subscription:
    """A subscription to `<subject>.*`, and a push consumer that delivers to `<subject>.deliver`."""
    stream = await b.stream()
    await stream.fill("a")
    subject = b.subject()
    inbox = await b.subscribe(f"{subject}.*")
    await stream.consumer(deliver_subject=f"{subject}.deliver")
    return inbox


@wildcard_interest
async def _wildcard_nats(b: Bench) -> None:
    inbox = await _wildcard_listener(b)
    with pytest.raises(nats.errors.TimeoutError):
        await inbox.next_msg(timeout=0.5)


@wildcard_interest.ours
async def _wildcard_ours(b: Bench) -> None:
    inbox = await _wildcard_listener(b)
    assert (await inbox.next_msg(timeout=5)).data == b"a"
