"""What others send to a broker does not flood its log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest
from aiohttp.http_exceptions import BadHttpMethod

from supercluster.broker.runtime import logs


@pytest.fixture
def set_up() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    logs.set_up("info")
    yield
    root.handlers[:], root.level = before


@pytest.mark.usefixtures("set_up")
def test_garbage_on_the_monitoring_port_is_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers[0].setStream(sys.stderr)  # type: ignore[attr-defined]
    try:
        raise BadHttpMethod("A" * 200_000)
    except BadHttpMethod:
        logging.getLogger("aiohttp.server").exception("Error handling request from 127.0.0.1")
    said = capsys.readouterr().err
    assert said.endswith("WARNING  aiohttp.server: a request that is no HTTP was refused: BadHttpMethod\n")
    assert said.count("\n") == 1


@pytest.mark.usefixtures("set_up")
def test_a_long_message_is_cut_and_a_fault_of_ours_keeps_its_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.getLogger().handlers[0].setStream(sys.stderr)  # type: ignore[attr-defined]
    try:
        raise ValueError("ours")
    except ValueError:
        logging.getLogger("x").exception("B" * 200_000)
    said = capsys.readouterr().err
    assert "ValueError: ours" in said
    assert len(said) < 6_000


@pytest.mark.usefixtures("set_up")
def test_what_others_name_begins_no_line_and_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers[0].setStream(sys.stderr)  # type: ignore[attr-defined]
    logging.getLogger("x").warning("link with %s refused", "a\n2026-01-01T00:00:00Z ERROR forged\x1b[2J\r")
    said = capsys.readouterr().err
    assert "\n    2026-01-01" in said
    assert "\x1b" not in said
    assert "\r" not in said
