"""The operator as `supercluster dev up` and the demo run it. Kubernetes would start it again after it lost its lease; on a
machine of one's own nobody does, and a machine that was busy for some seconds would have no operator afterwards.
"""

from __future__ import annotations

import logging
import os
import sys
import time

from supercluster.app import main
from supercluster.app.settings import EXIT_FAILED, EXIT_LEASE_LOST

RESTART_WAIT_S = 1.0
RENEWED = "SUPERCLUSTER_OPERATOR_RENEWED"
"""Set where the process begins anew: what made it lose the lease may still keep it from starting."""

log = logging.getLogger("supercluster.operator")


def run() -> int:
    """The operator; where it lost its lease, the process begins anew with the same number and the same arguments."""
    code = main.main()
    if code == EXIT_LEASE_LOST or (code == EXIT_FAILED and RENEWED in os.environ):
        log.warning("beginning anew", extra={"code": code})
        os.environ[RENEWED] = "1"
        time.sleep(RESTART_WAIT_S)
        os.execv(sys.executable, sys.orig_argv)
    return code


if __name__ == "__main__":
    sys.exit(run())
