"""What blue makes of green's answers before a migration begins, and of what the network says (BG-12)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.jetstream.admin.green_preflight import (
    ASK_AGAIN_MS,
    CLOCKS_APART_MAX_NS,
    QUESTIONS_MAX,
    WAIT_MS,
    GreenPreflight,
    unreachable,
)
from supercluster.broker.jetstream.admin.migration_preflight import Finding
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.preflight_frames import (
    STREAMS_MAX,
    Objection,
    PreflightAsk,
    PreflightTold,
)
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Green, Migration
from supercluster.broker.jetstream.node.far_visits import VISITS_MAX, FarVisits
from supercluster.broker.ports import FarSuperCluster
from supercluster.broker.version import VERSION

pytestmark = pytest.mark.covers("BG-12")

WORLD = "3fa9c21b"
WANTED = Migration("m1", Green("id-green", "green", ("a:1", "b:1")), WORLD)
NODE = f"green-0%{WORLD}"


class Blue:
    """One broker of blue; `linked`: one of green's is linked with it."""

    def __init__(self, *, linked: bool = True) -> None:
        self.now_ms = 0
        self.sent: list[PreflightAsk] = []
        self.errors: dict[str, str] = {}
        self.findings: list[Finding] | None = None
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms, now_ns=lambda: self.now_ns)
        env: Any = SimpleNamespace(clock=clock, settings=SimpleNamespace(payload_bytes_max=1000))
        peers: Any = SimpleNamespace(far={NODE: None} if linked else {}, post=self._post)
        self.visits = FarVisits()
        self.part = GreenPreflight(env, peers, self.visits)
        self.part.errors = lambda identity: self.errors

    @property
    def now_ns(self) -> int:
        return 1_000_000_000_000 + self.now_ms * 1_000_000

    def _post(self, node: str, frame: int, body: list[bytes]) -> bool:
        assert (node, frame) == (NODE, Frame.PREFLIGHT)
        self.sent.append(PreflightAsk.decode(b"".join(body)))
        return True

    def ask(self, count: int = 1) -> None:
        config = read_stream({"name": "S", "subjects": ["s"]})
        streams = [Assignment("A", f"S{n}", f"S.A.S{n}.1", config, 1, ("b@1",), 1) for n in range(count)]
        self.part.ask(WANTED, streams, 5, self._told)
        self.part.tick(self.now_ms)

    def _told(self, findings: list[Finding]) -> None:
        assert self.findings is None, "told once"
        self.findings = findings

    def hear(
        self, *objections: Objection, ahead_ns: int = 0, version: str = VERSION, number: int = 0
    ) -> None:
        number = number or self.sent[-1].number
        told = PreflightTold(number, self.now_ns + ahead_ns, version, objections)
        self.part.on_told(NODE, memoryview(b"".join(told.encode())), self.now_ms)

    def later(self, ms: int) -> None:
        self.now_ms += ms
        self.part.tick(self.now_ms)

    @property
    def codes(self) -> list[tuple[str, str]]:
        assert self.findings is not None
        return [(found.level, found.code) for found in self.findings]


def test_green_is_visited_and_asked_until_it_answers() -> None:
    blue = Blue()
    blue.ask()
    assert blue.visits.with_visits({})["id-green"].accounts == frozenset()
    blue.later(ASK_AGAIN_MS)
    assert [(one.payload_bytes_max, one.file_bytes, len(one.streams)) for one in blue.sent] == [
        (1000, 5, 1)
    ] * 2
    blue.hear(Objection("NameTaken", "A/S0", "taken"))
    assert blue.codes == [("refused", "NameTaken")]
    blue.hear()
    assert blue.part.deadline_ms() is not None
    blue.later(ASK_AGAIN_MS)
    assert (len(blue.sent), blue.part.deadline_ms()) == (2, None)


def test_a_large_scope_is_asked_about_piece_by_piece() -> None:
    """An answer that comes twice answers one piece."""
    blue = Blue()
    blue.ask(2 * STREAMS_MAX + 1)
    full = Objection("Capacity", "", "full")
    for number in range(2):
        blue.hear(full, Objection("NameTaken", f"A/S{number}", "taken"))
        blue.hear(number=blue.sent[-1].number)
        assert blue.findings is None
        blue.later(1)
    assert [len(one.streams) for one in blue.sent] == [STREAMS_MAX, STREAMS_MAX, 1]
    blue.hear(full)
    assert [code for _, code in blue.codes] == ["Capacity", "NameTaken", "NameTaken"]


