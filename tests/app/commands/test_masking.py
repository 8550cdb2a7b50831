"""What is secret is masked wherever it stands, and what is not stays readable."""

from __future__ import annotations

import base64
import json
import random
import time
from typing import Any
from urllib.parse import quote

import pytest

from supercluster.app.commands.masking import MASK, Masker, values_of

HUSH = 'hush-hush "quoted" é'
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP-mB92K_27uhbUJU1p1r"


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
        ("AccountName=a;AccountKey=hush/hush==;End=b", f"AccountName=a;AccountKey={MASK};End=b"),
        ("https://a.example/b?sv=1&sig=hush%2B&se=2", f"https://a.example/b?sv=1&sig={MASK}&se=2"),
        ("?sig=hush and X-Amz-Signature=hush", f"?sig={MASK} and X-Amz-Signature={MASK}"),
        ("/b?Signature=hush&a=1", f"/b?Signature={MASK}&a=1"),
        ("access_key=hush, fs.s3a.access.key: hush", f"access_key={MASK}, fs.s3a.access.key: {MASK}"),
        (f"with {JWT}, no more", f"with {MASK}, no more"),
        ('{"credentials": "hush hush"}', f'{{"credentials": "{MASK}"}}'),
        ("--access-key hush --level debug", f"--access-key {MASK} --level debug"),
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


@pytest.mark.parametrize(
    "key",
    [
        *("spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "fs.azure.account.key.x"),
        *("ci-secret", "clientSecret", "client-secret", "credentials", "authorization", "Authorization"),
        *("auth", "accessKey", "aws_access_key_id", "secretName.password"),
    ],
)
def test_text_under_a_key_that_says_it_is_secret_is_masked(key: str) -> None:
    assert Masker().value({"a": {key: "hush"}}) == {"a": {key: MASK}}


def test_references_to_secrets_by_name_stay() -> None:
    body: Any = {
        "volumes": [{"secret": {"secretName": "demo"}}],
        "envFrom": [{"secretRef": {"name": "demo"}}],
        "env": [{"valueFrom": {"secretKeyRef": {"name": "demo", "key": "word"}}}],
        "imagePullSecrets": [{"name": "demo"}],
        "pullSecrets": ["demo"],
        "tokenSecretName": "demo",
        "client_secret_name": "demo",
        "spark.kubernetes.driver.secretKeyRef.LEVEL": "demo:level",
        "topologyKey": "zone",
        "authentication": "NKey",
        "credential": 3,
    }
    assert Masker().value(body) == body


def test_the_item_behind_an_option_that_says_it_is_secret_is_masked() -> None:
    given = ["--access-key", "AAA", "--client-credential", "BBB", "--key-file", "a"]
    assert Masker().value(given) == ["--access-key", MASK, "--client-credential", MASK, "--key-file", "a"]


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


def test_an_address_in_a_secret_is_public_only_if_it_is_that_of_brokers_without_a_login() -> None:
    hook, login = "https://hooks.example/services/T0/hush", "nats://app:hush@east:4222"
    known = secret(webhook_url=hook, broker_url=login, url="nats://east:4222", urls="nats://a:1,nats://b:2")
    inner = secret(**{"settings.json": json.dumps({"hook_url": f"{hook}/json", "url": "nats://east:4222"})})
    assert sorted(values_of([known, inner])) == sorted([hook, login, f"{hook}/json"])


def test_each_line_of_a_value_and_what_its_properties_say_is_secret_are_masked() -> None:
    text = "mode=fast\ndb.password = hush-hush\n'apiKey': \"hush-quoted\"\nhook.url=https://a.example/hush\nHUSHLINE=\nshort\n"
    masker = Masker(values_of([secret(settings=text)]))
    for found in ("mode=fast", "hush-hush", "hush-quoted", "https://a.example/hush", "HUSHLINE="):
        assert masker.text(f"a {found} b") == f"a {MASK} b"
    assert masker.text("short fast") == "short fast"


def test_lines_of_a_long_value_are_masked_and_a_release_is_left_out() -> None:
    lines = [f"line-{number:05}" for number in range(2_000)]
    assert set(values_of([secret(settings="\n".join(lines), release="x" * 100_000)])) == set(lines)


def test_a_line_that_announces_a_value_stays_so_that_the_value_of_another_is_found() -> None:
    """Were `password:` or the first line of a private key masked as a line of a Secret, nothing would tell what follows it."""
    masker = Masker(values_of([secret(key=PEM, settings="password:\n  hush-hush\ntoken: |\n  more-hush\n")]))
    other = PEM.replace("MHcCAQEE", "OTHER")
    assert masker.text(f"password: other and {other}") == f"password: {MASK} and {MASK}"


def test_many_known_values_are_looked_for_in_no_time() -> None:
    """As many as the lines of private keys of a busy namespace."""
    values = [base64.b64encode(random.Random(number).randbytes(48)).decode() for number in range(2_000)]
    text = base64.b64encode(random.Random("text").randbytes(3_000_000)).decode()
    masker = Masker(values)
    before = time.process_time()
    assert masker.text(f"{text} {values[-1]}") == f"{text} {MASK}"
    assert time.process_time() - before < 10


def test_a_long_line_is_masked_in_no_time() -> None:
    """Each pattern looks at a bounded number of characters from each place."""
    before = time.process_time()
    text = "x" * 4_000_000
    assert Masker().text(text) == text
    assert time.process_time() - before < 10
