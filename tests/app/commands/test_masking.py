"""What is secret is masked wherever it stands, and what is not stays readable."""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from urllib.parse import quote

import pytest

from supercluster.app.commands.masking import MASK, Masker, values_of

HUSH = 'hush-hush "quoted" é'
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("to nats://app:hush@east-0:4222 now", f"to nats://{MASK}@east-0:4222 now"),
        ("nats://a:4222,nats://app:hush@b:4222", f"nats://a:4222,nats://{MASK}@b:4222"),
        ("https://token@host/path@2", f"https://{MASK}@host/path@2"),
        ("password=hush next", f"password={MASK} next"),
        ("DB_PASSWORD: hush", f"DB_PASSWORD: {MASK}"),
        ('{"clientSecret": "hush \\" hush", "a": 1}', f'{{"clientSecret": "{MASK}", "a": 1}}'),
        ('"{\\"password\\": \\"hush\\", \\"a\\": 1}"', f'"{{\\"password\\": \\"{MASK}\\", \\"a\\": 1}}"'),
        ("--api-token 'hush hush'", f"--api-token {MASK}"),
        ("Authorization: Basic b3BlcmF0b3I6aHVzaA==", f"Authorization: Basic {MASK}"),
        ('{"password": "hush hush', f'{{"password": "{MASK}"'),
        (f"key {PEM} end", f"key {MASK} end"),
        (f"seed {SEED}.", f"seed {MASK}."),
    ],
)
def test_what_looks_like_a_secret_is_masked_in_text(text: str, masked: str) -> None:
    assert Masker().text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "Secret demo-client is missing; brokers accept credential 3 of shop",
        "http://127.0.0.1:8222/varz: broker east-0 has 12 connections at 5@6",
        "the public key UACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3V",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Masker().text(text) == text


def test_objects_lose_values_of_secret_variables_options_and_keys_and_copies_of_themselves() -> None:
    body: Any = {
        "metadata": {
            "name": "east-0",
            "managedFields": [1],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hush", "a": "b"},
        },
        "spec": {
            "env": [
                {"name": "AWS_SECRET_ACCESS_KEY", "value": "hush"},
                {"name": "LEVEL", "value": "debug"},
                {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "word"}}},
            ],
            "args": ["--password", "hush", "--token=hush", "--level", "debug"],
            "authentication": {"passwords": ["hush"], "passwordFrom": {"name": "mine"}},
            "automountServiceAccountToken": False,
        },
    }
    assert Masker().value(body) == {
        "metadata": {"name": "east-0", "annotations": {"a": "b"}},
        "spec": {
            "env": [
                {"name": "AWS_SECRET_ACCESS_KEY", "value": MASK},
                {"name": "LEVEL", "value": "debug"},
                {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "word"}}},
            ],
            "args": ["--password", MASK, f"--token={MASK}", "--level", "debug"],
            "authentication": {"passwords": [MASK], "passwordFrom": {"name": "mine"}},
            "automountServiceAccountToken": False,
        },
    }


def secret(**data: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}


def test_values_of_secrets_are_masked_wherever_they_stand_in_whatever_form() -> None:
    users = {"users": [{"user": "application", "password": "from-users-json", "account": "ORDERS"}]}
    known = [
        secret(word=HUSH, username="application", **{"ca.crt": "certificate", "urls": "nats://east:4222"}),
        secret(**{"users.json": json.dumps(users)}),
        {},
    ]
    assert sorted(values_of(known)) == sorted([HUSH, "from-users-json"])
    masker = Masker(values_of(known))
    assert masker.text(f"a {HUSH} b from-users-json c application") == f"a {MASK} b {MASK} c application"
    assert HUSH not in masker.text(HUSH)
    assert masker.text(json.dumps({"a": HUSH})) == json.dumps({"a": MASK})
    assert masker.text(f"/{quote(HUSH)}") == f"/{MASK}"
    assert masker.text(base64.b64encode(HUSH.encode()).decode()).rstrip("=") == MASK
    assert masker.value({"a": [HUSH]}) == {"a": [MASK]}


def test_a_long_line_is_masked_in_no_time() -> None:
    """Each pattern looks at a bounded number of characters from each place."""
    before = time.process_time()
    text = "x" * 4_000_000
    assert Masker().text(text) == text
    assert time.process_time() - before < 10
