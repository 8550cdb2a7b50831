"""Brokers that come from manifests on a Kubernetes API, whichever it is: the embedded control plane or a real one.

All that is known of the outcome is asked of the API. What differs (how the operator got there, how brokers are reached and
killed) is for those that build on this.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2e.demo.brokers import Brokers
from e2e.demo.manifests import ROOT, documents
from e2e.demo.moving import MoveReport, follow
from e2e.demo.pipeline_commands import run_as_commands
from e2e.demo.pipelines import PipelinesReport
from e2e.demo.publish import Login

MANIFESTS = ROOT / "e2e" / "manifests" / "demo"
# The cluster that the stream is moved to, beside the one that it begins in.
ELSEWHERE = ROOT / "e2e" / "manifests" / "move"
# The User that the demo's clients log in as.
USERS = ROOT / "e2e" / "manifests" / "users"
FIELD_MANAGER = "demo"
READY_SECONDS = 90.0
BACK_SECONDS = 90.0
ROTATION_SECONDS = 60.0
GROUP = "supercluster.dev"
NOT_FOUND = 404
Say = Callable[[str], None]
# The client library is typed in part only; its objects are read here by attribute.
kubernetes: Any = importlib.import_module("kubernetes")
dynamic: Any = importlib.import_module("kubernetes.dynamic")


def ready_condition(item: Mapping[str, Any]) -> tuple[bool, str]:
    """(Whole is True for the newest generation, what the condition says)."""
    status = item.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Whole":
            is_current = status.get("observedGeneration", 0) >= item["metadata"].get("generation", 0)
            text = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
            return condition.get("status") == "True" and is_current, text
    return False, "no condition yet"


def only(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The one object of a kind among the demo's manifests.

    Raises:
        ValueError: there is none, or more than one.
    """
    matching = [document for document in found if document["kind"] == kind]
    if len(matching) != 1:
        raise ValueError(
            f"the demo's manifests have {len(matching)} objects of kind {kind}; it needs exactly one"
        )
    return matching[0]


