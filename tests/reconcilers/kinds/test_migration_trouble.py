"""What goes wrong while a Migration is under way, in each stage: a condition says what to do, nothing is called off, finalized or
started again by itself, and it goes on when that is mended (BG-8, BG-12, SF-21, SF-30)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.fake_migrations import ORDER
from tests.reconcilers.handlers.test_rounds import NS
from tests.reconcilers.kinds.test_migration_doors import Twins
from tests.reconcilers.kinds.test_migration_rounds import GREEN, GREEN_URL, OVER, Cutover, started

from supercluster.reconcilers.ports import BrokersRefusedError, BrokersUnreachableError, Key

pytestmark = pytest.mark.covers("BG-8", "BG-12")

UNDER_WAY = ("learning", "handed", "open", "final")
WRONG_PASSWORD = BrokersRefusedError(401, 0, "wrong password")


@pytest.fixture
async def world() -> Cutover:
    world = Cutover()
    await world.converge()
    return world


async def at(world: Cutover, stage: str) -> dict[str, Any]:
    """A migration that has come to a stage, and what blue's brokers know of it."""
    await started(world)
    if stage == "final":
        await world.to("redirected")
        world.edit(finalize=True)
        await world.look()
    await world.to(stage)
    (record,) = world.brokers.migrations.records.values()
    return dict(record)


def nothing_was_done(world: Cutover, record: dict[str, Any]) -> None:
    calls = world.brokers.migrations
    assert list(calls.records.values()) == [record]
    assert len(calls.started) == 1
    assert len(calls.clean_ups) == record["final"]


@pytest.mark.parametrize("stage", UNDER_WAY)
@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (BrokersUnreachableError("no route"), "BrokersUnreachable", "the brokers carry the migration out"),
        (WRONG_PASSWORD, "CredentialsNotFound", "put user and password right"),
    ],
)
async def test_a_blue_that_does_not_tell_is_asked_again(
    world: Cutover, stage: str, error: Exception, reason: str, words: str
) -> None:
    record = await at(world, stage)
    phase = world.status(OVER)["phase"]
    world.brokers.migrations.deaf["demo"] = error
    status = await world.to(stage)
    assert (status["phase"], world.says("Ready")[1]) == (phase, reason)
    assert words in world.message("Ready")
    nothing_was_done(world, record)
    del world.brokers.migrations.deaf["demo"]
    await world.to(stage)
    assert world.says("Ready")[1] != reason
    nothing_was_done(world, record)


@pytest.mark.parametrize("trouble", ["secret", "password"])
async def test_a_green_that_lets_nobody_ask_is_no_success_and_says_what_it_lacks(
    world: Cutover, trouble: str
) -> None:
    record = await at(world, "handed")
    if trouble == "secret":
        del world.kube.objects["Secret", NS, "next"]
    else:
        world.brokers.migrations.deaf[GREEN_URL] = WRONG_PASSWORD
    status = await world.to("redirected")
    assert (status["phase"], world.says("Ready")) == ("Open", ("Unknown", "GreenUnreachable"))
    lacks = "there is no Secret next" if trouble == "secret" else "put user and password right"
    assert lacks in world.message("Ready")
    world.edit(finalize=True)
    await world.look()
    nothing_was_done(world, record)
    world.secret_of_green()
    world.brokers.migrations.deaf.clear()
    await world.look()
    assert world.says("Ready") == ("True", "AwaitingFinalize")


@pytest.mark.covers("SF-30")
@pytest.mark.parametrize("stage", ["fenced", "handed", "open", "redirected"])
async def test_a_green_that_was_made_anew_is_not_taken_for_the_one_that_has_the_streams(
    world: Cutover, stage: str
) -> None:
    record = await at(world, stage)
    world.brokers.migrations.sides[GREEN_URL]["identity"] = "id-anew"
    for _ in range(2):
        status = await world.to(stage)
    assert status["green"]["identity"] == "id-green", "the one that it was started with"
    assert world.says("Blocked") == ("True", "OtherIdentity")
    assert world.says("Stalled")[0] == "True"
    assert "bring that one back with its volumes" in world.message("Blocked")
    assert ("set spec.abort to true" in world.message("Blocked")) == (stage in ORDER[:4])
    nothing_was_done(world, record)
    world.brokers.migrations.sides[GREEN_URL]["identity"] = "id-green"
    await world.to(stage)
    assert world.says("Blocked") == ("False", "NoIssues")


@pytest.mark.covers("SF-21", "SF-30")
@pytest.mark.parametrize("stage", UNDER_WAY)
async def test_a_blue_whose_resource_was_removed_by_force_is_a_case_for_a_person(
    world: Cutover, stage: str
) -> None:
    record = await at(world, stage)
    del world.kube.objects["SuperCluster", NS, "demo"]
    world.restart()
    await world.to(stage)
    assert world.says("Blocked") == ("True", "SuperClusterDeleted")
    assert "bring blue back with its volumes, or delete this Migration" in world.message("Blocked")
    nothing_was_done(world, record)
    world.delete(OVER)
    await world.round(OVER)
    assert ("Migration", NS, "over") not in world.kube.objects, "there is nobody to call it off with"
    nothing_was_done(world, record)


