"""The operator as `supercluster dev up` and the demo run it. Kubernetes would start it again after it lost its lease; on a
machine of one's own nobody does, and a machine that was busy for some seconds would have no operator afterwards.
"""

from __future__ import annotations

import logging
import os
import sys
import time

from supercluster.app import main
from supercluster.app.settings import EXIT_LEASE_LOST

RESTART_WAIT_S = 1.0

log = logging.getLogger("supercluster.operator")


def run() -> int:
    """The operator; where it lost its lease, the process begins anew with the same number and the same arguments."""
    code = main.main()
    if code == EXIT_LEASE_LOST:
        log.warning("beginning anew", extra={"reason": "the lease was lost"})
        time.sleep(RESTART_WAIT_S)
        os.execv(sys.executable, sys.orig_argv)
    return code


if __name__ == "__main__":
    sys.exit(run())
