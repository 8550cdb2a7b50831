"""Public keys of users as text (NKeys): base32 of a prefix, an Ed25519 key and a CRC-16 checksum (low byte
first).

The seed of one has the same form with another prefix (https://github.com/nats-io/nkeys).
"""

from __future__ import annotations

import base64
import binascii

USER = 20 << 3
"""First byte of a user's public key, whose text begins with U."""
SEED = 18 << 3
"""First five bits of a seed, whose text begins with SU for a user."""


_SEED_HEAD = bytes([SEED | (USER >> 5), (USER & 31) << 3])


def problem_of(text: str) -> str:
    """Why it is no user's public key; empty: it is one. The words never repeat it, since it may be a seed."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if raw and raw[0] & 0xF8 == SEED:
        return "is a seed, which only the client may have; write the public key that begins with U, and make a new pair"
    if len(text) != 56 or len(raw) != 35 or raw[0] != USER:
        return "is no user's public key; write 56 characters that begin with U"
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return "has a wrong check sum; copy the public key again"
    return ""


def seed_bytes(text: str) -> bytes | None:
    """The 32 bytes of a user's seed; None: it is none."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    if len(raw) != 36 or raw[:2] != _SEED_HEAD:
        return None
    is_right = binascii.crc_hqx(raw[:-2], 0) == int.from_bytes(raw[-2:], "little")
    return raw[2:-2] if is_right else None


def encode_public_key(raw: bytes) -> str:
    """The text of 32 bytes."""
    return _text(bytes([USER]) + raw)


def encode_seed(raw: bytes) -> str:
    """The text of a user's seed of 32 bytes."""
    return _text(_SEED_HEAD + raw)


def _text(raw: bytes) -> str:
    checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")
