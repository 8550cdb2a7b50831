"""The seams of the reconcilers: the interfaces to Kubernetes, brokers and the clock.

`app` implements them for the process, and the tests have their own. Every call may raise the errors declared
here; a reconciler need not know any others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from supercluster.reconcilers.planners.plan import Manifest, Note

Json = dict[str, Any]


class KubeError(Exception):
    """The API server refused a request, could not be asked (status 0), or may not be asked any more (-1)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{message} ({status} {reason})" if status > 0 else message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_invalid(self) -> bool:
        """Trying again without a change is no use: the object itself is at fault."""
        return self.status in (400, 422)


class BrokersError(Exception):
    """The brokers did not do what they were asked for."""


class BrokersUnreachableError(BrokersError):
    """No broker answered in time; asking again may help."""


# NATS has code 500 for them too, and yet asking again is no use: the configuration is none that can be.
_FINAL_ERR_CODES = frozenset({10052, 10074})


class BrokersRefusedError(BrokersError):
    """The brokers answered with an error of the JetStream API."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} (code {code}, error {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description

    @property
    def is_passing(self) -> bool:
        """The brokers can't answer just now (no leader, no room to work); asking again may help."""
        return self.code >= 500 and self.err_code not in _FINAL_ERR_CODES


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """Where and as whom to talk to the brokers of a super-cluster."""

    namespace: str
    super_cluster: str
    servers: tuple[str, ...]
    user: str
    password: str = field(repr=False)
    monitors: tuple[str, ...] = ()
    """URLs of the brokers' monitoring ports, for calls that JetStream does not have."""
    brokers: tuple[str, ...] = ()
    """Their names, in the same order."""
    ca: str = ""
    """Authorities that certificates are checked against, as PEM; empty: those of the system."""
    tls_name: str = ""
    """The name in the certificates; empty: the host of the URL."""


class Kube(Protocol):
    """What reconcilers ask of the API server."""

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None: ...

    async def apply(self, manifest: Manifest) -> Json:
        """Server-side apply with our field manager, taking fields back from others."""

    async def create(self, manifest: Manifest) -> Json: ...

    async def merge_patch(
        self, api_version: str, kind: str, namespace: str, name: str, patch: Manifest, *, status: bool = False
    ) -> Json: ...

    async def list(self, api_version: str, kind: str, namespace: str | None) -> Json:
        """All of a kind, as `items`."""

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, uid: str, resource_version: str
    ) -> None:
        """Delete the object if it is still that very version of it (else 409); one that is gone is no error."""

    async def emit(self, regarding: Manifest, note: Note) -> None:
        """Post an event. Never fails: an event that can't be posted is logged."""


class MigrationCalls(Protocol):
    """What reconcilers ask of the brokers of blue and green."""

    async def identity(self, target: BrokerTarget) -> Json:
        """Which super-cluster the brokers are of, their version, clock and migration port (docs/admin.md)."""

    async def preflight_migration(self, target: BrokerTarget, body: Manifest) -> Json:
        """What speaks against a migration, without starting it."""

    async def start_migration(self, target: BrokerTarget, body: Manifest) -> Json:
        """Start a migration of blue, the target; one of the same identity is not started again."""

    async def migration_state(self, target: BrokerTarget, migration_id: str) -> Json | None:
        """How far a migration of blue is, by counts and worst cases; None: it does not know one of that identity."""

    async def migration_streams(self, target: BrokerTarget, migration_id: str) -> list[Json]:
        """What blue handed, or green opened, of each stream."""

    async def abort_migration(self, target: BrokerTarget, migration_id: str) -> None:
        """Call a migration off. It may be said again."""

    async def finalize_migration(self, target: BrokerTarget, migration_id: str) -> None:
        """Have blue delete its copies. It may be said again."""

    async def handed_streams(self, target: BrokerTarget) -> dict[str, Json]:
        """Streams that blue has handed over or is handing over, by name: those of the operator's account."""


