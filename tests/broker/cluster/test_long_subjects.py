"""Subjects that get longer on their way to another account than any link, log or snapshot has room for (SF-24)."""

from __future__ import annotations

import pytest
from nats.errors import NoRespondersError
from tests.support.local_clusters import Fleet, until

LONG = "x" * 900
ACCOUNTS = {
    "A": {"exports": [{"service": f"{LONG}.*"}, {"stream": "news.*"}]},
    "B": {
        "imports": [
            {"service": {"account": "A", "subject": f"{LONG}.*"}, "to": "ask.*"},
            {"stream": {"account": "A", "subject": "news.*"}, "to": f"{LONG}.*"},
        ]
    },
}
USERS = {"users": [{"user": name, "password": "p", "account": name} for name in "AB"], "accounts": ACCOUNTS}


@pytest.mark.covers("SF-24")
async def test_a_name_that_grows_too_long_by_an_import_reaches_nobody_and_is_stored_nowhere(
    fleet: Fleet,
) -> None:
    """The asker's connection ended with a traceback, and a stream's snapshot could not be written any more."""
    limits = {"maxControlLineBytes": 65_535}
    one, two = await fleet.start(2, credentials={"users.json": USERS}, limits=limits, metaVoters=["east-0"])
    responder = await fleet.client(two, user="A", password="p")
    asked: list[str] = []

    async def answer(message: object) -> None:
        asked.append(getattr(message, "subject", ""))
        await responder.publish(getattr(message, "reply", ""), b"yes")

    await responder.subscribe(f"{LONG}.*", cb=answer)
    await responder.flush()
    asker = await fleet.client(one, user="B", password="p", allow_reconnect=False)

    async def is_answered() -> bool:
        try:
            return (await asker.request("ask.short", timeout=10)).data == b"yes"
        except NoRespondersError:
            return False

    await until(is_answered, "the responder's interest")
    with pytest.raises(NoRespondersError):
        await asker.request("ask." + "y" * 65_000, timeout=10)
    assert asker.is_connected
    js = asker.jetstream(timeout=10)
    await js.add_stream(name="S", subjects=[f"{LONG}.>"])
    publisher = await fleet.client(one, user="A", password="p")
    for last in ("y" * 65_000, "short"):
        await publisher.publish(f"news.{last}", b"n")

    async def is_stored() -> bool:
        return (await js.stream_info("S")).state.messages > 0

    await until(is_stored, "the short one")
    one.kill()
    one.start()
    await fleet.ready()
    again = (await fleet.client(one, user="B", password="p")).jetstream(timeout=10)
    assert (await again.get_msg("S", 1)).subject == f"{LONG}.short"
    assert (await again.stream_info("S")).state.messages == 1
    assert not [broker.name for broker in (one, two) if "Traceback" in broker.log()]
