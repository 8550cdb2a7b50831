"""The API server's address and the client's identity: from a kubeconfig, or from a service account inside a
pod.

Tokens and client certificates are read here. The `kubernetes` package handles users that need a helper
program (`exec`, `auth-provider`): it supports them all, but its import is slow.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeconfigError(Exception):
    """The configuration is missing or can't be used; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One API server and our credentials for it. Nothing secret is in repr."""

    server: str
    namespace: str = "default"
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """Read again for every request: such tokens are renewed while we run."""
    ca_data: str | None = field(default=None, repr=False)
    client_certificate: str | None = field(default=None, repr=False)
    client_key: str | None = field(default=None, repr=False)
    insecure: bool = False
    file: Path | None = None
    """The kubeconfig that it is of."""

    def bearer_token(self) -> str | None:
        if self.token_file is not None:
            return self.token_file.read_text(encoding="utf-8").strip()
        return self.token

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS settings; None for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        context = lenient(ssl.create_default_context(cadata=self.ca_data))
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_certificate and self.client_key:
            # The ssl module reads certificates from files only.
            with tempfile.TemporaryDirectory() as folder:
                certificate, key = Path(folder, "certificate"), Path(folder, "key")
                key.touch(mode=0o600)
                certificate.write_text(self.client_certificate, encoding="utf-8")
                key.write_text(self.client_key, encoding="utf-8")
                context.load_cert_chain(certificate, key)
        return context


def lenient(context: ssl.SSLContext) -> ssl.SSLContext:
    """From Python 3.13 on a default context refuses an authority without the key usage extension (RFC 5280, 4.2.1.3), as clusters
    of some installers have it. Kubernetes' own clients accept it."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def load(
    path: str | None = None, environ: Mapping[str, str] = os.environ, *, context: str | None = None
) -> Connection:
    """The connection: of the file given, of $KUBECONFIG, of the pod's service account, or of ~/.kube/config.

    Raises:
        KubeconfigError: there is none, or it can't be used.
    """
    if (
        path is None
        and context is None
        and "KUBECONFIG" not in environ
        and "KUBERNETES_SERVICE_HOST" in environ
    ):
        return in_cluster(environ)
    chosen = (
        path or environ.get("KUBECONFIG", "").split(os.pathsep)[0] or str(Path.home() / ".kube" / "config")
    )
    return from_file(Path(chosen), context)


def in_cluster(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Connection:
    """The service account of the pod that we run in."""
    try:
        ca_data = (folder / "ca.crt").read_text(encoding="utf-8")
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise KubeconfigError(
            f"KUBERNETES_SERVICE_HOST is set but {folder} can't be read ({error}); mount a service account, or give "
            "--kubeconfig"
        ) from error
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    return Connection(f"https://{host}:{port}", namespace, token_file=folder / "token", ca_data=ca_data)


def from_file(path: Path, context_name: str | None = None) -> Connection:
    """A context of a kubeconfig; None: the current one."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KubeconfigError(
            f"kubeconfig {path} can't be read ({error.strerror}); give --kubeconfig or set KUBECONFIG, "
            "or start the embedded control plane with `supercluster dev up`"
        ) from error
    except yaml.YAMLError as error:
        raise KubeconfigError(f"kubeconfig {path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise KubeconfigError(f"kubeconfig {path} is empty")
    name = content.get("current-context") if context_name is None else context_name
    context = _named(content, "contexts", name, "context", path)
    cluster = _named(content, "clusters", context.get("cluster"), "cluster", path)
    user = _named(content, "users", context.get("user"), "user", path) if context.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        user = {**user, "token": _token_by_kubernetes_package(path, str(name))}
    folder = path.parent
    return Connection(
        server=str(cluster.get("server", "")).rstrip("/"),
        namespace=str(context.get("namespace") or "default"),
        token=user.get("token"),
        token_file=folder / user["tokenFile"] if "tokenFile" in user else None,
        ca_data=_inline_or_file(cluster, "certificate-authority", folder),
        client_certificate=_inline_or_file(user, "client-certificate", folder),
        client_key=_inline_or_file(user, "client-key", folder),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        file=path,
    )


def _named(content: dict[str, Any], plural: str, name: Any, singular: str, path: Path) -> dict[str, Any]:
    for entry in content.get(plural) or ():
        if entry.get("name") == name:
            return dict(entry.get(singular) or {})
    raise KubeconfigError(
        f"kubeconfig {path} has no {singular} named {name!r}; correct --context, current-context or {plural}"
    )


def _inline_or_file(section: dict[str, Any], key: str, folder: Path) -> str | None:
    if f"{key}-data" in section:
        return b64decode(section[f"{key}-data"]).decode()
    if key in section:
        return Path(folder, section[key]).read_text(encoding="utf-8")
    return None


def _token_by_kubernetes_package(path: Path, context: str) -> str:
    from kubernetes import client, config

    configuration = client.Configuration()
    load_kube_config: Callable[..., None] = config.load_kube_config
    load_kube_config(config_file=str(path), context=context, client_configuration=configuration)
    authorization = configuration.get_api_key_with_prefix("authorization")
    if not authorization:
        raise KubeconfigError(f"kubeconfig {path}: the user's helper program gave no token")
    return str(authorization).removeprefix("Bearer ")
