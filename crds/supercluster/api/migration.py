"""Migration: a cutover of one live super-cluster, blue, to another one, green (BG-1, BG-2, BG-8, BG-9,
BG-12).

It is checked before it starts, watched while the streams are handed over, and ended by `spec.finalize` alone,
after the status has named the point of no return. The status stays small for any number of streams: counts,
the worst cases, and some names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from supercluster.api.accounts import AccountName
from supercluster.api.common import (
    ApiModel,
    CelRule,
    Conditions,
    Resource,
    ShortText,
    Status,
    Time,
)
from supercluster.api.moves import Approval
from supercluster.api.names import LabelName, ObjectName

Phase = Literal[
    "Pending",
    "Checking",
    "Refused",
    "AwaitingApproval",
    "Running",
    "Aborting",
    "Aborted",
    "Open",
    "AwaitingFinalize",
    "Finalizing",
    "Succeeded",
]
# A host and a port, or an address of IPv6 in brackets.
ADDRESS_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"
URL_PATTERN = r"^https?://([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?$"
Url = Annotated[str, StringConstraints(pattern=URL_PATTERN, max_length=253)]
Address = Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN, max_length=253)]
# Of super-clusters that are somewhere else too, which no operator may have made: as brokers take it.
ClusterName = Annotated[str, StringConstraints(pattern=r"^[^\s.*>/\\]+$", min_length=1, max_length=255)]
URLS_MAX = 8
# As many as a broker takes in the call that starts a migration.
CLUSTERS_MAX = 64
MIGRATION_NAME_LENGTH_MAX = 63
"""The brokers know a migration by its namespace, name and uid."""
FINDINGS_MAX = 20
STALLED_MAX = 10
PUBLISHERS_MAX = 10
PUBLISHED_STREAMS_MAX = 8
# The type of the Secrets that a Migration may name: no other Secret of the namespace is read and sent to somebody's address.
SECRET_TYPE = "supercluster.dev/migration"
NO_WAY_BACK = "there is no way back to blue yet (docs/guides/cutover.md)"
"""SF-21 in words: blue keeps the record of a stream that it handed over, and refuses its name to a Migration from green."""


class Side(ApiModel):
    """One of the two super-clusters: a resource of the same namespace, or one somewhere else by its addresses."""

    super_cluster: LabelName | None = Field(
        default=None, description="Name of the SuperCluster, in the same namespace."
    )
    urls: tuple[Url, ...] = Field(
        default=(),
        max_length=URLS_MAX,
        description="Instead: monitoring ports of its brokers, such as http://10.0.0.7:8222. Any of them answers.",
    )
    addresses: tuple[Address, ...] = Field(
        default=(),
        max_length=URLS_MAX,
        description="With urls, of green: migration ports of its brokers, as blue's brokers reach them, such as 10.0.0.7:7223. Unset: the "
        "hosts of urls, with the port that green's brokers tell.",
    )
    credentials_secret: ObjectName | None = Field(
        default=None,
        description=f"With urls: a Secret of the type {SECRET_TYPE} with `user` and `password` of a user with the role operator, and of green "
        "with `migrationUser` and `migrationPassword`, by which its migration port lets blue's brokers in.",
    )
    ca_secret: ObjectName | None = Field(
        default=None,
        description=f"With urls: a Secret of the type {SECRET_TYPE} with `ca.crt`, the authorities that certificates of that side are checked "
        "against.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="has(self.superCluster) != (has(self.urls) && size(self.urls) > 0)",
            message="either superCluster or urls must be set, and not both",
        ),
        CelRule(
            rule="!has(self.urls) || size(self.urls) == 0 || has(self.superCluster) || has(self.credentialsSecret)",
            message="urls need credentialsSecret: a Secret with user and password of a user with the role operator",
        ),
        CelRule(
            rule="!has(self.superCluster) || !(has(self.credentialsSecret) || has(self.caSecret) || (has(self.addresses) && "
            "size(self.addresses) > 0))",
            message="credentialsSecret, caSecret and addresses are for urls; of a SuperCluster the operator knows them",
        ),
    )

    @property
    def text(self) -> str:
        """For people."""
        return f"SuperCluster {self.super_cluster}" if self.super_cluster else self.urls[0]


class Scope(ApiModel):
    """The streams and clients that are migrated."""

    account: AccountName | None = Field(
        default=None,
        description="All streams and clients of this account; unset: of the whole super-cluster.",
    )
    streams: tuple[ShortText, ...] = Field(
        default=(), max_length=1, description="Reserved; a selection of streams is refused."
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="!has(self.streams) || size(self.streams) == 0",
            message="spec.scope.streams: a selection of streams is not implemented; name an account, or leave the scope out for the whole "
            "super-cluster",
            field_path=".streams",
        ),
    )


class ClientPolicy(ApiModel):
    """The treatment of clients."""

    cannot_follow: Literal["Refuse", "Bridge"] = Field(
        default="Refuse",
        description="Clients that cannot be redirected. Refuse: the migration does not start while there are any, and names them. Bridge: blue "
        "forwards for them until it is switched off.",
    )


class MigrationSpec(ApiModel):
    """The migration of streams and clients from blue to green."""

    blue: Side = Field(description="The super-cluster that is left.")
    green: Side = Field(description="The super-cluster that takes over.")
    scope: Scope = Field(default=Scope(), description="The streams and clients that are migrated.")
    clusters: dict[str, ClusterName] | None = Field(
        default=None,
        max_length=CLUSTERS_MAX,
        description="Names of blue's clusters on green. With {west: east}, streams placed in west are placed in east on green. A name that "
        "is not here stays if green has it; else green's only cluster takes its place.",
    )
    clients: ClientPolicy = Field(default=ClientPolicy(), description="The treatment of clients.")
    approval: Approval = Field(
        default="Automatic",
        description="Automatic: it starts once preflight has passed. Manual: it waits until spec.approved is true.",
    )
    approved: bool = Field(default=False, description="With approval Manual: it may start.")
    abort: bool = Field(
        default=False,
        description="Go back. Streams that green has opened by then stay there. Once all are open it changes nothing more, "
        "and false lets finalize be true.",
    )
    finalize: bool = Field(
        default=False,
        description="Pass the point of no return: blue's copies are deleted. It is refused until the condition PointOfNoReturn has said what that "
        "means.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="!oldSelf.finalize || self.finalize",
            message="spec.finalize can't be taken back: blue's copies are being deleted",
            field_path=".finalize",
        ),
        CelRule(
            rule="!(self.abort && self.finalize)",
            message="spec.abort and spec.finalize can't both be true",
        ),
        CelRule(
            rule="!has(self.blue.superCluster) || !has(self.green.superCluster) || self.blue.superCluster != self.green.superCluster",
            message="spec.blue and spec.green must be two super-clusters",
            field_path=".green",
        ),
    )


class Finding(ApiModel):
    """One thing that preflight found."""

    level: Literal["Refused", "Warning"] = Field(description="Refused: the migration does not start.")
    code: Annotated[str, StringConstraints(max_length=64)] = Field(
        description="The kind of the finding, as one word for programs."
    )
    subject: ShortText = Field(default="", description="The stream, account, broker or client.")
    message: Annotated[str, StringConstraints(max_length=1024)] = Field(
        default="", description="The finding."
    )
    remedy: Annotated[str, StringConstraints(max_length=1024)] = Field(default="", description="The remedy.")


class PreflightReport(ApiModel):
    """The findings before the start."""

    checked_at: Time = Field(default="", description="When it was made.")
    streams: int = Field(default=0, description="Streams in scope.")
    bytes: int = Field(default=0, description="Bytes that they hold.")
    clients_cannot: int = Field(default=0, description="Clients that cannot be redirected.")
    clients_may: int = Field(default=0, description="Clients that may follow: their own options decide.")
    refused: int = Field(default=0, description="Findings that speak against the start.")
    warnings: int = Field(default=0, description="Findings to know of.")
    findings: tuple[Finding, ...] = Field(
        default=(),
        max_length=FINDINGS_MAX,
        description="Those that refuse it first; at most 20 are named.",
    )


class StageCounts(ApiModel):
    """How many streams have come to which stage. Each is counted once, in the furthest."""

    pending: int = Field(default=0, description="Not begun.")
    learning: int = Field(default=0, description="Green's hidden copies catch up.")
    fenced: int = Field(default=0, description="Blue takes no writes, and may take that back.")
    handed: int = Field(default=0, description="Handed over; green has not said yet that it took it.")
    open: int = Field(default=0, description="Served by green; clients are still on blue.")
    redirected: int = Field(
        default=0, description="Served by green, and every client that can follow is there."
    )
    final: int = Field(default=0, description="The point of no return is passed.")
    cleaned: int = Field(default=0, description="Blue's copies are deleted.")

    @property
    def on_green(self) -> int:
        return self.open + self.redirected + self.final + self.cleaned

    @property
    def before_handed(self) -> int:
        return self.pending + self.learning + self.fenced

    @property
    def total(self) -> int:
        return self.before_handed + self.handed + self.on_green


class Lag(ApiModel):
    """By how much green's copy that is furthest behind lags."""

    entries: int = Field(default=0, description="Log entries that it has not acknowledged.")
    milliseconds: int = Field(
        default=0, description="How long ago the first of them was written, less a round trip to green."
    )


