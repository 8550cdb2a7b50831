"""Spark pipelines: the objects that a StreamPipeline is made of, and what is said of it."""
