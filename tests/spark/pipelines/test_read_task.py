"""A task's messages are all of one life of the stream, and a record fits the stream that it is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supercluster.spark import jetstream
from supercluster.spark.datasource.options import ReadOptions, read_options
from supercluster.spark.datasource.plan import StreamReplacedError
from supercluster.spark.jetstream import StreamCutOffError, StreamState
from supercluster.spark.pipelines import read_task
from supercluster.spark.pipelines.archive.day_file import WriteBlock
from supercluster.spark.pipelines.audit.pipeline import AuditParameters, AuditWork
from supercluster.spark.pipelines.compare.differences import Difference
from supercluster.spark.pipelines.compare.pipeline import CompareBlock, Side
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import Parameters, ParametersChangedError, read_parameters
from supercluster.spark.pipelines.read_task import Block, ReadTask
from supercluster.spark.pipelines.rounds import Record, StreamRounds
from supercluster.spark.pipelines.stats.pipeline import StatsParameters, StatsWork
from supercluster.spark.retention import Limits
from supercluster.spark.wire import Record as MessageRecord


def state_of(lineage: str = "l", first: int = 1, last: int = 9) -> StreamState:
    return StreamState("S", lineage, first, last, last - first + 1, 100)


class FakeSession:
    """Answers with the states in turn, and holds the messages of the last one."""

    def __init__(self, *states: StreamState) -> None:
        self._states = list(states)

    def stream_state(self, stream: str, *, was_read: bool = False) -> StreamState:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def messages(self, first: int, last: int) -> list[MessageRecord]:
        state = self._states[-1]
        return [(each, each, b"s", b"", b"") for each in range(max(first, state.first_sequence), last + 1)]

    def drop(self) -> None:
        pass


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[FakeSession]:
    """Those that the next tasks open."""
    waiting: list[FakeSession] = []

    def read(
        session: Any, stream: str, first: int, last: int, **how: object
    ) -> Iterator[list[MessageRecord]]:
        yield session.messages(first, last)

    monkeypatch.setattr(read_task, "open_session", lambda options, seed: waiting.pop(0))
    monkeypatch.setattr(read_task, "read_range", read)
    return waiting


def options() -> ReadOptions:
    return read_options({"url": "nats://nowhere:1", "stream": "S"}, streaming=False)


@pytest.mark.parametrize("states", [("m", "m"), ("l", "m")])
def test_a_stream_that_is_made_again_before_or_while_it_is_read_leaves_no_file(
    sessions: list[FakeSession], tmp_path: Path, states: tuple[str, str]
) -> None:
    sessions.append(FakeSession(*map(state_of, states)))
    task = ReadTask(options(), "l", WriteBlock(Location(str(tmp_path)), "S"))
    with pytest.raises(StreamReplacedError):
        task(Block(1, 9))
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_what_retention_removes_on_one_side_during_a_comparison_is_no_difference(
    sessions: list[FakeSession],
) -> None:
    side = Side(options(), state_of())
    task = CompareBlock(side, side, with_times=False)
    sessions += [FakeSession(state_of()), FakeSession(state_of(), state_of(first=4))]
    assert task(Block(1, 9)).differences == []
    # Without retention the same messages are missing.
    absent = FakeSession(state_of(first=4))
    absent.stream_state = lambda stream, was_read=False: state_of()  # type: ignore[method-assign,misc]
    sessions += [FakeSession(state_of()), absent]
    assert task(Block(1, 9)).differences == [Difference("only here", 1, 3, 3)]


def test_a_stream_that_ends_before_the_record_was_restored_from_an_older_copy(
    tmp_path: Path, runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "PAUSE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(jetstream, "SETTLED_SECONDS", 0.1)
    record = Record(Location(str(tmp_path)), "S.json")
    record.save({"lineage": "l", "parameters": {}, "next": 11, "open": [], "work": {}})

    class NoWork:
        parameters = Parameters()

        def restore(self, value: object) -> None:
            pass

    def rounds(*ends: int) -> StreamRounds[Any]:
        work: Any = NoWork()
        states = iter([state_of(last=last) for last in ends])
        return StreamRounds(options(), work, runner, record, print, lambda: 0, lambda _: next(states))

    rounds(10).open(is_continuous=False)
    # The leader that stood still answers first.
    rounds(9, 10).open(is_continuous=False)
    with pytest.raises(StreamCutOffError):
        rounds(*[9] * 100_000).open(is_continuous=False)


AUDIT: dict[str, object] = {"streams": "S", "number": "json:meta.n", "publisher": "header:From"}
STATS: dict[str, object] = {"streams": "S", "windowSeconds": 60}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({**AUDIT, "number": "json:m"}, "'number' is json:m, and it was json:meta.n when S.json in"),
        ({**AUDIT, "publisher": None}, "'publisher' is unset, and it was header:From when"),
        ({**AUDIT, "run": "subject:2"}, "'run' is subject:2, and it was unset when"),
        ({**AUDIT, "firstNumber": 0}, "'firstNumber' is 0, and it was 1 when"),
        ({**AUDIT, "settleSeconds": 5, "runsMax": 7, "failOn": "lost"}, None),
        ({**STATS, "windowSeconds": "300"}, "'windowSeconds' is 300, and it was 60 when"),
        ({**STATS, "prefixTokens": 2}, "'prefixTokens' is 2, and it was 1 when"),
        ({**STATS, "publisher": "subject:1"}, "'publisher' is subject:1, and it was unset when"),
        ({**STATS, "windowSeconds": "60", "location": "/elsewhere"}, None),
    ],
)
def test_a_record_is_not_read_with_parameters_that_give_it_another_meaning(
    tmp_path: Path, runner: Any, changed: dict[str, object], says: str | None
) -> None:
    def rounds(given: dict[str, object]) -> StreamRounds[Any]:
        work: Any = (
            AuditWork("S", read_parameters(AuditParameters, given), print)
            if "number" in given
            else StatsWork("S", read_parameters(StatsParameters, given), print)
        )
        record = Record(Location(str(tmp_path)), "S.json")
        return StreamRounds(options(), work, runner, record, print, lambda: 0, lambda _: state_of())

    first = rounds(AUDIT if "number" in changed else STATS)
    first.open(is_continuous=False)
    first.save()
    if says is None:
        rounds(changed).open(is_continuous=False)
        return
    with pytest.raises(ParametersChangedError) as refused:
        rounds(changed).open(is_continuous=False)
    assert says in str(refused.value)


class SlowWork:
    """One message a round."""

    core, fail_on_data_loss = print, True
    parameters = Parameters()

    def plan(
        self, first: int, last: int, state: StreamState, parallelism: int, *, is_last: bool
    ) -> list[Block]:
        return [Block(first, first)]

    def fold(self, skipped: int, results: object, caught_up_at_ns: int | None) -> bool:
        return True

    def facts(self) -> dict[str, object]:
        return {}

    to_json = facts


class NoTasks:
    parallelism = 1

    def map(self, task: object, items: object) -> list[Any]:
        return []


def test_a_pipeline_that_falls_behind_says_when_retention_overtakes_it() -> None:
    now_s, last = [0], [60]
    reports: list[Any] = []

    def look(options: object) -> StreamState:
        return replace(state_of(last=last[0]), limits=Limits(messages=100))

    work: Any = SlowWork()
    rounds = StreamRounds(
        options(), work, NoTasks(), Record(None, ""), reports.append, lambda: now_s[0] * 10**9, look
    )
    rounds.open(is_continuous=True)
    rounds.round()
    now_s[0], last[0] = 100, 81
    rounds.round()
    # 41 were left, and 20 fewer 100 s later.
    assert [report.get("overtaken") for report in reports] == [None, 205]
