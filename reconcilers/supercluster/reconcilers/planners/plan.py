"""The result of a planner: steps for `execute`, in order, the change of status, and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from supercluster.api import crd
from supercluster.api.conditions import EventReason, Reason, is_warning

# What the broker's files are told apart by: who made an object, and for which resource.
MANAGED_BY = "supercluster-operator"
LABEL_SUPER_CLUSTER = "supercluster.dev/super-cluster"
LABEL_CLUSTER = crd.CLUSTER.child_label
LABEL_PIPELINE = crd.STREAM_PIPELINE.child_label
LABEL_USER = crd.USER.child_label
FINALIZER = "supercluster.dev/deletion-policy"
# On claims and credentials: the identity of the super-cluster that they belong to. A label has only its name, which another one
# may have had before.
IDENTITY_ANNOTATION = "supercluster.dev/identity"
# On the objects of a Cluster: its uid. They have no owner: Kubernetes would delete them while the brokers still need them.
# On the Secret of the application user: its ca.crt is ours.
TRUST_ANNOTATION = "supercluster.dev/trusts-authorities"
CLUSTER_ANNOTATION = "supercluster.dev/cluster-uid"

Manifest = Mapping[str, Any]


class Ground(StrEnum):
    """Why an object may be deleted. What has to be shown for each is in `execute/destructive.py`."""

    CLUSTER_DELETED = "its Cluster is deleted with deletionPolicy Delete"
    BROKERS_PARTED = "its Cluster is deleted, and its brokers have parted from the others"
    BROKERS_GONE = "its Cluster is deleted and has no broker any more"
    BROKER_DRAINED = "its broker was drained and went"
    VOLUME_UNUSABLE = "its container never started, since its volume claim is gone or goes"
    RESTART = "its broker takes over a change"
    CREDENTIALS_UNUSED = "its SuperCluster is deleted and has no Cluster any more"
    DRIVER_REPLACED = "its StreamPipeline has another driver now"
    MOVE_NOT_NEEDED = "the StreamMove is ours and is not needed any more"


@dataclass(frozen=True, slots=True)
class Note:
    """An event to be: something was done, or a condition that people should look at came up."""

    reason: EventReason | Reason
    message: str
    warning: bool

    @classmethod
    def done(cls, reason: EventReason, message: str) -> Note:
        return cls(reason, message, is_warning(reason))


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to carry out. Its text names it for people; `execute` has a handler for each type of it."""

    note: Note | None = field(default=None, kw_only=True)
    """The event that tells of it."""


@dataclass(frozen=True, slots=True)
class Apply(Step):
    """Server-side apply of one object of ours."""

    manifest: Manifest

    def __str__(self) -> str:
        return f"apply {self.manifest['kind']} {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class DeleteObject(Step):
    """Delete one object of ours, only while it is the one that was seen and the ground for it can be shown."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    ground: Ground

    def __str__(self) -> str:
        return f"delete {self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class ExpandClaim(Step):
    """Ask for a larger volume."""

    namespace: str
    name: str
    size: str

    def __str__(self) -> str:
        return f"expand PersistentVolumeClaim {self.name} to {self.size}"


@dataclass(frozen=True, slots=True)
class MarkClaim(Step):
    """Write onto a volume claim whose it is: of a broker that is ready, which takes no volume of another super-cluster."""

    namespace: str
    name: str
    uid: str
    identity: str

    def __str__(self) -> str:
        return f"mark PersistentVolumeClaim {self.name}"


@dataclass(frozen=True, slots=True)
class MakeCredentials(Step):
    """Make the users and passwords that are missing in a Secret, keep those that are there, and mark it as ours. What is
    missing is judged once more by the Secret itself."""

    manifest: Manifest
    application_user: str
    missing: tuple[str, ...]

    def __str__(self) -> str:
        name = self.manifest["metadata"]["name"]
        if not self.missing:
            return f"mark Secret {name}"
        return f"make credentials for {', '.join(self.missing)} in Secret {name}"


@dataclass(frozen=True, slots=True)
class ChangeUserSecret(Step):
    """Go one stage on with the credential of a User, while its Secret has the credentials that were seen."""

    manifest: Manifest
    """Name, labels and owner of the Secret, and what of its content is no secret."""
    change: str
    """One of the changes of `user/rotation.py`; empty: only what is no secret is written anew."""
    seen: tuple[int | None, int | None, int | None]
    """Current, next and previous credential."""
    number: int = 0
    """Of the credential that is made; it was never used before."""
    lost: frozenset[int] = frozenset()
    """Credentials that brokers accept, and of which the Secret knows nothing."""
    asked: str = ""
    is_forced: bool = False
    """Clients that show what is withdrawn are cut off."""

    def __str__(self) -> str:
        return f"{self.change or 'refresh'} credential in Secret {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class AccountEntries:
    """The accounts of users.json, exchanged as a whole: they were judged together."""

    seen: Manifest
    """What was there when they were judged; nothing is written over something else."""
    wanted: Manifest
    declared: tuple[str, ...]
    """Those that are the operator's from then on."""


