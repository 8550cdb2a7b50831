"""Spark looks for top-level modules named pyspark_* and registers their DefaultSource: this is ours, so that
`spark.read.format("supercluster")` works without a registration."""

from supercluster.spark.datasource import SuperclusterDataSource as DefaultSource

__all__ = ["DefaultSource"]
