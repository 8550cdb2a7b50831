"""What the operator of `supercluster dev up` does when it ends."""

from __future__ import annotations

import os
import sys
import time

import pytest

from supercluster.app import main, renewed
from supercluster.app.settings import EXIT_FAILED, EXIT_LEASE_LOST, EXIT_OK, EXIT_USAGE


class BegunAnewError(Exception):
    """Stands for another program in this process."""


def begin(program: str, arguments: list[str]) -> None:
    assert (program, arguments) == (sys.executable, sys.orig_argv)
    raise BegunAnewError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set before it is taken away, so that it is gone again afterwards.
    monkeypatch.setenv(renewed.RENEWED, "")
    monkeypatch.delenv(renewed.RENEWED)
    monkeypatch.setattr(os, "execv", begin)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.mark.parametrize("code", [EXIT_OK, EXIT_FAILED, EXIT_USAGE])
def test_another_end_than_a_lost_lease_is_one(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So `dev up` can say why the operator does not start."""
    monkeypatch.setattr(main, "main", lambda: code)
    assert renewed.run() == code


def test_once_begun_anew_it_goes_on_until_it_starts_or_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for code in (EXIT_LEASE_LOST, EXIT_FAILED, EXIT_FAILED):
        monkeypatch.setattr(main, "main", lambda code=code: code)
        with pytest.raises(BegunAnewError):
            renewed.run()
    monkeypatch.setattr(main, "main", lambda: EXIT_OK)
    assert renewed.run() == EXIT_OK
