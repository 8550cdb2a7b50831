"""A blocking NATS client over one socket: the operations that a Spark task needs, and no background activity.

`ClientConnection` is one socket to one broker; `Servers` knows the brokers (those named and those INFO lists)
and connects to the first that answers. The first INFO comes in plain text. TLS begins after it if the URL
says `tls://` or the broker requires it; a connection that asked for TLS never continues in plain text. Every
wait has a limit. A failed connection is never used again: the caller asks `Servers` for a new one and repeats
unanswered requests. Secrets are sent to the broker and appear in no message.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import random
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from supercluster.spark.wire import Message, ProtocolError, WireParser, none_of, status_of

T = TypeVar("T")
READ_BYTES = 262_144
GATHERED_BYTES = 1_048_576
GATHER_PAUSE_SECONDS = 0.002
"""Columns of few messages cost as much as those of many, so a broker that is slower than the reader is waited for."""
CONNECT_TIMEOUT_SECONDS = 2.0
CLIENT_PORT = 4222
NO_RESPONDERS = 503
OURS = "supercluster-"
"""How our brokers' git_commit in INFO begins."""
PAYLOAD_BYTES_DEFAULT = 1_048_576
VISITED_MAX = 16
"""Brokers that are looked at one after another for one that has a copy."""
SERVERS_MAX = 256
"""Brokers remembered from INFO: a bound on what a server can make a client keep."""


class ConnectionFailedError(Exception):
    """A broker could not be reached, went away, or did not answer in time: another one may do."""


class LoginRefusedError(Exception):
    """The broker refused the credentials: repeating does not help."""


