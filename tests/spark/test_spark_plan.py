"""Options are checked by name, ranges cover exactly what was asked, and offsets know the stream they belong to."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from supercluster.spark.client import Address, Credentials
from supercluster.spark.columns import KINDS, SchemaError, arrow_schema, check_columns
from supercluster.spark.datasource.connection import read_credentials
from supercluster.spark.datasource.option_values import OptionError
from supercluster.spark.datasource.options import read_options
from supercluster.spark.datasource.plan import (
    SEQUENCES_PER_PARTITION_MIN,
    Offset,
    OtherCheckpointError,
    StreamReplacedError,
    split_range,
)
from supercluster.spark.datasource.selection import EARLIEST, LATEST
from supercluster.spark.datasource.source import SuperclusterDataSource
from supercluster.spark.nats.progress import RangeProgress

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
        ({"stream": "a,b"}, "stream"),
        ({"subscribe": "S"}, "stream"),
        ({"subscribe": "a,,b", "stream": ""}, "subscribe"),
        ({"subscribe": "a,b.c", "stream": ""}, "subscribe"),
        ({"subscribe": "a", "subscribePattern": "b", "stream": ""}, "subscribe"),
        ({"subscribePattern": "a(", "stream": ""}, "subscribePattern"),
        ({"subscribe": "a,b", "stream": "", "startingOffsets": "7"}, "startingOffsets"),
        ({"subscribe": "a,b", "stream": "", "startingOffsets": '{"a": 7}'}, "startingOffsets"),
        ({"subscribe": "a,b", "stream": "", "endingOffsets": '{"a": 7, "b": 1, "c": 2}'}, "endingOffsets"),
        ({"subscribePattern": "a.*", "stream": "", "startingOffsets": '{"b": 7}'}, "startingOffsets"),
        ({"startingTimestamp": "soon"}, "startingTimestamp"),
        ({"startingTimestamp": "2026-11-24T08:00:00"}, "startingTimestamp"),
        ({"startingTimestamp": "9" * 19}, "startingTimestamp"),
        ({"startingOffsetsByTimestamp": "7"}, "startingOffsetsByTimestamp"),
        ({"endingOffsetsByTimestamp": '{"S": -1}'}, "endingOffsetsByTimestamp"),
        ({"startingTimestamp": "7", "startingOffsets": "7"}, "startingOffsets"),
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
        ({"bulk": "always"}, "bulk"),
        ({"startingOfsets": "1"}, "startingOfsets"),
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
        assert read_options({**GOOD, "startingOffsets": text}, streaming=True).starting.of("S") == LATEST
    for name in ("endingOffsets", "endingTimestamp"):
        with pytest.raises(OptionError, match=f"{name}.*has no end"):
            read_options({**GOOD, name: "5"}, streaming=True)


@pytest.mark.covers("SP-5")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("startingofsets", "did you mean 'startingOffsets'"),
        ("startingSequence", "did you mean 'startingOffsets'"),
        ("pasword", "did you mean 'password'"),
        ("maxOffsetPerTriger", "did you mean 'maxOffsetsPerTrigger'"),
        ("partitions", "did you mean 'minPartitions'"),
        ("subscribe_pattern", "did you mean 'subscribePattern'"),
        ("assign", "name it in the option stream or subscribe"),
        ("kafka.bootstrap.servers", "use url"),
        ("zzz", "is not known; The options are url"),
    ],
)
def test_an_unknown_option_names_the_nearest_and_shows_no_value(name: str, says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        read_options({**GOOD, name: "hush"}, streaming=True)
    assert f"option {name!r}" in str(caught.value), "as it was written"
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.covers("SP-5")
def test_names_of_the_kafka_source_mean_the_same() -> None:
    found = read_options(
        {"url": "a", "subscribe": "S", "startingOffsets": '{"S": 7}', "maxTriggerDelay": "2m"}, streaming=True
    )
    assert (found.stream, found.starting.of("S"), found.trigger_delay_seconds_max) == ("S", 7, 120)
    assert "headers" not in SuperclusterDataSource({"includeheaders": "false"}).schema()


@pytest.mark.covers("SP-5")
def test_a_column_tells_streams_apart_where_several_may_be_read() -> None:
    for name, has_column in (("subscribe", True), ("subscribePattern", True), ("stream", False)):
        schema = SuperclusterDataSource({name: "S"}).schema()
        assert schema.startswith("stream string, sequence bigint") == has_column
        assert schema.endswith("payload binary")
    assert check_columns([("stream", "string")]) == ("stream",)


MOMENT = dt.datetime(2026, 11, 24, 8, tzinfo=dt.UTC)


@pytest.mark.covers("SP-5")
@pytest.mark.parametrize(
    ("given", "positions"),
    [
        ({"subscribe": "a, b"}, {"a": EARLIEST, "b": EARLIEST}),
        ({"subscribe": "a,b", "startingOffsets": "latest"}, {"a": LATEST, "b": LATEST}),
        ({"subscribe": "a,b", "startingOffsets": '{"a": -1, "b": -2}'}, {"a": LATEST, "b": EARLIEST}),
        (
            {"subscribe": "a,b", "startingOffsets": '{"a": 42, "b": "2026-11-24T09:00:00+01:00"}'},
            {"a": 42, "b": MOMENT},
        ),
        ({"subscribePattern": "[a-z]", "startingOffsets": '{"a": 42}'}, {"a": 42, "b": EARLIEST}),
        ({"subscribePattern": "[a-z]", "startingTimestamp": "1795507200000"}, {"a": MOMENT, "z": MOMENT}),
        ({"subscribe": "a,b", "startingTimestamp": "2026-11-24T08:00:00Z"}, {"a": MOMENT, "b": MOMENT}),
        (
            {"subscribe": "a,b", "startingOffsetsByTimestamp": '{"a": 1795507200000, "b": 0}'},
            {"a": MOMENT, "b": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)},
        ),
    ],
)
def test_a_read_begins_where_options_say_in_each_stream(
    given: dict[str, str], positions: dict[str, object]
) -> None:
    found = read_options({"url": "a", **given}, streaming=True)
    assert {name: found.starting.of(name) for name in positions} == positions


def test_a_pattern_matches_whole_names() -> None:
    selection = read_options(
        {"url": "a", "subscribePattern": "flights|delays-\\d+"}, streaming=True
    ).selection
    names = ["my-flights", "flights", "delays-7", "delays-", "flights2", "delays-7"]
    assert selection.matching(names) == ["delays-7", "flights"]


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
    schema = types.StructType([types.StructField(name, names[kind]) for name, kind in KINDS.items()])
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(list(KINDS)))


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
