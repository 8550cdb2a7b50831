"""TLS of the links between clusters: both sides show a certificate and ask for one signed by the given CA.

Host names are compared only where the settings name one (`serverName`): addresses come by gossip and are a pod's IP as
a rule, which no certificate has. So the CA has to be one that signs brokers of this super-cluster alone.
"""

from __future__ import annotations

import ssl

from supercluster.broker.runtime.settings import GatewayTls, SettingsError
from supercluster.broker.runtime.stamps import Stamp, stamp_of


class GatewayCertificates:
    """The contexts for both directions; a renewed certificate is used for new connections."""

    def __init__(self, settings: GatewayTls) -> None:
        """Read the files.

        Raises:
            SettingsError: one of them can't be used.
        """
        self._settings = settings
        self.server_name = settings.server_name
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client.check_hostname = bool(settings.server_name)
        for context in (self.server, self.client):
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._stamps = self._files()
        self._load()

    def refresh(self) -> bool:
        """Read the files again when they changed; True when they were taken over. Authorities are added, and one that
        is no longer in the file is trusted until the broker restarts.

        Raises:
            SettingsError: they can't be used; what was read before stays in force.
        """
        stamps = self._files()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        self._load()
        return True

    def _load(self) -> None:
        found = self._settings
        for context in (self.server, self.client):
            try:
                context.load_cert_chain(found.cert_file, found.key_file, password=_no_password)
            except (OSError, ValueError) as error:
                raise SettingsError(
                    f"gatewayTls: certFile {found.cert_file} with keyFile {found.key_file} can't be used: {error}"
                ) from None
            try:
                context.load_verify_locations(found.ca_file)
            except (OSError, ValueError) as error:
                raise SettingsError(f"gatewayTls: caFile {found.ca_file} can't be used: {error}") from None

    def _files(self) -> list[Stamp | None]:
        return [
            stamp_of(file)
            for file in (self._settings.cert_file, self._settings.key_file, self._settings.ca_file)
        ]


def _no_password() -> str:
    raise ValueError("the key has a password, and there is no way to give one")
