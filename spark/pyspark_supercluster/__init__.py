"""Spark looks for top-level modules named pyspark_* and registers their DefaultSource: this is ours, so that
`spark.read.format("supercluster")` works without a registration.

Spark looks with the Python that PYSPARK_PYTHON names, or else the `python3` of the PATH, which may not have this module. A program that
imports it before it starts Spark has its own interpreter taken.
"""

import os
import sys

from supercluster.spark.datasource import SuperclusterDataSource as DefaultSource

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["DefaultSource"]