@dataclass(frozen=True, slots=True)
class WriteUsers(Step):
    """Write the entries of all Users, and the accounts, into users.json at once. Entries that no User has made stay."""

    manifest: Manifest
    """Of the brokers' Secret, without its content."""
    entries: Mapping[str, Manifest]
    """By the label of the credential: the entry without its hash or key."""
    secrets: Mapping[str, str]
    """By label: the Secret that has what the entry lacks."""
    taken_over: Mapping[str, tuple[str, str]]
    """By label: account and name of an entry by hand that becomes this one."""
    dropped: frozenset[str]
    """Labels whose entries go."""
    accounts: AccountEntries | None = None
    """None: accounts stay as they are."""

    def __str__(self) -> str:
        name, accounts = self.manifest["metadata"]["name"], ""
        if self.accounts is not None:
            accounts = f"write accounts into Secret {name}: {len(self.accounts.declared)} are declared"
            if not self.entries and not self.dropped:
                return accounts
            accounts = f"; {accounts}"
        return f"write {len(self.entries)} credentials of Users into Secret {name}, and drop {len(self.dropped)}{accounts}"


@dataclass(frozen=True, slots=True)
class RotateLogins(Step):
    """Go one stage on with the logins that brokers show each other and the operator shows them, while the Secret is in the stage that
    was seen."""

    manifest: Manifest
    """Of the brokers' Secret, without its content."""
    change: str
    stage: str
    """Empty: no rotation was under way."""
    asked: str
    """The annotation that asks for it."""

    def __str__(self) -> str:
        return f"{self.change} logins in Secret {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class MakeAuthority(Step):
    """Make the authority that signs brokers' certificates, if there is none in its Secret, and mark the Secret as ours."""

    manifest: Manifest
    signed: tuple[str, ...] = ()
    """Secrets with certificates of an authority whose own Secret is gone."""

    def __str__(self) -> str:
        return f"make an authority in Secret {self.manifest['metadata']['name']}"


class Stage(StrEnum):
    """Of an exchange of authorities. Whatever is in the authority's Secret is trusted; one of them signs."""

    INTRODUCE = "introduce"
    """Another authority is made."""
    PROMOTE = "promote"
    """It signs; the key of the former one is deleted."""
    DROP = "drop"
    """The former one is trusted no more."""


@dataclass(frozen=True, slots=True)
class ExchangeAuthority(Step):
    """Go one stage on with the exchange of authorities, while those in the Secret are the ones that were seen."""

    manifest: Manifest
    stage: Stage
    issuer: str
    """Fingerprint of the authority that signs before the stage."""
    trusted: frozenset[str]
    asked: str
    """The annotation that asks for it."""

    def __str__(self) -> str:
        return f"{self.stage} the authority in Secret {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class SetTlsStage(Step):
    """Turn TLS between brokers on or off by one stage, while all brokers report the one before."""

    stage: str
    """That was seen."""
    previous: str
    goal: str
    issuer: str
    """Of the certificates, from now on."""
    migration: Mapping[str, Any] | None = None
    """What the status has of the migration port from now on: brokers are restarted for both at once."""

    def __str__(self) -> str:
        return f"go from {self.stage} to {self.goal} with TLS between brokers"


