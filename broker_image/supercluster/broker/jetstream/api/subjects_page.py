"""STREAM.INFO with a subject filter: one page of the matching subjects, sorted, each with its count of
messages.

A million subjects may match. They are found, sorted and encoded in slices (`turn/slices.py`); memory holds
only their names and the text of one page.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from heapq import merge
from itertools import islice
from typing import Any

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.state.lookup import SLICE_UNITS

# Subjects that are merged and written in one go.
SLICE_SUBJECTS = 1024

Row = tuple[bytes, int, int, int]


def answer(info: dict[str, Any], rows: Iterator[list[Row]], offset: int) -> Generator[int, None, bytes]:
    """The whole answer, with the page from `offset` on. `rows` are slices of the subjects that match."""
    runs: list[list[tuple[bytes, int]]] = []
    for some in rows:
        if some:
            runs.append(sorted(row[:2] for row in some))
        yield 2 * SLICE_UNITS
    total = sum(map(len, runs))
    if not total:
        return answers.stream_info_answer(info)
    text = yield from _page(runs, offset)
    if text:
        info["state"]["subjects"] = {}
    whole = answers.stream_info_answer(info, total=total, offset=offset, limit=answers.SUBJECTS_PAGE)
    return whole.replace(answers.NO_SUBJECTS, b'"subjects":{%b}' % text, 1) if text else whole


def _page(runs: list[list[tuple[bytes, int]]], offset: int) -> Generator[int, None, bytes]:
    """The subjects of a page, as they stand between the braces of a JSON object."""
    ordered = merge(*runs)
    while offset > 0:
        offset -= len(list(islice(ordered, min(offset, SLICE_SUBJECTS)))) or offset
        yield SLICE_UNITS
    pieces: list[bytes] = []
    left = answers.SUBJECTS_PAGE
    while left > 0 and (some := list(islice(ordered, min(left, SLICE_SUBJECTS)))):
        left -= len(some)
        named = {subject.decode("utf-8", "replace"): count for subject, count in some}
        pieces.append(json.dumps(named, separators=(",", ":"), ensure_ascii=False).encode()[1:-1])
        yield 2 * SLICE_UNITS
    return b",".join(pieces)
