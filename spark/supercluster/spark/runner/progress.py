"""The progress of a driver's queries and pipelines, as an annotation of the driver's own pod, in the format
of the StreamPipeline's status.

The operator watches the pod anyway, so no port is opened, and no network policy is in the way. Queries are
sampled, because a listener of Spark would not notice a query that hangs.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supercluster.spark.retention import OVERTAKEN
from supercluster.spark.runner.kube import KubeAccess, KubeRequestError

ANNOTATION = "supercluster.dev/progress"
INTERVAL_SECONDS = 10.0
# So long the last word waits for the one before it.
STOP_SECONDS = 10.0
# So often it is written when nothing but the time has changed.
REFRESH_SECONDS = 60.0
STREAMS_MAX = 32


@dataclass(frozen=True, slots=True)
class QuerySample:
    """A streaming query at one moment."""

    id: str
    batch: int
    rows_per_second: float
    is_busy: bool
    """A batch is under way."""
    streams: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By name: the first sequence that is not read, and the first one that the stream does not have yet."""
    overtaken: Mapping[str, int] = field(default_factory=dict)
    """By name: when retention removes messages that are not read, in seconds since 1970; of streams in danger alone."""


def sample_of(progress: Mapping[str, Any] | None, status: Mapping[str, Any], query_id: str) -> QuerySample:
    """From Spark's own words on a query."""
    found = progress or {}
    streams, overtaken = {}, {}
    for source in found.get("sources") or ():
        latest = _offsets(source.get("latestOffset"))
        for name, end in _offsets(source.get("endOffset")).items():
            following, newest = end["next"], latest.get(name, {})
            streams[name] = (following, max(following, newest.get("next", 0)))
            moment = newest.get(OVERTAKEN)
            if isinstance(moment, int):
                overtaken[name] = moment
    rate = float(found.get("processedRowsPerSecond") or 0.0)
    # A trigger that only asks for new messages is active too.
    is_busy = bool(status.get("isDataAvailable"))
    return QuerySample(query_id, int(found.get("batchId", -1)), rate, is_busy, streams, overtaken)


