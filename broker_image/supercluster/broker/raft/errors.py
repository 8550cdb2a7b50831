"""The errors that cross the border of the Raft core. Each names what was wrong and where."""

from __future__ import annotations


class DiskError(Exception):
    """A log could not write (full disk, I/O error). Nothing of what was to be written counts as kept."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


class NoDescriptorError(DiskError):
    """The process has no file descriptor left for it: nothing was tried, so it may be tried again."""


class MessageError(ValueError):
    """Bytes that are no Raft message: the frame is dropped, and nothing else is disturbed."""
