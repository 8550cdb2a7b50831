"""Parameters of pipelines: one name everywhere, in a manifest, on the command line and in Python.

Values come from JSON or a command line: a string may give a number, and a string with commas a list.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

UNIT_BYTES = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


class ParameterError(ValueError):
    """A parameter is missing, wrong or not known; the message is one line with the remedy."""


class ParametersChangedError(ParameterError):
    """A record was written with other values than this run has."""

    def __init__(self, where: str, name: str, before: str, now: str) -> None:
        super().__init__(
            f"parameter {name!r} is {now or 'unset'}, and it was {before or 'unset'} when {where} was written, whose counts mean nothing with"
            " another value; set it back, or give the pipeline a new checkpoint"
        )


class Parameters(BaseModel):
    """Base of each pipeline's parameters. Names are in camel case."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)
    of_state: ClassVar[tuple[str, ...]] = ()
    """Fields without which a record's state means nothing: a run may go on only with the same values."""

    def state_texts(self) -> dict[str, str]:
        """The values of `of_state`, by the names that users write; "" where a parameter is unset."""
        values = {name: getattr(self, name) for name in self.of_state}
        return {to_camel(name): "" if value is None else str(value) for name, value in values.items()}


P = TypeVar("P", bound=Parameters)


def as_list(value: object) -> object:
    """A text with commas as a list; anything else as it is."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _as_bytes(value: object) -> object:
    found = re.fullmatch(r"(\d+)(Ki|Mi|Gi|)", value.strip()) if isinstance(value, str) else None
    return int(found[1]) * UNIT_BYTES[found[2]] if found else value


StreamName = Annotated[str, StringConstraints(pattern=r"^[^ \t\r\n.*>/\\,]+$")]
StreamNames = Annotated[tuple[StreamName, ...], BeforeValidator(as_list), Field(min_length=1)]
Bytes = Annotated[int, BeforeValidator(_as_bytes), Field(ge=1)]
"""A number of bytes; as text also with Ki, Mi or Gi."""


def parameter_names(model: type[Parameters]) -> dict[str, str]:
    """What each parameter means, by the name that users write."""
    return {field.alias or name: field.description or "" for name, field in model.model_fields.items()}


def read_parameters(model: type[P], given: Mapping[str, object]) -> P:
    """Check everything that was given.

    Raises:
        ParameterError: a parameter is missing, wrong or not known.
    """
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        # A wrong name first: it explains why another one is missing.
        errors = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        raise ParameterError(_one_line(model, errors[0])) from None


def _one_line(model: type[Parameters], error: Any) -> str:
    known = parameter_names(model)
    name = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        # Its value is not shown: it may be a password under a wrong name.
        near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1, cutoff=0.5)
        right = next((each for each in known if near and each.lower() == near[0]), "")
        hint = f"did you mean {right!r}? " if right else ""
        return f"parameter {name!r} is not known; {hint}The parameters are {', '.join(known)}"
    if not name:
        return str(error["msg"]).removeprefix("Value error, ")
    means = f" ({known[name]})" if known.get(name) else ""
    if error["type"] == "missing":
        return f"parameter {name!r} is missing{means}"
    reason = str(error["msg"]).removeprefix("Value error, ")
    return f"parameter {name!r} is {error['input']!r}: {reason}{means}"
