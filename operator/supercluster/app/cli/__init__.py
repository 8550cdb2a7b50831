"""The command line: arguments, output and exit codes. `supercluster.app.commands` does the work.

One module per group of commands. Functions are thin: they parse, call, print and choose an exit code.
"""

from supercluster.app.cli.program import main

__all__ = ["main"]
