"""Users by nkey, and passwords that are hashed by bcrypt."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import Group, Settings
from tests.support.nkeys import Nkey

ALICE, BOB, EVE = Nkey(1), Nkey(2), Nkey(3)
REFUSED = "-ERR 'Authorization Violation'"
USERS: list[dict[str, Any]] = [
    {"user": "all", "password": "p"},
    {"nkey": ALICE.public},
    {"nkey": BOB.public, "permissions": {"publish": {"allow": ["b"]}}},
]
SETTINGS = Settings(
    "nkeys",
    credentials={"users.json": {"users": USERS}},
    nats={"authorization": {"users": USERS}},
    login={"user": "all", "password": "p"},
)
rows = Group("nkeys", settings=SETTINGS)


async def answer(b: Bench, **options: Any) -> str:
    """What comes of a CONNECT; `key` signs the nonce."""
    client = await b.raw(connect=False)
    key = options.pop("key", None)
    if isinstance(key, Nkey):
        options = {**key.connect(client.info["nonce"]), **options}
    client.send_connect(**options)
    client.send("PING\r\n")
    return await client.line()


@rows("nonce", "INFO has a nonce, another one for every connection")
async def nonce(b: Bench) -> None:
    found = [(await b.raw(connect=False)).info for _ in range(2)]
    assert all(info["auth_required"] is True and len(info["nonce"]) >= 11 for info in found)
    assert found[0]["nonce"] != found[1]["nonce"]


@rows("signed", "who signs the nonce with a user's key is that user")
async def signed(b: Bench) -> None:
    assert await answer(b, key=ALICE) == "PONG"


@rows("permissions", "and has that user's permissions")
async def permissions(b: Bench) -> None:
    client = await b.raw(connect=False)
    await client.connect(**BOB.connect(client.info["nonce"]))
    client.send("PUB b 0\r\n\r\nPUB a 0\r\n\r\n")
    await client.expect("-ERR 'Permissions Violation for Publish to \"a\"'")


@rows("password", "others come by name and password")
async def password(b: Bench) -> None:
    assert await answer(b, **{"user": "all", "pass": "p"}) == "PONG"


@rows("unknown", "a key that is no user's is refused")
async def unknown(b: Bench) -> None:
    assert await answer(b, key=EVE) == REFUSED


@rows("other_key", "a signature of another key is refused")
async def other_key(b: Bench) -> None:
    client = await b.raw(connect=False)
    client.send_connect(nkey=ALICE.public, sig=EVE.sign(client.info["nonce"]))
    await client.expect(REFUSED, "")


@rows("other_nonce", "a signature of another connection's nonce is refused")
async def other_nonce(b: Bench) -> None:
    first = await b.raw(connect=False)
    second = await b.raw(connect=False)
    second.send_connect(**ALICE.connect(first.info["nonce"]))
    await second.expect(REFUSED, "")


def _refused(name: str, title: str, **options: Any) -> None:
    @rows(f"refused.{name}", title)
    async def refused(b: Bench) -> None:
        assert await answer(b, **options) == REFUSED


_refused("none", "a key without a signature is refused", nkey=ALICE.public)
_refused("no_base64", "a signature that is none is refused", nkey=ALICE.public, sig="!!")
_refused("no_key", "a key that is none is refused", nkey="UX", sig="!!")
_refused("seed", "a seed is no key", nkey=ALICE.seed, sig="!!")
_refused("nothing", "who shows nothing is refused")
_refused("jwt", "who shows a JWT alone is refused: there are no accounts by JWT", jwt="eyJ0", sig="x")
_refused(
    "beside_password",
    "who names a key has to be that key's user, whatever the password",
    nkey=EVE.public,
    sig="x",
    **{"user": "all", "pass": "p"},
)


@rows("jwt_and_password", "a JWT beside a user's password is passed over")
async def jwt_and_password(b: Bench) -> None:
    assert await answer(b, jwt="eyJ0", **{"user": "all", "pass": "p"}) == "PONG"


@rows("jwt_and_nkey", "a JWT beside a user's key is passed over")
async def jwt_and_nkey(b: Bench) -> None:
    assert await answer(b, key=ALICE, jwt="eyJ0") == "PONG"


HASH = "$2a$04$FHxS9YPi/Yu8a7Ut.5afLuRYxPp6IDgTjjLsxuElMd/ZQBDYwOd66"
"""Of s3cret, by bcrypt with the least cost there is."""
HASHED_USERS: list[dict[str, Any]] = [
    {"user": "hashed", "password": HASH},
    {"user": "plain", "password": "p"},
]
HASHED = Settings(
    "hashed",
    credentials={"users.json": {"users": HASHED_USERS}},
    nats={"authorization": {"users": HASHED_USERS}},
    login={"user": "plain", "password": "p"},
)
TOKEN = Settings(
    "hashed-token",
    credentials={"users.json": {"users": [{"token": HASH}]}},
    nats={"authorization": {"token": HASH}},
    login={"token": "s3cret"},
)
hashes = Group("passwords", settings=HASHED)


@hashes("hashed", "the password of a hash that is configured lets in")
async def hashed(b: Bench) -> None:
    assert await answer(b, **{"user": "hashed", "pass": "s3cret"}) == "PONG"


@hashes("plain", "beside it passwords may be plain")
async def plain(b: Bench) -> None:
    assert await answer(b, **{"user": "plain", "pass": "p"}) == "PONG"


@hashes("no_nonce", "without users by nkey INFO has no nonce")
async def no_nonce(b: Bench) -> None:
    assert "nonce" not in (await b.raw(connect=False)).info


@hashes("order", "what comes behind such a CONNECT is carried out behind it, in order")
async def order(b: Bench) -> None:
    client, subject = await b.raw(connect=False), b.subject()
    client.send_connect(verbose=True, **{"user": "hashed", "pass": "s3cret"})
    client.send(f"SUB {subject} 1\r\nPUB {subject} 1\r\n1\r\n")
    client.send(f"PUB {subject} 1\r\n2\r\nPING\r\n")
    lines = [await client.line() for _ in range(9)]
    assert [line for line in lines if line != "+OK"] == [
        f"MSG {subject} 1 1",
        "1",
        f"MSG {subject} 1 1",
        "2",
        "PONG",
    ]


@hashes("nothing_before", "nothing of a client is carried out whose password is wrong")
async def nothing_before(b: Bench) -> None:
    client, subject, other = await b.raw(connect=False), b.subject(), await b.connect()
    heard = await b.subscribe(subject, nc=other)
    client.send_connect(**{"user": "hashed", "pass": "wrong"})
    client.send(f"PUB {subject} 1\r\n1\r\n")
    await client.expect(REFUSED, "")
    await other.publish(subject, b"2")
    assert (await heard.next_msg(timeout=5)).data == b"2"


def _wrong(name: str, title: str, **options: Any) -> None:
    @hashes(f"refused.{name}", title)
    async def refused(b: Bench) -> None:
        assert await answer(b, **options) == REFUSED


_wrong("wrong", "another password does not", **{"user": "hashed", "pass": "secret"})
_wrong("hash", "nor does the hash itself", **{"user": "hashed", "pass": HASH})
_wrong("empty", "nor none", user="hashed")
_wrong("long", "nor one of more than 72 bytes", **{"user": "hashed", "pass": "s3cret" * 20})


@hashes("token", "a token may be hashed as well", settings=TOKEN)
async def token(b: Bench) -> None:
    assert await answer(b, auth_token="s3cret") == "PONG"
    assert await answer(b, auth_token="secret") == REFUSED
