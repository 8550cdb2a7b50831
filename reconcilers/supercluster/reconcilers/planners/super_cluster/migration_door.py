"""The configuration of a super-cluster's brokers for links with another one, for a migration in either
direction.
"""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.api import Migration, SuperCluster
from supercluster.api.super_cluster import MigrationDoorStatus
from supercluster.reconcilers.planners.super_cluster.credentials import CredentialsView
from supercluster.reconcilers.planners.tls_stages import OFF


def takes_migrations(desired: SuperCluster, migrations: Sequence[Migration]) -> bool:
    """Is another one to be let in? Once a Migration asked for it, that stays until a person says otherwise: closing the port restarts
    the brokers again."""
    if desired.spec.migration.enabled is not None:
        return desired.spec.migration.enabled
    was_open = desired.status.migration is not None and desired.status.migration.port
    return was_open or any(each.spec.green.super_cluster == desired.metadata.name for each in migrations)


def migration_door(
    desired: SuperCluster,
    migrations: Sequence[Migration],
    credentials: CredentialsView | None,
    tls_stage: str,
) -> MigrationDoorStatus | None:
    """With certificates, the port waits for the file of authorities, without which brokers could not begin. A Migration adds those of
    the other side while brokers run."""
    found = credentials or CredentialsView()
    has_tls = tls_stage != OFF
    is_wanted = takes_migrations(desired, migrations) and found.has_migration
    door = MigrationDoorStatus(
        port=is_wanted and (not has_tls or found.has_migration_authorities),
        tls=has_tls and found.has_migration_authorities,
    )
    return door if door.port or door.tls else None
