"""The command."""

import sys

from supercluster.spark.pipelines.command import main

if __name__ == "__main__":
    sys.exit(main())
