"""Blue's checks of green before a migration begins: whether green is there, whether it lets blue in, and
which parts of the scope it can't take.

A check connects to green as a visit (`node/far_visits.py`), asks about the streams in portions, and ends
within a bound. The network reports in words why a link does not come up; here that becomes a finding with a
code and a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from supercluster.broker.jetstream.admin.migration_preflight import Finding
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.links.preflight_frames import (
    STREAMS_MAX,
    AskedStream,
    PreflightAsk,
    PreflightTold,
)
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.node.far_visits import VISITS_MAX, FarVisits
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import FarSuperCluster
from supercluster.broker.version import VERSION

# Within the time that a call of the operator's has, and a handshake over long links takes.
WAIT_MS = 3000
ASK_AGAIN_MS = 500
LOOK_MS = 50
QUESTIONS_MAX = 16
CLOCKS_APART_MAX_NS = 1_000_000_000
"""Leader time goes on from blue's on green (rule 7), and a clock that is behind stands still for as long."""

_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (
        "credentials",
        "CredentialsRefused",
        "have green's migration.json accept the user that blue's sends",
    ),
    *(
        (
            part,
            "CertificateRefused",
            "have each side trust the authority that signs the other one's certificates",
        )
        for part in ("certificate verify failed", "may not trust this one's certificate")
    ),
    ("both are of super-cluster", "SameIdentity", "name another super-cluster as green"),
    ("frame version", "OtherVersion", "update the older of the two super-clusters first"),
)
"""Part of what the network says, code, and remedy."""

_REMEDIES = {
    "NameTaken": "delete or rename the stream of that name on green, or migrate an account without it",
    "HandedOver": "name another super-cluster as green; do not delete the stream there, since such a call goes to the super-cluster that has it",
    "SubjectsTaken": "change the subjects of the stream on green that takes them",
    "ClusterUnknown": "say in the migration's clusters which of green's takes its place",
    "TagUnknown": "give brokers of green the tag, or take it out of the stream's placement",
    "Capacity": "give green more brokers or room, or change the stream's replicas or placement",
    "Limits": "raise the limit on green, or lower it on blue",
}


@dataclass(slots=True)
class _Question:
    number: int
    wanted: Migration
    pieces: list[tuple[AskedStream, ...]]
    file_bytes: int
    give_up_ms: int
    then: Callable[[list[Finding]], None]
    findings: list[Finding] = field(default_factory=list)
    asked_ns: int | None = None
    """When the piece was first asked about, by this broker's clock."""
    next_ms: int = 0


