"""The fields of a stream's configuration that rewrite subjects: `subject_transform` and `republish`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supercluster.broker.jetstream.encoding.json_fields import Fields, nonempty
from supercluster.broker.jetstream.errors import error, invalid_config
from supercluster.broker.jetstream.subjects.filters import is_valid_filter, overlaps
from supercluster.broker.protocol.subject_transform import (
    SubjectTransform,
    TransformError,
    check_mapping,
    compile_transform,
)

STREAM_SOURCE_WRONG, STREAM_TRANSFORM_WRONG = 10155, 10156


@dataclass(frozen=True, slots=True)
class TransformConfig:
    """Messages whose subject matches `src` get the subject `dest`; without a `dest` they keep theirs."""

    src: str = ""
    dest: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any], what: str) -> TransformConfig:
        """Read NATS's JSON; `check` judges it.

        Raises:
            ApiError: 10025, a field has a wrong type or is unknown.
        """
        with Fields(data, what) as fields:
            return cls(fields.text("src"), fields.text("dest"))

    def to_json(self) -> dict[str, Any]:
        return {"src": self.src, "dest": self.dest}

    def check(self, source_wrong: int, transform_wrong: int) -> None:
        """
        Raises:
            ApiError: with one of these err_codes, and NATS's words.
        """
        if self.src and not is_valid_filter(self.src):
            raise error(source_wrong, f"invalid subject {self.src}")
        try:
            if self.dest:
                check_mapping(self.dest)
            self.compiled()
        except TransformError as problem:
            raise error(transform_wrong, problem) from None

    def compiled(self) -> SubjectTransform | None:
        """None where subjects stay as they are."""
        return compile_transform(self.src, self.dest)


@dataclass(frozen=True, slots=True)
class Republish:
    """What is stored under a subject that matches `src` is published again under `dest`, at most once."""

    src: str
    dest: str
    headers_only: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Republish:
        """Read NATS's JSON; no `src` means all subjects.

        Raises:
            ApiError: 10025, a field has a wrong type or is unknown.
        """
        with Fields(data, "stream republish") as fields:
            return cls(fields.text("src") or ">", fields.text("dest"), fields.boolean("headers_only"))

    def to_json(self) -> dict[str, Any]:
        return {"src": self.src, "dest": self.dest, **nonempty(headers_only=self.headers_only)}

    def check(self, subjects: Sequence[str]) -> None:
        """
        Raises:
            ApiError: 10052, it is no transform, or what is republished would come back into the stream.
        """
        if self.dest and any(overlaps(self.dest, subject) for subject in subjects):
            raise invalid_config("stream configuration for republish destination forms a cycle")
        try:
            if not is_valid_filter(self.src):
                raise TransformError
            self.compiled()
        except TransformError:
            raise invalid_config(
                f"stream configuration for republish with transform from '{self.src}' to '{self.dest}' not valid"
            ) from None

    def compiled(self) -> SubjectTransform | None:
        """None where nothing is republished."""
        return compile_transform(self.src, self.dest)


class SubjectMap:
    """Subjects and what they become, as a stream's leader asks for them: the same few again and again."""

    REMEMBERED_MAX = 65_536

    def __init__(self, transform: SubjectTransform | None) -> None:
        self._transform = transform
        self._known: dict[bytes, bytes | None] = {}

    def find(self, subject: bytes, number: int) -> bytes | None:
        """What the subject becomes, None when the transform is not about it."""
        transform, known = self._transform, self._known
        if transform is None:
            return None
        if transform.is_random:
            return transform.apply(subject, number)
        if subject not in known:
            if len(known) >= self.REMEMBERED_MAX:
                known.clear()
            known[subject] = transform.apply(subject)
        return known[subject]
