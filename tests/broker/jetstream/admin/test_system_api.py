"""Calls of JetStream's API that concern all accounts: who may make them, and what becomes of brokers and streams."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from tests.broker.jetstream.stream.test_step_down import CLIENT, Story

from supercluster.broker.jetstream.admin import system_api
from supercluster.broker.jetstream.api.requests import AccountPurgeRequest
from supercluster.broker.jetstream.config.metadata_keys import RESOURCE_KEY
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.ports import ClientInfo

SYSTEM = ClientInfo("$SYS", "sys", is_operator=False, is_system=True)
OTHER = ClientInfo("OTHER", "other", is_operator=False)


def streams(story: Story, at: int = 0) -> set[tuple[str, str]]:
    meta = story.cores[at].meta
    assert meta is not None
    return set(meta.state.streams)


def wait(story: Story, condition: Callable[[], bool]) -> None:
    assert story.world.run_until(condition, 10_000)


def make(story: Story, count: int, info: ClientInfo = CLIENT) -> None:
    for number in range(count):
        name = f"{info.account.strip('$')}{number}"
        found = story.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]}, info=info)
        assert "error" not in found, found


@pytest.mark.parametrize("call", ["ACCOUNT.PURGE.$G", "SERVER.REMOVE", "META.LEADER.STEPDOWN"])
def test_clients_of_other_accounts_may_not_call_it(call: str) -> None:
    story = Story()
    refused = story.ask(call, {"peer": "b"}, info=CLIENT)["error"]
    assert refused["err_code"] == 19002
    assert call in refused["description"]
    assert streams(story) == {("$G", "S")}


def test_the_system_account_may_have_the_map_led_by_another() -> None:
    story = Story()
    before = story.leader(META_GROUP).node
    assert story.ask("META.LEADER.STEPDOWN", info=SYSTEM)["success"] is True
    wait(story, lambda: story.leader(META_GROUP).node != before)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_all_streams_of_an_account_go_and_no_others(at: int) -> None:
    story = Story()
    make(story, 2 * system_api.CALLS_AT_ONCE)
    make(story, 1, OTHER)
    found = story.ask("ACCOUNT.PURGE.$G", at=at, info=SYSTEM)
    assert found == {"type": "io.nats.jetstream.api.v1.account_purge_response", "initiated": True}
    assert story.ask("ACCOUNT.PURGE.$G", at=at, info=SYSTEM)["initiated"] is True, "it goes on"
    wait(story, lambda: all(streams(story, core) == {("OTHER", "OTHER0")} for core in range(3)))
    assert story.ask("ACCOUNT.PURGE.$G", at=at, info=SYSTEM)["initiated"] is True, "nothing is left"
    assert story.ask("ACCOUNT.PURGE.nobody", at=at, info=SYSTEM)["initiated"] is True
    make(story, 1)
    assert ("$G", "G0") in streams(story)


@pytest.mark.covers("SF-23")
def test_an_account_with_a_declared_stream_is_purged_by_the_operator_alone() -> None:
    story = Story()
    declared = {"name": "D", "subjects": ["d"], "metadata": {RESOURCE_KEY: "ns/d"}}
    story.ok("STREAM.CREATE.D", declared)
    refused = story.ask("ACCOUNT.PURGE.$G", info=SYSTEM)["error"]
    assert refused["err_code"] == 19001
    assert "ns/d" in refused["description"]
    assert streams(story) == {("$G", "S"), ("$G", "D")}, "nothing was begun"
    assert story.ask("ACCOUNT.PURGE.$G")["initiated"] is True
    wait(story, lambda: not streams(story))


def test_a_purge_goes_on_when_the_leader_of_the_map_steps_down() -> None:
    story = Story()
    make(story, 40)
    assert story.ask("ACCOUNT.PURGE.$G", info=SYSTEM)["initiated"] is True
    assert story.ask("META.LEADER.STEPDOWN", info=SYSTEM)["success"] is True
    wait(story, lambda: not streams(story))


@pytest.mark.parametrize("is_new", [True, False])
def test_a_stream_that_was_made_since_a_leader_fell_is_not_purged(*, is_new: bool) -> None:
    story = Story()
    make(story, 1)
    core, asked = story.cores[0], list[Callable[[bytes | None], None]]()

    def send(*request: object, on_answer: Callable[[bytes | None], None]) -> None:
        asked.append(on_answer)

    core.system_api._requests = SimpleNamespace(send=send)  # type: ignore[assignment]
    core.system_api.carry_out(SYSTEM, AccountPurgeRequest("", "$G"), lambda answer: None)
    if is_new:
        assert "error" not in story.ask("STREAM.DELETE.G0")
        make(story, 1)
    asked[0](None)
    assert len(asked) == (2 if is_new else 3), "the other stream's deletion, and this one's"


@pytest.mark.covers("SF-36")
def test_a_purge_does_not_ask_over_and_over_where_no_request_is_taken() -> None:
    """A client can fill the room for requests, with pulls. Nothing else runs while a purge asks."""
    story = Story()
    make(story, 40)
    core, asked = story.cores[0], list[bytes]()

    def refuse(*request: object, on_answer: Callable[[bytes | None], None]) -> None:
        asked.append(b"")
        assert len(asked) <= 41
        on_answer(None)

    core.system_api._requests = SimpleNamespace(send=refuse)  # type: ignore[assignment]
    core.system_api.carry_out(SYSTEM, AccountPurgeRequest("", "$G"), lambda answer: None)
    assert core.system_api.purges == 0
    assert len(streams(story)) == 41


def test_a_purge_ends_when_nobody_leads_the_map_and_can_be_asked_for_again() -> None:
    story = Story()
    make(story, 40)
    asked = story.world.names[0]
    for name in story.world.names[1:]:
        story.world.stop(name, power=False)
    core = story.cores[0]
    assert core.node == asked
    purge = core.system_api
    purge.carry_out(SYSTEM, AccountPurgeRequest("", "$G"), lambda answer: None)
    assert purge.purges == 1
    wait(story, lambda: purge.purges == 0)
    assert len(streams(story)) == 41
    for name in story.world.names[1:]:
        story.world.start(name)
    wait(story, lambda: all(found.accepts_clients for found in story.cores) and core.map.is_fresh)
    assert story.ask("ACCOUNT.PURGE.$G", info=SYSTEM)["initiated"] is True
    wait(story, lambda: not streams(story))


def test_a_broker_that_is_gone_is_taken_out_of_the_map_and_others_are_not_known() -> None:
    story = Story()
    for body, code in ((None, 10003), ({}, 10003), ({"peer": "nobody"}, 10044), ({"peer_id": "x"}, 10044)):
        assert story.ask("SERVER.REMOVE", body, info=SYSTEM)["error"]["err_code"] == code
    assert story.ask("SERVER.REMOVE", {"peer": 5}, info=SYSTEM)["error"]["err_code"] == 10025
    gone = next(name for name in story.world.names if name != story.leader(META_GROUP).node)
    story.world.stop(gone, power=False)
    found = story.ask("SERVER.REMOVE", {"peer": gone}, info=SYSTEM)
    assert found == {"type": "io.nats.jetstream.api.v1.meta_server_remove_response", "success": True}
    again = story.ask("SERVER.REMOVE", {"peer": gone}, info=SYSTEM)["error"]
    assert (again["code"], again["err_code"]) == (400, 10044)

    def votes() -> set[str]:
        meta = story.leader(META_GROUP).meta
        assert meta is not None
        return {voter.partition("@")[0] for voter in meta.raft.membership.all_voters}

    wait(story, lambda: gone not in votes())


def test_the_last_broker_stays() -> None:
    story = Story()
    first, second, third = story.world.names
    for name in (second, third):
        assert story.ask("SERVER.REMOVE", {"peer": name}, info=SYSTEM)["success"] is True
    refused = story.ask("SERVER.REMOVE", {"peer": first}, info=SYSTEM)["error"]
    assert refused["err_code"] == 10052
    assert "at least one has to stay" in refused["description"]
