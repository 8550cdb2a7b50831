"""The rotation of the demo's User while flights are published: publishers read the new credential and connect anew with it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from e2e.demo.publish import AcknowledgedPublisher, Login, PlainPublisher


@dataclass(frozen=True, slots=True)
class RotationReport:
    credential: int
    seconds: float
    """From the request until no broker accepted the former credential."""
    published: int
    """Flights that were published in that time."""

    @property
    def line(self) -> str:
        return (
            f"the clients' User was rotated while {self.published:,d} flights were published: credential {self.credential} alone is"
            f" accepted {self.seconds:.1f} s after the request, and no client was cut off"
        )


class Rotation:
    """One that is under way; times and counts for its report."""

    def __init__(self, plain: PlainPublisher, acknowledged: AcknowledgedPublisher) -> None:
        self._plain, self._acknowledged = plain, acknowledged
        self._began, self._before = time.monotonic(), self._published()

    def _published(self) -> int:
        return self._plain.sent + self._acknowledged.answered

    async def roll(self, login: Login, urls: list[str]) -> None:
        """Have both publishers show the new credential, the acknowledged one through the first of `urls`."""
        self._plain.show(login)
        await self._acknowledged.show(login, urls)

    def report(self, credential: int) -> RotationReport:
        published = self._published() - self._before
        return RotationReport(credential, time.monotonic() - self._began, published)
