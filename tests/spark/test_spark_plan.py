"""Options are checked by name, ranges cover exactly what was asked, and offsets know the stream they belong to."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from supercluster.spark.client import Address, Credentials
from supercluster.spark.datasource.options import LATEST, OptionError, read_credentials, read_options
from supercluster.spark.datasource.plan import (
    SEQUENCES_PER_PARTITION_MIN,
    Offset,
    OtherCheckpointError,
    StreamReplacedError,
    admit,
    split_range,
)
from supercluster.spark.datasource.rows import COLUMNS, SchemaError, arrow_schema, check_columns
from supercluster.spark.datasource.source import SuperclusterDataSource
from supercluster.spark.reader import RangeProgress

GOOD = {"url": "nats://a:1", "stream": "S"}


@given(st.integers(1, 10**7), st.integers(0, 10**6), st.integers(1, 64))
def test_ranges_cover_every_sequence_once(first: int, count: int, partitions: int) -> None:
    ranges = split_range(first, first + count - 1, partitions)
    assert sum(high - low + 1 for low, high in ranges) == count
    assert len(ranges) <= partitions
    for (_, high), (low, _) in itertools.pairwise(ranges):
        assert low == high + 1
    if ranges:
        assert (ranges[0][0], ranges[-1][1]) == (first, first + count - 1)
    if len(ranges) > 1:
        assert min(high - low + 1 for low, high in ranges) >= SEQUENCES_PER_PARTITION_MIN


@pytest.mark.parametrize(
    ("start", "available", "target", "limit", "end"),
    [
        (5, 100, None, None, 100),
        (5, 100, 50, None, 50),
        (5, 100, 50, 10, 15),
        (50, 100, 50, 10, 50),
        (9, 3, None, 4, 9),
    ],
)
def test_a_batch_ends_at_the_least_of_its_bounds_and_never_before_its_start(
    start: int, available: int, target: int | None, limit: int | None, end: int
) -> None:
    assert admit(start, available, target, limit) == end


def test_an_offset_survives_json_and_notices_another_stream_of_its_name() -> None:
    offset = Offset("S", "2026-01-01", 7)
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    offset.check(stream="S", lineage="2026-01-01")
    with pytest.raises(StreamReplacedError, match="deleted and created again"):
        offset.check(stream="S", lineage="2026-02-02")
    with pytest.raises(ValueError, match="no offset"):
        Offset.from_json({"partition": 3})


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"stream": ""}, "stream"),
        ({"stream": "a.b"}, "stream"),
        ({"url": ""}, "url"),
        ({"url": "http://a"}, "url"),
        ({"subscribe": "a,b", "stream": ""}, "subscribe"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"minPartitions": "many"}, "minPartitions"),
        ({"startingOffsets": "0"}, "startingOffsets"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"startingOffsets": '{"S": true}'}, "startingOffsets"),
        ({"startingOffsets": '{"S": {"0": 5}}'}, "startingOffsets"),
        ({"startingOffsets": '{"T": 5}'}, "startingOffsets"),
        ({"startingOffsets": '{"S": "2026-11-24T08:00:00"}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "3", "minOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "15"}, "maxTriggerDelay"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ({"patienceSeconds": "0"}, "patienceSeconds"),
        ({"startingOfsets": "1"}, "startingofsets"),
        ({"credentialsFile": "/x", "password": "p"}, "credentialsFile"),
        ({"credentialsFile": "/does/not/exist"}, None),
    ],
)
def test_a_wrong_option_is_named(changes: dict[str, str], option: str | None) -> None:
    if option is None:
        with pytest.raises(OptionError, match="credentialsFile"):
            read_options({**GOOD, **changes}, streaming=False).current_credentials()
        return
    with pytest.raises(OptionError) as caught:
        read_options({**GOOD, **changes}, streaming=False)
    assert caught.value.option == option


def test_a_streaming_read_may_start_at_the_latest_and_has_no_end() -> None:
    for text in ("latest", "Latest", '{"S": -1}'):
        assert read_options({**GOOD, "startingOffsets": text}, streaming=True).starting == LATEST
    with pytest.raises(OptionError, match="endingOffsets"):
        read_options({**GOOD, "endingOffsets": "5"}, streaming=True)


@pytest.mark.covers("SP-5")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("startingofsets", "did you mean 'startingOffsets'"),
        ("startingSequence", "did you mean 'startingOffsets'"),
        ("pasword", "did you mean 'password'"),
        ("maxOffsetPerTriger", "did you mean 'maxOffsetsPerTrigger'"),
        ("partitions", "did you mean 'minPartitions'"),
        ("subscribePattern", "one read has one stream"),
        ("startingTimestamp", "give the time in startingOffsets"),
        ("kafka.bootstrap.servers", "use url"),
        ("zzz", "is not known; The options are url"),
    ],
)
def test_an_unknown_option_names_the_nearest_and_shows_no_value(name: str, says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        read_options({**GOOD, name: "hush"}, streaming=True)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.covers("SP-5")
def test_names_of_the_kafka_source_mean_the_same() -> None:
    found = read_options(
        {"url": "a", "subscribe": "S", "startingOffsets": '{"S": 7}', "maxTriggerDelay": "2m"}, streaming=True
    )
    assert (found.stream, found.starting, found.trigger_delay_seconds_max) == ("S", 7, 120)
    assert "headers" not in SuperclusterDataSource({"includeheaders": "false"}).schema()


def test_credentials_in_a_url_are_refused_without_showing_them() -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**GOOD, "url": "nats://user:hush@a:1"}, streaming=False)
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(Credentials("u", "hush", "hush"))


def test_credential_files_of_both_forms_are_read_and_bad_ones_show_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"user": "a", "password": "p"}')
    assert read_credentials(str(path), "") == Credentials("a", "p")
    path.write_text('{"users": [{"user": "a", "password": "p"}, {"user": "b", "password": "q"}]}')
    assert read_credentials(str(path), "b") == Credentials("b", "q")
    with pytest.raises(OptionError, match="no user 'c'"):
        read_credentials(str(path), "c")
    path.write_text("hush")
    with pytest.raises(OptionError) as caught:
        read_credentials(str(path), "")
    assert "hush" not in str(caught.value)


def test_columns_are_ours_by_name_and_type() -> None:
    assert check_columns([("payload", "binary"), ("sequence", "bigint")]) == ("payload", "sequence")
    with pytest.raises(SchemaError, match="no column sequence int"):
        check_columns([("sequence", "int")])


def test_arrow_types_are_those_that_spark_expects() -> None:
    names: dict[str, types.DataType] = {
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "map<string,array<string>>": types.MapType(types.StringType(), types.ArrayType(types.StringType())),
    }
    schema = types.StructType([types.StructField(name, names[kind]) for name, kind in COLUMNS.items()])
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(list(COLUMNS)))


@pytest.mark.parametrize("text", ["a:1", "nats://a:1", " nats://a:1/ "])
def test_addresses_are_read(text: str) -> None:
    assert Address.parse(text) == Address("a", 1)


def test_a_range_drops_repeats_notices_holes_and_passes_over_deleted_sequences() -> None:
    def message(sequence: int, number: int, pending: int = 9) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        return b"1", b"s", f"$JS.ACK.S.c.1.{sequence}.{number}.1.{pending}".encode(), b"", b"%d" % sequence

    progress = RangeProgress(5, 10)
    assert progress.take(message(5, 1)) is not None
    assert progress.take(message(8, 2)) is not None  # 6 and 7 are deleted: the consumer's count has no hole
    assert not progress.hole
    assert progress.take(message(10, 4)) is None  # number 3 got lost on its way
    assert progress.hole
    progress.renewed()
    assert progress.take(message(8, 1)) is None  # a repeat
    assert not progress.hole
    assert progress.take(message(9, 2, pending=0)) is not None
    assert progress.asks_for_end
    assert progress.take(message(11, 3)) is None
    assert progress.finished


def test_a_checkpoint_of_another_stream_is_told_apart_from_a_stream_made_again() -> None:
    offset = Offset("flights", "l1", 7)
    with pytest.raises(OtherCheckpointError, match="reads stream 'flights', and this one reads 'delays'"):
        offset.check(stream="delays", lineage="l1")
    with pytest.raises(StreamReplacedError, match="deleted and created again"):
        offset.check(stream="flights", lineage="l2")