class GreenPreflight:
    """Of one broker."""

    def __init__(self, env: Environment, peers: Peers, visits: FarVisits) -> None:
        self._env = env
        self._peers = peers
        self._visits = visits
        self._questions: dict[int, _Question] = {}
        self._last_number = 0
        self._next_ms: int | None = None
        self.errors: Callable[[str], Mapping[str, str]] = lambda identity: {}
        """Of a super-cluster that is dialled: address → what came of asking there, empty where somebody answered."""

    def ask(
        self,
        wanted: Migration,
        streams: Sequence[Assignment],
        file_bytes: int,
        then: Callable[[list[Finding]], None],
    ) -> None:
        """`then` takes what green has against it, once."""
        green, now_ms = wanted.green, self._env.clock.monotonic_ms()
        place = FarSuperCluster(green.identity, green.addresses, green.tls_name)
        if len(self._questions) >= QUESTIONS_MAX or not self._visits.visit(place, now_ms):
            text = f"preflights of {VISITS_MAX} other super-clusters are under way"
            then([_finding("GreenUnreachable", _name(wanted), text, "ask again in ten seconds")])
            return
        self._last_number += 1
        asked = [_asked(one, wanted) for one in streams]
        pieces = [tuple(asked[at : at + STREAMS_MAX]) for at in range(0, len(asked), STREAMS_MAX)] or [()]
        self._questions[self._last_number] = _Question(
            self._last_number, wanted, pieces, file_bytes, now_ms + WAIT_MS, then
        )
        self._next_ms = now_ms

    def on_told(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.PREFLIGHT_TOLD."""
        told = PreflightTold.decode(body)
        found = self._questions.get(told.number)
        if found is None or world_of(node) != found.wanted.world or found.asked_ns is None:
            return
        first = not found.findings
        found.findings += [
            _finding(one.code, one.subject or _name(found.wanted), one.message, _REMEDIES.get(one.code, ""))
            for one in told.objections
        ]
        if first:
            found.findings += self._of_green(found.wanted, told, found.asked_ns)
        del found.pieces[0]
        if not found.pieces:
            self._end(found, [])
            return
        # The next piece has a number of its own: the answer to this one may come twice.
        del self._questions[found.number]
        self._last_number += 1
        found.number, found.asked_ns, found.next_ms = self._last_number, None, now_ms
        self._questions[found.number] = found
        self._next_ms = now_ms

    def _of_green(self, wanted: Migration, told: PreflightTold, asked_ns: int) -> list[Finding]:
        found = []
        now_ns = self._env.clock.now_ns()
        apart_ns = max(asked_ns - told.time_ns, told.time_ns - now_ns, 0)
        if apart_ns > CLOCKS_APART_MAX_NS:
            text = f"the clocks of blue and green are {apart_ns / 1e9:.1f} s apart, and 1 s is the most"
            found.append(_finding("Clocks", _name(wanted), text, "have both follow the same time servers"))
        if told.version != VERSION:
            text = f"green runs version {told.version}, and blue {VERSION}"
            found.append(Finding("warn", "OtherVersion", _name(wanted), text, "run one version on both"))
        return found

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        if self._next_ms is None or now_ms < self._next_ms:
            return
        for found in list(self._questions.values()):
            self._look(found, now_ms)
        self._next_ms = now_ms + LOOK_MS if self._questions else None

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._next_ms

    def _look(self, found: _Question, now_ms: int) -> None:
        wanted = found.wanted
        nodes = [node for node in self._peers.far if world_of(node) == wanted.world]
        if nodes:
            if now_ms >= found.give_up_ms:
                text = "no broker of green that leads its map of streams answered in time"
                self._end(
                    found, [_finding("GreenUnreachable", _name(wanted), text, "look at green's health")]
                )
            elif now_ms >= found.next_ms:
                self._post(found, nodes, now_ms)
            return
        errors = self.errors(wanted.green.identity)
        said = {address: errors.get(address, "") for address in wanted.green.addresses}
        if all(said.values()) or now_ms >= found.give_up_ms:
            self._end(found, [unreachable(wanted, said)])

    def _post(self, found: _Question, nodes: Sequence[str], now_ms: int) -> None:
        found.next_ms = now_ms + ASK_AGAIN_MS
        if found.asked_ns is None:
            found.asked_ns = self._env.clock.now_ns()
        most = self._env.settings.payload_bytes_max
        body = PreflightAsk(found.number, found.wanted.id, most, found.file_bytes, found.pieces[0]).encode()
        for node in nodes:
            self._peers.post(node, Frame.PREFLIGHT, body)

    def _end(self, found: _Question, more: list[Finding]) -> None:
        del self._questions[found.number]
        once = {(one.code, one.subject, one.message): one for one in (*found.findings, *more)}
        found.then(list(once.values()))


def _asked(found: Assignment, wanted: Migration) -> AskedStream:
    cluster = wanted.called(found.config.placement.cluster)
    return AskedStream(found.account, found.name, found.group, found.config, found.created_ns, cluster)


def unreachable(wanted: Migration, said: Mapping[str, str]) -> Finding:
    """No broker of green is linked. `said`: by address, what came of asking there."""
    for part, code, remedy in _REFUSALS:
        for address, text in said.items():
            if part in text:
                return _finding(code, _name(wanted), f"the broker at {address} is no green: {text}", remedy)
    told = "; ".join(f"{address}: {text}" for address, text in list(said.items())[:3] if text)
    return _finding(
        "GreenUnreachable",
        _name(wanted),
        f"no broker of green is reached from {'these addresses' if len(said) > 1 else 'this address'}: "
        f"{told or ', '.join(list(said)[:3]) + ' gave no answer in time'}",
        "name addresses of green's migration port that blue's brokers reach",
    )


def _name(wanted: Migration) -> str:
    return wanted.green.name or wanted.green.identity


def _finding(code: str, subject: str, message: str, remedy: str) -> Finding:
    return Finding("refused", code, subject, message, remedy)
