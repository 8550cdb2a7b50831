"""The brokers' admin calls: any broker will do, each call may be repeated, refusals keep their words."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from tests.app.scripted import closed_port, serving

from supercluster.app.admin import OWN_TIMEOUT_S, BrokerAdmin
from supercluster.app.asking import OTHERS_S, SLOW_S
from supercluster.reconcilers.ports import BrokersRefusedError, BrokersUnreachableError, BrokerTarget

PATH = "/admin/streams/$G/flights/move"
NOT_FOUND = {"error": "stream not found", "err_code": 10059}
BUSY = {"error": "no leader", "err_code": 10008}
PLACEMENT = {"cluster": "west"}


class Broker:
    """A broker's monitoring port that answers as scripted."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.users: list[str] = []
        self.hosts: list[str] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.raw_path, body))
        self.hosts.append(request.host)
        self.users.append(base64.b64decode(request.headers["Authorization"].split()[1]).decode())
        status, answer = self.answers.pop(0)
        return web.json_response(answer, status=status)


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[Broker]:
    made = Broker()
    async with serving(made.handle) as made.url:
        yield made


@pytest_asyncio.fixture
async def admin() -> AsyncIterator[BrokerAdmin]:
    made = BrokerAdmin()
    yield made
    await made.close()


def target(*urls: str) -> BrokerTarget:
    return BrokerTarget("ns", "demo", (), "operator", "s3cret", urls)


@pytest.mark.covers("MV-13")
async def test_a_plan_is_a_dry_run_and_a_start_has_the_moves_identity(
    admin: BrokerAdmin, broker: Broker
) -> None:
    broker.answers = [(200, {"bytes": 5}), (200, {"id": "u1"})]
    assert await admin.plan_move(target(broker.url), "flights", {"placement": PLACEMENT}, 7) == {"bytes": 5}
    await admin.start_move(target(broker.url), "flights", "u1", {"replicas": 5}, 0, ("east-0",))
    assert broker.asked == [
        ("POST", PATH, {"placement": PLACEMENT, "bytesPerS": 7, "dryRun": True}),
        ("POST", PATH, {"id": "u1", "replicas": 5, "bytesPerS": 0, "dryRun": False, "nodes": ["east-0"]}),
    ]
    assert broker.users == ["operator:s3cret"] * 2


@pytest.mark.covers("MV-13")
async def test_all_moves_that_run_are_listed(admin: BrokerAdmin, broker: Broker) -> None:
    broker.answers = [(200, {"moves": [{"id": "a", "name": "s"}]})]
    assert await admin.running_moves(target(broker.url)) == [{"id": "a", "name": "s"}]
    assert broker.asked[0] == ("GET", "/admin/moves", None)
    broker.answers = [(503, BUSY)]
    with pytest.raises(BrokersUnreachableError, match="GET of the list of moves"):
        await admin.running_moves(target(broker.url))


async def test_a_broker_that_is_away_or_can_not_say_is_passed_over(
    admin: BrokerAdmin, broker: Broker
) -> None:
    broker.answers = [(503, BUSY), (200, {"move": None})]
    there = target("http://127.0.0.1:9", broker.url, broker.url)
    assert await admin.move_state(there, "flights") == {"move": None}
    assert len(broker.asked) == 2


async def test_lost_clusters_are_told_in_the_brokers_words(admin: BrokerAdmin, broker: Broker) -> None:
    broker.answers = [(200, {"brokers": [], "lostClusters": ["west is gone"]})]
    assert (await admin.brokers_state(target(broker.url)))["lostClusters"] == ["west is gone"]
    assert broker.asked[0] == ("GET", "/admin/brokers", None)


async def test_while_a_broker_is_away_the_one_that_knows_the_room_of_all_is_looked_for(
    admin: BrokerAdmin, broker: Broker
) -> None:
    away = {"brokers": [{"node": "a", "awaySinceNs": 7}], "knowsRoom": False}
    broker.answers = [(503, BUSY), (200, away), (200, {**away, "knowsRoom": True})]
    there = target("http://127.0.0.1:9", broker.url, broker.url, broker.url)
    assert (await admin.brokers_state(there))["knowsRoom"] is True
    broker.answers = [(200, away), (503, BUSY)]
    told = await admin.brokers_state(target(broker.url, broker.url))
    assert told == away, "else what anybody says"
    broker.answers = [(503, BUSY)]
    with pytest.raises(BrokersUnreachableError):
        await admin.brokers_state(target(broker.url))


@pytest.mark.covers("OP-6")
async def test_a_broker_that_stands_still_holds_up_a_question_for_a_moment_only(
    admin: BrokerAdmin, broker: Broker
) -> None:
    """It takes connections and answers nothing. The others say that they are out of contact with the map's leader."""
    loop = asyncio.get_running_loop()

    async def stand_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(stand_still, "127.0.0.1", 0) as server:
        still = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        there = target(still, still, broker.url)
        doubtful = {"brokers": [], "mapIsFresh": False, "mapUnreadMs": 4_000}
        broker.answers = [(200, doubtful), (200, {"moves": []}), (200, {})]
        began_s = loop.time()
        assert await admin.brokers_state(there) == doubtful
        assert await admin.running_moves(there) == []
        assert loop.time() - began_s < OWN_TIMEOUT_S + 2 * OTHERS_S
        began_s = loop.time()
        with pytest.raises(BrokersUnreachableError):
            await admin.restart_states(there)
        assert loop.time() - began_s < OWN_TIMEOUT_S + SLOW_S