class Brokers(MigrationCalls, Protocol):
    """What reconcilers ask of the brokers: the JetStream API with the operator's user."""

    async def stream_info(self, target: BrokerTarget, name: str) -> Json | None: ...

    async def create_stream(self, target: BrokerTarget, config: Manifest) -> Json: ...

    async def update_stream(self, target: BrokerTarget, config: Manifest) -> Json: ...

    async def delete_stream(self, target: BrokerTarget, name: str) -> None: ...

    async def stream_infos(self, target: BrokerTarget) -> list[Json]: ...

    async def move_state(self, target: BrokerTarget, name: str) -> Json:
        """The stream's running move, its last one, and its members in force (docs/admin.md)."""

    async def running_moves(self, target: BrokerTarget) -> list[Json]:
        """All moves that the brokers carry out, whoever asked for them."""

    async def plan_move(self, target: BrokerTarget, name: str, goal: Manifest, bytes_per_s: int) -> Json:
        """What a move would do, without doing it. The goal is a `placement`, or a count of `replicas`."""

    async def start_move(
        self,
        target: BrokerTarget,
        name: str,
        move_id: str,
        goal: Manifest,
        bytes_per_s: int,
        nodes: Sequence[str] = (),
    ) -> Json:
        """Start a move; one of the same identity that runs or has ended is not started again. `nodes`: those of its plan;
        when they do not fit any more, it is refused."""

    async def cancel_move(self, target: BrokerTarget, name: str, move_id: str) -> None:
        """Call a move off; one that has ended or was never there is no error."""

    async def accounts(self, target: BrokerTarget) -> list[Json]:
        """Every account that somebody declared or that has streams (docs/admin.md)."""

    async def set_account(self, target: BrokerTarget, name: str, record: Manifest | None) -> None:
        """Declare an account with its limits; None: withdraw it. It may be said again."""

    async def recovery_state(self, target: BrokerTarget, name: str) -> Json:
        """What copies of a stream there are, and how its last forced recovery was (docs/admin.md)."""

    async def recover_stream(
        self, target: BrokerTarget, name: str, node: str, accepted_sequence: int, recovery_id: str
    ) -> Json:
        """Have a stream go on from one copy; of the same identity, it is done once."""

    async def map_recovery_state(self, target: BrokerTarget) -> Json:
        """What the one broker of the target says of the copies of the map of streams, and of the last recovery of the map
        (docs/admin.md)."""

    async def recover_map(self, target: BrokerTarget, body: Manifest) -> Json:
        """Have the map go on from the copy of the one broker of the target; of the same `id`, it is done once."""

    async def brokers_state(self, target: BrokerTarget, *, with_room: bool = False) -> Json:
        """What the map of streams has of all `brokers`, and a sentence for each of `lostClusters`: clusters that are out of
        contact as a whole, and what is lost with them. `with_room`: how much room each has is needed."""

    async def restart_states(self, target: BrokerTarget) -> dict[str, Json]:
        """What each of the brokers leads, and what its groups lack (docs/admin.md). All of them answer, or nobody does."""

    async def hand_over(self, target: BrokerTarget, broker: str, avoid: Sequence[str], hold_ms: int) -> None:
        """Have a broker hand its leaderships over. It may be asked again."""

    async def leave_broker(self, target: BrokerTarget, broker: str, declared_by: str) -> None:
        """Say that a broker goes for good, and the resource that wants it, `<namespace>/<name>`. It may be said again."""

    async def cordon_broker(self, target: BrokerTarget, broker: str, record: Manifest | None) -> None:
        """Have a broker get no new copies, with `reason` and `declaredBy`; None: take that back. It may be said again."""

    async def credentials(self, target: BrokerTarget, users: Sequence[str] = ()) -> Json:
        """What the one broker of the target says of the credentials that it accepts (docs/admin.md). `users`: those whose clients it is
        to name, as account and name with a slash between."""

    async def stay_broker(self, target: BrokerTarget, broker: str) -> None:
        """Take that back. One that the map does not know is no error."""


class Clock(Protocol):
    def now(self) -> datetime: ...

    async def sleep_ms(self, ms: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Key:
    """A resource that has a worker."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: for reading objects that others may have written."""
    return value if isinstance(value, Mapping) else {}
