"""SuperCluster: clusters that share an identity, credentials and one map of streams."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from supercluster.api.accounts import ACCOUNTS_MAX, Account, AccountStatus
from supercluster.api.common import (
    ApiModel,
    CelRule,
    Conditions,
    Resource,
    ShortText,
    Status,
    between,
    immutable,
    kept,
)
from supercluster.api.moves import MoveBudget
from supercluster.api.names import LabelName
from supercluster.api.recovery import RecoveryStatus
from supercluster.api.replica_policy import RepairRules
from supercluster.api.units import Duration

# An annotation of a SuperCluster: with each new value the authority that signs brokers' certificates is exchanged once.
EXCHANGE_AUTHORITY = "supercluster.dev/exchange-authority"
UUID_PATTERN = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


# Characters of all authorities that clients are to trust.
AUTHORITIES_MAX = 65536

_CREATED_AGAIN = "delete the Clusters and the SuperCluster, and create them again"


TlsStage = Literal["Off", "AcceptBoth", "DialTls", "Required"]
PortTls = Literal["Off", "Optional", "Required"]


class Tls(ApiModel):
    """TLS between brokers, where each side of a link shows a certificate, and by choice for clients and monitoring."""

    mode: Literal["Required", "Off"] = Field(
        default="Required",
        description="Required: links between brokers use TLS, and none without it is accepted. Off: links are not encrypted. A change is "
        "carried out by stages while brokers run (status.tls); brokers are restarted one by one at its beginning or its end, and no link is lost.",
    )
    issuer: Literal["Operator", "Secrets"] = Field(
        default="Operator",
        description="The signer of certificates. Operator: an authority of the super-cluster's own, whose key is in the Secret "
        "<name>-authority. Secrets: another program, such as cert-manager, makes the Secret <cluster>-tls of each Cluster with tls.crt, "
        "tls.key and ca.crt; the certificate has to be for brokers.<name>.<namespace>.supercluster.internal.",
    )
    certificate_lifetime: Duration = Field(
        default="2160h",
        description="How long a certificate that the operator issues is valid, 1h at least. Another one is issued when a third of that is left, and "
        "brokers take it over while they run.",
    )

    clients: PortTls = Field(
        default="Off",
        description="TLS on the brokers' port for clients. Off: clients connect in plain. Optional: each client as it likes. Required: with TLS alone. "
        "A change is carried out while brokers run, and Required and Off begin when no client is left that could not come back "
        "(status.tls.clients).",
    )
    monitoring: PortTls = Field(
        default="Off",
        description="The same for the brokers' monitoring port, by HTTP and HTTPS. Probes of a kubelet stay HTTP, and /healthz is answered to both.",
    )
    authority_overlap: Duration = Field(
        default="24h",
        description="How long clients have to load ca.crt of their Secret again when the operator exchanges its authority: brokers show no certificate of "
        "another one before. It counts where TLS for clients or monitoring is not Off.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="self.mode == 'Required' || (self.clients == 'Off' && self.monitoring == 'Off')",
            message="spec.tls.clients and spec.tls.monitoring use the brokers' certificates, which spec.tls.mode Off takes away: set both to Off too",
            field_path=".mode",
        ),
        CelRule(
            rule="self.issuer == oldSelf.issuer || oldSelf.mode == 'Off'",
            message="spec.tls.issuer can't be changed while TLS is on; set spec.tls.mode to Off, and the issuer when status.tls.stage is Off",
            field_path=".issuer",
        ),
        between("certificateLifetime", "1h", "8784h", "spec.tls."),
        between("authorityOverlap", "0s", "8784h", "spec.tls."),
    )


class MigrationDoor(ApiModel):
    """Whether another super-cluster may be migrated to this one."""

    enabled: bool | None = Field(
        default=None,
        description="true: brokers listen on ports.migration of their Cluster. Unset: they begin to when a Migration names this SuperCluster "
        "as green, and go on. Brokers are restarted one by one when that changes.",
    )


class SuperClusterSpec(ApiModel):
    """The desired state of a super-cluster."""

    identity: Annotated[str, StringConstraints(pattern=UUID_PATTERN, max_length=36)] | None = Field(
        default=None,
        description="Identity written to the brokers' volumes; brokers refuse volumes and peers of another one. Unset, it "
        "is this resource's uid. Set it to take over the retained volumes of a super-cluster that was deleted.",
    )
    application_user: LabelName = Field(
        default="app",
        description="User name that is generated for applications; the password is in the Secret <name>-client.",
    )
    accounts: tuple[Account, ...] = Field(
        default=(),
        max_length=ACCOUNTS_MAX,
        description="Accounts with limits that all brokers judge by, and what they export to and import from each other. An account "
        "needs no entry here: one without has no limits. Declared Streams are in account $G.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    moves: MoveBudget = Field(default=MoveBudget(), description="The budget that all moves of streams share.")
    repair: RepairRules = Field(
        default=RepairRules(),
        description="How lost replicas are replaced of declared streams for which no ReplicaPolicy counts.",
    )
    tls: Tls | None = Field(
        default=None,
        description="TLS on links between brokers, of all clusters, and for clients and monitoring. Unset, a new SuperCluster has it between "
        "brokers, and one that has brokers keeps what it has.",
    )
    migration: MigrationDoor = Field(
        default=MigrationDoor(),
        description="Whether another super-cluster may be migrated to this one.",
    )
    description: ShortText | None = Field(default=None, description="For people.")

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        kept(
            "identity", f"brokers' volumes bear it; to take over others, {_CREATED_AGAIN} with spec.identity"
        ),
        immutable("applicationUser", "declare a User with the other name, and give clients its Secret"),
        CelRule(
            rule="self.applicationUser != 'operator'",
            message="spec.applicationUser can't be operator: that is the operator's own user on the brokers",
            field_path=".applicationUser",
        ),
    )


class MemberStatus(ApiModel):
    """One cluster of the super-cluster."""

    name: str = Field(description="Name of the Cluster.")
    brokers: int = Field(default=0, description="Brokers it should have.")
    ready: int = Field(default=0, description="Brokers that are ready.")


class FounderStatus(ApiModel):
    """The cluster whose brokers start the map of streams; every later one joins it and never starts one of its own."""

    cluster: str = Field(description="Name of the Cluster.")
    uid: str = Field(default="", description="Its uid: another Cluster of that name is not the founder.")
    brokers: tuple[str, ...] = Field(default=(), description="The brokers that start the map of streams.")
    begun: bool = Field(
        default=False,
        description="Brokers said that they hold the map of streams. From then on no broker may begin one (joinOnly in its settings).",
    )
    anew: Annotated[str, StringConstraints(max_length=253)] = Field(
        default="",
        description="The last value of the annotation supercluster.dev/begin-map-anew that was dealt with: it permits no further "
        "beginning.",
    )


# Streams that are named; more of them count, and are not.
OTHER_MOVES_MAX = 64


UNDECLARED_POLICIES_MAX = 256
UNDECLARED_NAMED_MAX = 8


class MoveGrant(ApiModel):
    """A StreamMove that has a place in the budget."""

    name: str = Field(description="Name of the StreamMove.")
    uid: str = Field(default="", description="Its uid: another StreamMove of that name has no place.")
    ticket: int = Field(default=0, description="The ticket of its status that the place was given to.")


class WaitingRepair(ApiModel):
    """A stream whose replicas are to be exchanged, and are not being exchanged just now."""

    stream: str = Field(description="Name on the brokers.")
    reason: str = Field(default="", description="The reason for the wait.")


class UndeclaredStreams(ApiModel):
    """Streams that no resource declares, of one policy, with fewer usable replicas than they must have."""

    policy: str = Field(description="The ReplicaPolicy that counts for them.")
    below_minimum: int = Field(default=0, description="How many there are.")
    names: tuple[str, ...] = Field(
        default=(), max_length=UNDECLARED_NAMED_MAX, description="The first of them by name."
    )


class RepairStatus(ApiModel):
    """Streams with lost replicas."""

    below_minimum: int = Field(
        default=0, description="Streams with fewer usable replicas than they must have."
    )
    repairing: int = Field(default=0, description="Repairs under way, or in the queue of moves.")
    waiting_for_budget: int = Field(
        default=0,
        description="Streams whose repair is due and waits for the budget of its policy; no StreamMove is made yet.",
    )
    waiting: tuple[WaitingRepair, ...] = Field(
        default=(),
        max_length=OTHER_MOVES_MAX,
        description="Those that wait, and for what; at most 64 are named.",
    )
    undeclared: tuple[UndeclaredStreams, ...] = Field(
        default=(),
        max_length=UNDECLARED_POLICIES_MAX,
        description="Of those below their minimum the ones that no resource declares, by policy; at most 256 policies are "
        "named.",
    )
    lost_brokers: tuple[str, ...] = Field(
        default=(), max_length=OTHER_MOVES_MAX, description="Brokers that are out of contact."
    )


class LeavingStatus(ApiModel):
    """Streams with copies on brokers that go for good."""

    brokers: tuple[str, ...] = Field(
        default=(), max_length=OTHER_MOVES_MAX, description="Brokers that go and still hold copies."
    )
    streams: int = Field(default=0, description="Streams that have copies there.")
    moving: int = Field(
        default=0, description="StreamMoves that take copies away, under way or in the queue."
    )
    waiting: tuple[WaitingRepair, ...] = Field(
        default=(),
        max_length=OTHER_MOVES_MAX,
        description="Streams that can't be moved off just now, and why; at most 64 are named.",
    )


class MigrationDoorStatus(ApiModel):
    """The brokers' settings for links with another super-cluster."""

    port: bool = Field(default=False, description="They listen on ports.migration.")
    tls: bool = Field(default=False, description="These links are encrypted.")