@pytest.mark.covers("MR-4")
async def test_the_broker_that_knew_the_room_of_all_is_asked_first_the_next_time(
    admin: BrokerAdmin, broker: Broker
) -> None:
    away = {"brokers": [{"node": "a", "awaySinceNs": 7}], "knowsRoom": False}
    knows = {**away, "knowsRoom": True}
    broker.answers = [(200, away), (200, knows)]
    # Two names for one server, so that it is seen who was asked.
    first, second = broker.url, broker.url.replace("127.0.0.1", "localhost")
    assert await admin.brokers_state(target(first, second)) == knows
    broker.answers = [(200, knows)]
    assert await admin.brokers_state(target(first, second)) == knows
    assert [host.partition(":")[0] for host in broker.hosts] == ["127.0.0.1", "localhost", "localhost"]


async def test_when_no_broker_can_say_the_error_names_each(admin: BrokerAdmin, broker: Broker) -> None:
    broker.answers = [(503, BUSY), (200, ["no object"])]
    with pytest.raises(BrokersUnreachableError, match=r"no leader.*no JSON object"):
        await admin.move_state(target(broker.url, broker.url), "flights")
    with pytest.raises(BrokersUnreachableError, match="no broker is ready"):
        await admin.move_state(target(), "flights")


async def test_a_refusal_is_not_asked_for_twice(admin: BrokerAdmin, broker: Broker) -> None:
    words = "no suitable peers for placement"
    broker.answers = [(409, {"error": words, "err_code": 10005})]
    with pytest.raises(BrokersRefusedError, match=words) as caught:
        await admin.start_move(target(broker.url, broker.url), "flights", "u1", PLACEMENT, 0)
    assert (caught.value.code, caught.value.err_code) == (409, 10005)


@pytest.mark.covers("OP-4")
@pytest.mark.parametrize(
    ("state", "deleted"),
    [
        ({"move": {"id": "u1"}}, True),
        ({"move": {"id": "u1", "cancelled": True}}, False),
        ({"move": {"id": "another"}}, False),
        ({"move": None, "lastMove": {"id": "u1"}}, False),
    ],
)
async def test_only_this_very_move_is_called_off_and_only_once(
    admin: BrokerAdmin, broker: Broker, state: dict[str, Any], deleted: bool
) -> None:
    broker.answers = [(200, state), (404, NOT_FOUND)]
    await admin.cancel_move(target(broker.url), "flights", "u1")
    asked = [("GET", PATH), ("DELETE", f"{PATH}?id=u1")] if deleted else [("GET", PATH)]
    assert [(method, path) for method, path, _ in broker.asked] == asked


async def test_a_move_that_ended_while_it_was_called_off_is_none_to_call_off(
    admin: BrokerAdmin, broker: Broker
) -> None:
    another = {"error": "stream move not in progress: u1 does not run, u2 does", "err_code": 10129}
    broker.answers = [(200, {"move": {"id": "u1"}}), (409, another)]
    await admin.cancel_move(target(broker.url), "flights", "u1")
    assert broker.answers == []


async def test_a_cancel_that_is_too_late_says_so(admin: BrokerAdmin, broker: Broker) -> None:
    late = {"error": "leaving was appended", "err_code": 19010}
    broker.answers = [(200, {"move": {"id": "u1"}}), (409, late)]
    with pytest.raises(BrokersRefusedError, match="leaving was appended"):
        await admin.cancel_move(target(broker.url), "flights", "u1")


@pytest.mark.covers("OP-5")
async def test_a_broker_is_said_to_leave(admin: BrokerAdmin, broker: Broker) -> None:
    broker.answers = [(200, {})]
    await admin.leave_broker(target(broker.url), "west-1", "demo/west")
    assert broker.asked == [("DELETE", "/admin/brokers/west-1", {"declaredBy": "demo/west"})]


@pytest.mark.covers("OP-1")
async def test_accounts_are_listed_declared_and_withdrawn(admin: BrokerAdmin, broker: Broker) -> None:
    broker.answers = [(200, {"accounts": [{"account": "$G"}]}), (200, {}), (200, {})]
    assert await admin.accounts(target(broker.url)) == [{"account": "$G"}]
    await admin.set_account(target(broker.url), "$G", {"streamsMax": 2})
    await admin.set_account(target(broker.url), "shop.eu", None)
    assert [(method, path.replace("%24", "$"), body) for method, path, body in broker.asked] == [
        ("GET", "/admin/accounts", None),
        ("PUT", "/admin/accounts/$G", {"streamsMax": 2}),
        ("DELETE", "/admin/accounts/shop.eu", None),
    ]
    broker.answers = [(404, {"error": "GET /admin/accounts is not known"})]
    with pytest.raises(BrokersRefusedError, match="is not known"):
        await admin.accounts(target(broker.url))


