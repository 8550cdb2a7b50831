"""A range is read completely and once from bulk ports that misbehave, and over NATS where they do not serve."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.bulk_port import (
    LINEAGE,
    Asked,
    Copy,
    FakePort,
    Play,
    Reply,
    breaks,
    column_body,
    frame,
    refuses,
    serves,
    sum_of,
)

from supercluster.spark.bulk.bulk_reader import BulkReader, NoBulkError, WrongAnswerError
from supercluster.spark.bulk.port import RefusedError
from supercluster.spark.client import BulkPort
from supercluster.spark.columns import COLUMNS, STREAM, arrow_schema, batch_of
from supercluster.spark.jetstream import DataRemovedError, StreamState

pytestmark = pytest.mark.covers("SP-1")

NAMES = (STREAM, *COLUMNS)
COPY = Copy([5, 30, 60, 90], deleted={8, 40, 59})
LAST = 100


@dataclass
class Brokers:
    """Those that a session knows, and what it says of the stream."""

    ports: dict[str, BulkPort]
    first_sequence: int = 1
    lineage: str = LINEAGE
    asked_names: list[str] = field(default_factory=list)

    def bulk_ports(self, followers: Collection[str], is_wanted: Callable[[str], bool]) -> Iterator[BulkPort]:
        for place, (name, port) in enumerate(self.ports.items()):
            if not place or is_wanted(name):
                self.asked_names.append(name)
                yield port

    def stream_state(self, stream: str, *, was_read: bool) -> StreamState:
        return StreamState(stream, self.lineage, self.first_sequence, LAST, LAST, 1_000)


@dataclass
class OverNats:
    """Reads what is there, and remembers what it was asked for."""

    session: Brokers
    names: tuple[str, ...] = NAMES
    stream: str = "S"
    patience_seconds: float = 5.0
    fail_on_data_loss: bool = True
    copy: Copy = field(default_factory=lambda: COPY)
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self.ranges.append((first, last))
        yield batch_of(self.copy.there(first, last), self.names, stream="S")


@dataclass
class Site:
    nats: OverNats
    ports: list[FakePort]

    def read(self, first: int = 1, last: int = LAST, *, is_required: bool = True) -> pa.Table:
        nats: Any = self.nats
        reader = BulkReader(nats, LINEAGE, is_required=is_required)
        return pa.Table.from_batches(reader.read(first, last), arrow_schema(nats.names))

    def check(self, first: int = 1, last: int = LAST, *, is_required: bool = True) -> None:
        """Every row comes once, in order, and as it is."""
        found = self.read(first, last, is_required=is_required)
        wanted = batch_of(COPY.there(first, last), self.nats.names, stream="S")
        assert found.combine_chunks() == pa.Table.from_batches([wanted])


@contextmanager
def site(*brokers: list[Play], **more: Any) -> Iterator[Site]:
    with ExitStack() as stack:
        ports = [stack.enter_context(FakePort(acts).open()) for acts in brokers]
        known = Brokers({f"east-{place}": port.place for place, port in enumerate(ports)})
        yield Site(OverNats(known, **more), ports)


def test_what_lies_before_and_behind_the_blocks_comes_over_nats() -> None:
    with site([serves(COPY)]) as found:
        found.check()
        assert found.nats.ranges == [(1, 4), (90, 100)]
        asked = found.ports[0].requests[0]
        assert (asked.first, asked.last, asked.lineage) == (1, 100, LINEAGE)
        assert asked.columns == list(COLUMNS)
        assert asked.authorization == "Basic " + base64.b64encode(b"app:secret").decode()


@pytest.mark.parametrize("first", [1, 4, 5, 8, 9, 29, 30, 59, 89, 90, 95])
@pytest.mark.parametrize("last", [3, 5, 8, 29, 30, 40, 58, 59, 60, 89, 90, 100])
def test_rows_outside_the_range_are_left_out(first: int, last: int) -> None:
    if first <= last:
        with site([serves(COPY)]) as found:
            found.check(first, last)


@pytest.mark.parametrize("names", [("payload",), ("time", "subject"), ("headers", "stream"), ("sequence",)])
def test_only_wanted_columns_are_asked_for_besides_the_sequence(names: tuple[str, ...]) -> None:
    with site([serves(COPY)], names=names) as found:
        found.check(10, 50)
        columns = [name for name in names if name != STREAM]
        wanted = columns if "sequence" in columns else [*columns, "sequence"]
        assert found.ports[0].requests[0].columns == wanted


@pytest.mark.parametrize("frames", range(16))
@pytest.mark.parametrize("more_bytes", [0, 11, 50])
def test_a_broken_answer_is_gone_on_with_behind_the_last_whole_block(frames: int, more_bytes: int) -> None:
    with site([breaks(COPY, frames, more_bytes), serves(COPY)], [serves(COPY)]) as found:
        found.check()
        own, other = (port.requests for port in found.ports)
        if frames < 5:
            assert [each.first for each in other][:1] == [1 if frames < 5 else 30]
            assert len(own) == 1
        else:
            # Nothing followed the broken answer at its broker: others are asked.
            assert [each.first for each in other] == ([90] if frames == 15 else [])
            assert own[1].first == (30 if frames < 10 else 59 if frames < 15 else 90)


def test_all_that_break_leave_the_rest_to_nats(caplog: pytest.LogCaptureFixture) -> None:
    broken = breaks(COPY, 7)
    with site([broken, refuses(503)], [refuses(429)]) as found:
        with pytest.raises(NoBulkError, match=r"sequence 30 is not served in bulk: .*answered 429"):
            found.read()
    with caplog.at_level(logging.WARNING), site([broken, refuses(503)], [refuses(429)]) as found:
        found.check(is_required=False)
        assert found.nats.ranges == [(1, 4), (30, 100)]
        assert len(caplog.records) == 1
        assert "'S' is read over NATS from sequence 30 on" in caplog.text


def test_brokers_that_have_copies_are_asked_then() -> None:
    with site(
        [refuses(404, nodes=["east-2", "east-3"])], [serves(COPY)], [refuses(503)], [serves(COPY)]
    ) as found:
        found.check()
        assert found.nats.session.asked_names == ["east-0", "east-2", "east-3"]
        assert [len(port.requests) for port in found.ports] == [1, 0, 1, 2]


@pytest.mark.parametrize("status", [401, 403, 409])
def test_what_no_broker_would_answer_otherwise_is_read_over_nats(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with site([refuses(status)], [serves(COPY)]) as found:
        found.check(is_required=False)
        assert found.nats.ranges == [(1, 100)]
        assert found.ports[1].requests == []
        assert f"answered {status}" in caplog.text
        with pytest.raises(NoBulkError, match=str(status)):
            found.read()


def test_no_port_and_another_version_are_read_over_nats() -> None:
    def newer(asked: Asked) -> Reply:
        return Reply(body=frame(1, 0, 0, 5, b"", version=2))

    none: list[list[Play]] = []
    for brokers in (none, [[newer]]):
        with site(*brokers) as found:
            found.check(is_required=False)
            assert found.nats.ranges == [(1, 100)]
            with pytest.raises(NoBulkError):
                found.read()


def test_a_wrong_parameter_is_an_error() -> None:
    with site([refuses(400)]) as found, pytest.raises(RefusedError, match="answered 400: no"):
        found.read(is_required=False)


def test_an_answer_of_nothing_is_no_error() -> None:
    with site([serves(Copy([200, 300]))]) as found:
        found.check()
        assert found.nats.ranges == [(1, 100)]


def _replies(body: bytes, asked: Asked) -> Reply:
    return Reply(body=body)


def test_an_end_without_blocks_covers_nothing() -> None:
    for end in (COPY.end(1, 0, 0, [], 0), COPY.end(50, 49, 0, [], 0)):
        with site([partial(_replies, end)]) as found:
            found.check()
            assert found.nats.ranges == [(1, 100)]
    with site([partial(_replies, COPY.end(1, 3, 0, [[1, 3]], 0))]) as found:
        with pytest.raises(WrongAnswerError):
            found.read()


def test_one_that_has_no_room_for_columns_says_so_and_others_are_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = partial(_replies, COPY.end(1, 0, 0, [], 0, {"why": "there is no room"}))
    with site([full], [serves(COPY)]) as found:
        found.check()
        assert found.nats.ranges == [(1, 4), (90, 100)]
    with site([full], [full]) as found:
        with pytest.raises(NoBulkError, match=r"sequence 1 is not served in bulk: .*there is no room"):
            found.read()
        found.check(is_required=False)
        assert "is read over NATS from sequence 1 on" in caplog.text


def test_a_broker_that_is_behind_after_it_broke_off_is_gone_on_from_at_others() -> None:
    with site([breaks(COPY, 7), serves(Copy([5, 30]))], [serves(COPY)]) as found:
        found.check()
        assert found.nats.ranges == [(1, 4), (90, 100)]


@pytest.mark.parametrize("status", [404, 409])
def test_another_life_of_the_stream_is_the_task_s_to_notice_also_where_bulk_is_required(status: int) -> None:
    with site([refuses(status)]) as found:
        found.nats.session.lineage = "other"
        found.read()


def test_an_answer_that_ends_early_is_asked_for_the_rest() -> None:
    with site([serves(Copy([5, 30], {8})), serves(COPY)]) as found:
        found.check()
        assert [each.first for each in found.ports[0].requests] == [1, 30, 90]


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"rows": 3}, "25 rows|24 rows"),
        ({"first": 4}, "from 4 on"),
        ({"deleted": []}, "missing"),
        ({"deleted": [[8, 9]]}, "missing"),
        ({"last": 30}, "missing"),
        ({"last": 27}, "missing"),
        ({"lineage": "other"}, "lineage other"),
    ],
)
def test_an_end_that_contradicts_the_rows_stops_the_task(told: dict[str, Any], what: str) -> None:
    def lie(asked: Asked) -> Reply:
        records = COPY.there(5, 29)
        bodies = [column_body(records, name) for name in asked.columns]
        frames = [frame(1, place, len(records), 5, body) for place, body in enumerate(bodies)]
        sums = sum(map(sum_of, bodies)) % (1 << 64)
        return Reply(body=b"".join([*frames, COPY.end(5, 29, len(records), [[8, 8]], sums, told)]))

    with site([lie]) as found, pytest.raises(WrongAnswerError, match=what):
        found.read(1, 29, is_required=False)


def test_a_hole_between_blocks_stops_the_task() -> None:
    def skip(asked: Asked) -> Reply:
        frames = [
            *COPY.frames(5, 29, asked.columns)[:-1],
            *COPY.frames(60, 89, asked.columns)[:-1],
            _end_of(COPY, [(5, 29), (60, 89)], asked.columns),
        ]
        return Reply(body=b"".join(frames))

    with site([skip]) as found, pytest.raises(WrongAnswerError, match="missing from 5 to 89"):
        found.read(1, 89, is_required=False)


def _end_of(copy: Copy, ranges: list[tuple[int, int]], columns: list[str]) -> bytes:
    parts = [copy.there(*each) for each in ranges]
    sums = sum(sum_of(column_body(part, name)) for part in parts for name in columns) % (1 << 64)
    return copy.end(ranges[0][0], ranges[-1][1], sum(map(len, parts)), [[8, 8]], sums)


def test_another_life_of_the_stream_is_the_task_s_to_notice() -> None:
    other = Copy(COPY.bounds, COPY.deleted, lineage="other")
    with site([serves(other)]) as found:
        found.nats.session.lineage = "other"
        found.read()


def test_a_head_that_was_removed_is_an_error_and_what_was_deleted_inside_is_none() -> None:
    with site([serves(COPY)]) as found:
        found.nats.session.first_sequence = 8
        found.check(5, 50)
        found.nats.session.first_sequence = 9
        found.check(9, 39)
        with pytest.raises(DataRemovedError, match=r"sequence 8 .* begins at 9"):
            found.read(5, 50)
        found.nats.fail_on_data_loss = False
        found.check(5, 50)
    with site([serves(COPY)]) as found:
        found.nats.session.first_sequence = 60
        with pytest.raises(DataRemovedError, match=r"sequence 59 .* begins at 60"):
            found.read(45, 59)


def test_a_head_that_goes_behind_what_was_read_is_no_error() -> None:
    with site([serves(COPY)]) as found:
        nats: Any = found.nats
        batches = BulkReader(nats, LINEAGE).read(5, 58)
        rows = next(batches).num_rows
        found.nats.session.first_sequence = 30
        rows += sum(batch.num_rows for batch in batches)
        assert rows == len(COPY.there(5, 58))


def test_columns_are_not_copied() -> None:
    with site([serves(COPY)], names=("payload",)) as found:
        batches = list(BulkReader(found.nats, LINEAGE).read(30, 58))  # type: ignore[arg-type]
        addresses = {batch.column(0).buffers()[2].address for batch in batches if batch.num_rows}
        assert len(batches) > 2
        assert max(addresses) - min(addresses) < 10_000, "all lie in the body that was read"