class PortTlsStatus(ApiModel):
    """How far TLS on one port of the brokers is turned on."""

    stage: PortTls = Field(
        default="Off",
        description="Off: plain alone. Optional: both. Required: TLS alone. It changes by one when every broker reports the present one, and no connection "
        "is left that the next one does not accept.",
    )
    previous: PortTls = Field(
        default="Off", description="The stage before; equal when every broker reports this one."
    )


class TlsStatus(ApiModel):
    """How far TLS between brokers is turned on."""

    stage: TlsStage = Field(
        default="Off",
        description="Off: links are plain. AcceptBoth: brokers accept both and dial in plain. DialTls: they accept both and dial with TLS. Required: "
        "they accept TLS alone. It goes on when every broker reports the present one.",
    )
    previous: TlsStage = Field(default="Off", description="The stage before; equal at the beginning.")
    issuer: Literal["Operator", "Secrets"] = Field(
        default="Operator", description="The signer of the certificates in use."
    )
    clients: PortTlsStatus | None = Field(default=None, description="Of clients; absent: Off.")
    monitoring: PortTlsStatus | None = Field(default=None, description="Of monitoring; absent: Off.")
    authorities: str | None = Field(
        default=None,
        max_length=AUTHORITIES_MAX,
        description="The authorities that sign what brokers show to clients and monitoring, as PEM.",
    )


