"""Certificates of brokers: made once, renewed in time, and set right when somebody changes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.reconcilers.builders import NOW, cluster, super_cluster

from supercluster.reconcilers.planners.cluster import manifests
from supercluster.reconcilers.planners.cluster.certificates import (
    AuthorityView,
    CertificatesView,
    CertificateView,
    MarksView,
    lifetime_of,
    names_of,
    plan_certificates,
    server_name,
)
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    IDENTITY_ANNOTATION,
    IssueCertificate,
    MakeAuthority,
    Step,
)

DEMO = super_cluster(tls={})


def marks(manifest: dict[str, object]) -> MarksView:
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict)
    annotations = metadata["annotations"]
    cluster = annotations.get(CLUSTER_ANNOTATION, "")
    return MarksView(metadata["labels"], annotations[IDENTITY_ANNOTATION], cluster)


AUTHORITY = AuthorityView("ca", NOW + timedelta(days=3000), marks=marks(manifests.authority_secret(DEMO)))
EAST = CertificateView(
    "leaf",
    "ca",
    frozenset({"ca"}),
    frozenset(names_of(DEMO, cluster())),
    NOW + lifetime_of(DEMO),
    marks(manifests.certificate_secret(DEMO, cluster())),
)


def planned(
    authority: AuthorityView | None = AUTHORITY,
    east: CertificateView | None = EAST,
    after: timedelta = timedelta(),
) -> tuple[Step, ...]:
    found = {"east": east} if east is not None else {}
    return plan_certificates(DEMO, CertificatesView(authority, found), (cluster(),), NOW + after)


def test_nothing_is_made_for_a_super_cluster_that_asks_for_no_tls() -> None:
    assert plan_certificates(super_cluster(), CertificatesView(), (cluster(),), NOW) == ()


def test_the_authority_comes_first_then_one_certificate_per_cluster_then_nothing() -> None:
    (first,) = planned(None, None)
    assert isinstance(first, MakeAuthority)
    both = plan_certificates(DEMO, CertificatesView(AUTHORITY), (cluster("west"), cluster()), NOW)
    assert [str(step) for step in both] == [
        "issue a certificate in Secret east-tls",
        "issue a certificate in Secret west-tls",
    ]
    (step, _) = both
    assert isinstance(step, IssueCertificate)
    assert step.names == (
        "brokers.demo.demo-ns.supercluster.internal",
        "*.east-brokers.demo-ns.svc",
        "*.east-brokers.demo-ns.svc.cluster.local",
        "east.demo-ns.svc",
        "east.demo-ns.svc.cluster.local",
    )
    assert planned() == ()


def test_two_super_clusters_of_one_name_have_certificates_for_different_names() -> None:
    other = super_cluster("demo", meta={"namespace": "other-ns"}, tls={})
    assert server_name(DEMO) != server_name(other)


@pytest.mark.parametrize(
    "changed",
    [
        CertificateView(marks=EAST.marks),
        replace(EAST, issuer="another"),
        replace(EAST, authorities=frozenset({"ca", "another"})),
        replace(EAST, names=frozenset({"east.demo-ns.svc"})),
        replace(EAST, not_after=NOW + lifetime_of(DEMO) / 3 - timedelta(seconds=1)),
        replace(EAST, marks=MarksView()),
        None,
    ],
    ids=["unusable", "issuer", "authorities", "names", "ends", "marks", "gone"],
)
def test_a_certificate_that_is_not_as_it_has_to_be_is_issued_anew(changed: CertificateView | None) -> None:
    (step,) = planned(east=changed)
    assert isinstance(step, IssueCertificate)


def test_a_certificate_is_renewed_when_a_third_of_its_time_is_left() -> None:
    lifetime = lifetime_of(DEMO)
    assert planned(after=lifetime * 2 / 3) == ()
    (step,) = planned(after=lifetime * 2 / 3 + timedelta(seconds=1))
    assert step.note is not None
    assert "ends at 2026-04-02T03:04:05Z" in step.note.message


@pytest.mark.covers("SF-30")
def test_an_authority_that_nobody_can_read_is_left_as_it_is() -> None:
    assert (
        planned(replace(AUTHORITY, issuer="", broken="issuer.crt and issuer.key are no authority"), None)
        == ()
    )
    (step,) = planned(replace(AUTHORITY, marks=MarksView()))
    assert isinstance(step, MakeAuthority), "one that has lost its marks keeps its content"


def test_a_cluster_that_is_deleted_keeps_a_valid_certificate_and_gets_no_first_one() -> None:
    parting = cluster(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    late = NOW + lifetime_of(DEMO)
    for found, steps in (({"east": EAST}, 1), ({}, 0)):
        view = CertificatesView(AUTHORITY, found)
        assert len(plan_certificates(DEMO, view, (parting,), late)) == steps
