"""Probes: one attempt each (http, tcp, exec), and the counting that turns attempts into a result.

Timing follows the manifest, with one addition: until a startup or readiness probe has passed, further
attempts are made between its periods (their failures don't count). So a pod that is up in 100 ms is not
unready for its whole period.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from supercluster.localplane.client import Json
from supercluster.localplane.controllers.endpoints import port_of
from supercluster.localplane.node.process import Process

EARLY_TRIES_S = (0.1, 0.1, 0.2, 0.2, 0.4, 0.5, 0.5, 1.0, 1.0, 1.0)
OUTPUT_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Timing:
    initial_delay_s: float
    period_s: float
    timeout_s: float
    successes: int
    failures: int

    @classmethod
    def of(cls, probe: Json) -> Timing:
        return cls(
            initial_delay_s=float(probe.get("initialDelaySeconds") or 0),
            period_s=max(1.0, float(probe.get("periodSeconds") or 10)),
            timeout_s=max(1.0, float(probe.get("timeoutSeconds") or 1)),
            successes=max(1, int(probe.get("successThreshold") or 1)),
            failures=max(1, int(probe.get("failureThreshold") or 3)),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    is_success: bool
    message: str = ""


class Counter:
    """Turns a row of outcomes into a verdict: None until a threshold is reached, then what it last said."""

    def __init__(self, timing: Timing, verdict: bool | None = None) -> None:
        self._timing = timing
        self._is_success: bool | None = None
        self._row = 0
        self.verdict = verdict

    def add(self, is_success: bool) -> bool | None:
        self._row = self._row + 1 if is_success == self._is_success else 1
        self._is_success = is_success
        if self._row >= (self._timing.successes if is_success else self._timing.failures):
            self.verdict = is_success
        return self.verdict


@dataclass(frozen=True, slots=True)
class Target:
    """What a probe needs to know of its container."""

    pod: Json
    address: str
    env: Mapping[str, str]
    cwd: Path
    run_dir: Path
    command: Callable[[list[str]], list[str]]
    """Turns an exec probe's words into what is executed here."""


async def attempt(probe: Json, timeout_s: float, target: Target, session: aiohttp.ClientSession) -> Outcome:
    """One try. A handler that is wrong fails with a message; nothing is raised."""
    try:
        async with asyncio.timeout(timeout_s):
            if probe.get("httpGet"):
                return await _http(probe["httpGet"], target, session)
            if probe.get("tcpSocket"):
                return await _tcp(probe["tcpSocket"], target)
            if probe.get("exec"):
                return await _exec(probe["exec"]["command"], target)
    except TimeoutError:
        return Outcome(False, f"probe timed out after {timeout_s:g}s")
    except (OSError, aiohttp.ClientError, ValueError) as error:
        return Outcome(False, str(error) or type(error).__name__)
    return Outcome(False, "the probe has no handler that is served here (httpGet, tcpSocket, exec)")


def _port(detail: Json, target: Target) -> int:
    port = port_of(detail["port"], target.pod)
    if port is None:
        raise ValueError(f"port {detail['port']!r} is not the name of a container port")
    return port


async def _http(detail: Json, target: Target, session: aiohttp.ClientSession) -> Outcome:
    scheme = str(detail.get("scheme") or "HTTP").lower()
    path = "/" + str(detail.get("path") or "/").lstrip("/")
    url = f"{scheme}://{detail.get('host') or target.address}:{_port(detail, target)}{path}"
    headers = {header["name"]: header["value"] for header in detail.get("httpHeaders") or ()}
    async with session.get(url, headers=headers, ssl=False, allow_redirects=False) as answer:
        if 200 <= answer.status < 400:
            return Outcome(True)
        return Outcome(False, f"HTTP probe failed with statuscode: {answer.status}")


async def _tcp(detail: Json, target: Target) -> Outcome:
    _, writer = await asyncio.open_connection(detail.get("host") or target.address, _port(detail, target))
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Outcome(True)


async def _exec(words: list[str], target: Target) -> Outcome:
    with tempfile.TemporaryFile() as output:
        process = Process.start(target.command(words), target.env, target.cwd, output, target.run_dir)
        try:
            result = await asyncio.shield(process.ended)
        except asyncio.CancelledError:
            process.kill()
            await asyncio.shield(process.ended)
            raise
        output.seek(0)
        told = output.read(OUTPUT_BYTES_MAX).decode(errors="replace").strip()
    return Outcome(result.code == 0, told or f"command exited with code {result.code}")


async def verdicts(
    probe: Json, attempt_once: Callable[[float], Awaitable[Outcome]], *, is_eager: bool
) -> AsyncIterator[tuple[bool | None, Outcome]]:
    """Tries for ever, at the probe's times; each counted try gives the present verdict and its outcome.

    With `is_eager`, tries between periods are made until the first success.
    """
    timing = Timing.of(probe)
    counter = Counter(timing)
    loop = asyncio.get_running_loop()
    await asyncio.sleep(timing.initial_delay_s)
    due = loop.time()
    early = iter(EARLY_TRIES_S if is_eager else ())
    while True:
        is_counted = loop.time() >= due
        if is_counted:
            due = loop.time() + timing.period_s
        outcome = await attempt_once(timing.timeout_s)
        if outcome.is_success:
            early = iter(())
        if is_counted or outcome.is_success:
            yield counter.add(outcome.is_success), outcome
        step_s = next(early, None)
        left_s = max(0.0, due - loop.time())
        await asyncio.sleep(left_s if step_s is None else min(step_s, left_s))
