"""What runs when: `make test` shows every behaviour once, `make test-all` everything that there is.

A test, or a case of one, that repeats at greater length or on more servers what another test shows is marked `long`. It runs in
`make test-all`, whose property tests also try more examples.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

ALL = os.environ.get("TESTS") == "all"
"""Is this `make test-all`?"""


def examples(few: int, many: int) -> int:
    """How many examples a property test tries: in `make test`, and in `make test-all`."""
    return many if ALL else few


def every(sparse: int, dense: int = 1) -> int:
    """The step through similar cases, such as the calls at which an operator is killed: in `make test`, and in
    `make test-all`."""
    return dense if ALL else sparse


def long_unless(is_short: bool) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a case."""
    return () if is_short else (pytest.mark.long,)


def case(*values: Any, id: str, is_short: bool) -> Any:  # noqa: A002  # pytest's own word
    """A parametrized test's case, which `make test` runs or leaves to `make test-all`."""
    return pytest.param(*values, id=id, marks=long_unless(is_short))
