"""What a Migration's plan is made from: who comes first, what both sides say, and what the operator itself can tell (BG-2, BG-12)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reconcilers.builders import NOW, condition, metadata, with_status

from supercluster.api import Migration
from supercluster.api.conditions import Reason
from supercluster.api.migration import Finding, Proof, SideStatus, StageCounts, StalledStream
from supercluster.reconcilers.planners.migration.migration import plan_migration, start_body
from supercluster.reconcilers.planners.migration.preflight import report
from supercluster.reconcilers.planners.migration.views import (
    Handed,
    MigrationObserved,
    MigrationView,
    SideView,
    compare,
    needs_proof,
    overlap,
)
from supercluster.reconcilers.planners.plan import FinalizeMigration, StartMigration
from supercluster.reconcilers.planners.status import timestamp

STARTED = {"startedAt": timestamp(NOW)}


def migration(
    name: str = "over",
    status: dict[str, Any] | None = None,
    age: int = 0,
    namespace: str = "demo-ns",
    **spec: Any,
) -> Migration:
    whole = {"blue": {"superCluster": "demo"}, "green": {"superCluster": "next"}, **spec}
    body = {"metadata": metadata(name, age=age, namespace=namespace), "spec": whole, "status": status or {}}
    return Migration.model_validate(body)


def told(identity: str) -> SideView:
    return SideView(SideStatus(identity=identity, name=identity, version="1"), addresses=("g:7223",))


def observed(**changes: Any) -> MigrationObserved:
    return MigrationObserved(**{"blue": told("blue"), "green": told("green"), **changes})


def winner(own: Migration, *others: Migration, **changes: Any) -> str:
    found = overlap(own, observed(others=others, **changes))
    return found[0].metadata.name if found is not None else ""


A: dict[str, Any] = {"scope": {"account": "A"}}
B: dict[str, Any] = {"scope": {"account": "B"}}


@pytest.mark.covers("BG-2")
@pytest.mark.parametrize(
    ("other", "wins"),
    [
        (migration("older", age=9), "older"),
        (migration("younger", age=1), ""),
        (migration("younger", STARTED, age=1), "younger"),
        (migration("older", {"phase": "Succeeded", **STARTED}, age=9), ""),
        (migration("older", {"phase": "Aborted"}, age=9), ""),
        (migration("older", age=9, **A), "older"),
        (migration("older", age=9, blue={"superCluster": "other"}, green={"superCluster": "third"}), ""),
        (migration("older", age=9, namespace="elsewhere"), ""),
        (migration("older", age=9, blue={"superCluster": "next"}, green={"superCluster": "third"}), "older"),
        (migration("older", age=9, blue={"superCluster": "zero"}, green={"superCluster": "demo"}), "older"),
    ],
)
def test_of_migrations_that_overlap_one_comes_first(other: Migration, wins: str) -> None:
    assert winner(migration(age=5), other) == wins


@pytest.mark.covers("BG-2")
def test_accounts_of_their_own_do_not_overlap() -> None:
    assert winner(migration(**A), migration("older", age=9, **B)) == ""
    assert winner(migration(**A), migration("older", age=9, **A)) == "older"


@pytest.mark.covers("BG-2")
def test_blue_has_one_green_at_a_time() -> None:
    third: dict[str, Any] = {"green": {"superCluster": "third"}}
    assert winner(migration(**A), migration("older", age=9, **B, **third)) == "older"


def test_one_super_cluster_is_known_by_its_identity_whatever_it_is_called() -> None:
    by_url = {"urls": ["http://10.0.0.1:8222"], "credentialsSecret": "s"}
    known = {"blue": {"identity": "blue"}, "green": {"identity": "third"}}
    there = migration("older", known, age=9, namespace="elsewhere", blue=by_url)
    assert winner(migration(), there) == "older"
    same_url = migration(
        "older", age=9, namespace="elsewhere", blue={**by_url, "urls": ["http://10.0.0.1:8222/"]}
    )
    assert winner(migration(blue=by_url), same_url, blue=SideView()) == "older"


def test_one_that_is_being_deleted_and_never_started_holds_nothing_up() -> None:
    going = migration("older", age=9)
    gone = going.model_copy(
        update={"metadata": going.metadata.model_copy(update={"deletion_timestamp": timestamp(NOW)})}
    )
    assert winner(migration(), gone) == ""


LOGIN = Finding(level="Refused", code="CredentialsRefused", subject="green", message="not accepted")
CERTIFICATE = Finding(level="Refused", code="CertificateRefused", subject="green", message="not trusted")
TAKEN = Finding(level="Refused", code="NameTaken", subject="orders", message="is there")
BY_URL: dict[str, Any] = {"urls": ["http://10.0.0.1:8222"], "credentialsSecret": "s"}


@pytest.mark.covers("BG-12")
@pytest.mark.parametrize(
    ("findings", "green", "phase"),
    [
        ((LOGIN,), {"superCluster": "next"}, "Checking"),
        ((CERTIFICATE,), {"superCluster": "next"}, "Checking"),
        ((LOGIN, TAKEN), {"superCluster": "next"}, "Refused"),
        ((TAKEN,), {"superCluster": "next"}, "Refused"),
        ((LOGIN,), BY_URL, "Refused"),
    ],
    ids=["just given", "authorities too", "and more", "another", "given by a person"],
)
def test_a_user_that_the_operator_has_just_given_to_both_sides_is_waited_for(
    findings: tuple[Finding, ...], green: dict[str, Any], phase: str
) -> None:
    """Green's brokers read their Secret again a moment later; a Migration that was refused by then would show an error that is none."""
    seen = observed(is_shared=True, report=report(findings, timestamp(NOW)))
    plan = plan_migration(migration(green=green), seen, NOW)
    assert plan.status_patch is not None
    assert plan.status_patch["phase"] == phase


