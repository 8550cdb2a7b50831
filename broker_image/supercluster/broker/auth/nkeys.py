"""Users identified by an nkey: a public key as text, and a signature of the nonce that the server sent.

The text is the base32 form of a prefix byte for the kind of key, the 32 bytes of an Ed25519 key, and a CRC-16
checksum (low byte first). No seed is ever read here: it stays with the client.
"""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

TEXT_LENGTH = 56
USER = 20 << 3
"""The first byte of a user's key, which makes its text begin with U."""
SEED = 18 << 3
"""The first five bits of a seed's, which make its text begin with S."""
SIGNATURE_BYTES = 64


class NkeyError(ValueError):
    """No user's public key; the text says what is wrong, and never shows it: it may be a seed by mistake."""


def public_key(text: str) -> bytes:
    """The 32 bytes of a user's key.

    Raises:
        NkeyError: it is none.
    """
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if raw and raw[0] & 0xF8 == SEED:
        raise NkeyError(
            "is a seed, which is the secret half; the public key belongs here, which begins with U"
        )
    if len(text) != TEXT_LENGTH or len(raw) != 35 or raw[0] != USER:
        raise NkeyError(f"has to be a user's public key: {TEXT_LENGTH} characters that begin with U")
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise NkeyError("has a wrong check sum: a character of it is another one")
    return raw[1:-2]


def has_signed(text: str, nonce: str, signature: str) -> bool:
    """Was the nonce signed with that key's other half? The signature is base64, with or without padding, for URLs or not."""
    try:
        key = public_key(text)
        raw = base64.b64decode(
            signature.replace("-", "+").replace("_", "/").rstrip("=")
            + "=" * (-len(signature.rstrip("=")) % 4),
            validate=True,
        )
        if len(raw) != SIGNATURE_BYTES:
            return False
        Ed25519PublicKey.from_public_bytes(key).verify(raw, nonce.encode())
    except (NkeyError, InvalidSignature, ValueError):
        return False
    return True
