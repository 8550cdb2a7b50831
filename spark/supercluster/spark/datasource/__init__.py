"""The Spark data source `supercluster`: batch and streaming reads of one stream."""

from supercluster.spark.datasource.source import SuperclusterDataSource

__all__ = ["SuperclusterDataSource"]
