"""An entry of a log in readable form: its effect on a stream, without the contents of messages (SF-25).

Shown are subjects, names of headers, sizes and digests. Bytes of payloads are shown only on request. No
replica may be able to apply the entry, so a section that cannot be decoded is shown as undecodable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import (
    Block,
    Section,
    decode_block,
    decode_messages,
    decode_mirrored,
    decode_session,
    sections,
)
from supercluster.broker.jetstream.state.consumer_ops import decode_ops
from supercluster.broker.protocol import headers
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.entry import Entry, EntryKind

# Of a section with more messages or operations the first ones are shown.
SHOWN_MAX = 20
TEXT_CHARACTERS_MAX = 2000

CHOICES = """\
Remedies:
1. A newer version of the broker that can apply the entry: the copies halted there go on by themselves, at their next try.
2. Where other replicas have applied the entry, replace the copy that halted. The operator does so by itself after the
   recovery interval; by hand: `supercluster replica add STREAM OTHER`, then `supercluster replica remove STREAM BROKER`.
3. Where every replica halts there, the stream stays as it is until (1). To go on without it, keep the data directories, then
   delete and restore the stream from a backup (`nats stream restore`), or read its messages from a mirror.
The digest is the one of the event GroupFailed: replicas whose digests differ do not have the same entry.
"""


def view_of(entry: Entry, payload_bytes: int = 0) -> dict[str, Any]:
    """JSON of an entry, with so many bytes of each payload."""
    kinds = {kind.value: kind.name for kind in EntryKind}
    shown: dict[str, Any] = {
        "index": entry.index,
        "term": entry.term,
        "kind": kinds.get(entry.kind, str(entry.kind)),
        "timeNs": entry.time_ns,
        "bytes": len(entry.record),
        "digest": blake2b(entry.payload, digest_size=8).hexdigest(),
    }
    if entry.count:
        shown |= {"firstSeq": entry.first_seq, "lastSeq": entry.last_seq}
    if entry.kind == EntryKind.CONFIG:
        shown["membership"] = _tried(lambda: str(Membership.decode(entry.payload)))
    elif entry.has_sections:
        shown["sections"] = list(_sections(entry.payload, payload_bytes))
    return shown


def _sections(payload: memoryview, payload_bytes: int) -> Iterator[dict[str, Any]]:
    found = sections(payload)
    names = {kind.value: kind.name for kind in Section}
    while True:
        try:
            kind, body = next(found)
        except StopIteration:
            return
        except Exception as error:  # The entry may be damaged goods in any way: say so and stop.
            yield {"error": f"{type(error).__name__}: {error}"}
            return
        told = _tried(lambda kind=kind, body=body: _section(kind, body, payload_bytes))
        shown = told if isinstance(told, dict) else {"error": told}
        yield {"kind": names.get(kind, str(kind)), "bytes": len(body), **shown}


def _tried(read: Any) -> Any:
    try:
        return read()
    except Exception as error:
        return f"cannot be decoded: {type(error).__name__}: {error}"


def _section(kind: int, body: memoryview, payload_bytes: int) -> dict[str, Any]:
    reader = Reader(body)
    if kind == Section.MESSAGES:
        found = decode_messages(body)
        run = found.run
        return {
            "session": f"{found.session.node}@{found.session.incarnation}/{found.session.counter}",
            "firstNumber": run.first_number,
            "count": run.count,
            "verdicts": [str(item) for item in run.exceptions[:SHOWN_MAX]],
            **_messages(decode_block(found.block), payload_bytes),
        }
    if kind == Section.OWN_MESSAGES:
        return _messages(decode_block(body), payload_bytes)
    if kind == Section.MIRRORED:
        return _messages(decode_mirrored(body)[1], payload_bytes)
    if kind == Section.CONSUMER_OPS:
        name, ops = reader.text(), list(decode_ops(reader.rest()))
        return {"consumer": name, "operations": [str(op)[:200] for op in ops[:SHOWN_MAX]]}
    if kind == Section.SESSION_OPEN:
        return {"session": str(decode_session(reader))}
    if kind in (Section.SINK_STAGE, Section.SINK_COMMIT, Section.SINK_RELEASED, Section.SINK_ABORT):
        return {"writer": reader.text(), "batch": reader.u64()}
    if kind in (Section.CONSUMER_DELETE, Section.ORIGIN_READER_END, Section.SINK_FORGET):
        return {"name": reader.text()}
    if kind in (Section.DELETE_MESSAGE, Section.EXPIRE, Section.RESTORED):
        return {"seq": reader.u64()}
    if kind in (Section.PURGE, Section.CONSUMER_PUT):
        return {"request": _json(reader.rest())}
    if kind == Section.CONFIG_PUT:
        return {"version": reader.u64(), "createdNs": reader.u64(), "config": _json(reader.rest())}
    if kind == Section.META:
        # What an operation holds may be an account's affair: its fields are named.
        told = json.loads(bytes(body))
        return {"fields": sorted(told), "op": told.get("op", "")}
    return {}


def _json(data: memoryview) -> Any:
    text = bytes(data).decode("utf-8", "replace")
    return json.loads(text) if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX]


def _messages(block: Block, payload_bytes: int) -> dict[str, Any]:
    return {
        "messages": [
            _message(*block.message(position), payload_bytes)
            for position in range(min(block.count, SHOWN_MAX))
        ],
        "messagesLeftOut": max(0, block.count - SHOWN_MAX),
    }


def _message(subject: bytes, header: bytes, payload: bytes, payload_bytes: int) -> dict[str, Any]:
    pairs = headers.parse_header(header) if header else []
    shown: dict[str, Any] = {
        "subject": subject.decode("utf-8", "backslashreplace"),
        "headers": [name.decode("utf-8", "backslashreplace") for name, _ in pairs]
        if pairs is not None
        else f"{len(header)} bytes that are no headers",
        "payloadBytes": len(payload),
        "payloadDigest": blake2b(payload, digest_size=8).hexdigest(),
    }
    if payload_bytes:
        shown["payload"] = payload[:payload_bytes].decode("utf-8", "backslashreplace")
    return shown
