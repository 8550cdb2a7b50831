"""Tokens that nobody was given are nobody's, whatever they are made of."""

from __future__ import annotations

import base64

import pytest

from supercluster.localplane.apiserver.auth.identities import ADMINISTRATOR, Identities
from supercluster.localplane.apiserver.storage.store import Store


@pytest.mark.parametrize(
    "token",
    ["", "é", "a.b", "..", "a.b.c", "x" * 100_000, f"a.{base64.urlsafe_b64encode(b'[' * 90_000).decode()}.c"],
)
def test_a_token_of_nobody_is_refused_without_a_fault(token: str) -> None:
    identities = Identities(Store(None), "secret")
    assert identities.user(token, 0) is None
    assert identities.user("secret", 0) is ADMINISTRATOR
