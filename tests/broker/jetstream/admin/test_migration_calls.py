"""Calls of the operator about migrations, on whole brokers in one thread: preflight, start, status, abort, finalize (BG-1, BG-2, BG-8, BG-12)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from tests.broker.jetstream.recovery.test_migrating_copies import Story
from tests.simulator.cutover_plan import BLUE, GREEN
from tests.simulator.cutover_world import IDENTITY, WORLD
from tests.simulator.ledger import MAIN

from supercluster.broker.jetstream.admin import migration_status
from supercluster.broker.jetstream.admin.migration_call import read_start
from supercluster.broker.jetstream.admin.migration_preflight import (
    FINDINGS_MAX,
    Finding,
    is_refused,
    judge,
    of_clients,
    shown,
)
from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Following, Green, Migration, StreamStage
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.protocol.client_reports import AccountClients, ClientReport, Publishing

ID = "shop/to-green/0a1b"
BODY: dict[str, Any] = {
    "id": ID,
    "account": "",
    "cannotFollow": "bridge",
    "green": {"identity": IDENTITY[GREEN], "name": GREEN, "addresses": ["green-0:7422"], "tlsName": ""},
}

CLOCK = Publishing("$G", "ann", "clock", "python3", "10.0.0.7", 3, (MAIN,))


def ask(story: Story, key: str, act: str, body: Any = None, migration_id: str = ID) -> tuple[int, Any]:
    answers: list[tuple[int, Any]] = []
    story.core(key).calls.migration(
        act, migration_id, body, lambda status, told: answers.append((status, told))
    )
    story.want_turn(key)
    story.until(lambda: bool(answers))
    return answers[0]


@pytest.mark.covers("BG-1", "BG-2", "BG-8", "BG-12")
def test_a_migration_from_its_preflight_to_the_last_copy() -> None:
    story = Story()
    status, told = ask(story, "blue-1", "preflight", BODY)
    assert (status, told["streams"]) == (200, 1)
    assert told["findings"] == []
    assert ask(story, "blue-1", "status")[0] == 404
    status, told = ask(story, "blue-1", "start", BODY)
    assert (status, told["id"], told["green"]["name"]) == (202, ID, GREEN)
    assert ask(story, "blue-2", "start", BODY)[0] == 200
    assert ask(story, "blue-0", "start", {**BODY, "cannotFollow": "refuse"})[1]["err_code"] == 19020
    differs = ask(story, "blue-0", "start", {**BODY, "clusters": {"west": "east"}})[1]
    assert (differs["err_code"], "differs in clusters" in differs["error"]) == (19020, True)
    status, told = ask(story, "blue-0", "start", {**BODY, "id": "shop/other/1"})
    assert (status, told["err_code"], ID in told["error"]) == (409, 19021, True)
    assert ask(story, "blue-0", "finalize")[1]["err_code"] == 19025
    story.until(story.is_open)
    story.until(lambda: ask(story, "blue-0", "status")[1]["stages"]["redirected"] == 1)
    told = ask(story, "blue-0", "status")[1]
    assert (told["done"], told["aborted"]) == (False, False)
    assert ask(story, "blue-0", "abort")[1]["err_code"] == 19024
    handed = ask(story, "blue-0", "handed")[1]
    assert [(one["name"], one["stage"], one["green"]) for one in handed["streams"]] == [(MAIN, "open", GREEN)]
    story.until(lambda: ask(story, "green-2", "streams")[1]["streams"][0]["state"] == "open")
    [blue] = ask(story, "blue-0", "streams")[1]["streams"]
    [green] = ask(story, "green-2", "streams")[1]["streams"]
    assert green["state"] == "open"
    assert [blue[name] for name in ("attempt", "lastSeq", "digest")] == [
        green[name] for name in ("attempt", "lastSeq", "digest")
    ]
    bystander = AccountClients(1, publishing=1, publishers=(CLOCK,))
    story.core("blue-2").far_clients.report = lambda: ClientReport(accounts={"$G": bystander})
    story.until(lambda: ask(story, "blue-0", "status")[1]["stages"]["open"] == 1)
    story.until(lambda: ask(story, "blue-1", "status")[1]["stages"]["open"] == 1)
    clients = ask(story, "blue-1", "status")[1]["clients"]
    assert (clients["may"], clients["stillOnBlue"], clients["publishersStillOnBlue"]) == (1, 1, 1)
    assert clients["publishers"] == [asdict(CLOCK)]
    status, told = ask(story, "blue-0", "finalize")
    assert (status, told["err_code"], "1 clients are still to go" in told["error"]) == (409, 19025, True)
    story.core("blue-2").far_clients.report = ClientReport
    story.until(lambda: ask(story, "blue-0", "status")[1]["stages"]["redirected"] == 1)
    assert ask(story, "blue-0", "finalize")[0] == 202
    story.until(lambda: bool(ask(story, "blue-0", "status")[1]["done"]))
    assert ask(story, "blue-0", "finalize")[0] == 200
    assert ask(story, "blue-0", "list")[1]["migrations"][0]["stages"]["cleaned"] == 1
    assert set(story.core("blue-1").wanted_far()) == {IDENTITY[GREEN]}, "blue forwards to it for good"
    back = {"identity": IDENTITY[BLUE], "name": BLUE, "addresses": ["blue-0:7422"], "tlsName": ""}
    told = ask(story, "green-0", "preflight", {**BODY, "id": "shop/back/1", "green": back})[1]
    (finding,) = told["findings"]
    assert (finding["level"], finding["code"]) == ("refused", "HandedOver")
    assert "do not delete the stream there" in finding["remedy"], "green's own would be deleted"


def test_an_abort_takes_back_what_was_not_handed() -> None:
    """BG-8."""
    story = Story()
    assert ask(story, "blue-0", "start", BODY)[0] == 202
    for key in story.brokers(GREEN):
        story.stop(key, power=False)
    told = ask(story, "blue-0", "status")[1]
    assert (told["stages"]["learning"], told["stalledTotal"]) == (1, 0), "it has had no time yet"
    story.until(lambda: ask(story, "blue-0", "status")[1]["stalledTotal"] == 1)
    assert ask(story, "blue-0", "status")[1]["stalled"][0]["why"]
    assert ask(story, "blue-0", "abort")[0] == 202
    assert ask(story, "blue-0", "abort")[0] == 200
    story.until(lambda: bool(ask(story, "blue-0", "status")[1]["aborted"]), 120_000)
    assert story.found(BLUE).migration is None
    answer = story.api("blue-0", f"$JS.API.STREAM.INFO.{MAIN}", None)
    assert answer is not None
    assert "error" not in answer


def test_a_person_takes_back_what_a_green_that_is_gone_was_about_to_get() -> None:
    """SF-20: nothing but that act ends it."""
    story = Story()
    assert ask(story, "blue-0", "start", BODY)[0] == 202
    story.until(lambda: story.stage() is StreamStage.HANDING)
    for key in story.brokers(GREEN):
        story.stop(key, power=False)
    [handed] = [key for key, held in story.copies().items() if held.serves]
    story.stop(handed, power=False)
    story.run_ms(500)
    story.start(handed)
    assert ask(story, "blue-0", "abort")[0] == 202
    story.run_ms(5000)
    assert story.stage() is StreamStage.HANDING
    body = {"account": "$G", "stream": MAIN, "attempt": 1}
    assert "acceptLoss is 'None'" in str(ask(story, "blue-0", "takeback", body))
    assert ask(story, "blue-0", "takeback", body | {"acceptLoss": True})[0] == 202
    story.until(lambda: story.found(BLUE).migration is None)
    load = story.load("blue-1", "ack")
    story.until(lambda: len(load.acked) > 5)


def test_a_person_drops_blues_copies_of_a_stream_that_was_deleted_on_green() -> None:
    """BG-12: green can never show again that it has it, and the status says what to do."""
    story = Story()
    assert ask(story, "blue-0", "start", BODY)[0] == 202
    story.until(story.is_open)
    story.cuts.may_clean = True
    answer = story.api("green-0", f"$JS.API.STREAM.DELETE.{MAIN}", None)
    assert answer is not None
    assert answer.get("success"), answer
    assert ask(story, "blue-0", "finalize")[0] == 202
    story.run_ms(migration_status.CLEANED_WITHIN_NS // 1_000_000 + 1000)
    (stalled,) = ask(story, "blue-0", "status")[1]["stalled"]
    assert "/discard on blue" in stalled["why"]
    body = {"account": "$G", "stream": MAIN, "attempt": 1}
    assert ask(story, "blue-0", "discard", body)[0] == 400
    assert ask(story, "blue-0", "discard", body | {"acceptLoss": True})[0] == 202
    assert ask(story, "blue-0", "status")[1]["done"]
    story.until(lambda: not any(story.registered(key) for key in story.brokers(BLUE)))
    story.api("blue-0", f"$JS.API.STREAM.CREATE.{MAIN}", {"name": MAIN, "subjects": ["orders.>"]})
    assert story.found(BLUE).far_world, "rule 18: blue makes it no more, and does not hand it over again"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"id": "a b"}, "id is 'a b'"),
        ({"id": None}, "id is 'None'"),
        ({"account": "a b"}, "account is 'a b'"),
        ({"cannotFollow": "wait"}, "cannotFollow is 'wait'"),
        ({"clusters": ["west"]}, "clusters is ['west']"),
        ({"clusters": {"west": ""}}, "clusters is {'west': ''}"),
        ({"clusters": {"west": 1}}, "clusters is {'west': 1}"),
        ({"clusters": {str(number): "east" for number in range(65)}}, "at most 64 names"),
        ({"green": None}, "green has to be an object"),
        ({"green": {"identity": ""}}, "green.identity is missing"),
        ({"green": {"identity": "x", "addresses": ["nowhere"]}}, "green.addresses is ['nowhere']"),
        ({"green": {"identity": "x", "adresses": []}}, "adresses is no known field of green"),
        ({"streams": []}, "streams is no known field of the body"),
    ],
)
def test_a_wrong_body_is_refused_by_the_field(change: dict[str, Any], word: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_start({**BODY, **change})
    assert refused.value.err_code == 10052
    assert word in refused.value.description


# ---- preflight -------------------------------------------------------------------------------------------------------

WANTED = Migration(ID, Green(IDENTITY[GREEN]), WORLD[GREEN])


def stream(name: str = "S", **fields: Any) -> Assignment:
    config = read_stream({"name": name, "subjects": [name.lower()]})
    return Assignment("$G", name, f"S.$G.{name}.1", replace(config, **fields), 1, ("b@1",), 1)


def codes(*streams: Assignment, wanted: Migration = WANTED) -> list[tuple[str, str]]:
    return [(found.level, found.code) for found in judge(streams, wanted, WORLD[BLUE])]


@pytest.mark.parametrize(
    "fields",
    [
        {"retention": "interest"},
        {"allow_msg_counter": True},
        {"allow_msg_schedules": True},
        {"storage": "memory"},
        {"sealed": True},
    ],
)
def test_what_this_version_cannot_hand_over_is_refused_by_name(fields: dict[str, Any]) -> None:
    """Rule 23."""
    [found] = judge([stream("T", **fields), stream()], WANTED, WORLD[BLUE])
    assert (found.level, found.code, found.subject) == ("refused", "NotCarried", "$G/T")
    assert "stream T" in found.message
    assert found.remedy


def test_a_mirror_and_a_stream_with_sources_are_refused() -> None:
    for config in (
        read_stream({"name": "S", "mirror": {"name": "T"}}),
        read_stream({"name": "S", "sources": [{"name": "T"}]}),
    ):
        assert isinstance(config, StreamConfig)
        assert codes(replace(stream(), config=config)) == [("refused", "NotCarried")]


def test_nothing_is_found_where_all_is_well() -> None:
    assert codes(stream()) == []
    assert codes() == [("refused", "ScopeEmpty")]
    same = replace(WANTED, world=WORLD[BLUE])
    assert codes(stream(), wanted=same) == [("refused", "SameIdentity")]


@pytest.mark.covers("BG-12")
def test_clients_that_cannot_follow_are_named_and_refused_unless_they_are_bridged() -> None:
    row = AccountClients(3, cannot=1, cannot_names=("page",))
    assert of_clients(AccountClients(3), WANTED) == []
    [found] = of_clients(row, WANTED)
    assert (found.level, found.code, found.subject) == ("refused", "ClientsCannotFollow", "page")
    [found] = of_clients(row, replace(WANTED, bridges=True))
    assert found.level == "warn"


@pytest.mark.covers("BG-5", "BG-12")
@pytest.mark.parametrize(
    ("takes_tls", "takes_plain", "named"), [(False, True, "TLS"), (True, False, "no TLS")]
)
def test_clients_that_greens_port_does_not_take_are_counted_before_the_start(
    takes_tls: bool, takes_plain: bool, named: str
) -> None:
    """They would be turned away by blue, and could not come to green."""
    row = AccountClients(6, cannot=1, cannot_names=("page",), tls=2)
    [_, found] = of_clients(row, WANTED, takes_tls=takes_tls, takes_plain=takes_plain)
    assert (found.level, found.code, found.subject) == ("refused", "ClientsCannotFollow", named)
    assert found.message.startswith(f"{2 if named == 'TLS' else 3} connected clients use {named}, ")
    assert len(of_clients(row, WANTED)) == 1
    nobody = AccountClients(2, tls=2) if takes_tls else AccountClients(2)
    assert of_clients(nobody, WANTED, takes_tls=takes_tls, takes_plain=takes_plain) == []


def test_an_answer_has_a_bounded_number_of_findings() -> None:
    found = judge([stream(f"S{n}", sealed=True) for n in range(FINDINGS_MAX + 5)], WANTED, WORLD[BLUE])
    assert is_refused(found)
    told = shown([Finding("warn", "OpenMove", "", "", ""), *found][:-1])
    assert told[0]["level"] == "refused"
    assert len(told) == FINDINGS_MAX + 1
    assert told[-1]["message"].startswith("5 more")


# ---- what green says -------------------------------------------------------------------------------------------------


def preflight(story: Story, body: dict[str, Any] = BODY) -> list[tuple[str, str]]:
    status, told = ask(story, "blue-0", "preflight", body)
    assert status == 200
    assert all(found["remedy"] for found in told["findings"])
    return [(found["level"], found["code"]) for found in told["findings"]]


@pytest.mark.covers("BG-12")
def test_green_is_visited_and_says_what_it_has_against_the_streams() -> None:
    """Its names, subjects, placement, payload and clock; start refuses what preflight does."""
    story = Story()
    assert preflight(story) == []
    taken = {"name": "OTHER", "subjects": ["orders.eu"]}
    assert "error" not in (story.api("green-0", "$JS.API.STREAM.CREATE.OTHER", taken) or {"error": 1})
    assert preflight(story) == [("refused", "SubjectsTaken")]
    assert story.api("green-0", "$JS.API.STREAM.DELETE.OTHER", None)
    same = {"name": MAIN, "subjects": ["elsewhere"]}
    assert "error" not in (story.api("green-0", f"$JS.API.STREAM.CREATE.{MAIN}", same) or {"error": 1})
    assert preflight(story) == [("refused", "NameTaken")]
    status, told = ask(story, "blue-0", "start", BODY)
    assert (status, told["err_code"]) == (409, 19022)
    assert [found["code"] for found in told["findings"]] == ["NameTaken"]
    assert ask(story, "blue-0", "list")[1] == {"migrations": []}
    assert story.api("green-0", f"$JS.API.STREAM.DELETE.{MAIN}", None)
    for key in story.brokers(GREEN):
        settings = story.core(key).env.settings
        story.core(key).env.settings = replace(settings, payload_bytes_max=settings.payload_bytes_max - 1)
    assert preflight(story) == [("refused", "Limits")]


def tell_cluster(story: Story, key: str, cluster: str) -> None:
    """The broker is of another cluster from now on: it says so as it starts."""
    story.stop(key, power=False)
    story.cluster_of[key] = cluster
    story.start(key)


@pytest.mark.covers("BG-1")
def test_names_that_green_does_not_have_are_found_before_anything_begins() -> None:
    """And a stream is placed by what the call says of its cluster."""
    story = Story(placement={"cluster": BLUE}, num_replicas=1)
    assert preflight(story) == [], "green has one cluster alone"
    tell_cluster(story, "green-2", "north")
    story.until(lambda: preflight(story) == [("refused", "ClusterUnknown")])
    [found] = ask(story, "blue-0", "preflight", BODY)[1]["findings"]
    assert (found["subject"], "green has green, north" in found["message"]) == (f"$G/{MAIN}", True)
    assert "clusters" in found["remedy"]
    assert preflight(story, {**BODY, "clusters": {BLUE: "south"}}) == [("refused", "ClusterUnknown")]
    assert ask(story, "blue-0", "start", BODY)[1]["err_code"] == 19022
    wanted = {**BODY, "clusters": {BLUE: "north"}}
    assert preflight(story, wanted) == []
    assert ask(story, "blue-0", "start", wanted)[0] == 202
    story.until(story.is_open)
    assert [member.partition("@")[0] for member in story.found(GREEN).members] == ["green-2"]


@pytest.mark.covers("BG-12")
def test_a_green_that_nobody_answers_for_is_unreachable_and_nothing_begins() -> None:
    story = Story()
    for key in story.brokers(GREEN):
        story.stop(key, power=False)
    assert preflight(story) == [("refused", "GreenUnreachable")]
    assert ask(story, "blue-0", "start", BODY)[1]["err_code"] == 19022
    assert story.core("blue-0").wanted_far()
    story.until(lambda: not story.core("blue-0").wanted_far())


@pytest.mark.covers("BG-9", "SF-20")
def test_green_tells_of_an_attempt_that_it_refused_and_why() -> None:
    following = Following(ID, 1, "G1", WORLD[BLUE], ("blue-0@a",))
    found = Assignment(
        "$G", MAIN, "G2", StreamConfig(name=MAIN, subjects=()), 1, ("green-0@a",), 1, following=following
    )
    refused = StreamFacts(
        0, 0, 0, (), migrating={"stage": "refused", "why": "green's copy differs from blue's in consumers"}
    )
    for facts, expected in ((None, ("hidden", "")), (refused, ("refused", refused.migrating["why"]))):
        (row,) = migration_status.green_streams([found], {"G2": facts})["streams"]
        assert (row["state"], row["why"]) == expected