@pytest.mark.covers("OP-3")
async def test_all_brokers_are_asked_before_a_restart_and_the_one_is_told(
    admin: BrokerAdmin, broker: Broker
) -> None:
    """One that does not answer may lead what is not whole."""
    other = Broker()
    other.answers = [(200, {"leads": 0})] * 2
    broker.answers = [(200, {"leads": 2}), (200, {"leads": 2}), (202, {"movable": 1})]
    async with closed_port() as silent, serving(other.handle) as other.url:
        both = replace(target(broker.url, other.url), brokers=("east-0", "east-1"))
        assert await admin.restart_states(both) == {"east-0": {"leads": 2}, "east-1": {"leads": 0}}
        with pytest.raises(BrokersUnreachableError):
            await admin.restart_states(replace(target(broker.url, silent), brokers=("east-0", "east-1")))
        await admin.hand_over(both, "east-0", ("east-1",), 60_000)
        with pytest.raises(BrokersUnreachableError, match="east-7 is not ready"):
            await admin.hand_over(both, "east-7", (), 60_000)
    assert broker.asked[-1] == ("POST", "/admin/restart", {"avoid": ["east-1"], "holdMs": 60_000})


MIGRATION = "/admin/migrations/ns%2Fover%2Fu"


@pytest.mark.covers("BG-9")
async def test_a_migration_is_asked_for_by_its_escaped_name(admin: BrokerAdmin, broker: Broker) -> None:
    to, body = target(broker.url), {"id": "ns/over/u", "account": ""}
    broker.answers = [
        (200, {"identity": "i"}),
        (200, {}),
        (202, {}),
        (200, {"final": False}),
        (202, {}),
        (202, {}),
    ]
    assert await admin.identity(to) == {"identity": "i"}
    await admin.preflight_migration(to, body)
    await admin.start_migration(to, body)
    assert await admin.migration_state(to, "ns/over/u") == {"final": False}
    await admin.abort_migration(to, "ns/over/u")
    await admin.finalize_migration(to, "ns/over/u")
    assert broker.asked == [
        ("GET", "/admin/identity", None),
        ("POST", "/admin/migrations/preflight", body),
        ("POST", "/admin/migrations", body),
        ("GET", MIGRATION, None),
        ("POST", f"{MIGRATION}/abort", {}),
        ("POST", f"{MIGRATION}/finalize", {}),
    ]


async def test_only_the_brokers_own_word_says_that_they_do_not_know_a_migration(
    admin: BrokerAdmin, broker: Broker
) -> None:
    """Another server, as behind a proxy's address, answers 404 too."""
    broker.answers = [(404, {"error": "no migration", "err_code": 19023}), (404, {"error": "not found"})]
    assert await admin.migration_state(target(broker.url), "ns/over/u") is None
    with pytest.raises(BrokersRefusedError, match="not found"):
        await admin.migration_state(target(broker.url), "ns/over/u")


async def test_the_streams_of_a_migration_come_in_pages(admin: BrokerAdmin, broker: Broker) -> None:
    pages = [{"streams": [{"name": "a"}], "more": 1, "after": "$G/a"}, {"streams": [{"name": "b"}]}]
    broker.answers = [*((200, page) for page in pages), (404, {"error": "no migration", "err_code": 19023})]
    found = await admin.migration_streams(target(broker.url), "ns/over/u")
    assert [each["name"] for each in found] == ["a", "b"]
    assert broker.asked[1][1] == f"{MIGRATION}/streams?after=$G/a"
    assert await admin.migration_streams(target(broker.url), "ns/over/u") == [], "nothing of it came there"


async def test_a_list_that_does_not_go_on_ends(admin: BrokerAdmin, broker: Broker) -> None:
    broker.answers = [(200, {"streams": [], "more": 1, "after": "$G/a"})] * 2
    assert await admin.migration_streams(target(broker.url), "ns/over/u") == []


async def test_streams_that_were_handed_are_those_of_the_operator_s_account(
    admin: BrokerAdmin, broker: Broker
) -> None:
    handed = {"account": "$G", "name": "a", "stage": "open"}
    broker.answers = [
        (200, {"streams": [handed, {"account": "B", "name": "b"}]}),
        (404, {"error": "no such call"}),
    ]
    assert await admin.handed_streams(target(broker.url)) == {"a": handed}
    assert await admin.handed_streams(target(broker.url)) == {}, "brokers of before migrations"


@pytest.mark.covers("SF-30")
async def test_credentials_follow_no_redirect(admin: BrokerAdmin, broker: Broker) -> None:
    elsewhere: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        elsewhere.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(f"{away}/admin/identity")

    async with serving(handle) as away, serving(redirect) as url:
        with pytest.raises(BrokersUnreachableError, match="no JSON object"):
            await admin.identity(target(url))
    assert elsewhere == []


async def test_authorities_that_can_not_be_read_are_named(admin: BrokerAdmin) -> None:
    to = replace(target("https://127.0.0.1:1"), ca="no certificate")
    with pytest.raises(BrokersUnreachableError, match="caSecret"):
        await admin.identity(to)