class StalledStream(ApiModel):
    """A stream that makes no progress."""

    account: ShortText = Field(default="", description="Its account.")
    name: ShortText = Field(description="Its name on the brokers.")
    stage: ShortText = Field(default="", description="Where it stands.")
    reason: Annotated[str, StringConstraints(max_length=1024)] = Field(
        default="", description="Why, and what to do about it."
    )


class Publisher(ApiModel):
    """A client that publishes through blue to streams that were handed over."""

    name: ShortText = Field(default="", description="The name that it gave itself.")
    account: ShortText = Field(default="", description="Its account.")
    user: ShortText = Field(default="", description="The user that it logged in as.")
    address: ShortText = Field(default="", description="The address that it connected from.")
    language: ShortText = Field(default="", description="The language of its client library.")
    messages: int = Field(default=0, description="Messages that it published through blue to such streams.")
    streams: tuple[ShortText, ...] = Field(
        default=(),
        max_length=PUBLISHED_STREAMS_MAX,
        description="Those that it publishes to; at most 8 are named.",
    )


class ClientCounts(ApiModel):
    """Clients of blue in scope."""

    cannot: int = Field(default=0, description="Those that cannot be redirected.")
    may: int = Field(default=0, description="Those that may follow: their own options decide.")
    still_on_blue: int = Field(default=0, description="Those that are connected to blue.")
    publishers_still_on_blue: int = Field(
        default=0,
        description="Clients on blue that have published to streams that were handed over.",
    )
    publishers: tuple[Publisher, ...] = Field(
        default=(),
        max_length=PUBLISHERS_MAX,
        description="Those with the most messages; at most 10 are named.",
    )


