"""What the command line takes, and what it refuses before anything is asked of the cluster."""

from __future__ import annotations

import pytest

from supercluster.app.commands import arguments


@pytest.mark.parametrize("text", ["fast", "0", "-1", "1.5Mi"])
def test_a_rate_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        arguments.parser().parse_args(["move", "flights", "--to", "west", f"--bytes-per-s={text}"])
    assert caught.value.code == 2
    assert "number of bytes such as" in capsys.readouterr().err


def test_the_command_line_names_stream_and_broker(capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments.parser().parse_args(["replica", "add", "flights", "east-4", "--wait"])
    assert (given.action, given.stream, given.broker, given.wait) == ("add", "flights", "east-4", True)
    with pytest.raises(SystemExit):
        arguments.parser().parse_args(["replica", "grow", "flights", "east-4"])
    assert "invalid choice: 'grow'" in capsys.readouterr().err


def test_exit_codes_are_in_the_help() -> None:
    text = arguments.parser().format_help()
    for code in (arguments.EXIT_OK, arguments.EXIT_FAILED, arguments.EXIT_USAGE, arguments.EXIT_NOT_READY):
        assert f"\n  {code}  " in text
