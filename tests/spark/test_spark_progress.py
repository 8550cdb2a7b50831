"""What a driver tells of its queries, and when it counts as stuck."""

from __future__ import annotations

import datetime as dt
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from supercluster.api.stream_pipeline import PipelineProgress
from supercluster.spark.runner import progress as progress_module
from supercluster.spark.runner.kube import KubeAccess, KubeRequestError
from supercluster.spark.runner.progress import ANNOTATION, Progress, ProgressReporter, QuerySample, sample_of

pytestmark = pytest.mark.covers("SP-3")

START = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def after(seconds: int) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def offset(following: int, stream: str = "flights") -> dict[str, Any]:
    return {"stream": stream, "lineage": "l", "next": following}


def sample(batch: int, *, is_busy: bool = True, end: int = 10) -> QuerySample:
    return QuerySample("q", batch, 5.0, is_busy, {"flights": (end, 30)})


def test_sparks_words_give_batch_rate_and_lag() -> None:
    sources = [
        {"endOffset": offset(11), "latestOffset": json.dumps(offset(31))},
        {"endOffset": {"topic": 3}, "latestOffset": None},
        {"endOffset": json.dumps(offset(5, "delays")), "latestOffset": None},
        {
            "endOffset": {"streams": [offset(2, "a"), offset(3, "b")]},
            "latestOffset": {"streams": [{**offset(7, "a"), "overtaken": 99}]},
        },
    ]
    progress = {"batchId": 4, "processedRowsPerSecond": 12.5, "sources": sources}
    found = sample_of(progress, {"isDataAvailable": True}, "q")
    streams = {"flights": (11, 31), "delays": (5, 5), "a": (2, 7), "b": (3, 3)}
    assert found == QuerySample("q", 4, 12.5, True, streams, {"a": 99})
    odd = {"sources": [{"endOffset": "{", "latestOffset": "[]"}]}
    assert sample_of(odd, {}, "q").streams == {}
    assert sample_of(None, {}, "q") == QuerySample("q", -1, 0.0, False, {})


def test_it_fits_the_status_of_a_stream_pipeline() -> None:
    progress = Progress(START)
    unknown = progress.status(START)
    assert "streams" not in unknown
    assert PipelineProgress.model_validate(unknown).to_object() == unknown
    progress.take_samples([sample(4)], after(1))
    status = progress.status(after(2))
    assert PipelineProgress.model_validate(status).to_object() == status
    assert (status["batch"], status["lag"], status["rowsPerSecond"]) == (4, 20, 5)
    assert status["streams"] == [{"name": "flights", "nextSequence": 10, "lag": 20}]


def test_the_time_until_retention_overtakes_the_reader_is_told_as_long_as_it_is_in_danger() -> None:
    def sampled(**latest: Any) -> QuerySample:
        sources = [{"endOffset": offset(10), "latestOffset": {**offset(30), **latest}}]
        return sample_of({"batchId": 4, "sources": sources}, {}, "q")

    progress = Progress(START)
    moment = int(after(600).timestamp())
    progress.take_samples([sampled(overtaken=moment)], after(1))
    progress.take_report({"stream": "s", "next": 5, "last": 9, "overtaken": moment - 500}, after(1))
    status = progress.status(after(2))
    assert PipelineProgress.model_validate(status).to_object() == status
    assert status["retentionSeconds"] == 98
    assert [each["retentionSeconds"] for each in status["streams"]] == [598, 98]
    assert progress.status(after(200))["retentionSeconds"] == 0, "a query that hangs comes nearer"
    progress.take_samples([sampled()], after(201))
    progress.take_report({"stream": "s", "next": 9, "last": 9}, after(201))
    safe = progress.status(after(202))
    assert "retentionSeconds" not in safe
    assert not [each for each in safe["streams"] if "retentionSeconds" in each]


