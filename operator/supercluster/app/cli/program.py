"""The tree of commands, and the entry point of `supercluster` and `kubectl supercluster`."""

from __future__ import annotations

import os
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

PLUGIN = "kubectl-supercluster"
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
    is_plugin = Path(sys.argv[0]).name == PLUGIN
    if is_plugin and "completion" in "".join((sys.argv[1:] if argv is None else argv)[:1]):
        complain("kubectl completes its plugins in its own way; use `supercluster --install-completion`")
        return EXIT_USAGE
    try:
        try:
            app(argv, prog_name="kubectl supercluster" if is_plugin else "supercluster")
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