class KubernetesBrokers(Brokers):
    """What is declared by the demo's manifests, on a Kubernetes API."""

    tls: Mapping[str, str] = {"clients": "Required", "monitoring": "Required"}
    """Of the SuperCluster."""

    def __init__(self, directory: Path, say: Say) -> None:
        self._directory = directory
        self._say = say
        self._manifests = documents(MANIFESTS)
        only(self._manifests, "SuperCluster")["spec"]["tls"] = self.tls
        self._elsewhere = documents(ELSEWHERE)
        self._users = documents(USERS)
        self._user: str = only(self._users, "User")["metadata"]["name"]
        stream = only(self._manifests, "Stream")
        self._stream_resource: str = stream["metadata"]["name"]
        self.stream: str = stream["spec"].get("name") or stream["metadata"]["name"]
        self._cluster: str = only(self._manifests, "Cluster")["metadata"]["name"]
        self._super_cluster: str = only(self._manifests, "SuperCluster")["metadata"]["name"]
        self.namespace: str = stream["metadata"].get("namespace", "default")
        self.login = Login()
        self._credentials = directory / "credentials.json"

    def _connect(self, kubeconfig: Path) -> None:
        kubernetes.config.load_kube_config(str(kubeconfig))
        self._api = kubernetes.client.ApiClient()
        self._core = kubernetes.client.CoreV1Api(self._api)

    def _check(self) -> None:
        """Raises an exception when waiting longer is no use."""

    async def declare(self) -> None:
        """Apply the manifests, wait until all is Ready, and read who may use it.

        Raises:
            TimeoutError: something is not ready in time; the message has its condition.
        """
        folders = " and ".join(
            f"{folder.relative_to(ROOT)}/*.yaml" for folder in (MANIFESTS, ELSEWHERE, USERS)
        )
        self._say(f"applying {folders}, with spec.tls {json.dumps(self.tls)} of the SuperCluster")
        # The User takes over a user that is there.
        for found in ([*self._manifests, *self._elsewhere], self._users):
            await asyncio.to_thread(self._apply, found)
            for document in found:
                if document["apiVersion"].startswith(f"{GROUP}/"):
                    await self._wait_ready(document)
        self._read_login()
        self._say(f"clients log in as User {self._user}, which has taken over Secret {self._login_secret}")
        tls = (
            self._resource("SuperCluster").get(name=self._super_cluster, namespace=self.namespace).status.tls
        )
        self._say(
            f"TLS between brokers: {tls.stage}; for clients: {tls.clients.stage}; monitoring: {tls.monitoring.stage}"
        )

    def _client(self) -> Any:
        # Its own cache file: the default one is shared by all servers that ever had this address.
        return dynamic.DynamicClient(self._api, cache_file=str(self._directory / "discovery.json"))

    def _apply(self, found: list[dict[str, Any]]) -> None:
        client = self._client()
        for document in found:
            resource = client.resources.get(api_version=document["apiVersion"], kind=document["kind"])
            client.server_side_apply(
                resource,
                body=document,
                name=document["metadata"]["name"],
                namespace=document["metadata"].get("namespace", "default") if resource.namespaced else None,
                field_manager=FIELD_MANAGER,
            )

    async def _wait_ready(self, document: dict[str, Any]) -> None:
        name, kind = document["metadata"]["name"], document["kind"]
        namespace = document["metadata"].get("namespace", "default")
        resource = await asyncio.to_thread(
            lambda: self._client().resources.get(api_version=document["apiVersion"], kind=kind)
        )
        text = ""

        def is_ready() -> bool:
            nonlocal text
            is_true, said = ready_condition(resource.get(name=name, namespace=namespace).to_dict())
            if said != text:
                text = said
                self._say(f"{kind} {name}: {said}")
            return is_true

        await self._until(is_ready, READY_SECONDS, lambda: f"{kind} {name} is not Ready: {text}")

    async def time_to_ready(self, name: str, subjects: list[str]) -> float:
        """Apply a further R3 Stream; seconds until it is Ready."""
        document = {**only(self._manifests, "Stream"), "metadata": {"name": name}}
        document["spec"] = {**document["spec"], "subjects": subjects}
        document["spec"].pop("name", None)
        started = time.monotonic()
        await asyncio.to_thread(self._apply, [document])
        await self._wait_ready(document)
        return time.monotonic() - started

    async def move_elsewhere(self) -> MoveReport:
        """Edit the Stream's placement, as a user does it, and follow the StreamMove that comes of it."""
        goal = only(self._elsewhere, "Cluster")["metadata"]["name"]
        await asyncio.to_thread(self._place, goal)
        self._say(f"set spec.placement.cluster of Stream {self._stream_resource} to {goal}")
        return await follow(self._its_move, self._say)

    async def begin_rotation(self) -> bool:
        """As a commit to a repository of manifests would do it.

        Raises:
            TimeoutError: not every broker accepts another credential in time.
        """
        await asyncio.to_thread(
            self._resource("User").patch,
            body={"spec": {"rotation": {"counter": 1}}},
            name=self._user,
            namespace=self.namespace,
            content_type="application/merge-patch+json",
        )
        self._say(f"set spec.rotation.counter of User {self._user} to 1")
        await self._until(
            lambda: self._rotation().get("stage") == "ClientsRolling",
            ROTATION_SECONDS,
            lambda: f"User {self._user} has no new credential: {self._rotation()}",
        )
        await asyncio.to_thread(self._read_login)
        self._say(f"all brokers accept both credentials; the new one is in Secret {self._login_secret}")
        return True

    async def end_rotation(self) -> int:
        """
        Raises:
            TimeoutError: the former credential is not withdrawn in time.
        """
        await self._until(
            lambda: not self._rotation(),
            ROTATION_SECONDS,
            lambda: f"the rotation of User {self._user} does not end: {self._rotation()}",
        )
        return int(self._user_status()["credential"])

    def _user_status(self) -> dict[str, Any]:
        body = self._resource("User").get(name=self._user, namespace=self.namespace).to_dict()
        status: dict[str, Any] = body.get("status") or {}
        return status

    def _rotation(self) -> dict[str, Any]:
        return self._user_status().get("rotation") or {}

    def _resource(self, kind: str) -> Any:
        return self._client().resources.get(api_version=f"{GROUP}/v1alpha1", kind=kind)

    def _place(self, cluster: str) -> None:
        self._resource("Stream").patch(
            body={"spec": {"placement": {"cluster": cluster}}},
            name=self._stream_resource,
            namespace=self.namespace,
            content_type="application/merge-patch+json",
        )

    def _its_move(self) -> dict[str, Any] | None:
        listed: list[dict[str, Any]] = (
            self._resource("StreamMove").get(namespace=self.namespace).to_dict()["items"]
        )
        return next((body for body in listed if body["spec"].get("streamRef") == self._stream_resource), None)

    async def _until(self, done: Callable[[], bool], seconds: float, wanting: Callable[[], str]) -> None:
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(done):
            self._check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{wanting()} (after {seconds:g} s)")
            await asyncio.sleep(0.05)

    @property
    def _login_secret(self) -> str:
        return str(self._user_status()["secret"])

    def _read_login(self) -> None:
        secret = self._core.read_namespaced_secret(self._login_secret, self.namespace)
        fields = {name: base64.b64decode(value).decode() for name, value in (secret.data or {}).items()}
        ca_file = self._directory / "ca.crt"
        ca_file.write_text(fields["ca.crt"])
        # Brokers are reached by addresses here, whichever Cluster they are of.
        name = f"brokers.{self._super_cluster}.{self.namespace}.supercluster.internal"
        begins = self.tls["clients"] == "Optional"
        self.login = Login(fields["user"], fields["password"], ca_file, name, begins)
        self._credentials.touch(mode=0o600)
        self._credentials.write_text(json.dumps({"user": fields["user"], "password": fields["password"]}))

    def _pods(self) -> dict[str, Any]:
        selector = f"{GROUP}/cluster={self._cluster},app.kubernetes.io/component=broker"
        pods = self._core.list_namespaced_pod(self.namespace, label_selector=selector).items
        return {pod.metadata.name: pod for pod in pods}

    def _delete_object(self, kind: str, name: str, options: dict[str, Any]) -> None:
        # Answered with a status or with the object, which the typed client does not tell apart.
        resource = self._client().resources.get(api_version="v1", kind=kind)
        resource.delete(name=name, namespace=self.namespace, body=options)

    def _pod(self, name: str) -> Any:
        return self._core.read_namespaced_pod(name, self.namespace)

    async def destroy_volume(self, name: str) -> str:
        """What a lost disk is to Kubernetes: the claim is deleted, and the pod without grace, as for a node that is gone.
        Return when controllers have made others.

        Raises:
            TimeoutError: they do not.
        """
        pod = await asyncio.to_thread(self._pod, name)
        [claim] = (
            v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim
        )
        read = self._core.read_namespaced_persistent_volume_claim
        old = (await asyncio.to_thread(read, claim, self.namespace)).metadata.uid
        # The claim first: it goes with its last pod, and the next pod waits for a new one.
        await asyncio.to_thread(self._delete_object, "PersistentVolumeClaim", claim, {})
        await asyncio.to_thread(self.kill, name)
        await asyncio.to_thread(self._delete_object, "Pod", name, {"gracePeriodSeconds": 0})

        def is_replaced() -> bool:
            try:
                return bool(
                    self._pod(name).metadata.uid != pod.metadata.uid
                    and read(claim, self.namespace).metadata.uid != old
                )
            except kubernetes.client.exceptions.ApiException as error:
                if error.status == NOT_FOUND:
                    return False
                raise

        await self._until(
            is_replaced, BACK_SECONDS, lambda: f"pod {name} and claim {claim} were not made anew"
        )
        return f"killed {name}; deleted its pod and PersistentVolumeClaim {claim}; Kubernetes made both anew"

    async def confirm_whole(self) -> None:
        """Wait until the Stream says so.

        Raises:
            TimeoutError: it does not; the message has its condition.
        """
        said = ""

        def is_whole() -> bool:
            nonlocal said
            body = self._resource("Stream").get(name=self._stream_resource, namespace=self.namespace)
            is_ready, said = ready_condition(found := body.to_dict())
            return is_ready and found["status"].get("readyReplicas") == found["spec"]["replicas"]

        name = self._stream_resource
        await self._until(
            is_whole, READY_SECONDS, lambda: f"Stream {name} does not have all replicas: {said}"
        )
        self._say(f"Stream {name}: {said}")

    async def bring_back(self, name: str) -> None:
        """The kubelet's part is the node agent's: it starts the broker again; wait until its pod is ready."""

        def is_back() -> bool:
            pod = self._pods().get(name)
            statuses = (pod.status.container_statuses or []) if pod is not None else []
            return bool(statuses) and all(status.ready and status.restart_count > 0 for status in statuses)

        await self._until(
            is_back, BACK_SECONDS, lambda: f"broker {name} did not come back after it was killed"
        )

    async def run_pipelines(self, directory: Path, say: Say) -> PipelinesReport:
        return await run_as_commands(self, directory, say)

    def credentials_file(self) -> Path | None:
        return self._credentials