@pytest.mark.covers("SF-30")
@pytest.mark.parametrize("stage", ["learning", "handed", "open"])
async def test_a_green_whose_resource_was_removed_by_force_is_named_and_blue_can_have_its_streams_back(
    stage: str,
) -> None:
    world = Twins()
    world.over()
    await world.converge()
    await world.to(stage)
    del world.kube.objects["SuperCluster", NS, "next"]
    world.restart()
    await world.to(stage)
    assert world.says("Blocked") == ("True", "SuperClusterDeleted")
    assert "SuperCluster next is gone" in world.message("Blocked")
    (record,) = world.brokers.migrations.records.values()
    assert not record["cancelled"]
    if stage == "learning":
        world.edit(abort=True)
        await world.look()
        assert world.status(OVER)["phase"] == "Aborting"


@pytest.mark.covers("BG-2")
async def test_one_whose_streams_were_all_deleted_says_how_it_ends(world: Cutover) -> None:
    record = await at(world, "learning")
    world.brokers.migrations.stages = {}
    world.clock.ms += 6_000
    await world.look()
    assert world.says("Blocked") == ("True", "ScopeEmpty")
    assert "set spec.abort to true to end the migration" in world.message("Blocked")
    nothing_was_done(world, record)
    world.brokers.migrations.stages = {"late": "pending"}
    await world.look()
    assert world.says("Blocked") == ("False", "NoIssues")
    world.brokers.migrations.stages = {}
    world.edit(abort=True)
    await world.look()
    await world.look()
    assert world.status(OVER)["phase"] == "Aborted"


@pytest.mark.covers("SF-21")
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_an_abort_that_a_silent_green_holds_up_says_how_a_person_ends_it(
    world: Cutover, is_deleted: bool
) -> None:
    """Also where the Migration was deleted meanwhile."""
    await at(world, "handed")
    why = "the migration is called off, and green has not answered yet"
    world.brokers.migrations.stalled = [
        {"account": "$G", "name": "flights", "stage": "handed", "why": why},
    ]
    world.edit(abort=True)
    await world.look()
    if is_deleted:
        world.delete(OVER)
    await world.to("handed")
    assert world.says("Blocked") == ("True", "GreenUnreachable")
    uid = world.kube.objects["Migration", NS, "over"]["metadata"]["uid"]
    assert f"/admin/migrations/{NS}/over/{uid}/takeback" in world.message("Blocked")
    assert why in world.message("Blocked")
    world.brokers.migrations.stages, world.brokers.migrations.stalled = {}, []
    await world.round(OVER)
    if is_deleted:
        assert ("Migration", NS, "over") not in world.kube.objects
        return
    assert world.status(OVER)["phase"] == "Aborted"
    assert world.says("Blocked")[0] == "False"


@pytest.mark.parametrize("stage", ["fenced", "open", "redirected"])
@pytest.mark.covers("BG-2")
async def test_a_second_one_that_overlaps_waits_for_the_first_in_each_stage(
    world: Cutover, stage: str
) -> None:
    record = await at(world, stage)
    second = Key("Migration", NS, "second")
    world.begin("second", scope={"account": "A"})
    await world.round(second)
    found = {each["type"]: each for each in world.status(second)["conditions"]}["PreflightPassed"]
    assert (found["status"], found["reason"]) == ("False", "MigrationOverlaps")
    assert "delete one of the two, or wait until it has ended" in found["message"]
    nothing_was_done(world, record)


@pytest.mark.parametrize("phase", ["Pending", "Refused", "Checking", "AwaitingApproval"])
async def test_one_that_has_not_started_is_edited_and_deleted_freely(world: Cutover, phase: str) -> None:
    calls = world.brokers.migrations
    if phase == "Pending":
        calls.deaf[GREEN_URL] = BrokersUnreachableError("no route")
    elif phase == "Refused":
        calls.findings = [{"level": "refused", "code": "NameTaken", "message": "m"}]
    elif phase == "Checking":
        calls.sides[GREEN_URL]["migrationPort"] = None
    world.begin(approval="Manual")
    status = await world.look()
    assert status["phase"] == phase
    elsewhere = "http://10.8.8.8:8222"
    calls.sides[elsewhere] = {**calls.sides[GREEN_URL], "identity": "id-other", "migrationPort": 7223}
    calls.findings.clear()
    world.edit(green={**GREEN, "urls": [elsewhere]})
    status = await world.look()
    assert (status["phase"], status["green"]["identity"]) == ("AwaitingApproval", "id-other")
    world.delete(OVER)
    await world.round(OVER)
    assert ("Migration", NS, "over") not in world.kube.objects
    assert calls.records == {}


@pytest.mark.parametrize("end", ["Aborting", "Aborted", "Succeeded"])
async def test_one_that_ends_or_has_ended_is_deleted_and_nothing_more_is_asked(
    world: Cutover, end: str
) -> None:
    calls = world.brokers.migrations
    if end == "Succeeded":
        await at(world, "final")
        await world.to("cleaned")
    else:
        await at(world, "fenced")
        world.edit(abort=True)
        await world.look()
        calls.stages = {} if end == "Aborted" else calls.stages
        await world.look()
    assert world.status(OVER)["phase"] == end
    world.delete(OVER)
    await world.round(OVER)
    if end == "Aborting":
        world.clock.ms += 6_000
        await world.look()
        assert "deletion waits until it is called off" in world.status(OVER)["message"]
        calls.stages = {}
        await world.round(OVER)
    await world.round(OVER)
    assert ("Migration", NS, "over") not in world.kube.objects
    assert len(calls.clean_ups) == (end == "Succeeded")
