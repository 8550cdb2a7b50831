"""The frames of an answer of the bulk port, and the names of its columns (`docs/adr/bulk-reads.md`).

A frame is a head of 32 bytes, little endian, and a body of whole 64-bit words. Spark's reader has this layout
a second time, for it imports nothing of the broker.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Mapping
from typing import Any

COLUMNS = ("sequence", "time", "subject", "headers", "payload")
VERSION = 1
COLUMN, END = 1, 2
"""Kinds of frames."""
WORD_BYTES = 8
UNFINISHED = ".new"
"""Behind the name of a file that is not whole."""
_HEAD = struct.Struct("<BBHIQQQ")
HEAD_BYTES = _HEAD.size
SUM_MODULUS = 1 << 64


def head(kind: int, column: int, rows: int, first: int, length: int, total: int) -> bytes:
    """`total` is the sum of the body's words."""
    return _HEAD.pack(kind, column, VERSION, rows, first, length, total)


def sum_of(body: bytes) -> int:
    """Of its 64-bit words, modulo 2^64. For short bodies: each word takes a step."""
    words = array("Q")
    words.frombytes(body)
    if sys.byteorder == "big":
        words.byteswap()
    return sum(words) % SUM_MODULUS


def end_frame(first: int, covered: Mapping[str, Any]) -> bytes:
    """The frame behind the last block."""
    text = json.dumps(covered, separators=(",", ":")).encode()
    body = text + b" " * (-len(text) % WORD_BYTES)
    return head(END, 0, 0, first, len(body), sum_of(body)) + body
