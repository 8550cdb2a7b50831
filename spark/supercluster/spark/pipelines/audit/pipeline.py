"""The pipeline `audit`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from supercluster.spark.errors import one_line
from supercluster.spark.jetstream import StreamState
from supercluster.spark.pipelines import fields
from supercluster.spark.pipelines.audit.audit import (
    LOST,
    REORDERED,
    REPEATED,
    UNREADABLE,
    Audit,
    Finding,
    Kind,
)
from supercluster.spark.pipelines.audit.gatherer import BlockFacts, Gatherer
from supercluster.spark.pipelines.parameters import Parameters, StreamNames, as_list
from supercluster.spark.pipelines.pipeline import FindingsError, Pipeline, Report, RunOptions
from supercluster.spark.pipelines.read_task import Block, Reading
from supercluster.spark.pipelines.rounds import Runner, SparkRunner, plan_evenly
from supercluster.spark.pipelines.running import run_works

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES_MAX = 1_000
"""Findings of a stream that are printed by one run; the rest is only counted."""
NS_PER_S = 1_000_000_000
Kinds = Annotated[tuple[Kind, ...], BeforeValidator(as_list)]


class AuditParameters(Parameters):
    """What the audit reads, and what counts as bad."""

    of_state = ("number", "publisher", "run", "first_number")

    streams: StreamNames = Field(description="Names of the streams.")
    number: fields.Field = Field(
        description="Field with a message's number, which counts its publisher's run without gaps: json:PATH, header:NAME or subject:N."
    )
    publisher: fields.Field | None = Field(
        default=None, description="Field with the publisher's name. Unset: one publisher a stream."
    )
    run: fields.Field | None = Field(
        default=None,
        description="Field that a publisher changes when it begins to count anew. Unset: it never does.",
    )
    first_number: int = Field(default=1, ge=0, description="The number with which each run begins.")
    settle_seconds: int = Field(
        default=60,
        ge=0,
        description="For so long a number that was passed over may still come; until then it is not yet there.",
    )
    runs_max: int = Field(
        default=10_000,
        ge=1,
        description="Runs that are remembered for each stream. Beyond it, those that were silent for longest are forgotten.",
    )
    fail_on: Kinds = Field(
        default=(LOST, REPEATED, REORDERED, UNREADABLE),
        description="Kinds of findings that make the audit fail (exit code 3).",
    )


@dataclass(frozen=True)
class GatherFacts:
    """The core of the tasks."""

    sources: tuple[fields.FieldSource | None, fields.FieldSource | None, fields.FieldSource]

    def __call__(self, reading: Reading) -> BlockFacts:
        gatherer = Gatherer(reading.block.first, self.sources)
        for records in reading:
            gatherer.take(records)
        return gatherer.finish(reading.block.last, reading.begins_at)


class AuditWork:
    """The audit of one stream in rounds."""

    fail_on_data_loss = False

    def __init__(
        self, stream: str, parameters: AuditParameters, say: Callable[[str], None], run_id: str = ""
    ) -> None:
        self.parameters = parameters
        self.core = GatherFacts((parameters.publisher, parameters.run, parameters.number))
        self._say = say
        self._lines = 0
        self._run_id = run_id
        self._closed_by: str | None = None
        """The run whose verdict the counts are; None: there is none yet."""
        self.audit = Audit(
            stream,
            self._found,
            first_number=parameters.first_number,
            settle_ns=parameters.settle_seconds * NS_PER_S,
            runs_max=parameters.runs_max,
        )

    def _found(self, finding: Finding) -> None:
        self._lines += 1
        if self._lines <= LINES_MAX:
            self._say(finding.line())
        elif self._lines == LINES_MAX + 1:
            self._say("further findings are only counted")

    def plan(
        self, first: int, last: int, state: StreamState, parallelism: int, *, is_last: bool
    ) -> list[Block]:
        return plan_evenly(first, last, parallelism)

    def fold(self, skipped: int, results: list[BlockFacts], caught_up_at_ns: int | None) -> bool:
        lines = self._lines
        self.audit.skip(skipped)
        for facts in results:
            self.audit.take(facts)
        last_ns = max((facts.last_time_ns for facts in results), default=0)
        self.audit.settle(max(last_ns, caught_up_at_ns or 0))
        if caught_up_at_ns is not None:
            self.audit.sum_up()
        return self._lines > lines

    def facts(self) -> Report:
        return {"messages": self.audit.messages, "findings": dict(self.audit.counts)}

    def close(self) -> None:
        self.audit.close()
        self._closed_by = self._run_id

    def to_json(self) -> dict[str, Any]:
        return {**self.audit.to_json(), "closedBy": self._closed_by}

    def restore(self, value: dict[str, Any]) -> None:
        """A verdict that another run has given is forgotten. This run gives its own again: its first driver may have died before its exit code
        was seen."""
        self.audit.restore(value)
        if value["closedBy"] not in (None, self._run_id or None):
            self.audit.counts = Counter()


class AuditPipeline(Pipeline[AuditParameters]):
    """Reads streams, and fails when a message is lost, repeated or out of its publisher's order."""

    name = "audit"
    summary = "Finds lost, repeated and reordered messages by the numbers that publishers gave them."
    parameters = AuditParameters

    def __init__(
        self, say: Callable[[str], None] = print, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._say, self._wait = say, wait

    def start(self, spark: SparkSession, parameters: AuditParameters, options: RunOptions) -> None:
        self.run(SparkRunner(spark), parameters, options)

    def run(self, runner: Runner, parameters: AuditParameters, options: RunOptions) -> None:
        """As `start`, with tasks wherever the runner has them."""
        works = {
            stream: AuditWork(stream, parameters, self._say, options.run_id) for stream in parameters.streams
        }
        rounds = run_works(self.name, works, options, runner, wait=self._wait)
        bad: Counter[Kind] = Counter()
        for stream, work in works.items():
            work.close()
            counts = work.audit.counts
            found = (
                ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())) or "nothing found"
            )
            self._say(f"stream {stream}: {work.audit.messages:,} messages audited, {found}")
            bad.update({kind: count for kind, count in counts.items() if kind in parameters.fail_on})
        failures: list[Exception] = []
        for each in rounds:
            try:
                each.save()
            except Exception as error:
                failures.append(error)
                self._say(f"the audit's state was not kept: {one_line(error)}")
        if failures and not bad:
            raise failures[0]
        # The verdict is known, and the next run might not give it again.
        if bad:
            raise FindingsError(
                ", ".join(f"{count:,} messages {kind}" for kind, count in sorted(bad.items()))
            )
