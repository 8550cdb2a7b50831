"""Credentials of clients and links, read again whenever their files change (CL-5).

Several users may be valid at once, so that old and new credentials overlap during a rotation. Comparisons
take constant time. No secret is ever logged or returned. If a file can't be used, its previous content stays
in force, the other files are read as usual, and one log line reports it (`credentials_file.py`).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_bytes
from typing import Any, TypeAlias

from supercluster.broker.auth import passwords
from supercluster.broker.auth.certificate_names import user_of
from supercluster.broker.auth.credentials_file import CredentialsFile
from supercluster.broker.auth.link_credentials import LinkCredentials, parse_links, same
from supercluster.broker.auth.nkeys import has_signed
from supercluster.broker.auth.users import (
    SYSTEM_ACCOUNT,
    ClientLimits,
    CredentialsError,
    KnownBy,
    Named,
    Shown,
    User,
)
from supercluster.broker.auth.users_file import parse_accounts, parse_users
from supercluster.broker.protocol.imports import NO_ACCOUNTS, AccountBook

UsersFile: TypeAlias = "tuple[tuple[User, ...], AccountBook]"

KNOWN_MAX = 4096
"""Credentials that fitted a hash, and are found again without comparing it."""

FILES = ("users.json", "cluster.json", "gateway.json", "migration.json")


@dataclass(frozen=True, slots=True)
class _Index:
    """Users by what they are asked for."""

    users: tuple[User, ...] = ()
    successors: Mapping[KnownBy, User] = field(default_factory=dict)
    named: frozenset[Named] = frozenset()
    hashed: frozenset[Named] = frozenset()
    """Those of whom a password is there as a hash."""


class Credentials:
    """What is in force now."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        paths = {name: directory / name if directory is not None else None for name in FILES}
        nobody: UsersFile = ((), NO_ACCOUNTS)
        self._users_file = CredentialsFile(paths[FILES[0]], _parse_both, nobody, lambda found: not found[0])
        self._link_files = [
            CredentialsFile(paths[name], parse_links, LinkCredentials(), lambda found: not found.accept)
            for name in FILES[1:]
        ]
        self.files: dict[str, CredentialsFile[Any]] = dict(
            zip(FILES, (self._users_file, *self._link_files), strict=True)
        )
        """By name, whether they are there or not."""
        self.users: tuple[User, ...] = ()
        """All users; none: no authentication."""
        self._index = _Index()
        self._anonymous: dict[str, User] = {}
        """By connection type."""
        self.accounts = NO_ACCOUNTS
        """What accounts import and export."""
        self.client_limits: Mapping[str, ClientLimits] = {}
        """By account; one that is not there has none."""
        self._known: dict[bytes, User] = {}
        """Keyed digest of what was shown → whose it is. A compared hash is not compared again, whoever else waits."""
        self._known_users: tuple[User, ...] = ()
        """Those that it was found out for."""
        self._key = token_bytes(32)
        self._links = LinkCredentials()
        self._gateways = LinkCredentials()
        self._migrations = LinkCredentials()

    def anonymous(self, connection_type: str) -> User | None:
        """Who a client is that comes this way and shows nothing; None: nobody."""
        return self._anonymous.get(connection_type)

    @property
    def has_nkeys(self) -> bool:
        """Is there a user who has to sign a nonce?"""
        return any(user.nkey for user in self.users)

    @property
    def system_account(self) -> str:
        """Where those are who may ask brokers about themselves, and where events are told."""
        return next((user.account for user in self.users if user.is_system), SYSTEM_ACCOUNT)

    @property
    def links(self) -> LinkCredentials:
        """Those of the cluster port: with other credentials but none for it, nobody is let in there."""
        others = bool(self.users or self._gateways.accept)
        return replace(self._links, is_open=False) if others else self._links

    @property
    def gateways(self) -> LinkCredentials:
        """Those of the gateway port: with other credentials but none for it, nobody is let in there."""
        others = bool(self.users or self._links.accept)
        return replace(self._gateways, is_open=False) if others else self._gateways

    @property
    def migrations(self) -> LinkCredentials:
        """Those of the migration port, which never lets in anyone without: it is there for others than this super-cluster."""
        return replace(self._migrations, is_open=False)

    def load(self) -> None:
        """Read the files for the first time.

        Raises:
            CredentialsError: a file is there but can't be used, or the directory that was named is not.
        """
        if self._directory is not None and not self._directory.is_dir():
            # Without files nobody is asked for credentials: that must not come of a misspelt path.
            raise CredentialsError(
                f"--credentials {self._directory}: no such directory; an empty one, or none named, lets anyone in"
            )
        for file in self.files.values():
            file.load()
        self._take_over()

    def refresh(self) -> bool:
        """Read again what has changed; True when the users or links are others now."""
        changed = [file.refresh() for file in self.files.values()]
        if any(changed):
            self._take_over()
        return any(changed)

    def _take_over(self) -> None:
        self.users, self.accounts = self._users_file.value
        self._links, self._gateways, self._migrations = (file.value for file in self._link_files)

    def successor(self, user: User) -> User | None:
        """The user of now that is known by the same credentials; of several the first counts, as in `find`."""
        return self._indexed.successors.get(user.known_by)

    def has_other(self, user: User) -> bool:
        """Are there credentials of the same user, whichever?"""
        return user.named in self._indexed.named

    def may_be_hashed(self, user: User) -> bool:
        """Has the user a hash now, which may be of the password that is plain in `user`? `hashed_of` says so."""
        is_plain = bool(user.password) and not passwords.is_hashed(user.password)
        return is_plain and user.named in self._indexed.hashed

    def hashed_of(self, user: User) -> User | None:
        """The entry of the same user whose hash is of the password that is plain in `user`. This takes long."""
        for found in self.users:
            is_hashed = found.named == user.named and passwords.is_hashed(found.password)
            if is_hashed and passwords.fits(found.password, user.password):
                return found
        return None

    @property
    def _indexed(self) -> _Index:
        if self._index.users is not self.users:
            self._index = _Index(
                self.users,
                {user.known_by: user for user in reversed(self.users)},
                frozenset(user.named for user in self.users),
                frozenset(user.named for user in self.users if passwords.is_hashed(user.password)),
            )
        return self._index

    def known(self, shown: Shown) -> User | None:
        """Whose it is, where that was found out by a hash since the files were read."""
        if not self._known or self._known_users is not self.users:
            return None
        digest = self._digest(shown)
        return self._known.get(digest) if digest is not None else None

    def remember(self, shown: Shown, user: User) -> None:
        """A hash said that it is the user's."""
        if self._known_users is not self.users:
            self._known, self._known_users = {}, self.users
        digest = self._digest(shown)
        if digest is not None and user in self.users:
            self._known[digest] = user
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def _digest(self, shown: Shown) -> bytes | None:
        """None for what is more than user, password and token."""
        if shown.nkey or shown.certificate is not None:
            return None
        said = repr((shown.user, shown.password, shown.token, shown.connection_type))
        return hmac.digest(self._key, said.encode(), "sha256")

    def find(self, shown: Shown) -> User | None:
        """The user whom this belongs to, and who may come that way."""
        user = self.known(shown) or self._find(shown)
        return user if user is not None and user.may_come_by(shown.connection_type) else None

    def _find(self, shown: Shown) -> User | None:
        """Of passwords and tokens all are compared, whichever fits."""
        users = self.users
        if shown.nkey:
            return _find_nkey(users, shown)
        if shown.is_nothing and (user := self.anonymous(shown.connection_type)) is not None:
            return user
        name = shown.user
        if shown.certificate is not None:
            named = user_of(shown.certificate, (user.user for user in users if user.user))
            if named is None:
                return None
            name = named
        found: User | None = None
        for candidate in users:
            if candidate.nkey:
                continue
            if candidate.token:
                fits = passwords.fits(candidate.token, shown.token)
            elif passwords.is_hashed(candidate.password):
                fits = same(candidate.user, name) and passwords.fits(candidate.password, shown.password)
            else:
                # Who has no password logs in by a certificate, and in no other way.
                has_secret = bool(candidate.password) or shown.certificate is not None
                fits = has_secret & same(candidate.user, name) & same(candidate.password, shown.password)
            if fits and found is None:
                found = candidate
        return found

    def takes_long(self, shown: Shown) -> bool:
        """Would `find` compare with a hash, which takes long on purpose? Then it belongs in a thread."""
        if shown.nkey or (shown.is_nothing and self.anonymous(shown.connection_type) is not None):
            return False
        if self.known(shown) is not None:
            return False
        return any(
            passwords.is_hashed(user.token)
            if user.token
            else passwords.is_hashed(user.password)
            and (shown.certificate is not None or user.user == shown.user)
            for user in self.users
        )


def _find_nkey(users: tuple[User, ...], shown: Shown) -> User | None:
    found = next((user for user in users if user.nkey == shown.nkey), None)
    return found if found is not None and has_signed(shown.nkey, shown.nonce, shown.signature) else None


def _parse_both(document: Any) -> UsersFile:
    return parse_users(document), parse_accounts(document)
