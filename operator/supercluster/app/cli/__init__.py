"""The command line: what a user types, and how a command ends. `supercluster.app.commands` does the work.

One module per group of commands. Functions are thin: they parse, call, print and choose an exit code.
"""

from supercluster.app.cli.program import main

__all__ = ["main"]
