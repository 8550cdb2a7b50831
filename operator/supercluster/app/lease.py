"""One active operator: a Lease that its holder renews, and that others take over when it has been silent too long.

Whether a holder is silent is judged by our own clock since we last saw its record change, never by comparing its clock
with ours. A holder that can't renew in time stops working before others may take over.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from supercluster.reconcilers.ports import Json, KubeError, mapping

log = logging.getLogger(__name__)

API_VERSION = "coordination.k8s.io/v1"
RENEW_SHARE = 1 / 3
"""Renewals per duration: two may fail before the Lease is at stake."""


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
    _seen: Mapping[str, Any] = field(default_factory=dict)
    _seen_at_s: float = 0.0
    _renewed_at_s: float = 0.0

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
                log.info("waiting for the lease", extra={"holder": str(holder)})
                told = holder
            await self.clock.sleep_ms(self._interval_ms())

    async def keep(self) -> None:
        """Renew until that fails for too long.

        Raises:
            LeaseLostError: somebody else has it, or we could not renew in time.
        """
        while True:
            await self.clock.sleep_ms(self._interval_ms())
            try:
                if not await self._try():
                    raise LeaseLostError(f"{self._seen.get('holderIdentity')} holds the lease now")
            except KubeError as error:
                silent_s = self.clock.monotonic_s() - self._renewed_at_s
                log.warning("can't renew the lease", extra={"error": str(error), "silent_s": silent_s})
                # One interval early: others count from when they saw our last renewal, which is later than we made it.
                if silent_s > self.duration_s * (1 - RENEW_SHARE):
                    raise LeaseLostError(
                        f"could not renew the lease for {silent_s:.1f} s: {error}"
                    ) from error

    async def release(self) -> None:
        """Let another copy take over at once."""
        try:
            there = await self.kube.get(API_VERSION, "Lease", self.namespace, self.name)
            if there is None or mapping(there.get("spec")).get("holderIdentity") != self.identity:
                return
            await self.kube.replace({**there, "spec": {**there["spec"], "holderIdentity": ""}})
        except KubeError as error:
            log.info("lease not released; it will expire", extra={"error": str(error)})

    def _interval_ms(self) -> int:
        return int(self.duration_s * RENEW_SHARE * 1000)

    async def _try(self) -> bool:
        """Take or renew the Lease; False when somebody else has it."""
        started_s = self.clock.monotonic_s()
        there = await self.kube.get(API_VERSION, "Lease", self.namespace, self.name)
        try:
            if there is None:
                await self.kube.create(self._manifest({}, {}))
            else:
                spec = dict(mapping(there.get("spec")))
                if not self._is_free(spec, started_s):
                    return False
                await self.kube.replace(self._manifest(mapping(there.get("metadata")), spec))
        except KubeError as error:
            if error.status == 409:
                return False
            raise
        self._renewed_at_s = started_s
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
                "leaseDurationSeconds": max(1, round(self.duration_s)),
                "acquireTime": spec["acquireTime"] if ours and spec.get("acquireTime") else now,
                "renewTime": now,
                "leaseTransitions": transitions if ours or not spec else transitions + 1,
            },
        }
