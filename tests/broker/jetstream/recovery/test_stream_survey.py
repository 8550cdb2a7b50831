"""Who counts as silent when all copies of a stream are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts
from supercluster.broker.jetstream.recovery.stream_survey import SURVEY_MS, StreamSurvey

FOUND = Assignment("$G", "S", "S.$G.S.1", StreamConfig("S", ("s",)), 1, ("a@1", "b@1", "c@1"), 0)


@dataclass
class Core:
    """Contact that is set, a clock that is set, and the ends of surveys."""

    contact: dict[str, tuple[str, str]] = field(default_factory=lambda: dict.fromkeys("abc", ("east", "1")))
    now_ms: int = 0
    asked: list[str] = field(default_factory=list)
    ends: list[tuple[list[CopyFacts], frozenset[str]]] = field(default_factory=list)

    @property
    def clock(self) -> Core:
        return self

    def monotonic_ms(self) -> int:
        return self.now_ms

    def machine_ms(self) -> int:
        return self.now_ms

    def brokers_in_contact(self) -> dict[str, tuple[str, str]]:
        return self.contact

    def post(self, node: str, frame: int, body: list[Any]) -> None:
        self.asked.append(node)


def survey(core: Core) -> StreamSurvey:
    found = StreamSurvey(core, core, None, None)  # type: ignore[arg-type]  # What a survey asks of it.
    found.ask(FOUND, lambda copies, silent: core.ends.append((copies, silent)))
    assert core.asked == sorted(core.contact)
    return found


def answer(found: StreamSurvey, *nodes: str) -> None:
    for node in nodes:
        found.on_answer(node, memoryview(u64(1) + b"[]"), 0)


@pytest.mark.covers("SF-4", "RP-8")
def test_all_who_were_asked_have_answered() -> None:
    core = Core()
    found = survey(core)
    answer(found, "a", "b")
    assert not core.ends
    answer(found, "b", "c")
    assert core.ends == [([], frozenset())]
    assert found.deadline_ms() is None


@pytest.mark.covers("SF-4", "RP-8")
def test_who_does_not_answer_in_time_is_silent_unless_it_is_out_of_contact() -> None:
    core = Core()
    found = survey(core)
    answer(found, "a")
    del core.contact["c"]
    core.now_ms = SURVEY_MS
    found.tick(core.now_ms)
    assert core.ends == [([], frozenset("b"))]


@pytest.mark.covers("SF-4", "RP-8")
def test_who_came_into_contact_meanwhile_is_silent_as_is_whose_link_broke_for_a_moment() -> None:
    core = Core()
    found = survey(core)
    answer(found, "a")
    away = core.contact.pop("c")
    core.contact |= {"c": away, "d": away}
    answer(found, "b")
    assert not core.ends, "c may still answer"
    core.now_ms = SURVEY_MS
    found.tick(core.now_ms)
    assert core.ends == [([], frozenset("cd"))]
