"""User: the credential and the permissions of a client, and the rotation of the credential (CL-5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from supercluster.api.accounts import AccountName, Count, Subject
from supercluster.api.common import (
    ApiModel,
    CelRule,
    Conditions,
    Resource,
    ShortText,
    Status,
    Time,
    between,
    immutable,
    kept,
)
from supercluster.api.names import LabelName, UserName
from supercluster.api.units import Duration, Period, Size

# An annotation of a User: with each new value its credential is exchanged once.
ROTATE = "supercluster.dev/rotate"
# The same of a SuperCluster, for what brokers show each other and what the operator shows them.
ROTATE_CREDENTIALS = "supercluster.dev/rotate-credentials"
PATTERNS_MAX = 256
DEFAULT_ACCOUNT = "$G"
# Clients that a status names; more of them are counted.
CLIENTS_NAMED_MAX = 16
BROKERS_NAMED_MAX = 8
KEY_PATTERN = r"^[-._a-zA-Z0-9]+$"


class SecretKey(ApiModel):
    """One key of a Secret in the same namespace."""

    name: ShortText = Field(min_length=1, description="Name of the Secret.")
    key: Annotated[str, StringConstraints(pattern=KEY_PATTERN, max_length=253)] = Field(
        default="password", description="Its key that has the password."
    )


class Authentication(ApiModel):
    """The credential that the client presents."""

    type: Literal["Password", "NKey"] = Field(
        default="Password",
        description="Password: user and password. NKey: the client signs what the broker sends it with an Ed25519 seed.",
    )
    password_from: SecretKey | None = Field(
        default=None,
        description="A password that is given. Unset: one is generated. A change of it is a rotation.",
    )
    public_key: Annotated[str, StringConstraints(max_length=128)] | None = Field(
        default=None,
        description="The public key of an NKey whose seed the client has; it begins with U. Unset: a seed is generated. A change of "
        "it is a rotation.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            rule="self.type == 'Password' || !has(self.passwordFrom)",
            message="spec.authentication.passwordFrom is for type Password; leave it out or set type to Password",
            field_path=".passwordFrom",
        ),
        CelRule(
            rule="self.type == 'NKey' || !has(self.publicKey)",
            message="spec.authentication.publicKey is for type NKey; leave it out or set type to NKey",
            field_path=".publicKey",
        ),
    )


class SubjectRules(ApiModel):
    """Subjects by NATS's rules: a denied subject is denied, whatever allows it."""

    allow: tuple[Subject, ...] | None = Field(
        default=None,
        max_length=PATTERNS_MAX,
        description="Subjects with * and >; unset is all, an empty list is none.",
    )
    deny: tuple[Subject, ...] = Field(
        default=(), max_length=PATTERNS_MAX, description="Subjects with * and > that are not allowed."
    )


class Responses(ApiModel):
    """Answers to requests that the client received."""

    max: int = Field(default=1, ge=0, le=2**31 - 1, description="Answers to one request.")
    ttl: Duration = Field(default="2m", description="How long it may answer.")


class Permissions(ApiModel):
    """The permissions of a client; an unset field is no limit."""

    publish: SubjectRules = Field(default=SubjectRules(), description="Subjects that it may publish to.")
    subscribe: SubjectRules = Field(
        default=SubjectRules(),
        description="Subjects that it may subscribe to; a queue group may follow after a space.",
    )
    responses: Responses | None = Field(
        default=None,
        description="It may answer requests that it receives, whatever publish allows.",
    )


class UserLimits(ApiModel):
    """The limits of a user's clients. Each broker counts its own; a limit of the account counts too."""

    connections_max: Count | None = Field(default=None, description="Connections to each broker.")
    subscriptions_max: Count | None = Field(default=None, description="Subscriptions of each connection.")
    payload_max: Size | None = Field(default=None, description="Bytes of each message.")


class Rotation(ApiModel):
    """When the credential is exchanged, and how long the former one is accepted."""

    counter: int = Field(
        default=0,
        ge=0,
        le=2**31 - 1,
        description="A rotation begins with each other value of it.",
    )
    after: Period | None = Field(
        default=None, description="A rotation begins when the credential is as old as this, such as 90d."
    )
    deadline: Time | None = Field(
        default=None,
        description="The former credential is withdrawn at this time, even if clients still present it. Unset: it stays until none does.",
    )
    deadline_after: Period | None = Field(
        default=None,
        description="The same, counted from the moment at which clients can read the new credential. The earlier of the two counts.",
    )
    quiet_time: Duration = Field(
        default="2m",
        description="The former credential is withdrawn when no broker has seen it for so long, and the new one has been published for as "
        "long. Nodes may hand out a Secret that is a minute old.",
    )
    suspend: bool = Field(
        default=False, description="true: no rotation begins, and one under way goes no further."
    )
    cancel: bool = Field(
        default=False,
        description="true: a rotation under way is taken back, and none begins. Clients that show the new credential have until the "
        "deadline to return to the former one.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        between("quietTime", "1s", "24h", "spec.rotation."),
        CelRule(
            rule="!(self.suspend && self.cancel)",
            message="spec.rotation.suspend and spec.rotation.cancel can't both be true; set suspend to false to take it back",
            field_path=".suspend",
        ),
    )