@pytest.mark.parametrize(
    ("ahead_ns", "codes"),
    [
        (CLOCKS_APART_MAX_NS, []),
        (CLOCKS_APART_MAX_NS + 1, [("refused", "Clocks")]),
        (-CLOCKS_APART_MAX_NS - 30_000_000, []),
        (-CLOCKS_APART_MAX_NS - 30_000_001, [("refused", "Clocks")]),
    ],
)
def test_clocks_that_are_apart_are_refused_beyond_what_the_way_takes(
    ahead_ns: int, codes: list[tuple[str, str]]
) -> None:
    """Rule 7. The answer may have been written at any time since the question."""
    blue = Blue()
    blue.ask()
    blue.later(30)
    blue.hear(ahead_ns=ahead_ns)
    assert blue.codes == codes


def test_another_version_is_a_warning_while_both_understand_each_other() -> None:
    blue = Blue()
    blue.ask()
    blue.hear(version="0.0.1")
    assert blue.codes == [("warn", "OtherVersion")]


def test_a_green_whose_map_nobody_leads_is_given_up() -> None:
    blue = Blue()
    blue.ask()
    blue.later(WAIT_MS)
    assert blue.codes == [("refused", "GreenUnreachable")]


def test_whoever_is_refused_at_every_address_is_told_at_once_and_others_are_waited_for() -> None:
    blue = Blue(linked=False)
    blue.ask()
    blue.errors = {"a:1": "connection refused", "b:1": ""}
    blue.later(WAIT_MS - 1)
    assert blue.findings is None
    blue.errors["b:1"] = "timed out"
    blue.later(50)
    assert blue.codes == [("refused", "GreenUnreachable")]
    assert blue.findings is not None
    assert "a:1: connection refused; b:1: timed out" in blue.findings[0].message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("its credentials are not among the accepted ones", "CredentialsRefused"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get", "CertificateRefused"),
        ("the other side may not trust this one's certificate", "CertificateRefused"),
        ("both are of super-cluster demo (green)", "SameIdentity"),
        ("its frame version is 0, and this broker works with 1 or newer", "OtherVersion"),
        ("it works with frame version 9 or newer, and this broker speaks 1", "OtherVersion"),
        ("connection refused", "GreenUnreachable"),
    ],
)
def test_what_the_network_says_has_a_code_and_a_remedy(text: str, code: str) -> None:
    """The texts are those of `net/links`, as `test_far_brokers.py` has them."""
    found = unreachable(WANTED, {"a:1": "", "b:1": text})
    assert (found.level, found.code, found.subject) == ("refused", code, "green")
    assert "b:1" in found.message
    assert text in found.message
    assert found.remedy


def test_questions_and_visits_are_bounded() -> None:
    blue = Blue()
    for _ in range(QUESTIONS_MAX):
        blue.ask()
    blue.ask()
    assert blue.codes == [("refused", "GreenUnreachable")]
    visits = FarVisits()
    greens = [FarSuperCluster(f"g{number}", ("a:1",)) for number in range(VISITS_MAX + 1)]
    assert [visits.visit(green, 0) for green in greens] == [True] * VISITS_MAX + [False]
    assert visits.visit(greens[0], 0)
    until_ms = visits.deadline_ms()
    assert until_ms is not None
    visits.tick(until_ms)
    assert (visits.with_visits({}), visits.deadline_ms()) == ({}, None)
    assert visits.visit(greens[-1], until_ms)


def test_what_the_map_wants_stands_before_a_visit() -> None:
    visits = FarVisits()
    wanted = FarSuperCluster("g", ("a:1",))
    assert visits.visit(wanted, 0)
    assert visits.with_visits({"g": wanted}) == {"g": wanted}


@pytest.mark.parametrize("body", [b"", b"{}", b"[]"])
def test_what_is_no_question_and_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        PreflightAsk.decode(body)
    with pytest.raises(WireError):
        PreflightTold.decode(body)
