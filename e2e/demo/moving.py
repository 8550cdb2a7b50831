"""The demo's move: the Stream's placement is edited under load, and what the StreamMove says is shown as it goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MOVE_SECONDS = 180.0
POLL_SECONDS = 0.1
ENDED = frozenset({"Succeeded", "Failed", "Cancelled", "Refused"})
Say = Callable[[str], None]


class MoveFailedError(Exception):
    """The stream is not where it was to go."""


@dataclass(frozen=True, slots=True)
class MoveReport:
    """How a move went."""

    source: str
    destination: str
    seconds: float
    bytes_copied: int
    audit: Mapping[str, Any]

    @property
    def line(self) -> str:
        audit = self.audit
        unequal = [entry["name"] for entry in audit.get("members", ()) if entry["result"] != "equal"]
        found = (
            f"differ: {', '.join(unequal)}" if unequal else f"{len(audit.get('members', ()))} replicas equal"
        )
        return (
            f"moved from {self.source} to {self.destination} in {self.seconds:.1f} s: {self.bytes_copied / 1e6:,.1f} MB copied;"
            f" audit of sequences {audit.get('firstSequence')} to {audit.get('lastSequence')}"
            f" ({audit.get('messages', 0):,d} messages in {audit.get('ranges', 0)} ranges): {found}"
        )


async def follow(look: Callable[[], Mapping[str, Any] | None], say: Say) -> MoveReport:
    """Tell plan and progress until the move has ended. `look` gives the StreamMove, once there is one.

    Raises:
        MoveFailedError: it did not end well, or not in time.
    """
    started, told = time.monotonic(), _Told()
    while time.monotonic() - started < MOVE_SECONDS:
        body = await asyncio.to_thread(look)
        status = (body or {}).get("status") or {}
        for line in told.news(status):
            say(line)
        if status.get("phase") in ENDED:
            if status["phase"] != "Succeeded":
                raise MoveFailedError(f"the move ended as {status['phase']}: {status.get('message', '')}")
            return MoveReport(
                source=str(status.get("source", "")),
                destination=str(status.get("destination", "")),
                seconds=time.monotonic() - started,
                bytes_copied=int(status.get("bytesCopied") or 0),
                audit=status.get("audit") or {},
            )
        await asyncio.sleep(POLL_SECONDS)
    raise MoveFailedError(
        f"the move did not end within {MOVE_SECONDS:g} s; it was last {status.get('phase')}"
    )


class _Told:
    """What of a move was shown already: each stage once, and the plan once."""

    def __init__(self) -> None:
        self._has_plan = False
        self._last = ("", "")

    def news(self, status: Mapping[str, Any]) -> list[str]:
        lines = []
        plan = status.get("plan")
        if plan and not self._has_plan:
            self._has_plan = True
            lines += _plan_lines(plan)
        progress = status.get("progress") or {}
        now = (str(status.get("phase") or ""), str(progress.get("stage") or ""))
        if now != self._last and now[0]:
            self._last = now
            lines.append(f"  {now[0]}: {status.get('message', '')}")
        return lines


def _plan_lines(plan: Mapping[str, Any]) -> list[str]:
    size, count = plan.get("bytes", 0) / 1e6, plan.get("messages", 0)
    lines = [
        f"  plan: {size:,.1f} MB, {count:,d} messages to copy, about {plan.get('estimatedSeconds', 0)} s"
    ]
    lines += [f"  plan: to {found['name']}: {found['reason']}" for found in plan.get("targets", ())]
    lines += [f"  plan: not to {found['name']}: {found['reason']}" for found in plan.get("rejected", ())]
    lines += [f"  plan: disturbs: {text}" for text in plan.get("disturbs", ())]
    return lines
