"""Message headers: `NATS/1.0[ status[ text]]`, `Key: value` lines, an empty line."""

from __future__ import annotations

from collections.abc import Iterable

VERSION = b"NATS/1.0"

NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"


def no_responders(subject: bytes) -> bytes:
    """What a requester gets when nobody takes a request to `subject`."""
    return b"NATS/1.0 503\r\nNats-Subject: " + subject + b"\r\n\r\n"


def header_value(header: bytes, name: bytes) -> bytes | None:
    """The first value of `name` (case counts, as for all NATS clients), or None. Cheap when it is absent."""
    at = header.find(b"\r\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 3
    end = header.find(b"\r\n", start)
    return header[start : end if end >= 0 else len(header)].lstrip(b" ")


def parse_header(header: bytes) -> list[tuple[bytes, bytes]] | None:
    """All (name, value) pairs in order, or None when it isn't a NATS header."""
    if not header.startswith(VERSION) or not header.endswith(b"\r\n\r\n"):
        return None
    pairs: list[tuple[bytes, bytes]] = []
    for line in header.split(b"\r\n")[1:-2]:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            return None
        pairs.append((name, value.lstrip(b" ")))
    return pairs


def build(pairs: Iterable[tuple[bytes, bytes]], status: bytes = b"") -> bytes:
    """A header of these pairs, with a status such as `503` or `404 No Messages` behind the version."""
    lines = [VERSION + b" " + status if status else VERSION]
    lines += [name + b": " + value for name, value in pairs]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def with_value(header: bytes, name: bytes, value: bytes) -> bytes:
    """The header with this value for `name` and no other: in the place of the first one that is there, else as the last line."""
    line = b"\r\n" + name + b":"
    at = header.find(line)
    if at < 0:
        return (header[:-2] if header else VERSION + b"\r\n") + name + b": " + value + b"\r\n\r\n"
    start = at + len(line)
    rest = header[header.find(b"\r\n", start) :]
    while (again := rest.find(line)) >= 0:
        rest = rest[:again] + rest[rest.find(b"\r\n", again + len(line)) :]
    return header[:start] + b" " + value + rest


def without(header: bytes, names: Iterable[bytes]) -> bytes:
    """The header without these names; empty when nothing is left."""
    pairs = parse_header(header)
    if pairs is None:
        return header
    unwanted = frozenset(names)
    kept = [pair for pair in pairs if pair[0] not in unwanted]
    status = header[len(VERSION) : header.index(b"\r\n")].strip()
    return build(kept, status) if kept or status else b""
