"""The errors that cross the border of the Raft core. Each names what was wrong and where."""

from __future__ import annotations

import traceback

TRACE_FRAMES = 4
"""Of a traceback, for events: the innermost frames and the error."""


class ReplicaError(Exception):
    """Takes a replica out of its group until its log is opened anew."""


class FaultError(ReplicaError):
    """The broker's own code raised in a group (SF-25). The replica's memory is not trusted any more.

    `index` is the entry that was being applied, 0 outside of that; `digest` is of its payload.
    """

    def __init__(self, cause: BaseException, index: int = 0, digest: str = "") -> None:
        place = f" at entry {index} (payload digest {digest})" if index else ""
        super().__init__(f"an error in the broker{place}: {type(cause).__name__}: {cause}")
        self.index = index
        self.digest = digest
        self.report = f"{self}\n{''.join(traceback.format_exception(cause)[-TRACE_FRAMES:])}"
        """For an event: with the innermost frames of where it was raised."""

    def advice(self, group: str) -> str:
        """The command that shows the entry, and what can be done about it; empty when no entry was being applied."""
        return f"supercluster-broker entry DATA_DIR '{group}' {self.index} shows it" if self.index else ""


class DiskError(ReplicaError):
    """A log could not write (full disk, I/O error). Nothing of what was to be written counts as kept."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


class NewerFormatError(DiskError):
    """A newer version wrote it. Nothing was changed, so that version still reads it."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"it has format {found} of a newer version, this one reads up to {known}: run that version again",
            path,
        )


class UnreadableError(DiskError):
    """The disk does not give back what is there. That says nothing of what is there (SF-32)."""


class NoDescriptorError(DiskError):
    """The process has no file descriptor left for it: nothing was tried, so it may be tried again."""


class HistoryError(ReplicaError):
    """Another member's word contradicts the committed entries or the log of this leader (SF-26). One of the two logs lost
    confirmed entries, and going on would merge two histories."""


class ForgottenError(ReplicaError):
    """This member confirmed entries to its leader that are committed, and its log does not have them: the disk went back to
    an earlier state (SF-27). Term and vote went back with it, so the member takes part no more under this identity."""


class MessageError(ValueError):
    """Bytes that are no Raft message: the frame is dropped, and nothing else is disturbed."""
