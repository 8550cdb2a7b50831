"""The real clock of the process."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep_ms(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)
