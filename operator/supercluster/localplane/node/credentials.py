"""A pod's way to the API: a kubeconfig with the token of its service account, in the place of the mounted token.

On a cluster a pod finds a token under /var/run/secrets; a local process can't have a path of its own there, so
`KUBECONFIG` points at a file that only its owner can read. Pods that don't mount a token get none. The token is made
anew with each start of the pod or the plane and lasts a week.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from supercluster.localplane.client import Client, Json

TOKEN_SECONDS = 7 * 24 * 3600


def wants_token(pod: Json) -> bool:
    return pod["spec"].get("automountServiceAccountToken") is not False


def for_pod(plane: Json, token: str, namespace: str) -> Json:
    """The plane's kubeconfig with the pod's token and namespace."""
    config: Json = json.loads(json.dumps(plane))
    for user in config["users"]:
        user["user"] = {"token": token}
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    return config


async def write(client: Client, pod: Json, plane_config: Path, path: Path) -> bool:
    """Write the pod's kubeconfig. False when there is nothing to make one of.

    Raises:
        RequestError: there is no token for the pod's service account.
    """
    if not plane_config.exists():
        return False
    namespace, account = pod["metadata"]["namespace"], pod["spec"].get("serviceAccountName") or "default"
    where = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body: Json = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    token = (await client.request("POST", where, body=body))["status"]["token"]
    text = json.dumps(for_pod(json.loads(plane_config.read_text()), token, namespace))
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    return True
