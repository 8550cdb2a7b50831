"""Authentication: the administrator's token, or a signed token of a service account.

Tokens of service accounts are JSON web tokens signed with a key of the state directory (HS256). They name the
account and its uid. They are invalid after their expiry, or when the account was recreated.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass

from supercluster.localplane.apiserver.storage.registry import SERVICE_ACCOUNTS
from supercluster.localplane.apiserver.storage.store import Store
from supercluster.localplane.json_data import Json

ISSUER = "https://kubernetes.default.svc.cluster.local"
KEY_BYTES = 32
KEY_NAME = "token-signing-key"
DEFAULT_EXPIRATION_S = 3_600
MIN_EXPIRATION_S = 600
MAX_EXPIRATION_S = 365 * 86_400


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...]
    uid: str = ""

    @property
    def is_administrator(self) -> bool:
        return "system:masters" in self.groups


ADMINISTRATOR = User("supercluster-admin", ("system:masters", "system:authenticated"))


def _part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _bytes(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


class Identities:
    """Issues and checks tokens."""

    def __init__(self, store: Store, admin_token: str) -> None:
        self._store = store
        self._admin = admin_token.encode()
        key = store.meta(KEY_NAME)
        if key is None:
            key = secrets.token_hex(KEY_BYTES)
            store.set_meta(KEY_NAME, key)
        self._key = bytes.fromhex(key)

    def issue(self, account: Json, now_s: int, seconds: int, audiences: list[str]) -> str:
        """A token of a service account."""
        metadata = account["metadata"]
        claims = {
            "iss": ISSUER,
            "aud": audiences or [ISSUER],
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            "iat": now_s,
            "nbf": now_s,
            "exp": now_s + seconds,
            "kubernetes.io": {
                "namespace": metadata["namespace"],
                "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        header = _part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
        signed = f"{header}.{_part(json.dumps(claims).encode())}"
        return f"{signed}.{_part(self._signature(signed))}"

    def _signature(self, signed: str) -> bytes:
        return hmac.new(self._key, signed.encode(), hashlib.sha256).digest()

    def user(self, token: str, now_s: int) -> User | None:
        """Whose token this is; None when it is nobody's."""
        if not token.isascii():
            return None
        if hmac.compare_digest(token.encode(), self._admin):
            return ADMINISTRATOR
        signed, _, signature = token.rpartition(".")
        try:
            if not hmac.compare_digest(_bytes(signature), self._signature(signed)):
                return None
            claims = json.loads(_bytes(signed.partition(".")[2]))
        except (ValueError, RecursionError):
            return None
        if not claims["nbf"] <= now_s < claims["exp"]:
            return None
        namespace = claims["kubernetes.io"]["namespace"]
        account = claims["kubernetes.io"]["serviceaccount"]
        stored = self._store.get(SERVICE_ACCOUNTS, namespace, account["name"])
        if stored is None or stored["metadata"]["uid"] != account["uid"]:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return User(claims["sub"], groups, account["uid"])