@dataclass(frozen=True, slots=True)
class SetPortTls(Step):
    """Turn TLS for clients or for monitoring on or off by one stage."""

    port: str
    """Of `tls_ports.PORTS`."""
    stage: str
    """That was seen."""
    previous: str
    goal: str

    def __str__(self) -> str:
        return f"go from {self.stage} to {self.goal} with TLS for {self.port}"


@dataclass(frozen=True, slots=True)
class IssueCertificate(Step):
    """Have the authority sign another certificate for the brokers of a cluster, or tell them whom to trust."""

    manifest: Manifest
    authority: str
    """Name of its Secret."""
    names: tuple[str, ...]
    """DNS names that it is for."""
    lifetime: timedelta
    is_new: bool
    """False: the certificate stays, and what is trusted beside it is written."""
    signer: str
    """Fingerprint of the authority that is to sign. Another one in its Secret by then may be one that not all brokers trust yet."""

    def __str__(self) -> str:
        return f"issue a certificate in Secret {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class SetFinalizers(Step):
    """Set the finalizers of the resource itself, unless it was changed meanwhile."""

    finalizers: tuple[str, ...]
    resource_version: str

    def __str__(self) -> str:
        return f"set finalizers to {list(self.finalizers)}"


@dataclass(frozen=True, slots=True)
class CreateStream(Step):
    config: Manifest

    def __str__(self) -> str:
        return f"create stream {self.config['name']}"


@dataclass(frozen=True, slots=True)
class UpdateStream(Step):
    config: Manifest
    fields: tuple[str, ...]
    """What the update is to change: it must be so afterwards, or the step has failed."""

    def __str__(self) -> str:
        return f"update {', '.join(self.fields)} of stream {self.config['name']}"


@dataclass(frozen=True, slots=True)
class DeleteStream(Step):
    name: str

    def __str__(self) -> str:
        return f"delete stream {self.name}"


@dataclass(frozen=True, slots=True)
class CreateObject(Step):
    """Create one object of ours, once: what others change of it afterwards is theirs."""

    manifest: Manifest

    def __str__(self) -> str:
        return f"create {self.manifest['kind']} {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class StartMove(Step):
    """Have the brokers move a stream, or change its count of replicas. Repeated with the same identity, it is the same
    move."""

    stream: str
    id: str
    goal: Manifest
    """`placement` or `replicas`, as the brokers' call has it."""
    bytes_per_s: int
    nodes: tuple[str, ...] = ()
    """The brokers of the plan: others are not to be taken in their places. Empty for a move that runs already."""

    def __str__(self) -> str:
        return f"start the move of stream {self.stream}"


@dataclass(frozen=True, slots=True)
class CancelMove(Step):
    stream: str
    id: str

    def __str__(self) -> str:
        return f"cancel the move of stream {self.stream}"


@dataclass(frozen=True, slots=True)
class ShareMigrationCredentials(Step):
    """Give the brokers of both sides what links between them need: a user of green's migration port, and the authorities of both."""

    def __str__(self) -> str:
        return "share the credentials of green's migration port"


@dataclass(frozen=True, slots=True)
class StartMigration(Step):
    """Have blue's brokers begin a migration. Repeated with the same identity, it is the same one."""

    body: Manifest
    """As the brokers' call has it."""

    def __str__(self) -> str:
        return f"start the migration to {self.body['green']['name']}"


@dataclass(frozen=True, slots=True)
class AbortMigration(Step):
    id: str

    def __str__(self) -> str:
        return f"abort migration {self.id}"


@dataclass(frozen=True, slots=True)
class FinalizeMigration(Step):
    """Pass the point of no return: blue's copies are deleted."""

    id: str

    def __str__(self) -> str:
        return f"finalize migration {self.id}"


