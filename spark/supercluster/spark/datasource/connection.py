"""The options for the brokers' addresses and the login.

Secrets are best given in a file (`credentialsFile`, for instance a mounted Secret). Options become part of a
query's plan, and Spark redacts only values whose names look secret. In the pods of a StreamPipeline all of
these options may be omitted. There the folder in SUPERCLUSTER_CLIENT holds the Secret for applications: a
file each for `user`, `password` and `urls`, and for `ca.crt`, `tls.crt` and `tls.key` if brokers require TLS.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from supercluster.spark.client import Address, Credentials, Tls
from supercluster.spark.datasource.option_values import OptionError, Values

CLIENT_FOLDER = "SUPERCLUSTER_CLIENT"
TLS_FILES = ("ca.crt", "tls.crt", "tls.key")


def read_credentials(path: str, user: str) -> Credentials:
    """Read a JSON file: {"user": …, "password": …}, {"token": …}, or a broker's {"users": [ … ]}, of which `user` (or
    the first) is taken.

    Raises:
        OptionError: the file cannot be read or has another form; nothing of its content is shown.
    """
    right = 'it has to be JSON like {"user": "app", "password": "…"} or {"token": "…"}'
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError("credentialsFile", path, f"it cannot be read: {error.strerror}") from None
    except ValueError:
        raise OptionError("credentialsFile", path, right) from None
    entries = content.get("users") if isinstance(content, dict) and "users" in content else [content]
    if not isinstance(entries, list):
        raise OptionError("credentialsFile", path, right)
    for entry in entries:
        if isinstance(entry, dict) and (not user or entry.get("user") == user):
            fields = {name: entry.get(name, "") for name in ("user", "password", "token")}
            if all(isinstance(value, str) for value in fields.values()) and any(fields.values()):
                return Credentials(**fields)
    raise OptionError("credentialsFile", path, f"it has no user {user!r}" if user else right)


def client_folder() -> Path | None:
    named = os.environ.get(CLIENT_FOLDER)
    return Path(named) if named else None


def client_file(folder: Path, name: str) -> str:
    """Of a mounted Secret; empty where brokers ask for none."""
    try:
        return (folder / name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def folder_credentials(folder: Path) -> Credentials:
    """Of a mounted Secret.

    Raises:
        OptionError: it is that of a User with an NKey.
    """
    found = Credentials(**{name: client_file(folder, name) for name in ("user", "password", "token")})
    if client_file(folder, "nkey") and not (found.password or found.token):
        right = "Spark logs in by password: set spec.authentication.type of the User to Password, or name another Secret"
        raise OptionError("user", None, right, says=f"comes from a Secret with an NKey, in {folder}")
    return found


def read_addresses(values: Values) -> tuple[Address, ...]:
    text = values.get("urls") or values.get("url")
    folder = client_folder()
    if not text and folder is not None:
        text = client_file(folder, "urls") or client_file(folder, "url")
    right = "give one or more broker addresses like nats://host:4222 or tls://host:4222, separated by commas"
    if not text:
        raise OptionError("url", text, right)
    try:
        return tuple(Address.parse(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        shown = None if "credentials" in str(error) else text
        raise OptionError("url", shown or "(not shown)", str(error)) from None


def read_tls(values: Values) -> Tls:
    ca, cert, key = (values.get(name, "") for name in ("cafile", "certfile", "keyfile"))
    if bool(cert) != bool(key):
        raise OptionError(
            *(("keyFile", None) if cert else ("certFile", None)), "certFile and keyFile go together"
        )
    return Tls(ca, cert, key, is_required=bool(ca or cert))
