"""What the command line takes, and what it refuses before anything is asked of the cluster."""

from __future__ import annotations

import pytest

from supercluster.app.cli import main
from supercluster.app.cli.program import EXIT_CODES
from supercluster.app.commands.errors import EXIT_OK, EXIT_USAGE


@pytest.mark.parametrize("text", ["fast", "0", "-1", "1.5Mi"])
def test_a_rate_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["move", "flights", "--to", "west", f"--bytes-per-s={text}"]) == EXIT_USAGE
    told = f"Invalid value for '--bytes-per-s': '{text}' is not a number of bytes such as 1000000 or 50Mi"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("apply",), "Missing option '-f' / '--filename'"),
        (("nonsense",), "No such command 'nonsense'"),
        (("stats",), "Did you mean 'status'?"),
        (("dev", "up", "--port", "99999"), "'--port': '99999' is not a port from 0 to 65535"),
        (("dev", "up", "--nodes", "0"), "'--nodes': '0' is not a number of nodes from 1 to 100"),
        (("status", "--timeout", "soon"), "'--timeout': 'soon' is not a number of seconds from 0.1 to 86400"),
        (("status", "-o", "yaml"), "'yaml' is not one of 'table', 'json'"),
        (("replica", "grow", "flights", "east-4"), "'grow' is not one of 'add', 'remove'"),
        (("publish", "a..b"), "'SUBJECT': 'a..b' has an empty token"),
        (("publish", ""), "'SUBJECT': '' has an empty token"),
        (("publish", "a b"), "'SUBJECT': 'a b' has white space"),
        (("publish", "orders.>"), "'SUBJECT': 'orders.>' has a wildcard"),
        (("pull", "a.b"), "'STREAM': 'a.b' is not a name of a stream"),
        (("pull", "orders", "--consumer", "a b"), "'--consumer': 'a b' is not a name of a consumer"),
        (("recover", "stream"), "Missing argument 'STREAM'"),
        (("recover", "meta", "flights"), "unexpected extra argument"),
        (("recover", "stream", "flights", "--node", "east-0"), "--node needs --accept-last-seq"),
        (("recover", "meta", "--node", "east-0"), "--node needs --accept-last-index"),
    ],
)
def test_wrong_arguments_end_with_two_and_are_named(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], kubeconfig: None
) -> None:
    assert main(list(words)) == EXIT_USAGE
    printed = capsys.readouterr()
    assert told in printed.err
    assert "--help' for help" in printed.err
    assert printed.out == ""


def test_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == EXIT_OK
    text = capsys.readouterr().out
    for code, meaning in EXIT_CODES.items():
        assert f"\n    {code}  {meaning}\n" in text


def test_a_move_as_json_needs_something_to_print(
    kubeconfig: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before anything is asked of the API server."""
    assert main(["move", "flights", "--to", "west", "-o", "json"]) == EXIT_USAGE
    assert "-o json needs --wait or --dry-run" in capsys.readouterr().err
