"""Certificates: of the links between clusters, and of the ports for clients. Renewed files are used for new
connections.

Links: both sides present a certificate and require one signed by the given CA. Host names are compared only
if the settings name one (`serverName`): addresses come by gossip and are usually a pod's IP, which no
certificate has. Without it the CA must sign only brokers of this super-cluster.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supercluster.broker.settings.settings import ClientTls, GatewayTls, SettingsError
from supercluster.broker.settings.stamps import Stamp, stamp_of

_BEGIN_OF_CERTIFICATE, _END_OF_CERTIFICATE = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What new connections are made with: SHA-256 of the DER form, in hexadecimal."""

    certificate: str
    authorities: tuple[str, ...] = ()
    """Of those that are trusted, sorted."""


class _Files:
    """The files of one port: renewed ones are used for new connections."""

    def __init__(self, name: str, files: Sequence[Path]) -> None:
        """Read them; `name` is that of the settings."""
        self._name = name
        self._files = files
        self._stamps = _stamps(files)
        self._take()

    def _take(self) -> None:
        """Read the files, or stay as it was.

        Raises:
            SettingsError: one of them can't be used.
        """
        raise NotImplementedError

    def refresh(self) -> bool:
        """Read the files again when they changed; True when they were taken over. An authority that is no longer in the file
        is not trusted any more.

        Raises:
            SettingsError: they can't be used; what was read before stays in force.
        """
        stamps = _stamps(self._files)
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        self._take()
        return True


class GatewayCertificates(_Files):
    """The contexts for both directions of the links of one port."""

    context: ssl.SSLContext
    client: ssl.SSLContext
    loaded: Loaded

    def __init__(self, settings: GatewayTls, name: str = "gatewayTls", folder: Path = Path()) -> None:
        """Read the files; relative paths are in `folder`.

        Raises:
            SettingsError: one of them can't be used.
        """
        self.server_name = settings.server_name
        files = (settings.cert_file, settings.key_file, settings.ca_file)
        super().__init__(name, [folder / file for file in files])

    def accepts(self, certificate: Mapping[str, Any]) -> bool:
        """Whether a broker that dialled may have this one, as `ssl` has it: for the name that one which is dialled must have."""
        names = certificate.get("subjectAltName", ())
        return not self.server_name or ("DNS", self.server_name) in names

    def _take(self) -> None:
        cert_file, key_file, ca_file = self._files
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would not be verified again, by an authority that is trusted no more either.
        server.num_tickets = 0
        server.options |= ssl.OP_NO_TICKET
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = bool(self.server_name)
        for context in (server, client):
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            _load_chain(self._name, context, cert_file, key_file)
            _load_authorities(self._name, context, ca_file)
        loaded = _loaded(self._name, client, cert_file)
        if _stamps(self._files) != self._stamps:
            raise SettingsError(f"{self._name}: the files changed while they were read")
        self.context, self.client, self.loaded = server, client, loaded


class ClientCertificates(_Files):
    """The context of a port for clients."""

    context: ssl.SSLContext

    def __init__(self, settings: ClientTls, name: str, folder: Path = Path()) -> None:
        """Read the files; `name` is that of the settings, and relative paths are in `folder`.

        Raises:
            SettingsError: one of them can't be used.
        """
        self.settings = settings
        self._folder = folder
        files = (settings.cert_file, settings.key_file, settings.ca_file)
        super().__init__(name, [folder / file for file in files if file is not None])

    def replace(self, settings: ClientTls) -> None:
        """Work by other settings from now on.

        Raises:
            SettingsError: one of their files can't be used; everything stays as it was.
        """
        changed = ClientCertificates(settings, self._name, self._folder)
        self.settings, self._files = settings, changed._files
        self._stamps, self.context = changed._stamps, changed.context

    def _take(self) -> None:
        found = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = (
            ssl.TLSVersion.TLSv1_3 if found.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
        )
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        if found.ciphers:
            try:
                context.set_ciphers(found.ciphers)
            except ssl.SSLError:
                raise SettingsError(
                    f"{self._name}: ciphers {found.ciphers} can't be used: none of them is known"
                ) from None
        cert_file, key_file, *authorities = self._files
        _load_chain(self._name, context, cert_file, key_file)
        if found.asks_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            if authorities:
                _load_authorities(self._name, context, authorities[0])
            else:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        self.context = context


def _load_chain(name: str, context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    try:
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"{name}: certFile {cert_file} with keyFile {key_file} can't be used: {error}"
        ) from None


def _load_authorities(name: str, context: ssl.SSLContext, ca_file: Path) -> None:
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{name}: caFile {ca_file} can't be used: {error}") from None


def _loaded(name: str, context: ssl.SSLContext, cert_file: Path) -> Loaded:
    try:
        text = cert_file.read_text(encoding="ascii")
        end = text.index(_END_OF_CERTIFICATE) + len(_END_OF_CERTIFICATE)
        shown = ssl.PEM_cert_to_DER_cert(text[text.index(_BEGIN_OF_CERTIFICATE) : end])
    except (OSError, ValueError) as error:
        raise SettingsError(f"{name}: certFile {cert_file} can't be used: {error}") from None
    trusted = sorted(_fingerprint(der) for der in context.get_ca_certs(binary_form=True))
    return Loaded(_fingerprint(shown), tuple(trusted))


def _fingerprint(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()


def _stamps(files: Sequence[Path]) -> list[Stamp | None]:
    return [stamp_of(file) for file in files]


def _no_password() -> str:
    raise ValueError("the key has a password, and there is no way to give one")
