"""Keys of users, as text, for tests."""

from __future__ import annotations

import base64
import binascii

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

USER, SEED = 20 << 3, 18 << 3


class Nkey:
    """A user's two halves. The same number makes the same key."""

    def __init__(self, number: int = 1) -> None:
        self._raw = number.to_bytes(32, "big")
        self._key = Ed25519PrivateKey.from_private_bytes(self._raw)

    @property
    def public(self) -> str:
        return _text(bytes((USER,)), self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    @property
    def seed(self) -> str:
        return _text(bytes((SEED | USER >> 5, (USER & 31) << 3)), self._raw)

    def sign(self, nonce: str) -> str:
        return base64.urlsafe_b64encode(self._key.sign(nonce.encode())).decode().rstrip("=")

    def connect(self, nonce: str) -> dict[str, str]:
        """What CONNECT says."""
        return {"nkey": self.public, "sig": self.sign(nonce)}


def _text(head: bytes, raw: bytes) -> str:
    whole = head + raw
    return base64.b32encode(whole + binascii.crc_hqx(whole, 0).to_bytes(2, "little")).decode().rstrip("=")
