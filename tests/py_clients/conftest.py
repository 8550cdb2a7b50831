"""NATS's newest Python clients need Python 3.13: `make smoke` runs these tests there."""

from __future__ import annotations

import sys

collect_ignore_glob = [] if sys.version_info >= (3, 13) else ["test_*.py"]
