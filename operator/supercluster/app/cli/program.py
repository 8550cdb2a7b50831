"""The tree of commands, and the entry point of `supercluster` and `kubectl supercluster`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import typer

from supercluster.app.cli import manifests, messages, moves, rebalance, report, status
from supercluster.app.cli.dev import dev
from supercluster.app.cli.migrate import migrate
from supercluster.app.cli.recover import recover
from supercluster.app.cli.session import command, complain
from supercluster.app.cli.users import users
from supercluster.app.commands.errors import (
    EXIT_FAILED,
    EXIT_NOT_READY,
    EXIT_OK,
    EXIT_USAGE,
    CommandError,
)

PLUGIN, COMPLETER = "kubectl-supercluster", "kubectl_complete-supercluster"
COBRA_NO_FILES = ":4"
"""Offer these words, and no names of files."""
EXIT_CODES = {
    EXIT_OK: "done",
    EXIT_FAILED: "failed; the message says what and why",
    EXIT_USAGE: "wrong arguments, unreadable manifest or kubeconfig",
    EXIT_NOT_READY: "not ready in time, or waiting for a person",
}
EPILOG = "\n".join(
    (
        "\b",
        "Examples:",
        "  supercluster dev up",
        "  supercluster apply -f e2e/manifests/demo --wait",
        "  supercluster status",
        "  supercluster move flights --to west --dry-run",
        "  supercluster users rotate billing --wait",
        "",
        "\b",
        "Exit codes:",
        *(f"  {code}  {text}" for code, text in EXIT_CODES.items()),
    )
)

app = typer.Typer(
    help="Replicated streams on Kubernetes: super-clusters, streams, moves, migrations and users.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for work in (
    *(manifests.apply, status.status, status.explain, messages.publish, messages.pull),
    *(
        moves.plan,
        moves.move,
        moves.replica,
        moves.moves,
        moves.cancel_move,
        rebalance.rebalance,
        report.report,
    ),
):
    command(app)(work)
for name, group in {"migrate": migrate, "users": users, "recover": recover, "dev": dev}.items():
    app.add_typer(group, name=name, no_args_is_help=True)


@app.command()
def version() -> None:
    """Print the version."""
    from supercluster.app import VERSION

    print(VERSION)


def main(argv: list[str] | None = None) -> int:
    """Run a command; its exit code."""
    called, words = Path(sys.argv[0]).name, sys.argv[1:] if argv is None else argv
    if called == COMPLETER:
        return _complete(words)
    if called == PLUGIN and "completion" in "".join(words[:1]):
        complain(
            "kubectl completes this plugin by itself; `supercluster --install-completion` is for the other name"
        )
        return EXIT_USAGE
    return _run(words, "kubectl supercluster" if called == PLUGIN else "supercluster")


def _complete(words: list[str]) -> int:
    """kubectl asks a program of this name for the last word of a plugin, and reads the answer by cobra's protocol."""
    line = shlex.join(["supercluster", *words])
    os.environ |= {
        "_SUPERCLUSTER_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
    }
    code = _run([], "supercluster")
    print(COBRA_NO_FILES)
    return code


def _run(words: list[str], name: str) -> int:
    try:
        try:
            app(words, prog_name=name)
        except CommandError as error:
            complain(str(error))
            return error.code
        except SystemExit as ended:
            return int(ended.code or EXIT_OK)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output (`head`, a pager) has closed it. Nothing may be flushed there when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    raise AssertionError("a command ends with an exit code")
