"""A pod's tokens: those that its projected volumes request, and a kubeconfig with one.

On a cluster a program finds its token under /var/run/secrets. A local process can't have a path of its own
there, so `KUBECONFIG` names a file that only its owner can read. Pods that don't mount a token get none.
Tokens are bound to their pod. The kubeconfig's token is created at each start of the pod or the agent and
lasts a week. Tokens in volumes are renewed after four fifths of their lifetime, as a kubelet does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supercluster.localplane.client import Client, Json
from supercluster.localplane.files import write_private
from supercluster.localplane.node.environment import MissingReference

TOKEN_SECONDS = 7 * 24 * 3600
PROJECTED_SECONDS = 3600
RENEWED_AFTER_SHARE = 0.8


async def request(client: Client, pod: Json, seconds: int, audience: str = "") -> str:
    """A token of the pod's service account, of no use when the pod is gone.

    Raises:
        RequestError: there is none.
    """
    meta = pod["metadata"]
    account = pod["spec"].get("serviceAccountName") or "default"
    where = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    spec: Json = {"expirationSeconds": seconds, "boundObjectRef": bound}
    if audience:
        spec["audiences"] = [audience]
    body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    token: str = (await client.request("POST", where, body=body))["status"]["token"]
    return token


@dataclass(frozen=True, slots=True)
class _Token:
    content: bytes
    due_s: float


def _asked(pod: Json) -> Iterator[Json]:
    for volume in pod["spec"].get("volumes") or ():
        for part in (volume.get("projected") or {}).get("sources") or ():
            if part.get("serviceAccountToken"):
                yield part["serviceAccountToken"]


class Tokens:
    """The tokens that a pod's volumes show."""

    def __init__(self) -> None:
        self._by_audience: dict[tuple[str, int], _Token] = {}

    @staticmethod
    def _key(asked: Json) -> tuple[str, int]:
        return asked.get("audience") or "", int(asked.get("expirationSeconds") or PROJECTED_SECONDS)

    def content(self, asked: Json) -> bytes:
        """Raises MissingReference when it was not renewed yet."""
        held = self._by_audience.get(self._key(asked))
        if held is None:
            raise MissingReference(f"no service account token for {asked.get('path')}")
        return held.content

    def next_s(self) -> float | None:
        """When the next one is due."""
        return min((held.due_s for held in self._by_audience.values()), default=None)

    async def renew(self, client: Client, pod: Json, now_s: float) -> None:
        """Ask for those that are wanting or due.

        Raises:
            RequestError: one was refused.
        """
        for key in {self._key(asked) for asked in _asked(pod)}:
            held = self._by_audience.get(key)
            if held is not None and held.due_s > now_s:
                continue
            audience, seconds = key
            token = await request(client, pod, seconds, audience)
            self._by_audience[key] = _Token(token.encode(), now_s + seconds * RENEWED_AFTER_SHARE)


def for_pod(access: Json, token: str, namespace: str) -> Json:
    """The kubeconfig `access` with the pod's token and namespace."""
    config: Json = json.loads(json.dumps(access))
    for user in config["users"]:
        user["user"] = {"token": token}
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    return config


async def write(client: Client, pod: Json, access: Json, path: Path) -> None:
    """Write the pod's kubeconfig.

    Raises:
        RequestError: there is no token for the pod's service account.
    """
    token = await request(client, pod, TOKEN_SECONDS)
    write_private(path, json.dumps(for_pod(access, token, pod["metadata"]["namespace"])))
