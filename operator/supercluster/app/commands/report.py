"""`supercluster report`: a support bundle without secrets, as a tar.gz of JSON files and logs.

Secrets and ConfigMaps are left out. Secrets are read, so that their values can be masked wherever else they stand (`masking`). A part
that cannot be fetched is named in `errors.txt` and does not stop the rest. Time, size and the length of each log are bounded.
"""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from supercluster.api import API_VERSION
from supercluster.api.crd import KINDS
from supercluster.app import VERSION
from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.errors import CommandError
from supercluster.app.commands.masking import Masker, values_of
from supercluster.app.commands.processes import tail
from supercluster.app.commands.recover_stream import find_all
from supercluster.app.kube import KubeClient, object_path
from supercluster.reconcilers.planners.plan import LABEL_SUPER_CLUSTER, MANAGED_BY
from supercluster.reconcilers.ports import BrokersError, Json, KubeError, mapping

BUNDLE_BYTES_MAX = 200 << 20
LOG_LINES_MAX = 2_000
LOG_BYTES_MAX = 4 << 20
"""Of one log; the API server gets twice as much to find the last lines in."""
CALLS_MAX = 8
"""At a time."""
KINDS_OF_KUBERNETES = (
    *(("v1", kind) for kind in ("Pod", "Service", "PersistentVolumeClaim", "Event")),
    *(("apps/v1", "StatefulSet"), ("policy/v1", "PodDisruptionBudget"), ("coordination.k8s.io/v1", "Lease")),
)
OPERATOR_PODS = f"app.kubernetes.io/name={MANAGED_BY}"


@dataclass(slots=True)
class Bundle:
    """Files by name, and what is missing."""

    deadline_s: float
    masker: Masker = field(default_factory=Masker)
    files: dict[str, bytes] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_MAX))
    size_bytes: int = 0
    has_objects: bool = False
    """Could any list of resources be fetched?"""
    knows_values: bool = False
    """Could the values be read that are to be masked?"""

    async def fetch(self, name: str, work: Coroutine[Any, Any, Any], *, keeps: bool = True) -> Any:
        """What a call answers, which becomes a file; None: it failed, and its error is kept."""
        try:
            async with self.calls, asyncio.timeout_at(self.deadline_s):
                found = await work
        except (KubeError, BrokersError, CommandError, OSError, TimeoutError) as error:
            self.errors.append(f"{name}: {str(error) or 'not done in time'}")
            return None
        finally:
            work.close()  # It may not have begun in time.
        if keeps:
            self.add(name, found)
        return found

    def add(self, name: str, content: Any) -> None:
        text = (
            self.masker.text(content)
            if isinstance(content, str)
            else json.dumps(self.masker.value(content), indent=1)
        )
        data = text.encode()
        if self.size_bytes + len(data) > BUNDLE_BYTES_MAX:
            self.errors.append(
                f"{name}: left out, since the bundle would be larger than {BUNDLE_BYTES_MAX} bytes"
            )
            return
        self.size_bytes += len(data)
        self.files[name] = data

    def write(self, path: Path) -> None:
        """
        Raises:
            OSError: the file can't be written.
        """
        folder = path.name.removesuffix(".tar.gz")
        errors = self.masker.text("\n".join(sorted(self.errors))) + "\n"
        path.touch(mode=0o600)
        with tarfile.open(path, "w:gz") as archive:
            for name, data in sorted({**self.files, "errors.txt": errors.encode()}.items()):
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))


