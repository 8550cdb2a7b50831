"""Credentials of clients and links, read again whenever their files change (CL-5).

Several users may be valid at once, so that old and new credentials overlap while clients roll. Comparisons take the
same time whatever is wrong, and nothing here ever shows a secret. A file that can't be used leaves what was read
before in force and is said in the log once.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_bytes
from typing import Any

from supercluster.broker.auth import passwords
from supercluster.broker.auth.certificate_names import user_of
from supercluster.broker.auth.nkeys import NkeyError, has_signed, public_key
from supercluster.broker.auth.passwords import PasswordError
from supercluster.broker.bounds import TEXT_BYTES_MAX, read_json
from supercluster.broker.protocol.durations import parse_duration_ns
from supercluster.broker.protocol.imports import NO_ACCOUNTS, AccountBook, WrongImportError
from supercluster.broker.protocol.imports_file import KEYS, read_account
from supercluster.broker.protocol.permissions import (
    PATTERNS_MAX,
    RESPONSE_TTL_DEFAULT_MS,
    RESPONSES_DEFAULT,
    Permissions,
    Responses,
    Rules,
    is_pattern,
)
from supercluster.broker.settings.stamps import Stamp, stamp_of

log = logging.getLogger(__name__)

ROLES = ("client", "operator", "system")
SYSTEM_ACCOUNT = "$SYS"
STANDARD, WEBSOCKET = "STANDARD", "WEBSOCKET"
"""Ways by which a client comes, as NATS names them."""


class CredentialsError(Exception):
    """A credentials file can't be used; the text names file and field, never a secret."""


@dataclass(frozen=True, slots=True)
class User:
    """A client's credentials and what they allow."""

    account: str
    role: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    """A public key: whoever signs the nonce of INFO with its other half."""
    permissions: Permissions | None = None
    """None: everything."""
    connection_types: frozenset[str] = frozenset()
    """By which ways it may come; empty: by any."""

    def may_come_by(self, connection_type: str) -> bool:
        return not self.connection_types or connection_type in self.connection_types

    @property
    def is_system(self) -> bool:
        """May it ask brokers about themselves, under `$SYS.REQ`?"""
        return self.role == "system"

    @property
    def is_operator(self) -> bool:
        """May it change declared streams and use the admin API?"""
        return self.role == "operator"


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What the clients of an account may have at one broker; -1: as much as the broker's own limits allow."""

    connections_max: int = -1
    subscriptions_max: int = -1
    """Of each client."""
    payload_bytes_max: int = -1


