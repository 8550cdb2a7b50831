"""Bounds that request checks, configurations and codecs share: an accepted value fits into every encoding
(SF-24).

Request checks refuse values beyond a bound. Codecs reserve room up to it. Readers of clients' requests, links
and files read no more than that. A bound with a single user is declared beside that user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isinf
from typing import Any

U16_MAX = 2**16 - 1
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
I32_MAX = 2**31 - 1
I64_MIN, I64_MAX = -(2**63), 2**63 - 1

TIME_NS_MAX = I64_MAX
"""The last moment that Go's int64 nanoseconds have, in April 2262. Times are kept as u64."""
SEQ_MAX = I64_MAX
"""Sequences have 64 bits, and a stream has to have some left."""

TEXT_BYTES_MAX = U16_MAX
"""Names, keys and subjects stand behind two bytes of length."""
HEADER_BYTES_MAX = U16_MAX
"""Of a published message, as NATS has it."""
PATTERN_CHARS_MAX = 1024
"""Of a subject in a configuration or a request: the protocol's control line would not carry a longer one either."""
ORIGIN_KEY_BYTES_MAX = 30 * 1024
"""Of a source's filters and destinations: an origin keeps them behind the names of account and stream, in one text."""
NAME_BYTES_MAX = 255
"""Of a stream or a consumer: NATS keeps them in files of that name."""
GROUP_NAME_BYTES_MAX = 2048
"""Of a group or a member of one, as frames between brokers name them: account, stream, broker and lineage together."""
BROKER_NAME_BYTES_MAX = 63
"""Of a cluster, a tag and the like, in settings."""
NODE_CHARS_MAX = 253
"""Of a broker's name in a call: a host's name has no more."""
DESCRIPTION_BYTES_MAX = 4096
METADATA_BYTES_MAX = 128 * 1024
MESSAGE_ID_BYTES_MAX = 1024
"""Of `Nats-Msg-Id`: a stream keeps the ids of its whole duplicate window in memory."""
STREAM_SUBJECTS_MAX, STREAM_SUBJECTS_BYTES_MAX = 4096, 256 * 1024
"""Of a stream: all are compared with each other, and each change of the map of streams goes through them."""
SOURCES_MAX = 4096
"""Of a stream: each is read from by itself, and STREAM.INFO repeats them all."""

MESSAGE_BYTES_MAX = 32 * 1024 * 1024
"""The most that max_payload may allow."""
FRAME_BYTES_MAX = RECORD_BYTES_MAX = 64 * 1024 * 1024
"""Of a frame between brokers, and of an entry of a log: what is longer is damage, and makes no reader allocate more. What leaders
write is far below: an entry is closed at 2 MiB, so it has one message beyond that, and a frame 4 MiB of others beside it."""

_DIGITS_MAX = 20


def whole_number(text: bytes, most: int = U64_MAX) -> int | None:
    """A number from 0 to `most` in ASCII digits; None for anything else, of which no more than a number's length is read."""
    if not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    found = int(text)
    return found if found <= most else None


def metadata_bytes(metadata: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())


def _finite(text: str) -> float:
    found = float(text)
    if isinf(found):
        raise ValueError(f"{text[:_DIGITS_MAX]} is too large a number")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)


def read_json(raw: bytes | memoryview | str) -> Any:
    """A JSON document of a client, a link or a file, that can be written down again.

    Raises:
        ValueError: it is none, is nested too deeply, has a number that is none, too large or too long, or half of a surrogate pair.
    """
    try:
        text = raw if isinstance(raw, str) else str(raw, "utf-8")
        found = _JSON.decode(text)
        if r"\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError as problem:
        raise ValueError(f"not UTF-8 at offset {problem.start}") from None
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair") from None
    except json.JSONDecodeError as problem:
        raise ValueError(f"{problem.msg} at offset {problem.pos}") from None
    return found
