"""The audit reads streams of a broker in rounds, goes on where it was killed, and fails for what is new."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from benchmarks.servers import Fleet
from nats.js import JetStreamContext

from supercluster.spark.datasource.plan import StreamReplacedError
from supercluster.spark.pipelines import rounds
from supercluster.spark.pipelines.audit.pipeline import AuditParameters, AuditPipeline, AuditWork
from supercluster.spark.pipelines.parameters import read_parameters
from supercluster.spark.pipelines.pipeline import FindingsError, RunOptions
from supercluster.spark.pipelines.rounds import RecordTakenError


async def publish(js: JetStreamContext, numbers: Sequence[int], *, stream: str = "S") -> None:
    await asyncio.gather(
        *[await js.publish_async(stream, json.dumps({"n": number}).encode()) for number in numbers]
    )


class Auditor:
    """Audits the stream S, again and again."""

    def __init__(self, fleet: Fleet, runner: Any, checkpoint: Path | None, **given: object) -> None:
        self.lines: list[str] = []
        self.reports: list[Any] = []
        self._runner = runner
        self._given = {"streams": ["S"], "number": "json:n", "settleSeconds": 0, **given}
        where = None if checkpoint is None else str(checkpoint)
        self._options = RunOptions({"url": fleet.urls[0]}, where, report=self.reports.append)

    def audit(self, run_id: str = "") -> list[str]:
        self.lines.clear()
        self._options = replace(self._options, run_id=run_id)
        parameters = read_parameters(AuditParameters, self._given)
        AuditPipeline(self.lines.append).run(self._runner, parameters, self._options)
        return self.lines

    async def run(self, run_id: str = "") -> list[str]:
        return await asyncio.to_thread(self.audit, run_id)


@pytest.mark.covers("SP-4")
async def test_lost_deleted_and_expired_numbers_of_a_real_stream_are_told_apart(
    fleet: Fleet, js: JetStreamContext, runner: Any, tmp_path: Path
) -> None:
    await js.add_stream(name="S", subjects=["S"])
    await publish(js, [*range(1, 51), *range(52, 101)])
    await js.delete_msg("S", 60)
    await js.purge_stream("S", seq=11)
    auditor = Auditor(fleet, runner, tmp_path)
    with pytest.raises(FindingsError, match=r"^1 messages lost$"):
        await auditor.run()
    assert auditor.lines == [
        "expired: stream S, publisher '', run '', numbers 1 to 10 (10), between sequences 0 and 11",
        "lost: stream S, publisher '', run '', numbers 51 to 51 (1), between sequences 50 and 51",
        "deleted: stream S, publisher '', run '', numbers 61 to 61 (1), between sequences 59 and 61",
        "stream S: 88 messages audited, 1 deleted, 10 expired, 1 lost",
    ]
    assert auditor.reports[-1] == {
        "stream": "S",
        "next": 100,
        "last": 99,
        "messages": 88,
        "findings": {"expired": 10, "lost": 1, "deleted": 1},
    }
    # What was said once does not fail the next run.
    await publish(js, range(101, 103))
    assert await auditor.run() == ["stream S: 90 messages audited, nothing found"]


async def test_an_audit_that_was_killed_goes_on_with_the_same_blocks(
    fleet: Fleet, js: JetStreamContext, runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SEQUENCES_PER_BLOCK", 10)
    await js.add_stream(name="S", subjects=["S"])
    await publish(js, [*range(1, 46), 45, *range(46, 100)])
    auditor = Auditor(fleet, runner, tmp_path)
    runner.die_in = 2
    with pytest.raises(InterruptedError):
        await auditor.run()
    record = json.loads((tmp_path / "audit" / "S.json").read_text())
    assert (record["next"], record["open"]) == (31, [[31, 60]])
    await publish(js, [100])
    with pytest.raises(FindingsError, match=r"^1 messages repeated$"):
        await auditor.run()
    assert auditor.lines[-1] == "stream S: 101 messages audited, 1 repeated"


async def test_a_verdict_is_given_again_in_the_same_run_and_in_no_other(
    fleet: Fleet, js: JetStreamContext, runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver may die before its exit code is seen."""
    await js.add_stream(name="S", subjects=["S"])
    await publish(js, [1, 3])
    auditor = Auditor(fleet, runner, tmp_path)
    for _ in range(2):
        with pytest.raises(FindingsError, match=r"^1 messages lost$"):
            await auditor.run("job-1")
    # A run that was killed before it had a verdict leaves its findings to the next one.
    await publish(js, [5])
    with monkeypatch.context() as patch:
        patch.setattr(AuditWork, "close", Mock(side_effect=InterruptedError))
        with pytest.raises(InterruptedError):
            await auditor.run("job-2")
    with pytest.raises(FindingsError, match=r"^1 messages lost$"):
        await auditor.run("job-3")
    assert (await auditor.run("job-4"))[-1] == "stream S: 3 messages audited, nothing found"
    assert (await auditor.run("job-4"))[-1] == "stream S: 3 messages audited, nothing found"


