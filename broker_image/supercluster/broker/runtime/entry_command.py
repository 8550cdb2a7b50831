"""`supercluster-broker entry`: shows one entry of a group's log, and the remedies if a group halted there
(SF-25).

It only reads, so it may be run beside the broker that uses the data directory.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from supercluster.broker.jetstream.api.entry_view import CHOICES, view_of
from supercluster.broker.storage.volume.one_entry import EntryNotFoundError, read_entry

NAME = "entry"
_NOT_FOUND = 1
_PAYLOAD_BYTES_MAX = 4096


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 shown, 1 there is no such entry, 2 wrong arguments."""
    given = _parser().parse_args(arguments)
    try:
        entry = read_entry(given.data_dir, given.group, given.index)
    except (EntryNotFoundError, OSError) as error:
        print(f"supercluster-broker {NAME}: {error}", file=sys.stderr)
        return _NOT_FOUND
    shown = {"group": given.group, **view_of(entry, max(0, min(given.payload, _PAYLOAD_BYTES_MAX)))}
    print(json.dumps(shown, indent=2))
    print(CHOICES, file=sys.stderr, end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"supercluster-broker {NAME}",
        description="Show one entry of a group's log. The files are only read; the broker may be running.",
        epilog=CHOICES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data_dir", type=Path, metavar="DATA_DIR", help="the broker's data directory")
    parser.add_argument("group", metavar="GROUP", help="the group, as events and /jsz name it")
    parser.add_argument(
        "index", type=int, metavar="INDEX", help="the entry's index, from the event GroupFailed"
    )
    parser.add_argument(
        "--payload",
        type=int,
        default=0,
        metavar="BYTES",
        help=f"show so many bytes of each message's payload (0; at most {_PAYLOAD_BYTES_MAX})",
    )
    return parser
