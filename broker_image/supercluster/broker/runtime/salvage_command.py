"""`supercluster-broker salvage`: writes the readable part of a stream's copy as a backup that can be
restored.

For a stream whose copies are all lost or damaged. The copies' files are only read; the broker must not be
using them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from supercluster.broker.jetstream.backup.salvage import NothingToSalvageError, salvage
from supercluster.broker.raft.errors import NewerFormatError
from supercluster.broker.storage.recovery.readable import Readable, read_copies

NAME = "salvage"
_FAILED, _WRONG = 1, 2
_SHOWN_MAX = 50
_PROGRESS_BYTES = 256 * 1024 * 1024
_ABOUT, _ARCHIVE = "backup.json", "stream.tar.s2"
_EPILOG = """\
OUT gets backup.json (configuration and state) and stream.tar.s2 (the archive), as `nats stream backup` writes them; read what is
printed, then `nats stream restore OUT`. DIR is groups/<group> of a data directory, or a copy of it; quarantine/ below it is read
too. With several DIRs, copies of one stream on several brokers, whatever any of them has is taken.

exit codes: 0 written   1 nothing is readable, or it cannot be written   2 wrong arguments
"""


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 written, 1 nothing to write or no room for it, 2 wrong arguments."""
    given = _parser().parse_args(arguments)
    out: Path = given.out
    for folder in given.dirs:
        if not folder.is_dir():
            return _say(f"{folder} is no directory", _WRONG)
        if out.resolve().is_relative_to(folder.resolve()):
            return _say(f"{out} is in {folder}, which is only read: give another --out", _WRONG)
    if out.exists():
        return _say(f"{out} is there already: give another --out", _WRONG)
    try:
        found = read_copies(given.dirs, _Progress())
        try:
            _write(found, out)
        finally:
            found.close()
    except NewerFormatError as error:
        return _say(str(error), _FAILED)
    except NothingToSalvageError as error:
        return _say(f"{', '.join(map(str, given.dirs))}: {error}", _FAILED)
    except OSError as error:
        return _say(f"{error.filename or out}: {error.strerror}", _FAILED)
    return 0


class _Progress:
    """Says now and then how far it is."""

    def __init__(self) -> None:
        self._said_bytes = 0

    def __call__(self, done_bytes: int, all_bytes: int) -> None:
        if done_bytes - self._said_bytes >= _PROGRESS_BYTES:
            self._said_bytes = done_bytes
            _say(f"read {done_bytes >> 20} of {all_bytes >> 20} MiB", 0)


def _write(found: Readable, out: Path) -> None:
    saved = salvage(sorted(found.records), found.entry, found.checkpoints)
    _list("not readable", [*found.notes, *saved.notes])
    _list("entries that no file has", _ranges(found.missing()))
    _list("sequences that stood there, or were removed before", _ranges(saved.missing_seqs))
    if saved.config is None:
        _say(f"the stream's configuration is not readable: edit {_ABOUT} before you restore", 0)
    part = out.with_name(f"{out.name}.part")
    part.mkdir(parents=True)
    _write_file(part / _ARCHIVE, saved.archive(found.entry))
    _write_file(part / _ABOUT, [json.dumps(saved.about(), indent=2).encode()])
    part.rename(out)
    told = f"{saved.messages} messages from {saved.first_seq} to {saved.last_seq}"
    print(f"{out}: {told}, {saved.about()['state']['consumer_count']} consumers")


def _write_file(path: Path, pieces: Iterable[bytes]) -> None:
    written, said = 0, 0
    with path.open("wb") as file:
        for piece in pieces:
            written += file.write(piece)
            if written - said >= _PROGRESS_BYTES:
                said = written
                _say(f"wrote {written >> 20} MiB", 0)
        file.flush()
        os.fsync(file.fileno())


def _ranges(found: list[tuple[int, int]]) -> list[str]:
    return [f"{first} to {last}" if last > first else str(first) for first, last in found]


def _list(what: str, lines: list[str]) -> None:
    for line in lines[:_SHOWN_MAX]:
        _say(f"{what}: {line}", 0)
    if len(lines) > _SHOWN_MAX:
        _say(f"{what}: {len(lines) - _SHOWN_MAX} more", 0)


def _say(text: str, code: int) -> int:
    print(f"supercluster-broker {NAME}: {text}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"supercluster-broker {NAME}",
        description="Write what is readable of a stream's copy, quarantine included, as a backup. The copy is only read.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dirs", type=Path, nargs="+", metavar="DIR", help="the directory of a stopped copy")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="a directory to be made")
    return parser
