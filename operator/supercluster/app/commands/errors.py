"""The end of a command of `supercluster`: the exit codes, and the errors that carry one."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_READY = 3


class CommandError(Exception):
    """The command failed; the message says what would be right."""

    code = EXIT_FAILED


class NotReadyError(CommandError):
    """It was done, and was not ready in time."""

    code = EXIT_NOT_READY


class UsageError(CommandError):
    """An argument, a manifest or the kubeconfig can't be used."""

    code = EXIT_USAGE