class SuperClusterStatus(Status):
    """The observed state of a super-cluster."""

    identity: str | None = Field(default=None, description="The identity in force.")
    members: tuple[MemberStatus, ...] = Field(
        default=(),
        description="Its clusters.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    founder: FounderStatus | None = Field(
        default=None,
        description="The cluster that starts the map of streams. Recorded once, before any broker is made; it changes only when nothing "
        "is left of what it began.",
    )
    streams: int = Field(default=0, description="Streams that are declared in it.")
    accounts: tuple[AccountStatus, ...] = Field(
        default=(),
        description="Every account in the spec, as the brokers last reported it.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    moves: tuple[MoveGrant, ...] = Field(
        default=(),
        description="StreamMoves that have a place in the budget of spec.moves. One worker gives them out, so that two never "
        "take the same place.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    other_moves: tuple[str, ...] = Field(
        default=(),
        max_length=OTHER_MOVES_MAX,
        description="Streams that the brokers move though no StreamMove has a place for it, as when a client asked for it. "
        "They count in the budget, and are shown while a StreamMove waits.",
    )
    repair: RepairStatus | None = Field(
        default=None, description="Streams with lost replicas; absent while there are none."
    )
    leaving: LeavingStatus | None = Field(
        default=None,
        description="Streams with copies on brokers that go for good; absent while there are none.",
    )
    map_recovery: RecoveryStatus | None = Field(
        default=None,
        description="The outcome of the last requested forced recovery of the map of streams.",
    )
    migration: MigrationDoorStatus | None = Field(
        default=None,
        description="The brokers' settings for links with another super-cluster; absent without any.",
    )
    tls: TlsStatus | None = Field(
        default=None,
        description="How far TLS between brokers is turned on; absent until it is recorded, before the first broker is made.",
    )
    client_secret: str | None = Field(
        default=None, description="Secret with user, password and url for applications."
    )
    conditions: Conditions = ()


class SuperCluster(Resource):
    """Clusters that share an identity, credentials and one map of streams."""

    spec: SuperClusterSpec = SuperClusterSpec()
    status: SuperClusterStatus = SuperClusterStatus()

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="size(self.metadata.name) <= 40 && !self.metadata.name.contains('.')",
            message="metadata.name must be a DNS label of at most 40 characters: names of Secrets are made from it",
        ),
    )

    @property
    def super_cluster(self) -> str:
        return self.metadata.name

    @property
    def identity(self) -> str:
        return self.spec.identity or self.metadata.uid
