"""Certificates of a state directory, made once each: of servers on loopback, and of a client.

kubectl leaves the token of a kubeconfig out when the server is plain HTTP, so the API has to speak TLS although it
only listens on loopback. Each certificate is its own authority; the API server's goes into the kubeconfig.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from supercluster.localplane.files import write_private

VALID_DAYS = 3650
NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The paths of a certificate and its key, PEM."""

    certificate: Path
    key: Path


def ensure(state_dir: Path, now: dt.datetime, name: str = "apiserver") -> Certificate:
    """The certificate of that name, for a server on 127.0.0.1 or a client, made if it isn't there."""
    found = Certificate(state_dir / f"{name}.crt", state_dir / f"{name}.key")
    if not (found.certificate.exists() and found.key.exists()):
        key, certificate = _make(now, name)
        write_private(found.key, key)
        write_private(found.certificate, certificate)
    return found


def _make(now: dt.datetime, subject: str) -> tuple[bytes, bytes]:
    # Ten megabytes of library that only the first start over a directory needs.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"supercluster local control plane: {subject}")]
    )
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    subjects = [*addresses, *(x509.DNSName(item) for item in NAMES)]
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A clock that is set back a little must not make the certificate invalid.
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)
