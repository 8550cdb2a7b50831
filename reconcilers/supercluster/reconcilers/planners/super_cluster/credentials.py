"""Plans for a super-cluster's credentials: those that brokers accept, in one Secret, and those that
applications connect with, in another.

Passwords are created when the step is executed, and never again for a user that has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supercluster.api import Cluster, SuperCluster
from supercluster.api.conditions import EventReason
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster import manifests
from supercluster.reconcilers.planners.cluster.certificates import MarksView
from supercluster.reconcilers.planners.drift import differences
from supercluster.reconcilers.planners.founding import first_of
from supercluster.reconcilers.planners.plan import (
    TRUST_ANNOTATION,
    Apply,
    MakeCredentials,
    Manifest,
    Note,
    Step,
)
from supercluster.reconcilers.planners.tls_ports import CLIENTS, authorities_for_clients, speaks_tls
from supercluster.reconcilers.planners.tls_stages import has_certificates

APPLICATION = "application"
OPERATOR = "operator"
ROUTE = "route"
GATEWAY = "gateway"
MIGRATION = "migration"
AUTHORITIES = "authorities of the migration port"


@dataclass(frozen=True, slots=True)
class CredentialsView:
    """What the credentials Secret has. Passwords are kept out of repr, so that no log shows them."""

    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By user of users.json."""
    operator_users: frozenset[str] = frozenset()
    """Those with the operator's role."""
    has_route: bool = False
    has_gateway: bool = False
    has_migration: bool = False
    """Somebody is let in on the migration port."""
    has_migration_authorities: bool = False
    broken: str = ""
    """Which files a person has made unreadable; nothing is written then."""
    marks: MarksView = field(default_factory=MarksView)

    def is_marked(self, manifest: Manifest) -> bool:
        """As ours, so that it is seen and not taken for somebody else's; by no owner that takes it along."""
        return not self.marks.owners and self.marks.are_those_of(manifest)

    def missing(
        self, application_user: str, *, takes_migrations: bool = False, has_tls: bool = False
    ) -> tuple[str, ...]:
        wanting = []
        if application_user not in self.passwords:
            wanting.append(APPLICATION)
        if naming.OPERATOR_USER not in self.operator_users:
            wanting.append(OPERATOR)
        if not self.has_route:
            wanting.append(ROUTE)
        if not self.has_gateway:
            wanting.append(GATEWAY)
        if takes_migrations and not self.has_migration:
            wanting.append(MIGRATION)
        if has_tls and not self.has_migration_authorities:
            wanting.append(AUTHORITIES)
        return tuple(wanting)


def plan_credentials(
    desired: SuperCluster,
    found: CredentialsView | None,
    client_secret: Mapping[str, Any] | None,
    clusters: tuple[Cluster, ...],
    *,
    takes_migrations: bool = False,
    is_application_declared: bool = False,
) -> tuple[Step, ...]:
    """`found` and `client_secret`: what there is; None: no such Secret. `is_application_declared`: a User has taken over the application
    user, and writes its Secret."""
    user = desired.spec.application_user
    credentials = found or CredentialsView()
    if credentials.broken:
        return ()
    made = plan_secret(desired, found, takes_migrations=takes_migrations)
    if made is not None:
        return (made,)
    if is_application_declared:
        return ()
    first = first_of(desired, clusters)
    has_tls = speaks_tls(desired, CLIENTS, by_choice=False)
    url = naming.client_url(first, has_tls=has_tls) if first else ""
    urls = ",".join(sorted(naming.client_url(cluster, has_tls=has_tls) for cluster in clusters))
    authorities = authorities_for_clients(desired)
    secret = manifests.client_secret(desired, user, credentials.passwords[user], url, urls, authorities)
    if client_secret is None or differences(secret, client_secret):
        return (Apply(secret),)
    was_trusted = TRUST_ANNOTATION in (client_secret["metadata"].get("annotations") or {})
    return (Apply(secret),) if was_trusted and not authorities else ()


def plan_secret(
    desired: SuperCluster, found: CredentialsView | None, *, takes_migrations: bool = False
) -> MakeCredentials | None:
    """The brokers' Secret alone, without which none of them is let in."""
    credentials, manifest = found or CredentialsView(), manifests.credentials_secret(desired)
    name, user = manifest["metadata"]["name"], desired.spec.application_user
    if credentials.broken or credentials.marks.terminating:
        return None
    missing = credentials.missing(user, takes_migrations=takes_migrations, has_tls=has_certificates(desired))
    if missing:
        reason = EventReason.DRIFT_REPAIRED if found is not None else EventReason.CREDENTIALS_GENERATED
        note = Note.done(reason, f"made credentials in Secret {name} for: {', '.join(missing)}")
        return MakeCredentials(manifest, user, missing, note=note)
    if not credentials.is_marked(manifest):
        note = Note.done(EventReason.DRIFT_REPAIRED, f"marked Secret {name} as ours; its content stays")
        return MakeCredentials(manifest, user, (), note=note)
    return None
