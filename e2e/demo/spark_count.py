"""The demo's Spark job: flights and departure delays per origin and carrier, straight from the stream.

A process of its own (`python -m e2e.demo.spark_count`), so that its Java ends with it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from e2e import spark_local
from e2e.demo.flights import Figures, Group

COLUMNS = "origin string, carrier string, dep_delay int"


def write_figures(path: Path, figures: dict[Group, Figures]) -> None:
    rows = [
        [*group, value.flights, value.departed, value.delay_minutes]
        for group, value in sorted(figures.items())
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")


def read_figures(path: Path) -> dict[Group, Figures]:
    return {(row[0], row[1]): Figures(*row[2:]) for row in json.loads(path.read_text(encoding="utf-8"))}


def count(directory: Path, options: dict[str, str], cores: int) -> dict[Group, Figures]:
    from pyspark.sql import functions

    session = spark_local.start(directory, cores=cores)
    try:
        messages = session.read.format("supercluster").options(**options).schema("payload binary").load()
        flights = messages.selectExpr(f"from_json(string(payload), '{COLUMNS}') as flight").select("flight.*")
        rows = (
            flights.groupBy("origin", "carrier")
            .agg(
                functions.count("*").alias("flights"),
                functions.count("dep_delay").alias("departed"),
                functions.sum("dep_delay").alias("delay_minutes"),
            )
            .collect()
        )
        return {
            (row.origin, row.carrier): Figures(row.flights, row.departed, row.delay_minutes or 0)
            for row in rows
        }
    finally:
        session.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Count flights per origin and carrier from a stream, with Spark."
    )
    parser.add_argument("--urls", required=True, help="broker addresses, separated by commas")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--credentials-file", default="")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--directory", type=Path, required=True, help="for Spark's own files")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    options = {"urls": arguments.urls, "stream": arguments.stream, "minPartitions": str(arguments.partitions)}
    if arguments.credentials_file:
        options["credentialsFile"] = arguments.credentials_file
    write_figures(arguments.out, count(arguments.directory, options, arguments.cores))


if __name__ == "__main__":
    main()