class SideStatus(ApiModel):
    """A super-cluster as its brokers say it is."""

    identity: ShortText = Field(default="", description="Its identity.")
    name: ShortText = Field(default="", description="Its name.")
    version: ShortText = Field(default="", description="The version of the broker that answered.")


class Proof(ApiModel):
    """The comparison of what blue handed and what green says that it opened."""

    compared_at: Time = Field(default="", description="When it was made.")
    streams: int = Field(
        default=0, description="Streams whose attempt, last sequence and digest are equal on both sides."
    )
    consumers: int = Field(default=0, description="Consumers that green has on them.")
    differing: tuple[ShortText, ...] = Field(
        default=(), max_length=STALLED_MAX, description="Streams of which green says otherwise, or nothing."
    )


class MigrationStatus(Status):
    """The observed state of a migration."""

    phase: Phase | None = Field(default=None, description="How far it is.")
    migration_id: ShortText | None = Field(
        default=None, description="Its identity on the brokers: namespace, name and uid."
    )
    blue: SideStatus | None = Field(default=None, description="Blue, by its own answer.")
    green: SideStatus | None = Field(default=None, description="Green, by its own answer.")
    preflight: PreflightReport | None = Field(default=None, description="The findings before the start.")
    streams: int | None = Field(default=None, description="Streams in scope.")
    on_green: int | None = Field(default=None, description="Those that green serves.")
    stages: StageCounts | None = Field(default=None, description="Number of streams in each stage.")
    worst_lag: Lag | None = Field(
        default=None, description="Lag of the stream whose copy on green is furthest behind."
    )
    stalled: tuple[StalledStream, ...] = Field(
        default=(),
        max_length=STALLED_MAX,
        description="Streams that make no progress; at most 10 are named.",
    )
    stalled_total: int | None = Field(default=None, description="How many there are.")
    clients: ClientCounts | None = Field(default=None, description="Clients of blue in scope.")
    proof: Proof | None = Field(
        default=None, description="Whether green's own address confirms what was handed to it."
    )
    started_at: Time | None = Field(
        default=None,
        description="When it was started; from then on blue, green, scope, clients and clusters can't be changed.",
    )
    opened_at: Time | None = Field(
        default=None,
        description="When green served all streams, by its own answer; from then on it can't be aborted.",
    )
    point_of_no_return_at: Time | None = Field(
        default=None, description="When the point of no return was stated; spec.finalize is refused before."
    )
    ended_at: Time | None = Field(default=None, description="When it ended.")
    message: Annotated[str, StringConstraints(max_length=4096)] | None = Field(
        default=None, description="Its progress or the reason for its wait, or how it ended, for people."
    )
    conditions: Conditions = ()


