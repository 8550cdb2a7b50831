"""The Spark data source `supercluster`: batch and streaming reads of streams, and writes to one."""

from supercluster.spark.datasource.source import SuperclusterDataSource

__all__ = ["SuperclusterDataSource"]
