"""The options of a write. The options for the brokers' addresses and the login are those of a read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supercluster.spark.datasource.option_values import OptionError, refuse_unknown
from supercluster.spark.datasource.options import AUTO, OFF, ONLY, ReadOptions, read_options

CONNECTION = (
    *("url", "urls", "stream", "user", "password", "token", "credentialsFile"),
    *("caFile", "certFile", "keyFile", "patienceSeconds", "bulk"),
)
KNOWN = (*CONNECTION, "subject", "writerId", "batchId", "delivery", "checkpointLocation")
OF_SPARK = frozenset(("path", "queryname"))
EXACTLY_ONCE, AT_LEAST_ONCE = "exactlyOnce", "atLeastOnce"
NAME_BYTES_MAX = 128


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: ReadOptions
    """Only what says where and who."""
    subject: str
    writer_id: str
    batch_id: int | None
    is_exactly_once: bool
    """False: rows are published one by one, and those of repeated attempts stand in the stream as often."""
    checkpoint: str
    """Spark's checkpoint location, where it is said as an option."""


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check everything that was given.

    Raises:
        OptionError: one is missing or wrong, or not known.
    """
    refuse_unknown(given, KNOWN, of=" of a write", elsewhere={}, passed=OF_SPARK)
    values = {name.lower(): value for name, value in given.items()}
    delivery = values.get("delivery", EXACTLY_ONCE)
    if delivery.lower() not in (EXACTLY_ONCE.lower(), AT_LEAST_ONCE.lower()):
        raise OptionError(
            "delivery", delivery, f"give {EXACTLY_ONCE}, which is the default, or {AT_LEAST_ONCE}"
        )
    writer, batch = values.get("writerid", ""), values.get("batchid")
    if len(writer.encode()) > NAME_BYTES_MAX:
        raise OptionError("writerId", writer, f"give at most {NAME_BYTES_MAX} bytes")
    if batch is not None and not (writer and batch.isdecimal() and len(batch) < 19):
        raise OptionError("batchId", batch, "give a whole number, and the option writerId with it")
    if values.get("bulk", AUTO).lower() == ONLY:
        raise OptionError(
            "bulk", values["bulk"], f"give {AUTO} or {OFF}: a write goes on over NATS where it has to"
        )
    wanted = {name.lower() for name in (*CONNECTION, "path")}
    return WriteOptions(
        connection=read_options(
            {name: value for name, value in values.items() if name in wanted}, streaming=True
        ),
        subject=values.get("subject", ""),
        writer_id=writer,
        batch_id=int(batch) if batch is not None else None,
        is_exactly_once=delivery.lower() == EXACTLY_ONCE.lower(),
        checkpoint=values.get("checkpointlocation", ""),
    )
