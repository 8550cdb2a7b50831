"""One credentials file: the content in force, the digest of the bytes that it was read from, and the reason
why newer bytes are not in force.

A file that can't be used, or that would let everyone in because it is missing or empty, leaves its previous
content in force. Other files are not affected.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from supercluster.broker.auth.users import CredentialsError
from supercluster.broker.bounds import read_json
from supercluster.broker.settings.stamps import Stamp, stamp_of

log = logging.getLogger(__name__)

T = TypeVar("T")

DIGEST_CHARS = 16


class CredentialsFile(Generic[T]):
    """`is_open`: would what was read ask nobody for credentials?"""

    def __init__(
        self,
        path: Path | None,
        parse: Callable[[Any], T],
        absent: T,
        is_open: Callable[[T], bool],
    ) -> None:
        self.value = absent
        """What is in force."""
        self.digest = ""
        """The first digits of the SHA-256 of the bytes that it came from; empty: there is no file."""
        self.problem = ""
        """Why a newer file is not in force; empty: the file is."""
        self._path = path
        self._parse = parse
        self._absent = absent
        self._is_open = is_open
        self._stamp: Stamp | None = None

    def load(self) -> None:
        """Read it for the first time.

        Raises:
            CredentialsError: it is there and can't be used.
        """
        if self._path is None:
            return
        self._stamp = stamp_of(self._path)
        try:
            raw = self._read(self._path)
        except OSError as error:
            raise CredentialsError(f"{self._path} can't be read: {type(error).__name__}") from None
        self.value, self.digest = self._understood(self._path, raw)

    def refresh(self) -> bool:
        """Read it again if it has changed; True when something else is in force now."""
        if self._path is None:
            return False
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return False
        try:
            raw = self._read(self._path)
        except OSError as error:  # It is tried again, since that may pass.
            self._refuse(f"{self._path} can't be read: {type(error).__name__}")
            return False
        try:
            found, digest = self._understood(self._path, raw)
        except CredentialsError as error:
            self._stamp = stamp
            self._refuse(str(error))
            return False
        self._stamp = stamp
        if self._is_open(found) and not self._is_open(self.value):
            self._refuse(f"{self._path.name} is gone or empty, which would let anyone in")
            return False
        is_other = found != self.value
        if is_other:  # What is equal stays the same object: what was found out for it is still known.
            self.value = found
        self.digest, self.problem = digest, ""
        return is_other

    def _read(self, path: Path) -> bytes | None:
        """None: there is no such file."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def _understood(self, path: Path, raw: bytes | None) -> tuple[T, str]:
        if raw is None:
            return self._absent, ""
        try:
            document = read_json(raw)
        except ValueError as error:
            raise CredentialsError(f"{path} can't be read as JSON: {error}") from None
        try:
            found = self._parse(document)
        except CredentialsError as error:
            raise CredentialsError(f"{path}: {error}") from None
        except Exception as error:
            # Nobody thought of that one. It must not hold up the news of other files either.
            raise CredentialsError(f"{path} can't be used: {type(error).__name__}") from None
        return found, hashlib.sha256(raw).hexdigest()[:DIGEST_CHARS]

    def _refuse(self, problem: str) -> None:
        if problem != self.problem:
            log.error("credentials stay as they were: %s", problem)
        self.problem = problem
