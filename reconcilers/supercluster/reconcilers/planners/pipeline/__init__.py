"""Spark pipelines: the objects of a StreamPipeline, and its status."""