NO_CLIENT_LIMITS = ClientLimits()


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client shows of itself."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    signature: str = field(default="", repr=False)
    nonce: str = field(default="", repr=False)
    """What the broker sent to be signed."""
    certificate: Mapping[str, Any] | None = None
    """A certificate that names the user, whatever the client says."""
    connection_type: str = STANDARD

    @property
    def is_nothing(self) -> bool:
        return not (self.user or self.password or self.token or self.nkey or self.certificate is not None)


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials of a link."""

    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class LinkCredentials:
    """What brokers have to say on one of the ports for brokers, and what this one says there."""

    accept: tuple[Login, ...] = ()
    send: Login = Login()
    is_open: bool = True
    """With nothing to accept: may anyone link up (there is no secret to know), or no one?"""

    def accepts(self, user: str, password: str) -> bool:
        """May a broker with these link up? All are compared, whichever fits."""
        fits = [_same(login.user, user) & _same(login.password, password) for login in self.accept]
        return any(fits) or (not self.accept and self.is_open)


KNOWN_MAX = 4096
"""Credentials that fitted a hash, and are found again without comparing it."""

FILES = ("users.json", "cluster.json", "gateway.json", "migration.json")


class Credentials:
    """What is in force now."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._stamps: dict[str, Stamp | None] = {}
        self.users: tuple[User, ...] = ()
        """All users; none: no authentication."""
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
        (self.users, self.accounts), self._links, self._gateways, self._migrations = self._read_all()
        self._note_stamps()

    def refresh(self) -> bool:
        """Read again what has changed; True when the users or links are others now."""
        if self._directory is None or not self._note_stamps():
            return False
        before = ((self.users, self.accounts), self._links, self._gateways, self._migrations)
        try:
            found = self._read_all()
        except CredentialsError as error:
            log.error("credentials stay as they were: %s", error)
            return False
        kept: list[Any] = list(found)
        secrets = [(users[0], *(port.accept for port in ports)) for users, *ports in (before, found)]
        for index, (present, changed) in enumerate(zip(*secrets, strict=True)):
            if present and not changed:
                log.error(
                    "credentials stay as they were: %s is gone or empty, which would let anyone in",
                    FILES[index],
                )
                kept[index] = before[index]
        (self.users, self.accounts), self._links, self._gateways, self._migrations = kept
        return before != tuple(kept)

    def _read_all(
        self,
    ) -> tuple[tuple[tuple[User, ...], AccountBook], LinkCredentials, LinkCredentials, LinkCredentials]:
        users: tuple[tuple[User, ...], AccountBook] = self._read(
            "users.json",
            lambda document: (_parse_users(document), _parse_accounts(document)),
            ((), NO_ACCOUNTS),
        )
        links, gateways, migrations = (
            self._read(name, _parse_links, LinkCredentials()) for name in FILES[1:]
        )
        return users, links, gateways, migrations

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
                fits = _same(candidate.user, name) and passwords.fits(candidate.password, shown.password)
            else:
                # Who has no password logs in by a certificate, and in no other way.
                has_secret = bool(candidate.password) or shown.certificate is not None
                fits = has_secret & _same(candidate.user, name) & _same(candidate.password, shown.password)
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

    def _note_stamps(self) -> bool:
        changed = False
        for name in FILES:
            stamp = stamp_of(self._directory / name) if self._directory is not None else None
            changed |= self._stamps.get(name) != stamp
            self._stamps[name] = stamp
        return changed

    def _read(self, name: str, parse: Any, absent: Any) -> Any:
        if self._directory is None:
            return absent
        path = self._directory / name
        try:
            document = read_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return absent
        except (OSError, ValueError) as error:
            raise CredentialsError(f"{path} can't be read: {type(error).__name__}") from None
        try:
            return parse(document)
        except CredentialsError as error:
            raise CredentialsError(f"{path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise CredentialsError(f"{path} can't be used: {type(error).__name__}") from None


def _parse_accounts(document: Mapping[str, Any]) -> AccountBook:
    """`{"accounts": {"A": {"exports": […], "imports": […], "mappings": {…}}}}`, worded as nats-server's configuration."""
    told = document.get("accounts", {})
    if not isinstance(told, dict):
        raise CredentialsError("accounts has to be an object of accounts by name")
    for name, entry in told.items():
        if not isinstance(entry, dict) or set(entry) - {*KEYS, "jetstream"}:
            raise CredentialsError(
                f"accounts.{name} has to be an object with any of jetstream, {', '.join(KEYS)}"
            )
        if type(entry.get("jetstream", True)) is not bool:
            raise CredentialsError(f"accounts.{name}.jetstream has to be true or false")
    try:
        return AccountBook(
            read_account(name, entry, parse_duration_ns, has_jetstream=entry.get("jetstream", True))
            for name, entry in told.items()
        )
    except WrongImportError as error:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
        raise CredentialsError(f"accounts{where}: {error}") from None


def _parse_users(document: object) -> tuple[User, ...]:
    entries = document.get("users") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise CredentialsError('has to be {"users": [...]}')
    users: list[User] = []
    for index, entry in enumerate(entries):
        where = f"users[{index}]"
        if not isinstance(entry, dict):
            raise CredentialsError(f"{where} has to be an object")
        names = ("user", "password", "token", "nkey", "account", "role")
        values = {name: entry.get(name, "") for name in names}
        permissions = _permissions(f"{where}.permissions", entry.get("permissions"))
        for name, value in values.items():
            if not isinstance(value, str):
                raise CredentialsError(f"{where}.{name} has to be a text")
            if len(value.encode()) > TEXT_BYTES_MAX:
                raise CredentialsError(f"{where}.{name} has more than {TEXT_BYTES_MAX} bytes")
        if unknown := sorted(set(entry) - {*values, "permissions"}):
            raise CredentialsError(
                f"{where}.{unknown[0]} is no known field; known are {', '.join(values)}, permissions"
            )
        _check_user(where, values)
        values["role"] = values["role"] or "client"
        if values["role"] not in ROLES:
            raise CredentialsError(f"{where}.role has to be one of {', '.join(ROLES)}")
        default = SYSTEM_ACCOUNT if values["role"] == "system" else "$G"
        values["account"] = values["account"] or default
        if values["account"].startswith(" "):
            raise CredentialsError(f"{where}.account is {values['account']!r}; it cannot begin with a space")
        users.append(User(**values, permissions=permissions))
    return tuple(users)


def _check_user(where: str, values: Mapping[str, str]) -> None:
    if sum(bool(values[name]) for name in ("user", "token", "nkey")) != 1:
        raise CredentialsError(f"{where} needs one of user (with password), token and nkey")
    for name in ("password", "token"):
        try:
            passwords.check_hash(values[name])
        except PasswordError as error:
            raise CredentialsError(f"{where}.{name} {error}") from None
    if values["nkey"]:
        try:
            public_key(values["nkey"])
        except NkeyError as error:
            raise CredentialsError(f"{where}.nkey {error}") from None
        if values["password"]:
            raise CredentialsError(f"{where} has nkey and password; only one of them may be")


def _permissions(where: str, value: object) -> Permissions | None:
    """`{"publish": {"allow": […], "deny": […]}, "subscribe": {…}, "responses": {"max": 1, "ttlMs": 120000}}`."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise CredentialsError(f"{where} has to be an object")
    if unknown := sorted(set(value) - {"publish", "subscribe", "responses"}):
        raise CredentialsError(
            f"{where}.{unknown[0]} is no known field; known are publish, subscribe, responses"
        )
    publish = _rules(f"{where}.publish", value.get("publish"), with_queues=False)
    subscribe = _rules(f"{where}.subscribe", value.get("subscribe"), with_queues=True)
    responses: Responses | None = None
    if (told := value.get("responses")) is not None:
        if not isinstance(told, dict) or set(told) - {"max", "ttlMs"}:
            raise CredentialsError(f"{where}.responses has to be an object with max and ttlMs")
        numbers = told.get("max", RESPONSES_DEFAULT), told.get("ttlMs", RESPONSE_TTL_DEFAULT_MS)
        if any(type(number) is not int or number < 0 for number in numbers):
            raise CredentialsError(f"{where}.responses: max and ttlMs have to be whole numbers from 0")
        responses = Responses(*numbers)
        if publish.allow is None:
            publish = replace(
                publish, allow=()
            )  # Who answers may do that, and nothing else that is not named.
    return Permissions(publish, subscribe, responses)


def _rules(where: str, value: object, *, with_queues: bool) -> Rules:
    if value is None:
        return Rules()
    if not isinstance(value, dict) or set(value) - {"allow", "deny"}:
        raise CredentialsError(f"{where} has to be an object with allow and deny")
    lists: dict[str, tuple[bytes, ...] | None] = {}
    for name in ("allow", "deny"):
        told = value.get(name)
        if told is not None and (not isinstance(told, list) or len(told) > PATTERNS_MAX):
            raise CredentialsError(f"{where}.{name} has to be a list of at most {PATTERNS_MAX} subjects")
        for pattern in told or ():
            if not is_pattern(pattern, with_queue=with_queues):
                raise CredentialsError(f"{where}.{name}: {pattern!r} is no subject")
        lists[name] = tuple(pattern.encode() for pattern in told) if told is not None else None
    return Rules(lists["allow"], lists["deny"] or ())


def _parse_links(document: object) -> LinkCredentials:
    if not isinstance(document, dict) or not isinstance(document.get("accept", []), list):
        raise CredentialsError('has to be {"accept": [...], "send": {...}}')
    accept = tuple(
        _login(f"accept[{index}]", entry) for index, entry in enumerate(document.get("accept", []))
    )
    send = _login("send", document["send"]) if "send" in document else Login()
    return LinkCredentials(accept, send)


def _login(where: str, entry: object) -> Login:
    if not isinstance(entry, dict):
        raise CredentialsError(f"{where} has to be an object")
    user, password = entry.get("user"), entry.get("password")
    if not isinstance(user, str) or not isinstance(password, str) or not user:
        raise CredentialsError(f"{where} needs user and password")
    return Login(user, password)


def _find_nkey(users: tuple[User, ...], shown: Shown) -> User | None:
    found = next((user for user in users if user.nkey == shown.nkey), None)
    return found if found is not None and has_signed(shown.nkey, shown.nonce, shown.signature) else None


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