async def test_a_verdict_is_given_though_the_state_cannot_be_kept(
    fleet: Fleet, js: JetStreamContext, runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in "ST":
        await js.add_stream(name=stream, subjects=[stream])
        await publish(js, [1, 3], stream=stream)
    auditor = Auditor(fleet, runner, tmp_path, streams="S,T", settleSeconds=3600, failOn="not yet there")
    close = AuditWork.close

    def taken(work: AuditWork) -> None:
        close(work)
        (tmp_path / "audit" / "T.json").write_text("another run's")

    monkeypatch.setattr(AuditWork, "close", taken)
    with pytest.raises(FindingsError, match=r"^2 messages not yet there$"):
        await auditor.run()
    assert "T.json in" in auditor.lines[-1]
    # A gap that is open still is no second finding.
    monkeypatch.setattr(AuditWork, "close", close)
    auditor = Auditor(fleet, runner, tmp_path, settleSeconds=3600, failOn="not yet there")
    for _ in range(2):
        with pytest.raises(FindingsError, match=r"^1 messages not yet there$"):
            await auditor.run("job-1")


@pytest.mark.parametrize("fail_on", ["lost", "repeated"])
async def test_a_state_that_cannot_be_kept_is_no_reason_to_keep_no_other(
    fleet: Fleet,
    js: JetStreamContext,
    runner: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fail_on: str,
) -> None:
    for stream in "ST":
        await js.add_stream(name=stream, subjects=[stream])
        await publish(js, [1, 3], stream=stream)
    close = AuditWork.close

    def taken(work: AuditWork) -> None:
        close(work)
        (tmp_path / "audit" / "S.json").write_text("another run's")

    with monkeypatch.context() as patch:
        patch.setattr(AuditWork, "close", taken)
        with pytest.raises(FindingsError if fail_on == "lost" else RecordTakenError):
            await Auditor(fleet, runner, tmp_path, streams="S,T", failOn=fail_on).run("job-1")
    auditor = Auditor(fleet, runner, tmp_path, streams="T")
    assert await auditor.run("job-2") == ["stream T: 2 messages audited, nothing found"]


def test_a_driver_knows_its_run_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RunOptions().run_id == ""
    monkeypatch.setenv("SUPERCLUSTER_RUN", "uid-of-a-job")
    assert RunOptions().run_id == "uid-of-a-job"


async def test_another_stream_of_that_name_is_refused_and_fields_that_nothing_has_fail(
    fleet: Fleet, js: JetStreamContext, runner: Any, tmp_path: Path
) -> None:
    await js.add_stream(name="S", subjects=["S"])
    await publish(js, [1, 2])
    await Auditor(fleet, runner, tmp_path).run()
    with pytest.raises(FindingsError, match=r"^2 messages unreadable$"):
        await Auditor(fleet, runner, None, number="json:N").run()
    await js.delete_stream("S")
    await js.add_stream(name="S", subjects=["S"])
    with pytest.raises(StreamReplacedError):
        await Auditor(fleet, runner, tmp_path).run()


async def test_a_continuous_audit_waits_for_messages_and_settles_while_nothing_comes(
    fleet: Fleet, js: JetStreamContext, runner: Any, tmp_path: Path
) -> None:
    await js.add_stream(name="S", subjects=["S"])
    await publish(js, [1, 3])
    lines: list[str] = []
    waits = 0
    loop = asyncio.get_running_loop()

    def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 1:
            asyncio.run_coroutine_threadsafe(publish(js, [5]), loop).result(20)
        elif len(lines) == 2:
            raise KeyboardInterrupt

    parameters = read_parameters(AuditParameters, {"streams": "S", "number": "json:n", "settleSeconds": 0})
    options = RunOptions(
        {"url": fleet.urls[0]}, str(tmp_path), is_continuous=True, report=lambda report: None
    )
    with pytest.raises(KeyboardInterrupt):
        await asyncio.to_thread(AuditPipeline(lines.append, wait).run, runner, parameters, options)
    assert [line.split(",")[3] for line in lines] == [" numbers 2 to 2 (1)", " numbers 4 to 4 (1)"]