def _json(value: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _offsets(value: Any) -> dict[str, Mapping[str, Any]]:
    """What our own sources say of each of their streams."""
    found = _json(value)
    try:
        return {
            str(each["stream"]): {**each, "next": int(each["next"])} for each in found.get("streams", [found])
        }
    except (ValueError, KeyError, TypeError):
        return {}


class Progress:
    """What is told of a driver. Pure."""

    def __init__(self, now: dt.datetime) -> None:
        self._batch: int | None = None
        self._rate = 0.0
        self._streams: dict[str, tuple[int, int]] = {}
        self._overtaken: dict[str, int] = {}
        self._queries: dict[str, tuple[QuerySample, dt.datetime]] = {}
        self._reported = now
        self.has_ended = False
        """Have program and queries ended?"""

    def take_samples(self, samples: Sequence[QuerySample], now: dt.datetime) -> None:
        """A query is at work as long as it ends batches or waits for its next trigger."""
        known, self._queries = self._queries, {}
        for sample in samples:
            before, since = known.get(sample.id, (None, now))
            is_stuck = (
                before is not None and sample.is_busy and before.is_busy and before.batch == sample.batch
            )
            self._queries[sample.id] = (sample, since if is_stuck else now)
            if before is not None and sample.streams:
                # Deleted streams that the query's pattern matched: nothing of them is behind or in danger.
                for name in before.streams.keys() - sample.streams.keys():
                    self._streams.pop(name, None)
                    self._overtaken.pop(name, None)
            self._streams |= sample.streams
            self._endanger(sample.streams, sample.overtaken)
        if samples:
            self._batch = max(sample.batch for sample in samples)
            self._rate = sum(sample.rows_per_second for sample in samples)

    def take_report(self, report: Mapping[str, object], now: dt.datetime) -> None:
        """A round of a pipeline that ships."""
        self._reported = now
        name, following, last = (report.get(key) for key in ("stream", "next", "last"))
        if isinstance(following, int) and isinstance(last, int):
            self._streams[str(name)] = (following, max(following, last + 1))
            moment = report.get(OVERTAKEN)
            self._endanger([str(name)], {str(name): moment} if isinstance(moment, int) else {})

    def _endanger(self, streams: Iterable[str], overtaken: Mapping[str, int]) -> None:
        for name in streams:
            self._overtaken.pop(name, None)
        self._overtaken |= overtaken

    def status(self, now: dt.datetime) -> dict[str, Any]:
        """As the StreamPipeline's status has it."""
        lag = sum(end - following for following, end in self._streams.values())
        # Without queries: a pipeline that has read all there was waits for more.
        since = self._reported if lag else now
        if self._queries:
            since = min(since for _, since in self._queries.values())
        left = {name: max(0, moment - int(now.timestamp())) for name, moment in self._overtaken.items()}
        found: dict[str, Any] = {
            "rowsPerSecond": round(self._rate),
            "lag": lag,
            "ended": self.has_ended,
            "lastProgressTime": since.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if self._streams:
            found["streams"] = [
                {"name": name, "nextSequence": following, "lag": end - following}
                | ({"retentionSeconds": left[name]} if name in left else {})
                for name, (following, end) in sorted(self._streams.items())[:STREAMS_MAX]
            ]
        if self._batch is not None and self._batch >= 0:
            found["batch"] = self._batch
        if left:
            found["retentionSeconds"] = min(left.values())
        return found


def spark_samples() -> list[QuerySample]:
    """Of the queries of this process."""
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    found = []
    for query in session.streams.active if session is not None else ():
        last = query.lastProgress
        told = json.loads(last.json) if last is not None else None
        found.append(sample_of(told, query.status, str(query.id)))
    return found


class ProgressReporter:
    """Writes the annotation from a thread of its own, until it is stopped."""

    def __init__(
        self,
        access: KubeAccess,
        namespace: str,
        pod: str,
        *,
        samples: Callable[[], Sequence[QuerySample]] = spark_samples,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._access, self._path = access, f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._samples, self._now = samples, now
        self._progress = Progress(now())
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._written: dict[str, Any] = {}
        self._written_at: dt.datetime | None = None
        self._told = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, has_ended: bool) -> None:
        """Write what was reported last, and whether program and queries have ended well, and end."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        with self._lock:
            self._progress.has_ended = has_ended
        self._write()

    def report(self, report: Mapping[str, object]) -> None:
        """For a pipeline's rounds."""
        with self._lock:
            self._progress.take_report(report, self._now())

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS):
            self.look()

    def look(self) -> None:
        """Sample the queries and write what has changed."""
        try:
            samples = self._samples()
        except Exception as error:
            # Spark begins or ends, or Java is gone; the main thread has its own error then.
            self._tell(f"progress is not known: {type(error).__name__}")
            return
        with self._lock:
            self._progress.take_samples(samples, self._now())
        self._write()

    def _write(self) -> None:
        with self._lock:
            now = self._now()
            status = self._progress.status(now)
            if not self._is_news(status, now):
                return
            self._written, self._written_at = status, now
        body = {"metadata": {"annotations": {ANNOTATION: json.dumps(status)}}}
        try:
            self._access.request("PATCH", self._path, {}, body)
        except KubeRequestError as error:
            self._tell(f"progress is not written: {error}")

    def _is_news(self, status: Mapping[str, Any], now: dt.datetime) -> bool:
        if self._written_at is None or (now - self._written_at).total_seconds() >= REFRESH_SECONDS:
            return True
        return {**status, "lastProgressTime": ""} != {**self._written, "lastProgressTime": ""}

    def _tell(self, message: str) -> None:
        """Once, until it is another one."""
        if message != self._told:
            self._told = message
            print(message, file=sys.stderr, flush=True)