class CertificateRefusedError(LoginRefusedError):
    """One side does not trust the other's certificate."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who the reader is; no field of it is ever shown."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def connect_fields(self) -> dict[str, str]:
        if self.token:
            return {"auth_token": self.token}
        return {"user": self.user, "pass": self.password} if self.user else {}


@dataclass(frozen=True, slots=True)
class Tls:
    """Which authorities are trusted (the system's, where no file is named), and the certificate that is shown."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    is_required: bool = field(default=False, kw_only=True)
    """A broker without TLS is refused. URLs with `tls://` say so for all brokers."""

    def context(self) -> ssl.SSLContext:
        """Read the files again: they may have been renewed.

        Raises:
            CertificateRefusedError: one cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise CertificateRefusedError(
                f"caFile {self.ca_file!r} cannot be used ({_reason(error)}); name a PEM file with the authority of"
                " the brokers' certificates that this process can read"
            ) from None
        if self.cert_file:
            try:
                # An empty password, so that nobody is asked for one.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                raise CertificateRefusedError(
                    f"certFile {self.cert_file!r} and keyFile {self.key_file!r} cannot be used ({_reason(error)}); name"
                    " PEM files with a certificate and its key, without a password, that this process can read"
                ) from None
        return context


def _reason(error: OSError) -> str:
    return (
        getattr(error, "verify_message", "") or getattr(error, "reason", "") or error.strerror or str(error)
    )


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    is_tls: bool = field(default=False, compare=False)
    tls_name: str = field(default="", compare=False)
    """The name in the certificate; empty: the host."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port`, `nats://host:port` or `tls://host:port`; credentials in a URL are refused, because URLs are shown.

        Raises:
            ValueError: it is neither.
        """
        text = text.strip()
        url = urlsplit(text if "://" in text else f"nats://{text}")
        if url.username or url.password:
            raise ValueError(
                "credentials do not belong in a URL; use the options user and password, or credentialsFile"
            )
        if url.scheme not in ("nats", "tls") or not url.hostname or url.path not in ("", "/"):
            raise ValueError(f"{text!r} is no broker address; write nats://host:port or tls://host:port")
        return cls(url.hostname, url.port or CLIENT_PORT, url.scheme == "tls")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def resolved(host: str) -> str:
    """The host, or its address where SUPERCLUSTER_HOSTS_FILE names a hosts(5) file that has it: on the embedded control plane,
    which has no DNS."""
    path = os.environ.get("SUPERCLUSTER_HOSTS_FILE")
    if path is None:
        return host
    with contextlib.suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            address, *names = line.partition("#")[0].split() or [""]
            if host in names:
                return address
    return host


@dataclass(frozen=True, slots=True)
class BulkPort:
    """Where a broker sends messages as Arrow columns, and how to log in there: as at its NATS port."""

    host: str
    port: int
    tls_name: str
    context: ssl.SSLContext | None
    """None: without TLS."""
    credentials: Credentials

    def __str__(self) -> str:
        return str(Address(self.host, self.port))


class ClientConnection:
    """One socket to one broker, after a completed handshake.

    Raises from every method:
        ConnectionFailedError: the broker went away or a time limit passed; close this and take another connection.
        LoginRefusedError: the broker said that the credentials are not good, or a certificate is not.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        *,
        tls: Tls | None = None,
        timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    ) -> None:
        self.address = address
        self._tls = tls or Tls()
        self._credentials = credentials
        self._context: ssl.SSLContext | None = None
        self._parser = WireParser()
        self._ready: list[Message] = []
        self._room = bytearray()
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._requests = 0
        self._answers: dict[bytes, Message | None] = {}
        """Of requests that are on their way."""
        self._sids = 1
        try:
            self._socket: socket.socket = socket.create_connection(
                (resolved(address.host), address.port), timeout=timeout_seconds
            )
        except OSError as error:
            raise ConnectionFailedError(f"{address}: {error}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._handshake(credentials, time.monotonic() + timeout_seconds)
        except BaseException:
            self._socket.close()
            raise

    def _handshake(self, credentials: Credentials, deadline: float) -> None:
        while self._parser.info is None:
            self._fill(deadline)
        self._start_tls(self._parser.info, deadline)
        hello = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "lang": "python-spark",
            "version": "1",
            "protocol": 1,
            "name": "supercluster-spark",
            **credentials.connect_fields(),
        }
        self.write(
            b"CONNECT %b\r\nSUB %b.* 1\r\nPING\r\n" % (json.dumps(hello).encode(), self._inbox.encode())
        )
        while not self._parser.pongs:
            self._fill(deadline)

    def _start_tls(self, info: dict[str, Any], deadline: float) -> None:
        is_required = self._tls.is_required or self.address.is_tls
        offered = info.get("tls_required") or info.get("tls_available")
        if is_required and not offered:
            raise CertificateRefusedError(
                f"{self.address} has no TLS; write nats:// and leave caFile and certFile out, or ask for TLS there"
            )
        if not (is_required or info.get("tls_required")):
            return
        if info.get("tls_verify") and not self._tls.cert_file:
            raise CertificateRefusedError(
                f"{self.address} asks for a client's certificate; set the options certFile and keyFile"
            )
        context = self._tls.context()
        try:
            self._socket.settimeout(max(0.05, deadline - time.monotonic()))
            name = self.address.tls_name or self.address.host
            self._socket = context.wrap_socket(self._socket, server_hostname=name)
            self._context = context
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> Exception:
        """What an error of the socket means: another broker may do, unless a certificate is the reason."""
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = (
                "connect by a name that the certificate has"
                if "mismatch" in error.verify_message
                else "have it renewed"
                if "expired" in error.verify_message
                else "set the option caFile to the authority that signed it"
            )
            return CertificateRefusedError(
                f"the certificate of {self.address} is not trusted ({_reason(error)}); {remedy}"
            )
        reason = _reason(error)
        if isinstance(error, ssl.SSLError) and "ALERT" in reason and ("CERT" in reason or "CA" in reason):
            return CertificateRefusedError(
                f"{self.address} refused the client's certificate ({reason}); set certFile and keyFile to one that an"
                " authority of the brokers has signed"
            )
        return ConnectionFailedError(f"{self.address}: {error}")

    @property
    def server_names(self) -> list[str]:
        """The addresses that the last INFO named."""
        return list((self._parser.info or {}).get("connect_urls") or ())

    @property
    def is_supercluster(self) -> bool:
        """Is the broker one of ours, and no stock nats-server?"""
        return str((self._parser.info or {}).get("git_commit", "")).startswith(OURS)

    @property
    def server_name(self) -> str:
        return str((self._parser.info or {}).get("server_name", ""))

    @property
    def bulk_port(self) -> BulkPort | None:
        """None: the broker has none."""
        port = int((self._parser.info or {}).get("bulk_port") or 0)
        if not port:
            return None
        address = self.address
        return BulkPort(
            address.host, port, address.tls_name or address.host, self._context, self._credentials
        )

    @property
    def payload_bytes_max(self) -> int:
        """The most that the broker takes in one message."""
        return int((self._parser.info or {}).get("max_payload") or PAYLOAD_BYTES_DEFAULT)

    def subscribe(self, subject: str) -> bytes:
        """Subscribe, and return the subscription's id as deliveries show it."""
        self._sids += 1
        sid = str(self._sids).encode()
        self.write(b"SUB %b %b\r\n" % (subject.encode(), sid))
        return sid

    def unsubscribe(self, sid: bytes) -> None:
        self.write(b"UNSUB %b\r\n" % sid)

    def publish(self, subject: str, reply: str, payload: bytes) -> None:
        self.write(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload))

    def write(self, data: bytes) -> None:
        try:
            self._socket.settimeout(CONNECT_TIMEOUT_SECONDS)
            self._socket.sendall(data)
        except OSError as error:
            raise self._failure(error) from None

    def read(self, deadline: float) -> list[Message]:
        """Messages for subscriptions, at least one; an empty list when `deadline` passed."""
        while not self._ready:
            try:
                self._fill(deadline)
            except TimeoutError:
                return []
        messages, self._ready = self._ready, []
        return messages

    def read_first(
        self, deadline: float, first: Callable[[bytes], tuple[T | None, int]]
    ) -> tuple[T | None, list[Message]]:
        """As `read`, but `first` may take messages from the beginning of what comes (`WireParser.feed_first`). It gets much at once:
        all that has come."""
        taken = None
        while taken is None and not self._ready:
            try:
                taken = self._fill_first(deadline, first, gathers=True)
            except TimeoutError:
                break
        messages, self._ready = self._ready, []
        return taken, messages

    def request(self, subject: str, payload: bytes, timeout_seconds: float) -> bytes:
        """One request and its answer; messages for subscriptions that come in between wait for `read`."""
        return self.answer(self.send(subject, payload), time.monotonic() + timeout_seconds)

    def send(self, subject: str, payload: bytes) -> bytes:
        """A request. Returns what `answer` is to wait for."""
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        self._answers[reply.encode()] = None
        self.publish(subject, reply, payload)
        return reply.encode()

    def answer(self, reply: bytes, deadline: float) -> bytes:
        """The answer to a request; messages for subscriptions that come in between wait for `read`."""
        kept: list[Message] = []
        try:
            while (answer := self._answers[reply]) is None:
                messages = self.read(deadline)
                if not messages:
                    raise ConnectionFailedError(f"{self.address}: no answer in time")
                for message in messages:
                    if message[1] in self._answers:
                        self._answers[message[1]] = message
                    elif message[0] != b"1":  # an answer that came too late is nobody's
                        kept.append(message)
        finally:
            del self._answers[reply]
            self._ready = kept + self._ready
        if status_of(answer[3])[0] == NO_RESPONDERS:
            raise ConnectionFailedError(f"{self.address}: nothing serves this subject at present")
        return answer[4]

    def forget(self) -> None:
        """Nobody waits for answers any more."""
        self._answers.clear()

    def _fill(self, deadline: float) -> None:
        """Read once from the socket. Raises TimeoutError when `deadline` passed."""
        self._fill_first(deadline, none_of)

    def _fill_first(
        self, deadline: float, first: Callable[[bytes], tuple[T | None, int]], *, gathers: bool = False
    ) -> T | None:
        data = self._receive(deadline)
        if gathers:
            data = self._gather(data)
        try:
            taken, messages = self._parser.feed_first(data, first)
        except ProtocolError as error:
            raise ConnectionFailedError(f"{self.address}: {error}") from None
        self._ready += messages
        if self._parser.pings:
            pongs, self._parser.pings = self._parser.pings, 0
            self.write(b"PONG\r\n" * pongs)
        self._raise_errors()
        return taken

    def _receive(self, deadline: float) -> bytes:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            self._socket.settimeout(left)
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._failure(error) from None
        if not data:
            self._raise_errors()
            raise ConnectionFailedError(f"{self.address}: closed by the broker")
        return data

    def _gather(self, data: bytes) -> bytes:
        """With what else comes, up to GATHERED_BYTES or until a pause. An error is the next read's."""
        if not self._room:
            self._room = bytearray(GATHERED_BYTES)
        buffer, size = memoryview(self._room), len(data)
        buffer[:size] = data
        with contextlib.suppress(OSError):
            self._socket.settimeout(GATHER_PAUSE_SECONDS)
            while size < GATHERED_BYTES and (more := self._socket.recv_into(buffer[size:])):
                size += more
        return bytes(buffer[:size])

    def _raise_errors(self) -> None:
        if self._parser.errors:
            text = "; ".join(self._parser.errors)
            self._parser.errors.clear()
            if "authorization" in text.lower() or "authentication" in text.lower():
                raise LoginRefusedError(
                    f"{self.address} refused the login ({text}); check user and password, token, or the file that"
                    " credentialsFile names"
                )
            if text.lower().startswith("permissions violation"):
                raise LoginRefusedError(
                    f"{self.address}: {text}; this user needs a permission for that subject"
                )
            raise ConnectionFailedError(f"{self.address}: {text}")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


