"""The entry point of `python -m supercluster.spark.pipelines`."""

import sys

from supercluster.spark.pipelines.command import main

if __name__ == "__main__":
    sys.exit(main())
