"""Rounds of a Migration against fakes of blue's and green's admin answers: from the manifest to the cleaned-up blue (BG-1 to BG-12)."""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import NS, KilledError, World

from supercluster.api.migration import SECRET_TYPE
from supercluster.reconcilers.ports import BrokersRefusedError, BrokersUnreachableError, Key

OVER = Key("Migration", NS, "over")
GREEN_URL = "http://10.9.9.9:8222"
BLUE_SIDE = {"superCluster": "demo", "identity": "id-blue", "version": "0.9", "migrationPort": None}
GREEN_SIDE = {"superCluster": "next", "identity": "id-green", "version": "0.9", "migrationPort": 7223}
GREEN = {"urls": [GREEN_URL], "credentialsSecret": "next"}


class Cutover(World):
    """Blue is a SuperCluster of the namespace; green is somewhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.secret_of_green()
        now_ns = self.clock.now().timestamp() * 1_000_000_000
        self.brokers.migrations.sides = {
            "demo": {**BLUE_SIDE, "timeNs": int(now_ns)},
            GREEN_URL: {**GREEN_SIDE, "timeNs": int(now_ns)},
        }

    def secret_of_green(self, type_: str = SECRET_TYPE, **changes: str) -> None:
        given = {"user": "op", "password": "x", "migrationUser": "blue", "migrationPassword": "y", **changes}
        data = {key: b64encode(value.encode()).decode() for key, value in given.items() if value}
        metadata = {"name": "next", "namespace": NS}
        self.kube.put(
            {"apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": metadata, "data": data}
        )

    def begin(self, name: str = "over", **spec: Any) -> None:
        self.declare("Migration", name, **{**_SPEC, **spec})

    def edit(self, **spec: Any) -> None:
        self.change("Migration", "over", lambda body: body["spec"].update(spec))

    async def look(self) -> Mapping[str, Any]:
        """One round of the Migration; its status."""
        await self.round(OVER)
        return self.status(OVER)

    async def to(self, stage: str) -> Mapping[str, Any]:
        """Seconds later all streams have come to a stage."""
        self.brokers.migrations.all_to(stage)
        self.clock.ms += 6_000
        return await self.look()

    def says(self, type_: str) -> tuple[str, str]:
        found = condition(self.status(OVER), type_)
        return found["status"], found["reason"]

    def message(self, type_: str) -> str:
        return str(condition(self.status(OVER), type_)["message"])


_SPEC: dict[str, Any] = {
    "blue": {"superCluster": "demo"},
    "green": GREEN,
    "scope": {},
    "clients": {"cannotFollow": "Refuse"},
    "approval": "Automatic",
    "approved": False,
    "abort": False,
    "finalize": False,
}


@pytest.fixture
async def world() -> Cutover:
    world = Cutover()
    await world.converge()
    return world


async def started(world: Cutover, **spec: Any) -> None:
    world.begin(**spec)
    await world.look()
    await world.look()
    assert world.status(OVER)["phase"] == "Running"


@pytest.mark.covers("BG-1", "BG-8", "BG-9", "BG-12")
async def test_one_manifest_takes_blue_to_green_and_the_clean_up_waits_for_a_person(world: Cutover) -> None:
    await started(world)
    calls = world.brokers.migrations
    (body,) = calls.started
    uid = world.kube.objects["Migration", NS, "over"]["metadata"]["uid"]
    assert body["id"] == f"{NS}/over/{uid}"
    assert body["green"] == {
        "identity": "id-green",
        "name": "next",
        "addresses": ["10.9.9.9:7223"],
        "tlsName": "",
    }
    assert world.says("PreflightPassed") == ("True", "PreflightClean")
    status = await world.to("learning")
    assert (status["streams"], status["onGreen"], status["worstLag"]["milliseconds"]) == (2, 0, 40)
    assert world.says("Reconciling") == ("True", "Migrating")
    calls.clients = {
        **calls.clients,
        "stillOnBlue": 2,
        "publishersStillOnBlue": 1,
        "publishers": [{"name": "clock"}],
    }
    status = await world.to("open")
    assert (status["phase"], status["onGreen"]) == ("Open", 2)
    assert status["proof"]["streams"] == 2
    assert world.says("Ready") == ("True", "OpenOnGreen")
    assert "1 of them publish there (clock)" in world.message("Ready")
    assert world.says("PointOfNoReturn") == ("False", "NotReached")
    assert "pointOfNoReturnAt" not in status
    status = await world.to("redirected")
    assert status["phase"] == "AwaitingFinalize"
    assert world.says("PointOfNoReturn") == ("False", "AwaitingFinalize")
    assert "blue's copies of 2 streams, as they were handed over, are deleted" in world.message(
        "PointOfNoReturn"
    )
    assert (world.says("Reconciling")[0], world.says("Stalled")[0]) == ("False", "False"), (
        "it waits as declared"
    )
    assert calls.clean_ups == []
    world.edit(finalize=True)
    await world.look()
    assert calls.clean_ups == [f"{NS}/over/{uid}"]
    assert world.status(OVER)["phase"] == "Finalizing"
    assert world.says("PointOfNoReturn") == ("True", "Finalized")
    status = await world.to("cleaned")
    await world.look()
    assert (status["phase"], world.says("Ready"), world.says("Whole")) == (
        "Succeeded",
        ("True", "Migrated"),
        ("True", "Migrated"),
    )
    told = [
        "MigrationStarted",
        "MigrationOpen",
        "PointOfNoReturnStated",
        "PointOfNoReturnPassed",
        "MigrationSucceeded",
    ]
    assert [each for each in world.told() if each in told] == told, "each once, in this order"
    assert not world.kube.objects["Migration", NS, "over"]["metadata"].get("finalizers")


@pytest.mark.covers("BG-12")
@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({"digest": "cd"}, ["flights"]),
        ({"lastSeq": 8}, ["flights"]),
        ({"attempt": 2}, ["flights"]),
        ({"state": "hidden"}, ["flights"]),
        ({"name": "other"}, ["flights"]),
    ],
)
async def test_success_is_what_green_s_own_address_answers(
    world: Cutover, change: dict[str, Any], differing: list[str]
) -> None:
    await started(world)
    world.brokers.migrations.opened["flights"] = change
    status = await world.to("redirected")
    assert (status["phase"], status["proof"]["differing"]) == ("Open", differing)
    assert world.says("Ready") == ("False", "GreenDisagrees")
    assert "openedAt" not in status
    world.edit(finalize=True)
    await world.look()
    assert world.brokers.migrations.clean_ups == []
    world.brokers.migrations.opened.clear()
    await world.look()
    assert world.says("Ready")[0] == "True"


CLOCK = {
    "name": "clock",
    "account": "$G",
    "user": "ann",
    "language": "go",
    "address": "10.0.0.7",
    "messages": 3,
    "streams": ["flights"],
}


@pytest.mark.covers("BG-12")
async def test_publishers_that_stay_on_blue_are_named_when_they_had_their_time_to_go(world: Cutover) -> None:
    await started(world)
    calls = world.brokers.migrations
    calls.clients = {"stillOnBlue": 12, "publishersStillOnBlue": 11, "publishers": [CLOCK]}
    calls.stages = {"flights": "open", "trains": "learning"}
    world.clock.ms += 6_000
    await world.look()
    assert "11 clients publish through blue" in world.message("Ready"), "none of them was asked to leave yet"
    status = await world.to("open")
    assert status["clients"]["publishers"] == [CLOCK]
    assert "PublishersOnBlue" not in world.told()
    for _ in range(12):
        await world.to("open")
    assert world.says("Warning") == ("True", "PublishersOnBlue")
    assert "clock of user ann at 10.0.0.7 to flights and 10 more; point them at green" in world.message(
        "Warning"
    )
    assert "to none that was made on green since" in world.message("Warning")
    calls.clients["publishers"] = [{**CLOCK, "messages": 9_999}]
    await world.to("redirected")
    assert world.told().count("PublishersOnBlue") == 1, "counts that move are no event"
    world.edit(finalize=True)
    await world.look()
    calls.clients = {"stillOnBlue": 0, "publishersStillOnBlue": 0}
    await world.to("final")
    assert world.says("Warning") == ("False", "NoIssues")


@pytest.mark.covers("BG-12")
async def test_a_green_that_does_not_answer_is_no_success(world: Cutover) -> None:
    await started(world)
    world.brokers.migrations.deaf[GREEN_URL] = BrokersUnreachableError("green is silent")
    status = await world.to("redirected")
    assert (status["phase"], world.says("Ready")) == ("Open", ("Unknown", "GreenUnreachable"))
    assert "green is silent" in world.message("Ready")
    del world.brokers.migrations.deaf[GREEN_URL]
    await world.look()
    world.brokers.migrations.deaf[GREEN_URL] = BrokersUnreachableError("green is silent")
    world.edit(finalize=True)
    await world.look()
    assert world.brokers.migrations.clean_ups == [], "it is compared once more before blue deletes anything"
    assert "waits for green's answer" in world.status(OVER)["message"]


@pytest.mark.parametrize(
    ("change", "says", "words"),
    [
        ({"deaf": BrokersUnreachableError("refused")}, ("Unknown", "GreenUnreachable"), "does not answer"),
        ({"deaf": BrokersRefusedError(401, 0, "wrong password")}, ("Unknown", "CredentialsNotFound"), "put user and password right"),
        ({"identity": "id-blue"}, ("False", "SameSuperCluster"), "name another one as spec.green"),
        ({"version": "0.8"}, ("False", "OtherVersion"), "roll one of them out first"),
        ({"ahead_s": 5}, ("False", "ClocksApart"), "5.0 s apart"),
        ({"migrationPort": None}, ("Unknown", "MigrationPortClosed"), "does not listen on a migration port"),
        ({"secret": "Opaque"}, ("Unknown", "CredentialsNotFound"), "anew with that type"),
        ({"identity": ""}, ("Unknown", "GreenUnreachable"), "no broker of supercluster"),
    ],
)  # fmt: skip
async def test_a_green_that_will_not_do_is_named_with_the_remedy_and_nothing_begins(
    world: Cutover, change: dict[str, Any], says: tuple[str, str], words: str
) -> None:
    side = world.brokers.migrations.sides[GREEN_URL]
    if "deaf" in change:
        world.brokers.migrations.deaf[GREEN_URL] = change["deaf"]
    elif "secret" in change:
        world.secret_of_green(change["secret"])
    elif "ahead_s" in change:
        side["timeNs"] += change["ahead_s"] * 1_000_000_000
    else:
        side.update(change)
    world.begin()
    await world.look()
    assert world.says("PreflightPassed") == says
    assert words in world.message("PreflightPassed")
    assert world.brokers.migrations.started == []
    assert "startedAt" not in world.status(OVER)
    is_refused = says[0] == "False"
    assert world.says("Stalled")[0] == str(is_refused)
    assert world.says("Reconciling")[0] == str(not is_refused)


@pytest.mark.covers("BG-5", "BG-12")
@pytest.mark.parametrize("code", ["NameTaken", "ScopeEmpty", "Capacity", "CredentialsRefused", "ClientsCannotFollow", "NotCarried"])  # fmt: skip
async def test_what_blue_s_preflight_refuses_is_told_with_its_remedy(world: Cutover, code: str) -> None:
    finding = {
        "level": "refused",
        "code": code,
        "subject": "flights",
        "message": "it is so",
        "remedy": "mend it",
    }
    many = [{"level": "warn", "code": f"W{number}", "message": "m"} for number in range(30)]
    world.brokers.migrations.findings = [*many, finding]
    world.begin()
    status = await world.look()
    assert (status["phase"], world.says("PreflightPassed")) == ("Refused", ("False", "PreflightRefused"))
    assert f"{code} (flights): it is so; mend it" in world.message("Stalled")
    report = status["preflight"]
    assert (report["refused"], report["warnings"], len(report["findings"])) == (1, 30, 20)
    assert report["findings"][0]["code"] == code
    world.brokers.migrations.findings = many
    await world.look()
    await world.look()
    assert world.status(OVER)["phase"] == "Running", "mended, it starts by itself; warnings hold nothing up"


async def test_a_manual_one_waits_for_a_person(world: Cutover) -> None:
    world.begin(approval="Manual")
    status = await world.look()
    assert status["phase"] == "AwaitingApproval"
    assert world.says("PreflightPassed")[0] == "True"
    assert (world.says("Reconciling")[0], world.says("Stalled")[0]) == ("False", "False")
    assert world.brokers.migrations.started == []
    world.edit(approved=True)
    await world.look()
    assert len(world.brokers.migrations.started) == 1


@pytest.mark.covers("BG-2")
async def test_of_two_that_overlap_the_older_one_wins(world: Cutover) -> None:
    world.begin("first", scope={"account": "A"})
    world.begin()
    status = await world.look()
    assert (status["phase"], world.says("PreflightPassed")) == ("Refused", ("False", "MigrationOverlaps"))
    assert "Migration demo-ns/first overlaps with this one" in world.message("PreflightPassed")
    await world.round(Key("Migration", NS, "first"))
    assert [each["account"] for each in world.brokers.migrations.started] == ["A"]
    world.edit(scope={"account": "B"})
    await world.look()
    assert [each["account"] for each in world.brokers.migrations.started] == ["A", "B"], (
        "other accounts do not overlap"
    )


@pytest.mark.parametrize("stage", ["pending", "learning", "fenced", "handed"])
async def test_it_is_called_off_in_each_stage_before_all_are_open(world: Cutover, stage: str) -> None:
    await started(world)
    await world.to(stage)
    world.edit(abort=True)
    status = await world.look()
    assert (status["phase"], world.says("Aborted")) == ("Aborting", ("False", "AbortAsked"))
    world.brokers.migrations.stages = {"flights": "open"} if stage == "handed" else {}
    status = await world.look()
    assert (status["phase"], world.says("Aborted")) == ("Aborted", ("True", "CalledOff"))
    assert ("green had opened 1 of 1 streams" in status["message"]) == (stage == "handed")
    assert (world.says("Reconciling")[0], world.says("Stalled")[0]) == ("False", "False")
    await world.look()
    assert not world.kube.objects["Migration", NS, "over"]["metadata"].get("finalizers")


@pytest.mark.covers("SF-21")
async def test_an_abort_that_comes_too_late_says_so_and_changes_nothing(world: Cutover) -> None:
    await started(world)
    world.edit(abort=True)
    status = await world.to("open")
    assert (status["phase"], world.says("Aborted")) == ("AwaitingFinalize", ("False", "TooLateToCancel"))
    assert "there is no way back to blue yet" in world.message("Aborted")
    record = world.brokers.migrations.records[status["migrationId"]]
    assert not record["cancelled"]
    # A stream that is made on blue later, or restored, is no reason to go by the old word.
    world.brokers.migrations.stages = {"flights": "open", "later": "pending"}
    status = await world.look()
    assert (status["phase"], record["cancelled"]) == ("Running", False)
    world.brokers.migrations.stages = {"flights": "redirected"}
    await world.look()
    world.edit(abort=False, finalize=True)
    status = await world.look()
    assert (status["phase"], record["final"]) == ("Finalizing", True)


async def test_an_abort_that_brokers_refuse_for_now_is_asked_for_again(
    world: Cutover, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(world)
    await world.to("learning")

    def refuse(migration_id: str) -> None:
        raise BrokersRefusedError(403, 0, "not an operator")

    with monkeypatch.context() as patch:
        patch.setattr(world.brokers.migrations, "abort", refuse)
        world.edit(abort=True)
        await world.look()
        assert world.says("Aborted") == ("False", "RefusedByBrokers")
    await world.look()
    status = await world.look()
    assert (status["phase"], world.says("Aborted")) == ("Aborting", ("False", "AbortAsked"))


@pytest.mark.parametrize("stage", ["pending", "learning", "fenced"])
async def test_deletion_before_any_stream_is_handed_calls_it_off_first(world: Cutover, stage: str) -> None:
    await started(world)
    await world.to(stage)
    world.delete(OVER)
    await world.look()
    assert world.status(OVER)["phase"] == "Aborting"
    world.brokers.migrations.stages = {}
    await world.round(OVER)
    assert ("Migration", NS, "over") not in world.kube.objects


@pytest.mark.parametrize("stage", ["handed", "open", "redirected", "final"])
async def test_deletion_after_that_stops_nothing_on_the_brokers_and_says_so(
    world: Cutover, stage: str
) -> None:
    await started(world)
    await world.to(stage)
    world.delete(OVER)
    await world.round(OVER)
    assert ("Migration", NS, "over") not in world.kube.objects
    (record,) = world.brokers.migrations.records.values()
    assert not record["cancelled"]
    (note,) = [each for each in world.kube.events if each.reason == "MigrationReleased"]
    assert "nothing is stopped on the brokers" in note.message
    assert note.warning


async def test_deletion_waits_for_a_blue_that_does_not_answer(world: Cutover) -> None:
    await started(world)
    world.brokers.migrations.deaf["demo"] = BrokersUnreachableError("blue is silent")
    world.delete(OVER)
    await world.look()
    assert "deletion waits for blue" in world.status(OVER)["message"]
    assert ("Migration", NS, "over") in world.kube.objects


@pytest.mark.covers("SF-30")
@pytest.mark.parametrize("stage", ["learning", "handed", "open"])
async def test_blue_is_not_deleted_while_it_is_needed(world: Cutover, stage: str) -> None:
    await started(world)
    await world.to(stage)
    for key in (Key("Cluster", NS, "east"), Key("SuperCluster", NS, "demo")):
        world.delete(key)
        await world.round(key)
        assert (key.kind, NS, key.name) in world.kube.objects
    blocked = condition(world.status(Key("Cluster", NS, "east")), "Blocked")
    assert "Migration over needs it" in blocked["message"]
    await world.look()
    assert world.says("Blocked") == ("True", "SuperClusterDeleted")
    is_late = stage == "open"
    assert ("set spec.abort to true to keep blue" in world.message("Blocked")) == (not is_late)
    assert "spec.finalize" in world.message("Blocked")
    assert ("StatefulSet", NS, "east") in world.kube.objects


async def test_streams_that_stall_are_named_once(world: Cutover) -> None:
    await started(world)
    world.brokers.migrations.stalled = [
        {"account": "$G", "name": f"s{number}", "stage": "handed", "why": "green is silent"}
        for number in range(12)
    ]
    status = await world.to("handed")
    await world.look()
    assert (status["stalledTotal"], len(status["stalled"])) == (12, 10)
    assert world.says("Ready") == ("False", "StreamsStalled")
    assert "first s0, handed: green is silent" in world.message("Ready")
    assert world.told().count("MigrationStalled") == 1


async def test_a_blue_that_forgot_a_migration_is_a_case_for_a_person(world: Cutover) -> None:
    await started(world)
    world.brokers.migrations.records.clear()
    await world.look()
    assert world.says("Ready") == ("Unknown", "MigrationUnknown")
    assert len(world.brokers.migrations.started) == 1, "it is not started again by itself"
    world.clock.ms += 11_000
    await world.look()
    assert world.says("Blocked") == ("True", "MigrationUnknown")
    assert world.says("Stalled")[0] == "True"


@pytest.mark.covers("OP-4")
async def test_an_operator_that_is_killed_anywhere_starts_and_finalizes_once() -> None:
    for number in itertools.count():
        world = Cutover()
        await world.converge()
        world.begin()
        try:
            world.die_at_call(number)
            await world.look()
        except KilledError:
            died = True
        else:
            died = False
        world.kube.fail = world.brokers.fail = lambda _: None
        world.restart()
        await world.look()
        await world.look()
        assert len(world.brokers.migrations.started) == 1
        if not died:
            break
        await world.to("redirected")
        world.edit(finalize=True)
        world.die_at_call(number)
        try:
            await world.look()
        except KilledError:
            pass
        world.kube.fail = world.brokers.fail = lambda _: None
        world.restart()
        await world.look()
        assert world.status(OVER)["phase"] == "Finalizing"
    assert number > 10
