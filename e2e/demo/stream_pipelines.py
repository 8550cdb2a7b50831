"""`archive` and `audit` as StreamPipelines: applied as a user does it, and followed by their status until they have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2e.demo.manifests import ROOT, documents
from e2e.demo.pipelines import (
    ACCOUNT,
    ARCHIVE,
    AUDIT,
    MANIFESTS,
    NAMESPACE,
    PIPELINES_SECONDS,
    PipelineFailedError,
    PipelinesReport,
    Run,
    report_of,
    spec_of,
)

POLL_SECONDS = 0.3
LOG_LINES = 12
ENDED, FINDINGS = "ProgramEnded", "FindingsReported"
REFUSED = frozenset({"ProgramRefused", "DriverGaveUp", "ImageUnsuitable"})
Say = Callable[[str], None]


class StreamPipelines:
    """Both of them, on one Kubernetes API."""

    def __init__(
        self, client: Any, core: Any, apply: Callable[[list[dict[str, Any]]], None], say: Say
    ) -> None:
        """`client`: for custom resources; `core`: for the core API."""
        self._resource = client.resources.get(api_version="supercluster.dev/v1alpha1", kind="StreamPipeline")
        self._core, self._apply, self._say = core, apply, say
        self._namespace: str = spec_of(ARCHIVE)["metadata"]["namespace"]
        self._told: dict[str, tuple[str, ...]] = {}

    async def run(self, *, brings_account: bool) -> PipelinesReport:
        """Apply the manifests and wait until both have ended. `brings_account`: no chart has made the drivers' account.

        Raises:
            PipelineFailedError: one was refused or gave up; the message has its condition and the end of its log.
            TimeoutError: they have not ended in time.
        """
        began = time.monotonic()
        self._say(f"applying {MANIFESTS.relative_to(ROOT)}/*.yaml: archive and audit as StreamPipelines")
        account = documents(ACCOUNT) if brings_account else []
        await asyncio.to_thread(self._apply, [NAMESPACE, *account])
        await asyncio.to_thread(self._copy_secret)
        await asyncio.to_thread(self._apply, documents(MANIFESTS))
        async with asyncio.timeout(PIPELINES_SECONDS):
            archive, audit = await asyncio.gather(self._follow(ARCHIVE), self._follow(AUDIT))
        folder = await asyncio.to_thread(self._archive_folder)
        return report_of(archive, audit, folder, time.monotonic() - began)

    def _copy_secret(self) -> None:
        spec = spec_of(ARCHIVE)["spec"]
        name = spec["credentialsSecret"]
        data = self._core.read_namespaced_secret(name, spec["superClusterNamespace"]).data
        metadata = {"name": name, "namespace": self._namespace}
        self._apply([{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}])

    async def _follow(self, name: str) -> Run:
        while True:
            body = await asyncio.to_thread(
                lambda: self._resource.get(name=name, namespace=self._namespace).to_dict()
            )
            status = body.get("status") or {}
            for line in self._news(name, status):
                self._say(line)
            accepted, ready = (_condition(status, kind) for kind in ("Accepted", "Ready"))
            if ready.get("reason") in (ENDED, FINDINGS):
                log = await asyncio.to_thread(self._log, name)
                return Run(log, has_findings=ready["reason"] == FINDINGS)
            if accepted.get("status") == "False" or ready.get("reason") in REFUSED:
                bad = accepted if accepted.get("status") == "False" else ready
                log = await asyncio.to_thread(self._log, name)
                end = "\n".join(f"    {line}" for line in log.splitlines()[-LOG_LINES:])
                raise PipelineFailedError(
                    f"StreamPipeline {name}: {bad['reason']}: {bad.get('message', '')}\n{end}"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _news(self, name: str, status: Mapping[str, Any]) -> list[str]:
        ready = _condition(status, "Ready")
        streams = (status.get("progress") or {}).get("streams") or ()
        lines = [f"{ready['reason']}: {ready.get('message', '')}"] if ready else []
        lines += [
            f"stream {each['name']}: next sequence {each.get('nextSequence', 0):,d}" for each in streams
        ]
        before, self._told[name] = self._told.get(name, ()), tuple(lines)
        return [f"  {name}: {line}" for line in lines if line not in before]

    def _log(self, name: str) -> str:
        """Of the last driver; empty when there is none."""
        selector = f"supercluster.dev/stream-pipeline={name},app.kubernetes.io/component=driver"
        pods = self._core.list_namespaced_pod(self._namespace, label_selector=selector).items
        if not pods:
            return ""
        last = max(pods, key=lambda pod: pod.metadata.creation_timestamp)
        return str(self._core.read_namespaced_pod_log(last.metadata.name, self._namespace))

    def _archive_folder(self) -> Path:
        """Where the volume is on this machine."""
        claim = self._core.read_namespaced_persistent_volume_claim(ARCHIVE, self._namespace)
        return Path(self._core.read_persistent_volume(claim.spec.volume_name).spec.host_path.path)


def _condition(status: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return next((dict(each) for each in status.get("conditions") or () if each["type"] == kind), {})
