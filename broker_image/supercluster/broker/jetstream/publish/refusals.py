"""NATS's error texts for publishes that a stream's leader refused."""

from __future__ import annotations

import json

from supercluster.broker.bounds import MESSAGE_ID_BYTES_MAX
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.encoding.sections import Exceptional
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.publish import atomic_batches, message_admission

_NAMED = (message_admission.EXPECTED_LAST_MSG_ID, atomic_batches.UNSUPPORTED_HEADER, atomic_batches.TOO_LARGE)


def of_publish(item: Exceptional) -> ApiError:
    """The error for a REFUSED verdict, as its leader wrote it into the log."""
    code, detail, text = item.code, item.seq, item.text.decode("utf-8", "replace")
    if code == message_admission.STREAM_FULL:
        if detail == message_admission.FULL_BYTES:
            return errors.error(errors.STORE_FAILED, "maximum bytes exceeded")
        if detail == message_admission.FULL_SUBJECT:
            return errors.error(errors.STORE_FAILED, "maximum messages per subject exceeded")
        return errors.error(errors.STORE_FAILED, "maximum messages exceeded")
    if code == message_admission.EXPECTED_LAST_SEQUENCE:
        return errors.error(code, detail)
    if code == message_admission.MESSAGE_ID_TOO_LARGE:
        return errors.error(code, f"{detail} bytes, at most {MESSAGE_ID_BYTES_MAX}")
    if code == message_admission.ROLLUP_REFUSED and detail == message_admission.SOURCE_REFUSED:
        return errors.error(errors.SOURCE_HEADER_REFUSED)
    if code == message_admission.ROLLUP_REFUSED:
        return errors.error(code, _rollup(detail, text))
    if code not in errors.TABLE:  # Of a leader of a later version.
        return ApiError(400, code, "the message is refused")
    return errors.error(code, text) if code in _NAMED else errors.error(code)


def _rollup(detail: int, value: str) -> str:
    if detail == message_admission.ROLLUP_INVALID:
        return f"rollup value invalid: {json.dumps(value)}" if value else "rollup value invalid"
    if detail == message_admission.ROLLUP_SUB_IN_BATCH:
        return "batch rollup sub invalid"
    return (
        "batch rollup all invalid"
        if detail == message_admission.ROLLUP_ALL_IN_BATCH
        else "rollup not permitted"
    )
