"""A query from one stream to another, in executors of their own: python -m tests.spark.sink_program FOLDER URLS. Ends when all that
there was at its start is written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from e2e import spark_local

ROWS_PER_BATCH = 1_000


def main(folder: Path, urls: str) -> None:
    """Run the query from the checkpoint in `folder`."""
    spark_local.prepare_environment(os.environ)  # type: ignore[arg-type]
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    settings = spark_local.settings(folder)
    settings |= {
        "spark.master": "local-cluster[1,2,512]",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source = spark.readStream.format("supercluster").options(
        url=urls, stream="S", maxOffsetsPerTrigger=str(ROWS_PER_BATCH), minPartitions="2"
    )
    sink = (
        source.load()
        .selectExpr("'out.x' as subject", "payload")
        .writeStream.format("supercluster")
        .options(url=urls, stream="OUT", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    sink.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
