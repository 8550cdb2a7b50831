"""File descriptors: streams, clients and links need them, so the broker raises its limit and reports a lack
of them.
"""

from __future__ import annotations

import logging
import os
import resource

log = logging.getLogger(__name__)

# A stream has about four, and brokers tell each other of their room every few seconds only.
SPARE_MIN = 512


def raise_limit() -> None:
    """Use what the system allows: the soft limit is often 1,024, for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("file descriptors stay limited to %d, %d would be allowed: %s", soft, hard, error)


def are_short() -> bool:
    """Are so few left that no new stream should come? The kernel gives the lowest free number, which says enough."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    os.close(lowest)
    return limit - lowest < min(SPARE_MIN, limit // 4)