def test_a_query_that_ends_no_batch_makes_no_progress() -> None:
    progress = Progress(START)

    def since(second: int, *samples: QuerySample) -> str:
        progress.take_samples(samples, after(second))
        return str(progress.status(after(second))["lastProgressTime"])[-3:-1]

    assert since(1, sample(4)) == "06"
    assert since(20, sample(4)) == "06"
    assert since(30, sample(5)) == "35"
    assert since(40, sample(5, is_busy=False)) == "45", "it waits for messages"
    assert since(50, sample(5, is_busy=False)) == "55"
    other = QuerySample("other", 7, 1.0, True)
    assert since(51, sample(6), other) == "56"
    assert since(52, sample(7), other) == "56", "the slowest one counts"


def test_a_pipeline_with_messages_left_has_to_report() -> None:
    progress = Progress(START)
    progress.take_report({"stream": "s", "next": 5, "last": 9}, after(1))
    assert progress.status(after(50))["lastProgressTime"] == "2026-01-02T03:04:06Z"
    progress.take_report({"stream": "s", "next": 10, "last": 9}, after(2))
    assert progress.status(after(50))["lastProgressTime"] == "2026-01-02T03:04:55Z"


class Api(KubeAccess):
    written: list[dict[str, Any]]
    error: list[KubeRequestError]

    def __init__(self) -> None:
        super().__init__("https://api:6443", Path("/token"), "", "/ca.crt")
        object.__setattr__(self, "written", [])
        object.__setattr__(self, "error", [])

    def request(self, method: str, path: str, query: Any, body: Any = None) -> dict[str, Any]:
        assert (method, path) == ("PATCH", "/api/v1/namespaces/pipes/pods/count-x")
        if self.error:
            raise self.error[0]
        self.written.append(json.loads(body["metadata"]["annotations"][ANNOTATION]))
        return {}


def test_only_news_are_written_and_the_time_each_minute(capsys: pytest.CaptureFixture[str]) -> None:
    api, clock, batch = Api(), [START], [1]
    reporter = ProgressReporter(
        api, "pipes", "count-x", samples=lambda: [sample(batch[0])], now=lambda: clock[0]
    )
    for second, number in ((0, 1), (10, 1), (20, 2), (30, 2), (80, 2)):
        clock[0], batch[0] = after(second), number
        reporter.look()
    assert [each["batch"] for each in api.written] == [1, 2, 2]
    api.error.append(KubeRequestError("no route"))
    for second in (90, 160, 230):
        clock[0], batch[0] = after(second), second
        reporter.look()
    assert capsys.readouterr().err == "progress is not written: no route\n"


def test_the_last_word_is_the_last_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a request under way could take back that the program has ended."""
    monkeypatch.setattr(progress_module, "INTERVAL_SECONDS", 0.01)
    is_writing, may_write = threading.Event(), threading.Event()

    class SlowApi(Api):
        def request(self, method: str, path: str, query: Any, body: Any = None) -> dict[str, Any]:
            is_writing.set()
            assert may_write.wait(10)
            return super().request(method, path, query, body)

    api = SlowApi()
    reporter = ProgressReporter(api, "pipes", "count-x", samples=lambda: [sample(1)])
    join = reporter._thread.join

    def joins(timeout: float | None = None) -> None:
        may_write.set()
        join(timeout)

    monkeypatch.setattr(reporter._thread, "join", joins)
    reporter.start()
    assert is_writing.wait(10)
    reporter.stop(has_ended=True)
    join(10)
    written = [each["ended"] for each in api.written]
    assert written.count(True) == 1
    assert written[-1] is True


def test_a_stream_that_a_query_reads_no_more_is_neither_behind_nor_in_danger() -> None:
    """It was deleted, and a pattern had matched it."""
    progress = Progress(START)
    moment = int(after(60).timestamp())
    both = {"flights": (10, 30), "gone": (1, 90)}
    progress.take_samples([QuerySample("q", 1, 5.0, False, both, {"gone": moment})], after(1))
    assert (progress.status(after(2))["lag"], progress.status(after(2))["retentionSeconds"]) == (109, 58)
    progress.take_samples([sample(2)], after(3))
    found = progress.status(after(4))
    assert (found["lag"], [each["name"] for each in found["streams"]]) == (20, ["flights"])
    assert "retentionSeconds" not in found
