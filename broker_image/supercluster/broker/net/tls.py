"""Certificates: of the links between clusters, and of the ports for clients. Renewed files are used for new connections.

Links: both sides show a certificate and ask for one signed by the given CA. Host names are compared only where the settings
name one (`serverName`): addresses come by gossip and are a pod's IP as a rule, which no certificate has. So the CA has to be
one that signs brokers of this super-cluster alone.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from supercluster.broker.runtime.settings import ClientTls, GatewayTls, SettingsError
from supercluster.broker.runtime.stamps import Stamp, stamp_of


class GatewayCertificates:
    """The contexts for both directions; a renewed certificate is used for new connections."""

    def __init__(self, settings: GatewayTls, name: str = "gatewayTls") -> None:
        """Read the files; `name` is that of the settings.

        Raises:
            SettingsError: one of them can't be used.
        """
        self._settings = settings
        self._name = name
        self.server_name = settings.server_name
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client.check_hostname = bool(settings.server_name)
        for context in (self.server, self.client):
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._stamps = _stamps(settings)
        self._load()

    def refresh(self) -> bool:
        """Read the files again when they changed; True when they were taken over. Authorities are added, and one that
        is no longer in the file is trusted until the broker restarts.

        Raises:
            SettingsError: they can't be used; what was read before stays in force.
        """
        stamps = _stamps(self._settings)
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        self._load()
        return True

    def _load(self) -> None:
        found = self._settings
        for context in (self.server, self.client):
            _load_chain(self._name, context, found.cert_file, found.key_file)
            _load_authorities(self._name, context, found.ca_file)


class ClientCertificates:
    """The context of a port for clients."""

    def __init__(self, settings: ClientTls, name: str) -> None:
        """Read the files; `name` is that of the settings.

        Raises:
            SettingsError: one of them can't be used.
        """
        self.settings = settings
        self._name = name
        self._stamps = _stamps(settings)
        self.context = self._read()

    def refresh(self) -> bool:
        """Read the files again when they changed; True when they were taken over, with the authorities that they have now.

        Raises:
            SettingsError: they can't be used; what was read before stays in force.
        """
        stamps = _stamps(self.settings)
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        self.context = self._read()
        return True

    def replace(self, settings: ClientTls) -> None:
        """Work by other settings from now on.

        Raises:
            SettingsError: one of their files can't be used; everything stays as it was.
        """
        changed = ClientCertificates(settings, self._name)
        self.settings, self._stamps, self.context = settings, changed._stamps, changed.context

    def _read(self) -> ssl.SSLContext:
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
        _load_chain(self._name, context, found.cert_file, found.key_file)
        if found.asks_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            if found.ca_file is not None:
                _load_authorities(self._name, context, found.ca_file)
            else:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return context


def renewed(certificates: ClientCertificates) -> ssl.SSLContext:
    """A context for a listener that keeps the one it was begun with: every connection has that of the files as they are then."""
    context = certificates.context

    def choose(connection: ssl.SSLObject, name: str | None, began_with: ssl.SSLContext) -> None:
        connection.context = certificates.context

    context.sni_callback = choose
    return context


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


def _stamps(settings: GatewayTls | ClientTls) -> list[Stamp | None]:
    files = (settings.cert_file, settings.key_file, settings.ca_file)
    return [stamp_of(file) if file is not None else None for file in files]


def _no_password() -> str:
    raise ValueError("the key has a password, and there is no way to give one")
