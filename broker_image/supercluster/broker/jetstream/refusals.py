"""NATS's words for publishes that a stream's leader refused."""

from __future__ import annotations

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.judge import (
    EXPECTED_LAST_SEQUENCE,
    FULL_BYTES,
    FULL_SUBJECT,
    ROLLUP_REFUSED,
    STREAM_FULL,
)


def of_publish(code: int, detail: int) -> ApiError:
    """The error for a REFUSED verdict: `code` and `detail` as the judge wrote them into the log."""
    if code == STREAM_FULL:
        if detail == FULL_BYTES:
            return errors.maximum_bytes()
        if detail == FULL_SUBJECT:
            return errors.maximum_messages_per_subject()
        return errors.maximum_messages()
    if code == EXPECTED_LAST_SEQUENCE:
        return errors.error(code, detail)
    if code == ROLLUP_REFUSED:
        return errors.error(code, "rollup value invalid" if detail else "rollup not permitted")
    return errors.error(code)
