"""What a user may publish and subscribe to."""

from __future__ import annotations

from typing import Any

from tests.compat.bench import Bench
from tests.compat.raw import RawClient
from tests.compat.table import Group, Settings

PASSWORD = "p"
LIMITED = {
    "publish": {"allow": ["foo.>", "x"], "deny": ["foo.bad"]},
    "subscribe": {"allow": ["in.>", "q.* g*", "_INBOX.>"], "deny": ["in.no", "in.s.>"]},
}
ANSWERS: dict[str, Any] = {"subscribe": {"allow": ["req.>"]}}
MAPPINGS: dict[str, Any] = {
    "foo.to.bad": "foo.bad",
    "free.way": "foo.mapped",
    "foo.twice": "free.way",
    "foo.drawn": [{"destination": "foo.bad", "weight": "50%"}],
}
SETTINGS = Settings(
    "permissions",
    credentials={
        "users.json": {
            "accounts": {"$G": {"mappings": MAPPINGS}},
            "users": [
                {"user": "all", "password": PASSWORD},
                {"user": "limited", "password": PASSWORD, "permissions": LIMITED},
                {
                    "user": "answers",
                    "password": PASSWORD,
                    "permissions": {**ANSWERS, "responses": {"max": 2, "ttlMs": 60_000}},
                },
            ],
        }
    },
    nats={
        "mappings": MAPPINGS,
        "authorization": {
            "users": [
                {"user": "all", "password": PASSWORD},
                {"user": "limited", "password": PASSWORD, "permissions": LIMITED},
                {
                    "user": "answers",
                    "password": PASSWORD,
                    "permissions": {**ANSWERS, "allow_responses": {"max": 2, "expires": "1m"}},
                },
            ]
        },
    },
    login={"user": "all", "password": PASSWORD},
)
rows = Group("permissions", settings=SETTINGS)


async def as_user(b: Bench, user: str) -> RawClient:
    client = await b.raw(connect=False)
    await client.connect(**{"user": user, "pass": PASSWORD})
    return client


def refused(what: str, subject: str, queue: str = "") -> str:
    group = f' using queue "{queue}"' if queue else ""
    return f"-ERR 'Permissions Violation for {what} to \"{subject}\"{group}'"


@rows("publish_allowed", "a subject that a pattern of allow covers may be published to")
async def publish_allowed(b: Bench) -> None:
    every, limited = await as_user(b, "all"), await as_user(b, "limited")
    every.send("SUB foo.> 1\r\n")
    await every.ping()
    limited.send("PUB foo.ok 1\r\ny\r\n")
    await limited.ping()
    assert (await every.message()).subject == "foo.ok"


