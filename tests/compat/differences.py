"""Where these brokers differ from nats-server on purpose: both behaviours, each asserted on its own server, and why.

Every difference is two functions and a reason. They are in `differs/`, a module per subject, and found there as rows are.
"""

from __future__ import annotations

from dataclasses import dataclass

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
