"""Creates authorities and certificates. Private keys are P-256, and are stored only in the Secrets that they
are made for.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from supercluster.reconcilers.observe.certificates import (
    FORMER_CERTIFICATES,
    ISSUER_CERTIFICATE,
    ISSUER_KEY,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    content,
)
from supercluster.reconcilers.planners.cluster.certificates import AUTHORITY_LIFETIME
from supercluster.reconcilers.planners.plan import ExchangeAuthority, IssueCertificate, Stage
from supercluster.reconcilers.ports import mapping

# A clock that is ahead must not make what no broker takes yet.
NOT_BEFORE = datetime(2025, 1, 1, tzinfo=UTC)
COMMON_NAME_CHARACTERS_MAX = 64


def authority(name: str, now: datetime) -> dict[str, str]:
    """The content of an authority's Secret."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    certificate = _signed(
        _builder(subject, key, subject, key, now + AUTHORITY_LIFETIME, is_authority=True), key
    )
    return {ISSUER_CERTIFICATE: _encoded(certificate), ISSUER_KEY: _encoded(_private(key))}


def successor_of(signers: Sequence[bytes], name: str, now: datetime) -> dict[str, str]:
    """The content of an authority's Secret that was lost: those that signed what brokers show are trusted beside a new one."""
    first, *others = signers
    made = authority(name, now)
    found = {
        ISSUER_CERTIFICATE: _encoded(first),
        NEXT_CERTIFICATE: made[ISSUER_CERTIFICATE],
        NEXT_KEY: made[ISSUER_KEY],
    }
    return {**found, FORMER_CERTIFICATES: _encoded(b"".join(others))} if others else found


def exchanged(secret: Mapping[str, Any], step: ExchangeAuthority, now: datetime) -> dict[str, str | None]:
    """What changes in an authority's Secret; None: the file goes."""
    data = mapping(secret.get("data"))
    match step.stage:
        case Stage.INTRODUCE:
            made = authority(step.manifest["metadata"]["name"], now)
            return {NEXT_CERTIFICATE: made[ISSUER_CERTIFICATE], NEXT_KEY: made[ISSUER_KEY]}
        case Stage.PROMOTE:
            former = content(secret, FORMER_CERTIFICATES) + content(secret, ISSUER_CERTIFICATE)
            return {
                ISSUER_CERTIFICATE: str(data[NEXT_CERTIFICATE]),
                ISSUER_KEY: str(data[NEXT_KEY]),
                NEXT_CERTIFICATE: None,
                NEXT_KEY: None,
                FORMER_CERTIFICATES: _encoded(former),
            }
        case Stage.DROP:
            return {FORMER_CERTIFICATES: None}


def certificate(secret: Mapping[str, Any], step: IssueCertificate, now: datetime) -> dict[str, str]:
    """The content of the Secret of a cluster, by the authority's Secret; whom to trust alone where no certificate is to be issued.

    Raises:
        ValueError: the authority can't be used.
    """
    certificates = (ISSUER_CERTIFICATE, NEXT_CERTIFICATE, FORMER_CERTIFICATES)
    trusted = {"ca.crt": _encoded(b"".join(content(secret, file) for file in certificates))}
    if not step.is_new:
        return trusted
    signs = (ISSUER_CERTIFICATE, ISSUER_KEY) if content(secret, ISSUER_KEY) else (NEXT_CERTIFICATE, NEXT_KEY)
    issuer_pem, key_pem = (content(secret, file) for file in signs)
    issuer = x509.load_pem_x509_certificate(issuer_pem)
    issuer_key = load_pem_private_key(key_pem, password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is of another kind than those that are made here")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(step.manifest["metadata"]["name"])
    not_after = min(now + step.lifetime, issuer.not_valid_after_utc)
    builder = _builder(
        subject, key, issuer.subject, issuer_key, not_after, is_authority=False, names=step.names
    )
    return {
        "tls.crt": _encoded(_signed(builder, issuer_key)),
        "tls.key": _encoded(_private(key)),
        **trusted,
    }


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:COMMON_NAME_CHARACTERS_MAX])])


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    not_after: datetime,
    *,
    is_authority: bool,
    names: Sequence[str] = (),
) -> x509.CertificateBuilder:
    # Python 3.13 verifies strictly, and asks for identifiers of both keys and for the usage.
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True)
        .add_extension(_usage(is_authority=is_authority), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), False)
    )
    if is_authority:
        return builder
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return builder.add_extension(x509.ExtendedKeyUsage(both), False).add_extension(
        x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _encoded(pem: bytes) -> str:
    return b64encode(pem).decode()
