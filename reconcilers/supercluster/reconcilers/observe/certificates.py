"""The contents of certificate Secrets, as far as plans need them. Keys are checked here, and never passed on."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from supercluster.api import Cluster
from supercluster.api.super_cluster import EXCHANGE_AUTHORITY
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.targets import pods_of
from supercluster.reconcilers.observe.views import marks_view
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.cluster.certificates import AuthorityView, CertificateView, LoadedView
from supercluster.reconcilers.planners.plan import LABEL_CLUSTER
from supercluster.reconcilers.ports import Brokers, BrokersError, BrokerTarget, Kube, mapping

ISSUER_CERTIFICATE, ISSUER_KEY = "issuer.crt", "issuer.key"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"
FORMER_CERTIFICATES = "former.crt"
AUTHORITY_FILES = (ISSUER_CERTIFICATE, ISSUER_KEY, NEXT_CERTIFICATE, NEXT_KEY, FORMER_CERTIFICATES)
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
    marks, data = marks_view(secret), mapping(secret.get("data"))
    files = {name: str(data.get(name) or "") for name in AUTHORITY_FILES}
    if not any(files.values()):
        return AuthorityView(marks=marks)
    has_next, has_key = bool(files[NEXT_CERTIFICATE]), bool(files[ISSUER_KEY])
    try:
        if has_key or not has_next:
            issuer = _pair(files[ISSUER_CERTIFICATE], files[ISSUER_KEY])
        else:
            (issuer,) = _authorities(files[ISSUER_CERTIFICATE])
    except ValueError:
        return AuthorityView(broken=f"{ISSUER_CERTIFICATE} and {ISSUER_KEY} are no authority", marks=marks)
    try:
        following = _pair(files[NEXT_CERTIFICATE], files[NEXT_KEY]) if has_next else None
        former = _authorities(files[FORMER_CERTIFICATES]) if files[FORMER_CERTIFICATES] else ()
    except ValueError:
        broken = f"{NEXT_CERTIFICATE} and {NEXT_KEY}, or {FORMER_CERTIFICATES}, are no authorities"
        return AuthorityView(broken=broken, marks=marks)
    return AuthorityView(
        _fingerprint(issuer),
        issuer.not_valid_after_utc,
        has_key,
        _fingerprint(following) if following is not None else "",
        frozenset(map(_fingerprint, former)),
        str(mapping(mapping(secret.get("metadata")).get("annotations")).get(EXCHANGE_AUTHORITY, "")),
        next_not_after=following.not_valid_after_utc if following is not None else None,
        marks=marks,
    )


def certificate_view(secret: Mapping[str, Any] | None) -> CertificateView | None:
    if secret is None:
        return None
    marks = marks_view(secret)
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


def signers(secret: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The authorities that the Secret of a cluster has beside its certificate, in PEM; first the one that signed it. A broker may
    still show what one of the others signed."""
    data = mapping(secret.get("data"))
    try:
        found = _pair(str(data.get("tls.crt", "")), str(data.get("tls.key", "")))
        trusted = _authorities(str(data.get("ca.crt", "")))
    except ValueError:
        return ()
    ordered = sorted(trusted, key=lambda each: not _is_signed_by(found, each))
    return tuple(each.public_bytes(Encoding.PEM) for each in ordered)


def authorities_beside(secret: Mapping[str, Any]) -> dict[str, str]:
    """The authorities in the Secret of a cluster as PEM, by fingerprint; empty: it has none that can be used."""
    try:
        found = _authorities(str(mapping(secret.get("data")).get("ca.crt", "")))
    except ValueError:
        return {}
    return {_fingerprint(each): each.public_bytes(Encoding.PEM).decode() for each in found}


async def brokers_of(kube: Kube, cluster: Cluster) -> frozenset[str]:
    """Brokers that there are, or are to be, by the API server's own word."""
    return await brokers_named(kube, cluster.metadata.namespace, cluster.metadata.name)


async def brokers_named(kube: Kube, namespace: str, name: str) -> frozenset[str]:
    """The same, of the Cluster of that name."""
    running = await kube.get("apps/v1", "StatefulSet", namespace, naming.stateful_set(name))
    listed = await kube.list("v1", "Pod", namespace)
    labels = [mapping(mapping(body).get("metadata")) for body in listed.get("items") or ()]
    pods = {
        str(each.get("name")) for each in labels if mapping(each.get("labels")).get(LABEL_CLUSTER) == name
    }
    return frozenset(pods | set(_replicas(name, running)))


def known_brokers_of(cache: ObjectCache, cluster: Cluster) -> frozenset[str]:
    """The same by the cache."""
    namespace, name = cluster.metadata.namespace, cluster.metadata.name
    running = cache.get("StatefulSet", namespace, naming.stateful_set(name))
    return frozenset({pod.name for pod in pods_of(cache, namespace, name)} | set(_replicas(name, running)))


def _replicas(cluster: str, stateful_set: Mapping[str, Any] | None) -> tuple[str, ...]:
    return naming.brokers(cluster, int(mapping((stateful_set or {}).get("spec")).get("replicas") or 0))


async def look_at_loaded(
    brokers: Brokers, target: BrokerTarget | str
) -> dict[str, tuple[LoadedView, ...]] | None:
    """What brokers that are ready have loaded; None: one of them does not answer."""
    if isinstance(target, str):
        return None
    try:
        states = await brokers.restart_states(target)
    except BrokersError:
        return None
    found = {}
    for name, state in states.items():
        told = mapping(state.get("tls"))
        found[name] = tuple(
            LoadedView(str(each.get("certificate", "")), frozenset(map(str, each.get("authorities") or ())))
            for each in map(mapping, (told.get("clusterTls"), told.get("gatewayTls")))
        )
    return found


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