# Clients roll over to its credential before this one's is withdrawn.
_SECOND_USER = "create another User with the new value, give clients its Secret, and delete this one"


class UserSpec(ApiModel):
    """A user of a super-cluster."""

    super_cluster: LabelName = Field(description="Name of the SuperCluster, in the same namespace.")
    name: UserName | None = Field(
        default=None,
        description="The user name that clients show. Unset is the resource's name.",
    )
    account: AccountName = Field(
        default=DEFAULT_ACCOUNT,
        description="Its account: $G, or one of spec.accounts of the SuperCluster.",
    )
    authentication: Authentication = Field(
        default=Authentication(), description="The credential that clients present."
    )
    permissions: Permissions | None = Field(
        default=None, description="The permissions of clients; unset is everything in their account."
    )
    limits: UserLimits = Field(default=UserLimits(), description="The limits of its clients.")
    rotation: Rotation = Field(default=Rotation(), description="How its credential is exchanged.")
    adopt: bool = Field(
        default=False,
        description="true: takes over the user of that name that is in users.json by hand, with its password.",
    )
    deletion_policy: Literal["WhenUnused", "Immediately"] = Field(
        default="WhenUnused",
        description="WhenUnused: a deleted User stays until none of its clients is connected. Immediately: they are cut off.",
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        immutable("superCluster", _SECOND_USER),
        immutable("account", _SECOND_USER),
        kept("name", _SECOND_USER),
    )


class ClientUse(ApiModel):
    """Clients that show a credential."""

    address: str = Field(default="", description="The address that they come from.")
    name: str = Field(default="", description="The name that they give themselves.")
    client: str = Field(default="", description="Their library and its version.")
    connections: int = Field(default=0, description="How many there are.")


class RotationStatus(ApiModel):
    """A rotation under way."""

    stage: str = Field(
        default="",
        description="Introducing: brokers take the new credential over. ClientsRolling: clients can read it, and the former one is "
        "accepted. Withdrawing: brokers drop the former one.",
    )
    former: int | None = Field(
        default=None,
        description="Number of the credential that is to be withdrawn, or is in force until then.",
    )
    started_at: Time | None = Field(default=None, description="When clients could read the new credential.")
    deadline: Time | None = Field(
        default=None, description="When the former one is withdrawn, even if clients still present it."
    )
    connections: int = Field(default=0, description="Connections that show the former credential.")
    clients: tuple[ClientUse, ...] = Field(
        default=(),
        max_length=CLIENTS_NAMED_MAX,
        description="Those connections' clients; at most 16 are named.",
    )
    waits_for: tuple[str, ...] = Field(
        default=(), max_length=BROKERS_NAMED_MAX, description="Brokers that the stage waits for."
    )


class UserStatus(Status):
    """The observed state of a user."""

    user: str | None = Field(default=None, description="The user name that clients show.")
    secret: str | None = Field(default=None, description="Secret with what clients need to connect.")
    credential: int | None = Field(default=None, description="Number of the credential in the Secret.")
    since: Time | None = Field(default=None, description="Since when it is in the Secret.")
    connections: int = Field(default=0, description="Connections of the user, when brokers were last asked.")
    rotation: RotationStatus | None = Field(
        default=None, description="The rotation under way; absent while there is none."
    )
    conditions: Conditions = ()


class User(Resource):
    """A user of a super-cluster: a credential in a Secret, permissions, and its rotation."""

    spec: UserSpec
    status: UserStatus = UserStatus()

    @staticmethod
    def claimed_name(spec: Mapping[str, Any], name: str) -> str:
        return f"{spec.get('account') or DEFAULT_ACCOUNT}/{spec.get('name') or name}"

    @property
    def user_name(self) -> str:
        return self.spec.name or self.metadata.name

    @property
    def claim(self) -> str:
        """Account and name; one User may have them."""
        return f"{self.spec.account}/{self.user_name}"