async def collect(
    kube: KubeClient, admin: BrokerAdmin, namespace: str, state: Path | None, timeout_s: float
) -> Bundle:
    """Of one namespace. `state`: the folder of `supercluster dev`, where the operator's log is on a development plane.

    Raises:
        CommandError: the namespace does not exist.
    """
    bundle = Bundle(asyncio.get_running_loop().time() + timeout_s)
    secrets = await bundle.fetch("values of Secrets, to mask them", _secrets(kube, namespace), keeps=False)
    bundle.masker, bundle.knows_values = Masker(values_of(secrets or ())), secrets is not None
    if await bundle.fetch("objects/namespace.json", _namespace(kube, namespace)) == {}:
        raise CommandError(f"namespace {namespace} does not exist")
    bundle.add("versions.json", {"supercluster": VERSION, "namespace": namespace})
    await bundle.fetch("kubernetes-version.json", kube.request("GET", "/version"))
    lists = {kind: await bundle.fetch(*_listed(kube, version, kind, namespace)) for version, kind in _kinds()}
    bundle.has_objects = any(found is not None for found in lists.values())
    pods = [
        body for body in lists["Pod"] or () if LABEL_SUPER_CLUSTER in mapping(body["metadata"].get("labels"))
    ]
    pods += await bundle.fetch("objects/operator-pods.json", _operator_pods(kube, namespace)) or ()
    names = [str(body["metadata"]["name"]) for body in lists["SuperCluster"] or ()]
    await asyncio.gather(
        *(bundle.fetch(name, log) for pod in pods for name, log in _logs(kube, pod)),
        *(_brokers(bundle, kube, admin, namespace, name) for name in names),
    )
    if state is not None and (state / "dev.json").exists():
        for name in ("operator", "plane"):
            log = tail(str(state / "logs" / f"{name}.log"), LOG_LINES_MAX)
            bundle.add(f"logs/{name}.log", log[-LOG_BYTES_MAX:])
    return bundle


async def _secrets(kube: KubeClient, namespace: str) -> list[Json]:
    return list((await kube.list("v1", "Secret", namespace))["items"])


async def _namespace(kube: KubeClient, name: str) -> Json:
    """Empty: there is none of this name."""
    return await kube.get("v1", "Namespace", "", name) or {}


def _kinds() -> Iterator[tuple[str, str]]:
    yield from ((API_VERSION, kind.name) for kind in KINDS)
    yield from KINDS_OF_KUBERNETES


def _listed(
    kube: KubeClient, version: str, kind: str, namespace: str
) -> tuple[str, Coroutine[Any, Any, list[Json]]]:
    async def items() -> list[Json]:
        return list((await kube.list(version, kind, namespace))["items"])

    return f"objects/{kind.lower()}.json", items()


async def _operator_pods(kube: KubeClient, namespace: str) -> list[Json]:
    """In all namespaces, or in this one where no more may be seen."""
    try:
        found = await kube.list("v1", "Pod", None, OPERATOR_PODS)
    except KubeError:
        found = await kube.list("v1", "Pod", namespace, OPERATOR_PODS)
    return list(found["items"])


def _logs(kube: KubeClient, pod: Json) -> Iterator[tuple[str, Coroutine[Any, Any, str]]]:
    namespace, name = str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"])
    path = f"{object_path('v1', 'Pod', namespace, name)}/log"
    for container in mapping(pod.get("spec")).get("containers") or ():

        async def read(container: str) -> str:
            limits = {"tailLines": str(LOG_LINES_MAX), "limitBytes": str(2 * LOG_BYTES_MAX)}
            return (await kube.read_text(path, {"container": container, **limits}))[-LOG_BYTES_MAX:]

        yield f"logs/{namespace}/{name}/{container['name']}.log", read(str(container["name"]))


async def _brokers(bundle: Bundle, kube: KubeClient, admin: BrokerAdmin, namespace: str, name: str) -> None:
    """What brokers of a super-cluster say, by the calls that the tool makes anyway."""
    folder = f"brokers/{name}"
    found = await bundle.fetch(folder, find_all(kube, namespace, name), keeps=False)
    if found is None:
        return
    target, monitors = found
    await asyncio.gather(
        bundle.fetch(f"{folder}/brokers.json", admin.brokers_state(target, with_room=True)),
        bundle.fetch(f"{folder}/moves.json", admin.running_moves(target)),
        bundle.fetch(f"{folder}/accounts.json", admin.accounts(target)),
        bundle.fetch(f"{folder}/identity.json", admin.identity(target)),
        *(
            bundle.fetch(f"{folder}/{view}/{broker}.json", work)
            for broker, url in monitors.items()
            for one in (replace(target, monitors=(url,), brokers=(broker,)),)
            for view, work in (("restart", admin.restart_states(one)), ("clients", admin.clients_of(one)))
        ),
    )