CUT = Handed("flights", "open", attempt=2, last_sequence=9, digest="ab")


@pytest.mark.covers("BG-12")
@pytest.mark.parametrize(
    ("green", "is_equal"),
    [
        (Handed("flights", "open", 2, 9, "ab", consumers=3), True),
        (Handed("flights", "hidden", 2, 9, "ab"), False),
        (Handed("flights", "open", 1, 9, "ab"), False),
        (Handed("flights", "open", 2, 8, "ab"), False),
        (Handed("flights", "open", 2, 9, "cd"), False),
        (Handed("trains", "open", 2, 9, "ab"), False),
    ],
)
def test_both_sides_have_to_say_the_same_of_a_cut(green: Handed, is_equal: bool) -> None:
    proof = compare([CUT], [green], NOW)
    assert (proof.streams, proof.differing) == ((1, ()) if is_equal else (0, ("flights",)))
    assert proof.consumers == (3 if is_equal else 0)


@pytest.mark.covers("BG-12")
def test_streams_that_are_not_over_yet_are_not_compared_and_few_are_named() -> None:
    assert compare([Handed("a", "handed", 1)], [], NOW).differing == ()
    many = [Handed(f"s{number:02}", "open", 1) for number in range(30)]
    assert len(compare(many, [], NOW).differing) == 10


def view(stage: str, **changes: Any) -> MigrationView:
    return MigrationView(stages=StageCounts(**{stage: 2}), **changes)


@pytest.mark.covers("BG-12")
def test_green_is_asked_until_it_is_proven_and_once_more_before_the_end() -> None:
    proven = {"proof": Proof(streams=2).to_object()}
    assert needs_proof(migration(status=STARTED), view("open"))
    assert not needs_proof(migration(status=STARTED | proven), view("redirected"))
    assert needs_proof(migration(status=STARTED | proven, finalize=True), view("redirected"))
    assert needs_proof(migration(status=STARTED | {"proof": Proof(streams=1).to_object()}), view("open")), (
        "a new stream"
    )
    assert not needs_proof(migration(status=STARTED), view("handed"))
    assert not needs_proof(migration(status=STARTED), view("final", is_final=True))


@pytest.mark.covers("BG-8", "SF-21")
def test_finalize_is_carried_out_in_a_later_look_than_the_statement() -> None:
    """Even where the API server let it pass: a person has to have been able to read it."""
    own = migration(status=STARTED, finalize=True)
    seen = observed(state=view("redirected"), proof=Proof(streams=2))
    first = plan_migration(own, seen, NOW)
    assert first.steps == ()
    stated = with_status(own, first)
    assert condition(first.status_patch, "PointOfNoReturn")["reason"] == "AwaitingFinalize"
    assert [type(step) for step in plan_migration(stated, seen, NOW).steps] == [FinalizeMigration]
    stale = observed(state=view("redirected"), proof_error="green is silent")
    assert plan_migration(stated, stale, NOW).steps == (), "nor by a comparison of an earlier look"
    differing = observed(state=view("redirected"), proof=Proof(streams=1, differing=("flights",)))
    assert plan_migration(stated, differing, NOW).steps == ()


def test_a_clean_up_that_stands_still_says_why_and_what_ends_it() -> None:
    """A stream was deleted on green: it is never compared again, and blue's copies stay."""
    stalled = StalledStream(
        account="$G", name="flights", stage="redirected", reason="green does not confirm it"
    )
    seen = observed(state=view("redirected", is_final=True, stalled=(stalled,), stalled_total=1))
    ready = condition(
        plan_migration(migration(status=STARTED, finalize=True), seen, NOW).status_patch, "Ready"
    )
    assert (ready["status"], ready["reason"]) == ("False", "StreamsStalled")
    assert "flights, redirected: green does not confirm it" in ready["message"]
    differing = observed(state=view("redirected"), proof=Proof(streams=1, differing=("flights",)))
    ready = condition(plan_migration(migration(status=STARTED), differing, NOW).status_patch, "Ready")
    assert "/discard on blue" in ready["message"]


def test_a_plan_is_the_same_for_the_same_look_and_empty_when_all_is_said() -> None:
    own, seen = migration(status=STARTED), observed(state=view("learning"))
    first = plan_migration(own, seen, NOW)
    assert first == plan_migration(own, seen, NOW)
    again = plan_migration(with_status(own, first), seen, NOW)
    assert again.is_empty


def test_nothing_is_started_while_blue_does_not_say_whether_it_was() -> None:
    """An operator that was killed behind the start, and a blue that is silent for a moment: no second start is planned."""
    seen = observed(state_error=(Reason.BROKERS_UNREACHABLE, "no answer"))
    found = plan_migration(migration(), seen, NOW)
    assert not [step for step in found.steps if isinstance(step, StartMigration)]


@pytest.mark.covers("BG-1")
@pytest.mark.parametrize("clusters", [{}, {"west": "east"}])
def test_the_brokers_are_told_how_clusters_are_called_on_green(clusters: dict[str, str]) -> None:
    """The same for preflight and for the start: a call that differs is refused by blue's brokers."""
    spec: dict[str, Any] = {"clusters": clusters} if clusters else {}
    assert start_body(migration(**spec), told("green"))["clusters"] == clusters