Named = tuple[Sequence[Address], Credentials, Tls]
"""Where the brokers are, and how to log in."""


class Servers:
    """The brokers that are known, and a connection to one of them on request."""

    def __init__(
        self,
        addresses: Sequence[Address],
        credentials: Credentials,
        *,
        tls: Tls | None = None,
        seed: int | None = None,
        renew: Callable[[], Named] | None = None,
    ) -> None:
        """`renew`: what holds by now, for instance by a mounted Secret. It is asked before each round."""
        if not addresses:
            raise ValueError("no broker address given")
        self._renew = renew
        self._turn = 0
        self._name(addresses, credentials, tls or Tls())
        if (
            seed is not None
        ):  # tasks begin at different brokers, so that not all of them load the first one named
            self._turn = random.Random(seed).randrange(len(self._known))

    def _name(self, addresses: Sequence[Address], credentials: Credentials, tls: Tls) -> None:
        self._named = list(dict.fromkeys(addresses))
        self._known = list(self._named)
        self._credentials = credentials
        self._tls = replace(tls, is_required=tls.is_required or any(each.is_tls for each in addresses))

    def _look_again(self) -> None:
        """Brokers that others named are forgotten where the first ones are others: they may be another super-cluster's."""
        if self._renew is None:
            return
        try:
            addresses, credentials, tls = self._renew()
        except ValueError:
            return  # It is being written. What was known may still do.
        known = self._known
        is_same = list(dict.fromkeys(addresses)) == self._named
        self._name(addresses, credentials, tls)
        if is_same:
            self._known = known

    @property
    def known(self) -> tuple[Address, ...]:
        return tuple(self._known)

    def learn(self, names: Iterable[str], of: Address) -> None:
        """Remember addresses that the INFO of a broker named. Where they are numbers, their certificates have to have the name by
        which that broker is known, as nats.go has it."""
        known_name = of.tls_name or of.host
        for name in names:
            with contextlib.suppress(ValueError):
                address = Address.parse(name)
                if _is_number(address.host) and not _is_number(known_name):
                    address = replace(address, tls_name=known_name)
                if address not in self._known and len(self._known) < SERVERS_MAX:
                    self._known.append(address)

    def others(self, than: Address, names: Collection[str] = ()) -> Iterator[ClientConnection]:
        """Connections to further brokers, each of which is closed before the next one. Those come first whose hosts begin with one
        of the names, as pods' do."""
        known = sorted(self._known, key=lambda each: each.host.partition(".")[0] not in names)
        for address in [each for each in known if each != than][:VISITED_MAX]:
            try:
                connection = ClientConnection(address, self._credentials, tls=self._tls)
            except (ConnectionFailedError, TimeoutError):
                continue
            try:
                yield connection
            finally:
                connection.close()

    def connect(self, deadline: float) -> ClientConnection:
        """Connect to the next broker that answers, going round until `deadline`.

        Raises:
            ConnectionFailedError: none did; the message has what each said last.
            LoginRefusedError: one refused the credentials, or a certificate was refused.
        """
        failures: dict[Address, str] = {}
        pause_seconds = 0.05
        while True:
            self._look_again()
            for _ in range(len(self._known)):
                address = self._known[self._turn % len(self._known)]
                self._turn += 1
                left = deadline - time.monotonic()
                if left <= 0 and failures:
                    break
                try:
                    connection = ClientConnection(
                        address,
                        self._credentials,
                        tls=self._tls,
                        timeout_seconds=max(0.05, min(CONNECT_TIMEOUT_SECONDS, left)),
                    )
                except (ConnectionFailedError, TimeoutError) as error:
                    failures[address] = str(error) or f"{address}: no handshake in time"
                    continue
                self.learn(connection.server_names, address)
                return connection
            if time.monotonic() + pause_seconds >= deadline:
                said = "; ".join(failures.values())
                raise ConnectionFailedError(f"no broker could be reached in time ({said})")
            time.sleep(pause_seconds)
            pause_seconds = min(1.0, pause_seconds * 2)
