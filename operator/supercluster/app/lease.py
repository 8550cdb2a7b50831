"""One active operator: its holder renews a Lease, and others take it over when it has not been renewed for
too long.

Other operators measure that by their own clock since they last saw the record change, never by comparing
clocks. A holder counts from the moment before its last successful request. It may write for two thirds of the
duration from then on (`time_left_s`), and gives no request more time than that. Others wait for the whole
duration. The last third covers requests that were still running.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from supercluster.reconcilers.ports import Json, KubeError, mapping

log = logging.getLogger(__name__)
_T = TypeVar("_T")

API_VERSION = "coordination.k8s.io/v1"
RENEW_SHARE = 1 / 3
"""Of the duration: how often the Lease is renewed, and how often others look at it."""
RETRY_SHARE = 1 / 15
"""Of the duration: the pause after a renewal that failed."""
DEADLINE_SHARE = 2 / 3
"""Of the duration: without a renewal for so long, the holder stops."""


class LeaseKube(Protocol):
    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None: ...
    async def create(self, manifest: Mapping[str, Any]) -> Json: ...
    async def replace(self, manifest: Mapping[str, Any]) -> Json: ...


class LeaseClock(Protocol):
    def now(self) -> datetime: ...
    def monotonic_s(self) -> float: ...
    async def sleep_ms(self, ms: int) -> None: ...


class LeaseLostError(Exception):
    """Another copy may work now: this one has to stop."""


@dataclass(slots=True)
class LeaseHolder:
    kube: LeaseKube
    clock: LeaseClock
    namespace: str
    name: str
    identity: str
    duration_s: float
    is_optional: bool = False
    """A namespace that is not there, or in which we may not, has no Lease: nobody is waited for until there is one."""
    _is_written: bool = False
    """Was it ours? Then it is never optional any more."""
    _seen: Mapping[str, Any] = field(default_factory=dict)
    _seen_at_s: float = 0.0
    _renewed_at_s: float = 0.0
    _held: bool = False

    @property
    def time_left_s(self) -> float:
        """How long writes may go on without another renewal; 0 while the Lease is not ours."""
        if not self._held:
            return 0.0
        deadline_s = self._renewed_at_s + self.duration_s * DEADLINE_SHARE
        return max(0.0, deadline_s - self.clock.monotonic_s())

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        told = None
        while True:
            try:
                if await self._try():
                    return
            except KubeError as error:
                log.warning("can't ask for the lease", extra={"error": str(error)})
            holder = self._seen.get("holderIdentity")
            if holder != told:
                lease = f"{self.namespace}/{self.name}"
                log.info("waiting for the lease", extra={"lease": lease, "holder": str(holder)})
                told = holder
            await self.clock.sleep_ms(self._ms(RENEW_SHARE))

    async def keep(self) -> None:
        """Renew until that fails for too long.

        Raises:
            LeaseLostError: somebody else has it, or we could not renew in time.
        """
        pause_ms, trouble = self._ms(RENEW_SHARE), "the API server was silent"
        while True:
            await self.clock.sleep_ms(min(pause_ms, math.ceil(self.time_left_s * 1000)))
            left_s = self.time_left_s
            if left_s <= 0:
                self._held = False
                raise LeaseLostError(
                    f"could not renew the lease for {self.duration_s * DEADLINE_SHARE:.1f} s: {trouble}"
                )
            try:
                renewed = await within(self.clock, left_s, self._try())
            except TimeoutError:
                trouble = "no answer in time"
                continue
            except KubeError as error:
                trouble = str(error)
                log.warning("can't renew the lease", extra={"error": trouble, "left_s": self.time_left_s})
                pause_ms = self._ms(RETRY_SHARE)
                continue
            if not renewed:
                self._held = False
                raise LeaseLostError(f"{self._seen.get('holderIdentity')} holds the lease now")
            pause_ms = self._ms(RENEW_SHARE)

    async def release(self) -> None:
        """Let another copy take over at once, if the API server answers while the Lease is ours."""
        left_s = self.time_left_s
        self._held = False
        if left_s <= 0:
            return
        try:
            await within(self.clock, left_s, self._give_up())
        except (KubeError, TimeoutError) as error:
            log.info("lease not released; it will expire", extra={"error": str(error)})

    async def _give_up(self) -> None:
        there = await self.kube.get(API_VERSION, "Lease", self.namespace, self.name)
        if there is not None and mapping(there.get("spec")).get("holderIdentity") == self.identity:
            await self.kube.replace({**there, "spec": {**there["spec"], "holderIdentity": ""}})

    def _ms(self, share: float) -> int:
        return int(self.duration_s * share * 1000)

    async def _try(self) -> bool:
        """Take or renew the Lease; False when somebody else has it."""
        started_s = self.clock.monotonic_s()
        is_optional = self.is_optional and not self._is_written
        try:
            there = await self.kube.get(API_VERSION, "Lease", self.namespace, self.name)
            if there is None:
                # Somebody else acts in a namespace that is being deleted, where none can be made any more.
                is_optional = is_optional and not self._seen
                await self.kube.create(self._manifest({}, {}))
            else:
                spec = dict(mapping(there.get("spec")))
                if not self._is_free(spec, started_s):
                    return False
                await self.kube.replace(self._manifest(mapping(there.get("metadata")), spec))
            self._is_written = True
        except KubeError as error:
            if error.status == 409:
                return False
            if not is_optional or error.status not in (403, 404):
                raise
            if not self._held:
                lease = f"{self.namespace}/{self.name}"
                log.warning("served without a lease", extra={"lease": lease, "error": str(error)})
        self._renewed_at_s, self._held = started_s, True
        return True

    def _is_free(self, spec: Mapping[str, Any], now_s: float) -> bool:
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            return True
        if dict(self._seen) != dict(spec):
            self._seen, self._seen_at_s = dict(spec), now_s
        duration_s = float(spec.get("leaseDurationSeconds") or self.duration_s)
        return now_s - self._seen_at_s > duration_s

    def _manifest(self, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Json:
        now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = spec.get("holderIdentity") == self.identity
        transitions = int(spec.get("leaseTransitions") or 0)
        kept = {key: metadata[key] for key in ("resourceVersion", "uid") if key in metadata}
        return {
            "apiVersion": API_VERSION,
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace, **kept},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, math.ceil(self.duration_s)),
                "acquireTime": spec["acquireTime"] if ours and spec.get("acquireTime") else now,
                "renewTime": now,
                "leaseTransitions": transitions if ours or not spec else transitions + 1,
            },
        }


async def within(clock: LeaseClock, seconds: float, call: Coroutine[Any, Any, _T]) -> _T:
    """The call's result, by the clock that was handed in.

    Raises:
        TimeoutError: it took longer, and was cancelled.
    """
    calling = asyncio.ensure_future(call)
    sleeping = asyncio.ensure_future(clock.sleep_ms(math.ceil(seconds * 1000)))
    try:
        await asyncio.wait((calling, sleeping), return_when=asyncio.FIRST_COMPLETED)
        if calling.done():
            return calling.result()
        raise TimeoutError(f"no answer in {seconds:.1f} s")
    finally:
        sleeping.cancel()
        calling.cancel()
        await asyncio.gather(sleeping, calling, return_exceptions=True)
