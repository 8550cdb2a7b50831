"""A broker of a version that was made up, as far as others can see: `python levelled_broker.py LEVEL [arguments of supercluster-broker]`.

It speaks the frames of that version and calls itself `0.0.LEVEL`; cordons came with version 3. Beyond that it is this version's
program: what brokers agree on by what they hear of each other is tried with it, and not what another program would do otherwise.
"""

from __future__ import annotations

import sys

from supercluster.broker import version
from supercluster.broker.protocol import frames

CORDONS_CAME_WITH = 3


def run(words: list[str]) -> int:
    level = int(words[0])
    # Before the modules that take the values over by name are imported.
    frames.VERSION = level
    version.VERSION = f"0.0.{level}"
    from supercluster.broker.jetstream.meta.level import NEEDED
    from supercluster.broker.main import main

    NEEDED["cordon"] = CORDONS_CAME_WITH
    return main(words[1:])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
