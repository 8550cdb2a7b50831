"""What Secrets with certificates have, as plans are made from it. Keys are looked at here, and never handed on."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from supercluster.reconcilers.planners.certificates import AuthorityView, CertificateView, MarksView
from supercluster.reconcilers.planners.plan import IDENTITY_ANNOTATION
from supercluster.reconcilers.ports import mapping

ISSUER_CERTIFICATE, ISSUER_KEY = "issuer.crt", "issuer.key"
# Every look at a super-cluster shows all of its Secrets, and they change once in months.
REMEMBERED_MAX = 512


def content(secret: Mapping[str, Any], file: str) -> bytes:
    """Of a file of a Secret; empty: it is not there.

    Raises:
        ValueError: it is no Base64.
    """
    return b64decode(str(mapping(secret.get("data")).get(file, "")), validate=True)


def authority_view(secret: Mapping[str, Any] | None) -> AuthorityView | None:
    if secret is None:
        return None
    marks = _marks(secret)
    files = tuple(str(mapping(secret.get("data")).get(each, "")) for each in (ISSUER_CERTIFICATE, ISSUER_KEY))
    if not any(files):
        return AuthorityView(marks=marks)
    try:
        found = _pair(*files)
    except ValueError:
        return AuthorityView(broken=f"{ISSUER_CERTIFICATE} and {ISSUER_KEY} are no authority", marks=marks)
    return AuthorityView(_fingerprint(found), found.not_valid_after_utc, marks=marks)


def certificate_view(secret: Mapping[str, Any] | None) -> CertificateView | None:
    if secret is None:
        return None
    marks = _marks(secret)
    data = mapping(secret.get("data"))
    try:
        found = _pair(str(data.get("tls.crt", "")), str(data.get("tls.key", "")))
        trusted = _authorities(str(data.get("ca.crt", "")))
    except ValueError:
        return CertificateView(marks=marks)
    return CertificateView(
        _fingerprint(found),
        next((_fingerprint(each) for each in trusted if _is_signed_by(found, each)), ""),
        frozenset(map(_fingerprint, trusted)),
        _names(found),
        found.not_valid_after_utc,
        marks,
    )


def _marks(secret: Mapping[str, Any]) -> MarksView:
    metadata = mapping(secret.get("metadata"))
    return MarksView(
        labels={str(k): str(v) for k, v in mapping(metadata.get("labels")).items()},
        identity=str(mapping(metadata.get("annotations")).get(IDENTITY_ANNOTATION, "")),
        has_owner=bool(metadata.get("ownerReferences")),
        uid=str(metadata.get("uid", "")),
        terminating=metadata.get("deletionTimestamp") is not None,
    )


@lru_cache(REMEMBERED_MAX)
def _pair(certificate: str, key: str) -> x509.Certificate:
    """A certificate whose key is beside it."""
    found = x509.load_pem_x509_certificate(b64decode(certificate, validate=True))
    private = load_pem_private_key(b64decode(key, validate=True), password=None)
    public = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*public) != found.public_key().public_bytes(*public):
        raise ValueError("the key is that of another certificate")
    return found


@lru_cache(REMEMBERED_MAX)
def _authorities(bundle: str) -> tuple[x509.Certificate, ...]:
    return tuple(x509.load_pem_x509_certificates(b64decode(bundle, validate=True)))


@lru_cache(REMEMBERED_MAX)
def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _fingerprint(certificate: x509.Certificate) -> str:
    """As brokers tell what they have loaded."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset(names.value.get_values_for_type(x509.DNSName))
