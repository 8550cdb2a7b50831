"""Registers the data source with Spark, so that `spark.read.format("supercluster")` works without a call of
the program.

Spark looks for top-level modules named pyspark_* and registers their DefaultSource. It looks with the Python
that PYSPARK_PYTHON names, or else the `python3` of the PATH, which may not have this module. A program that
imports this module before it starts Spark makes Spark use the program's own interpreter.
"""

import os
import sys

from supercluster.spark.datasource import SuperclusterDataSource as DefaultSource

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["DefaultSource"]