@rows("publish_not_allowed", "any other subject is refused with its name, and the connection stays")
async def publish_not_allowed(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("PUB bar 1\r\ny\r\n")
    await limited.expect(refused("Publish", "bar"))
    await limited.ping()


@rows("publish_denied", "a denied subject is refused though a pattern of allow covers it")
async def publish_denied(b: Bench) -> None:
    every, limited = await as_user(b, "all"), await as_user(b, "limited")
    every.send("SUB foo.> 1\r\n")
    await every.ping()
    limited.send("PUB foo.bad 1\r\ny\r\n")
    await limited.expect(refused("Publish", "foo.bad"))
    await every.ping()


@rows("publish_among_others", "of several publishes in one write only those that are allowed go through")
async def publish_among_others(b: Bench) -> None:
    every, limited = await as_user(b, "all"), await as_user(b, "limited")
    every.send("SUB > 1\r\n")
    await every.ping()
    limited.send("PUB foo.1 1\r\n1\r\nPUB bar 1\r\n2\r\nPUB foo.3 1\r\n3\r\n")
    await limited.expect(refused("Publish", "bar"))
    assert [(await every.message()).subject for _ in range(2)] == ["foo.1", "foo.3"]
    await every.ping()


@rows("subscribe_not_allowed", "a subscription that no pattern covers is refused")
async def subscribe_not_allowed(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("SUB out 1\r\n")
    await limited.expect(refused("Subscription", "out"))


@rows("subscribe_wider", "a subscription that is wider than what is allowed is refused")
async def subscribe_wider(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("SUB > 1\r\n")
    await limited.expect(refused("Subscription", ">"))


@rows("subscribe_denied", "a denied subject may not be subscribed to")
async def subscribe_denied(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("SUB in.no 1\r\nSUB in.s.x 2\r\n")
    await limited.expect(refused("Subscription", "in.no"), refused("Subscription", "in.s.x"))


@rows("deliver_denied", "a subscription with wildcards does not get what is denied")
async def deliver_denied(b: Bench) -> None:
    every, limited = await as_user(b, "all"), await as_user(b, "limited")
    limited.send("SUB in.> 1\r\n")
    await limited.ping()
    every.send("PUB in.no 1\r\ny\r\nPUB in.s.x 1\r\ny\r\nPUB in.a 1\r\ny\r\n")
    await every.ping()
    assert (await limited.message()).subject == "in.a"
    await limited.ping()


@rows("queue_allowed", "a pattern with a queue allows members of such groups")
async def queue_allowed(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("SUB q.1 g* 1\r\nSUB in.* whatever 2\r\n")
    await limited.ping()


@rows("queue_not_allowed", "members of other groups, and of none, are refused")
async def queue_not_allowed(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("SUB q.1 1\r\nSUB q.1 other 2\r\n")
    await limited.expect(refused("Subscription", "q.1"), refused("Subscription", "q.1", "other"))


@rows("responses", "who may answer publishes to the reply subjects that it was sent, so many times")
async def responses(b: Bench) -> None:
    every, answers = await as_user(b, "all"), await as_user(b, "answers")
    answers.send("SUB req.1 1\r\n")
    await answers.ping()
    every.send("SUB back 1\r\nPUB req.1 back 1\r\nq\r\n")
    assert (await answers.message()).reply == "back"
    answers.send("PUB back 1\r\n1\r\nPUB back 1\r\n2\r\nPUB back 1\r\n3\r\n")
    await answers.expect(refused("Publish", "back"))
    assert [(await every.message()).payload for _ in range(2)] == [b"1", b"2"]
    await every.ping()


@rows("responses_only", "who may only answer publishes nowhere else")
async def responses_only(b: Bench) -> None:
    answers = await as_user(b, "answers")
    answers.send("PUB back 1\r\n1\r\n")
    await answers.expect(refused("Publish", "back"))


@rows("mapping_to_denied", "a mapping is no way round what is denied")
async def mapping_to_denied(b: Bench) -> None:
    every, limited = await as_user(b, "all"), await as_user(b, "limited")
    every.send("SUB foo.> 1\r\n")
    await every.ping()
    limited.send("SUB in.box 1\r\nPUB foo.to.bad in.box 1\r\ny\r\n")
    await limited.expect(refused("Publish", "foo.bad"))
    await limited.ping()
    await every.ping()


@rows("mapping_to_allowed", "a subject that is mapped to what is allowed may be published to")
async def mapping_to_allowed(b: Bench) -> None:
    every, limited = await as_user(b, "all"), await as_user(b, "limited")
    every.send("SUB foo.> 1\r\n")
    await every.ping()
    limited.send("PUB free.way 1\r\ny\r\n")
    await limited.ping()
    assert (await every.message()).subject == "foo.mapped"


@rows(
    "mapping_once",
    "the subject of the first mapping is what counts: another one of that subject is not followed",
)
async def mapping_once(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("PUB foo.twice 1\r\ny\r\n")
    await limited.expect(refused("Publish", "free.way"))
    await limited.ping()


@rows("mapping_drawn", "each message counts by the destination that was drawn for it")
async def mapping_drawn(b: Bench) -> None:
    every, limited = await as_user(b, "all"), await as_user(b, "limited")
    every.send("SUB foo.> 1\r\n")
    await every.ping()
    limited.send("PUB foo.drawn 1\r\ny\r\n" * 64 + "PING\r\n")
    refusals = 0
    while (line := await limited.line()) != "PONG":
        assert line == refused("Publish", "foo.bad")
        refusals += 1
    assert 0 < refusals < 64
    subjects = [(await every.message()).subject for _ in range(64 - refusals)]
    assert set(subjects) == {"foo.drawn"}
    await every.ping()


@rows(
    "reserved_replies",
    "nobody asks for answers at subjects of servers' own: acknowledgements, imports, gateways",
)
async def reserved_replies(b: Bench) -> None:
    every = await as_user(b, "all")
    every.send("SUB asked 1\r\n")
    for reply in ("$JS.ACK.x", "_R_.x", "_R_.", "_GR_.x", "$GR.x"):
        every.send(f"PUB asked {reply} 1\r\ny\r\nHPUB asked {reply} 12 13\r\nNATS/1.0\r\n\r\ny\r\n")
        text = f"-ERR 'Permissions Violation for Publish with Reply of \"{reply}\"'"
        await every.expect(text, text)
    for reply in ("$JS.ACK.", "_R_", "_GR_.", "$JS.API.x", "$JS.FC.x"):
        every.send(f"PUB asked {reply} 1\r\ny\r\n")
        assert (await every.message()).reply == reply
    every.send("PUB out asked.not 1\r\ny\r\n")
    await every.ping()


@rows("reserved_reply_after_subject", "who may not publish there hears of that first")
async def reserved_reply_after_subject(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("PUB bar $JS.ACK.x 1\r\ny\r\n")
    await limited.expect(refused("Publish", "bar"))
    await limited.ping()


@rows("api", "the API is published to like any subject: without it there are no streams for the user")
async def api(b: Bench) -> None:
    limited = await as_user(b, "limited")
    limited.send("PUB $JS.API.INFO _INBOX.1 0\r\n\r\n")
    await limited.expect(refused("Publish", "$JS.API.INFO"))
