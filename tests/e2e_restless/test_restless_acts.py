"""What people do is what the conditions tell them to."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from e2e.restless import acts
from e2e.restless.acts import ACTS, USER, USERS_SECRET, Hands
from e2e.restless.asked import Asked
from e2e.restless.plan import Act


@dataclass
class Site:
    """A User whose Secret is patched; `reason` is that of its condition then."""

    reason: str
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def get(self, target: str) -> dict[str, Any]:
        if target == USER:
            return {"status": {"conditions": [{"type": "Ready", "reason": self.reason}]}}
        return {"data": {"password": base64.b64encode(b"words").decode()}}

    def kubectl(self, *arguments: str) -> None:
        self.calls.append(arguments)


@pytest.mark.parametrize(
    ("edit", "reason", "deletes"),
    [
        ("missing", "CredentialsUnreadable", True),
        ("missing", "Ready", False),
        ("other", "CredentialsUnreadable", False),
    ],
)
def test_a_users_secret_without_password_is_deleted_when_its_condition_says_so(
    monkeypatch: pytest.MonkeyPatch, edit: str, reason: str, *, deletes: bool
) -> None:
    monkeypatch.setattr(acts, "ADVICE_SECONDS", 0.05)
    monkeypatch.setattr(acts, "POLL_SECONDS", 0.01)
    site, asked = Site(reason), Asked()
    hands = Hands(cast("Any", site), cast("Any", None), asked, {}, {})
    ACTS["secret"](hands, Act(1, 0.0, "secret", USERS_SECRET, {"edit": edit}))
    assert [call[0] for call in site.calls] == ["patch", *["delete"] * deletes]
    assert asked.deleted[USERS_SECRET] == deletes