class Migration(Resource):
    """A cutover of a live super-cluster, blue, to another one, green: streams, consumers and clients."""

    spec: MigrationSpec
    status: MigrationStatus = MigrationStatus()

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="!has(oldSelf.status) || !has(oldSelf.status.startedAt) || (self.spec.blue == oldSelf.spec.blue && self.spec.green == "
            "oldSelf.spec.green && self.spec.scope == oldSelf.spec.scope && self.spec.clients == oldSelf.spec.clients && has(self.spec.clusters) == has(oldSelf.spec.clusters) && "
            "(!has(self.spec.clusters) || self.spec.clusters == oldSelf.spec.clusters))",
            message="spec.blue, spec.green, spec.scope, spec.clients and spec.clusters can't be changed once the migration has started; set spec.abort, and "
            "create another Migration",
        ),
        CelRule(
            rule="!has(oldSelf.status) || !has(oldSelf.status.openedAt) || oldSelf.spec.abort || !self.spec.abort",
            message=f"spec.abort: green serves all streams, and {NO_WAY_BACK}",
        ),
        CelRule(
            rule="!self.spec.finalize || (has(self.status) && has(self.status.pointOfNoReturnAt))",
            message="spec.finalize: the point of no return is not stated yet; the condition PointOfNoReturn says when it is, and what it means",
        ),
    )

    @staticmethod
    def named_super_clusters(spec: Mapping[str, Any]) -> tuple[str, ...]:
        """Blue and green, as far as they are resources."""
        sides = (spec.get("blue"), spec.get("green"))
        if not all(isinstance(side, Mapping) for side in sides):
            return ("",)
        named = (side.get("superCluster") for side in sides if isinstance(side, Mapping))
        return tuple(dict.fromkeys(name for name in named if isinstance(name, str)))

    @property
    def super_cluster(self) -> str:
        """Blue's, whose brokers carry it out; empty: it is somewhere else."""
        return self.spec.blue.super_cluster or ""

    @property
    def id(self) -> str:
        """Of the migration on the brokers: starting it twice is starting it once."""
        metadata = self.metadata
        return f"{metadata.namespace}/{metadata.name}/{metadata.uid}"
