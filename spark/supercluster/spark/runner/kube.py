"""The few requests that a driver makes of the Kubernetes API by itself: its predecessor's executors, and its checkpoint's Lease."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_SECONDS = 30.0


class KubeRequestError(Exception):
    """The API server refused a request, or did not answer; the message has its words."""

    def __init__(self, message: str, status: int = 0) -> None:
        """`status`: of the answer; 0: there was none."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """Where the API server is, and as whom to ask it."""

    server: str
    token_file: Path | None = None
    """Read at each request: it is renewed within the hour."""
    fixed_token: str = ""
    ca_file: str | None = None

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> KubeAccess:
        """From the file that KUBECONFIG names (the embedded control plane), else from the pod's service account.

        Raises:
            KubeRequestError: neither is there.
        """
        try:
            if environment.get("KUBECONFIG"):
                return cls._of_config(Path(environment["KUBECONFIG"]))
            host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
        except (KeyError, OSError, ValueError, TypeError) as error:
            raise KubeRequestError(
                f"no access to the Kubernetes API ({type(error).__name__}: {error}): neither KUBECONFIG nor a service account"
            ) from None
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", ACCOUNT / "token", "", str(ACCOUNT / "ca.crt"))

    @classmethod
    def _of_config(cls, path: Path) -> KubeAccess:
        import yaml

        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        contexts = {each["name"]: each["context"] for each in config["contexts"]}
        context = contexts[config["current-context"]]
        cluster = {each["name"]: each["cluster"] for each in config["clusters"]}[context["cluster"]]
        user = {each["name"]: each["user"] for each in config["users"]}[context["user"]]
        ca_file = cluster.get("certificate-authority")
        if cluster.get("certificate-authority-data"):
            with tempfile.NamedTemporaryFile(prefix="ca-", suffix=".crt", delete=False) as written:
                written.write(base64.b64decode(cluster["certificate-authority-data"]))
            ca_file = written.name
        return cls(str(cluster["server"]), None, str(user["token"]), ca_file)

    def request(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Raises KubeRequestError."""
        token = self.token_file.read_text(encoding="utf-8").strip() if self.token_file else self.fixed_token
        asked = urllib.request.Request(
            f"{self.server}{path}?{urllib.parse.urlencode(query)}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/json",
                "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json",
            },
        )
        context = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_SECONDS, context=context) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise KubeRequestError(f"{method} {path}: {_message(error)}", error.code) from None
        except (OSError, ValueError) as error:
            raise KubeRequestError(f"{method} {path}: {error}") from None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
