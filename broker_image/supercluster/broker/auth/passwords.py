"""Passwords as they are configured: plain, or hashed by bcrypt. Comparing a hash is slow on purpose."""

from __future__ import annotations

import hmac
import re

import bcrypt

COST_MAX = 16
"""2**16 rounds take some seconds; more would let one client keep the broker busy."""
PASSWORD_BYTES_MAX = 72
"""What bcrypt looks at; a longer one never fits, as in nats-server."""

_HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")


class PasswordError(ValueError):
    """A hash can't be used; the text never shows it."""


def is_hashed(configured: str) -> bool:
    """Does it look like a hash?"""
    return configured.startswith(("$2a$", "$2b$", "$2y$"))


def check_hash(configured: str) -> None:
    """
    Raises:
        PasswordError: it begins like a hash of bcrypt's, and is none.
    """
    if not is_hashed(configured):
        return
    found = _HASH.fullmatch(configured)
    if found is None:
        raise PasswordError("begins like a bcrypt hash and is none: 60 characters make one")
    if not 4 <= int(found[1]) <= COST_MAX:
        raise PasswordError(f"is a bcrypt hash of cost {int(found[1])}; it has to be from 4 to {COST_MAX}")


def fits(configured: str, given: str) -> bool:
    """Is it the password? Where `configured` is a hash, this takes long."""
    if not is_hashed(configured):
        return hmac.compare_digest(configured.encode(), given.encode())
    password = given.encode()
    return len(password) <= PASSWORD_BYTES_MAX and bcrypt.checkpw(password, configured.encode())