@dataclass(frozen=True, slots=True)
class LeaveBrokers(Step):
    """Tell the other brokers that these go for good."""

    brokers: tuple[str, ...]

    def __str__(self) -> str:
        return f"let brokers {', '.join(self.brokers)} leave the super-cluster"


@dataclass(frozen=True, slots=True)
class StayBrokers(Step):
    """Take back that these go: they stay after all."""

    brokers: tuple[str, ...]

    def __str__(self) -> str:
        return f"let brokers {', '.join(self.brokers)} stay in the super-cluster"


@dataclass(frozen=True, slots=True)
class CordonBroker(Step):
    """Tell the brokers that one of them gets no new copies, or with no reason that it does again."""

    broker: str
    reason: str
    declared_by: str

    def __str__(self) -> str:
        return f"{'cordon' if self.reason else 'uncordon'} broker {self.broker}"


@dataclass(frozen=True, slots=True)
class SetAccount(Step):
    """Have the brokers judge an account by these limits. It may be said again."""

    name: str
    record: Manifest | None
    """As the brokers' call has it; None: what was declared of it is withdrawn."""

    def __str__(self) -> str:
        return f"{'declare' if self.record is not None else 'withdraw'} account {self.name}"


@dataclass(frozen=True, slots=True)
class HandOverLeaderships(Step):
    """Have a broker hand its leaderships over before it is restarted, and take none for a while."""

    broker: str
    avoid: tuple[str, ...]
    """Brokers that get them only where there is nobody else."""
    hold_ms: int

    def __str__(self) -> str:
        return f"hand over the leaderships of {self.broker}"


@dataclass(frozen=True, slots=True)
class ForceRecovery(Step):
    """Have a stream that lost its majority go on from one copy. Repeated with the same identity, it is the same act."""

    stream: str
    id: str
    node: str
    accepted_sequence: int

    def __str__(self) -> str:
        return f"recover stream {self.stream} from the copy on {self.node}"


@dataclass(frozen=True, slots=True)
class ForceMapRecovery(Step):
    """Have the map of streams, which lost its majority, go on from one broker's copy. Repeated with the same identity, it is the
    same act."""

    id: str
    node: str
    """The broker that is asked itself: nobody leads the map who could pass it on."""
    accepted_index: int
    accepts_doubt: bool = False

    def __str__(self) -> str:
        return f"recover the map of streams from the copy on {self.node}"


@dataclass(frozen=True, slots=True)
class SetAside:
    """A step that failed in this round, and is not tried again in it."""

    step: Step
    refusal: str = ""
    """Why it was refused for good; empty: it may succeed later."""
    is_for_kind: bool = False
    """Nobody answered, which says the same of all steps of its kind: to try each of them would take up the round."""
    held: str = ""
    """Why it was not carried out though nobody refused it: it can't be shown that it does no harm."""
    failure: str = ""
    """Why it failed for now."""

    def is_about(self, step: Step) -> bool:
        return type(step) is type(self.step) and (self.is_for_kind or str(step) == str(self.step))


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, of which the first ones are carried out before the next look; then what the status is to be."""

    steps: tuple[Step, ...] = ()
    status_patch: Manifest | None = None
    """A JSON merge patch of the status; None when it is as it should be."""
    notes: tuple[Note, ...] = ()
    recheck_after_ms: int | None = None
    """Look again after this time even if nobody asks; None is the usual interval."""
    wait_after_step: bool = field(default=False)
    """The step takes effect by itself and is seen by an event: look again only then."""
    in_a_row: int = 1
    """So many of the first steps are right whatever comes of those before them, or only if these succeed: they are carried out
    one after the other without another look, and one that fails stops the rest."""
    goes_on: bool = False
    """A step that fails holds up none that does not depend on it: those in a row are carried out all the same, and the plan is
    made again without it (`SetAside`)."""

    @property
    def is_empty(self) -> bool:
        """Nothing to do and nothing to say."""
        return not self.steps and self.status_patch is None and not self.notes
