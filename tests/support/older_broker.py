"""A broker of an older version, as far as others can see: `python older_broker.py LEVEL [arguments of supercluster-broker]`.

It speaks the frames of that version and calls itself `0.0.LEVEL`. Beyond that it is this version's program: what brokers agree on by
what they hear of each other is tried with it, and not what an older program did otherwise.
"""

from __future__ import annotations

import sys

from supercluster.broker import version
from supercluster.broker.protocol import frames


def run(words: list[str]) -> int:
    level = int(words[0])
    # Before the modules that take the values over by name are imported.
    frames.VERSION = level
    version.VERSION = f"0.0.{level}"
    from supercluster.broker.main import main

    return main(words[1:])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
