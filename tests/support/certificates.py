"""Certificates for tests: an authority, and what it signs, in a test's own folder."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """A certificate's file, its key's, and that of the authority that signed it."""

    cert: Path
    key: Path
    ca: Path

    def settings(self) -> dict[str, str]:
        """As brokers' settings name them."""
        return {"certFile": str(self.cert), "keyFile": str(self.key), "caFile": str(self.ca)}

    def context(self, *, shown: Certificate | None = None) -> ssl.SSLContext:
        """A client's side: it trusts the authority, and shows a certificate if asked for one."""
        found = ssl.create_default_context(cafile=self.ca)
        found.check_hostname = False
        if shown is not None:
            found.load_cert_chain(shown.cert, shown.key)
        return found


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str, *, is_plain: bool = False) -> None:
        """`is_plain`: without the extensions that strict verification asks for."""
        self.is_plain = is_plain
        self.folder = folder
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._build(subject, self.key, subject, [x509.DNSName(name)], is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def sign(
        self,
        name: str,
        *,
        addresses: Sequence[str] = (),
        emails: Sequence[str] = (),
        dns: Sequence[str] | None = None,
        organization: str = "",
        file: str = "",
    ) -> Certificate:
        """A certificate with this common name, for the DNS name that is the same unless others are given."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization:
            parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        others: list[x509.GeneralName] = [
            *(x509.DNSName(one) for one in ((name,) if dns is None else dns)),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
            *(x509.RFC822Name(email) for email in emails),
        ]
        certificate = self._build(x509.Name(parts), key, self.certificate.subject, others, is_authority=False)
        found = Certificate(self._file(file or name, "crt"), self._file(file or name, "key"), self.file)
        found.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        found.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return found

    def _file(self, name: str, kind: str) -> Path:
        return self.folder / f"{self.name}-{name}.{kind}"

    def _build(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        issuer: x509.Name,
        others: Sequence[x509.GeneralName],
        *,
        is_authority: bool,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not self.is_plain:
            # Python 3.13 verifies strictly, and asks for these.
            owner, signer = key.public_key(), self.key.public_key()
            builder = (
                builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(owner), critical=False)
                .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
                .add_extension(_usage(is_authority=is_authority), critical=True)
            )
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
