"""Steps on Secrets: credentials, the authority of a super-cluster, and brokers' certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from supercluster.api.common import Resource
from supercluster.api.super_cluster import EXCHANGE_AUTHORITY
from supercluster.reconcilers.execute import certificates
from supercluster.reconcilers.execute.checks import is_ours
from supercluster.reconcilers.execute.credentials import completed
from supercluster.reconcilers.execute.tools import CONFLICT, StepHandlers, StepRefusedError, Tools, foreign
from supercluster.reconcilers.observe.certificates import ISSUER_CERTIFICATE, authority_view, signers
from supercluster.reconcilers.observe.views import credentials_view
from supercluster.reconcilers.planners import naming
from supercluster.reconcilers.planners.plan import (
    ExchangeAuthority,
    IssueCertificate,
    MakeAuthority,
    MakeCredentials,
    Manifest,
)
from supercluster.reconcilers.planners.super_cluster.credentials import AUTHORITIES, MIGRATION
from supercluster.reconcilers.ports import BrokerTarget, Json, KubeError


async def _make_credentials(
    tools: Tools, resource: Resource, step: MakeCredentials, _: BrokerTarget | str
) -> None:
    metadata = step.manifest["metadata"]
    name = metadata["name"]
    there = await tools.kube.get("v1", "Secret", metadata["namespace"], name)
    if there is None:
        data = completed({}, step.missing, step.application_user, tools.password)
        data |= _authorities_of_nobody(tools, step.missing)
        await put_secret(tools, step.manifest, None, data)
        return
    found = credentials_view(there)
    assert found is not None
    if not is_ours(there, step.manifest) and resource.metadata.uid not in found.marks.owners:
        raise foreign(step.manifest)
    if found.broken:
        raise StepRefusedError(f"Secret {name}: {found.broken}; nothing of it is changed")
    missing = found.missing(
        step.application_user,
        takes_migrations=MIGRATION in step.missing,
        has_tls=AUTHORITIES in step.missing,
    )
    data = completed(there, missing, step.application_user, tools.password) if missing else {}
    data |= _authorities_of_nobody(tools, missing)
    await put_secret(tools, step.manifest, there, data)


def _authorities_of_nobody(tools: Tools, missing: Sequence[str]) -> dict[str, str]:
    """The file that a Migration adds authorities to. Brokers have it from the start, so that no Migration restarts them; the key of
    its first authority is kept nowhere."""
    if AUTHORITIES not in missing:
        return {}
    nobody = certificates.authority("nobody", tools.now())
    return {naming.MIGRATION_AUTHORITIES: nobody[ISSUER_CERTIFICATE]}


async def _make_authority(
    tools: Tools, resource: Resource, step: MakeAuthority, _: BrokerTarget | str
) -> None:
    there = await own_secret(tools, resource, step.manifest)
    found = authority_view(there)
    data = {}
    if found is not None and found.broken:
        raise StepRefusedError(f"Secret {_name(step.manifest)}: {found.broken}; nothing of it is changed")
    if found is None or not found.issuer:
        signed = await _signers(tools, step)
        make = partial(certificates.successor_of, signed) if signed else certificates.authority
        data = make(_name(step.manifest), tools.now())
    await put_secret(tools, step.manifest, there, data)


async def _signers(tools: Tools, step: MakeAuthority) -> tuple[bytes, ...]:
    """Authorities that signed what brokers show; each once."""
    found: dict[bytes, None] = {}
    for name in step.signed:
        secret = await tools.kube.get("v1", "Secret", step.manifest["metadata"]["namespace"], name)
        found |= dict.fromkeys(signers(secret or {}))
    return tuple(found)


async def _exchange_authority(
    tools: Tools, resource: Resource, step: ExchangeAuthority, target: BrokerTarget | str
) -> None:
    there = await own_secret(tools, resource, step.manifest)
    found = authority_view(there)
    is_seen = found is not None and (found.issuer, found.trusted) == (step.issuer, step.trusted)
    if there is None or found is None or found.broken or not is_seen:
        raise KubeError(
            CONFLICT, "Stale", f"Secret {_name(step.manifest)} was changed since the plan was made"
        )
    await tools.destroyer.judge_exchange(resource, step, there, target)
    data = certificates.exchanged(there, step, tools.now())
    manifest = step.manifest
    if step.asked:
        annotations = {**manifest["metadata"]["annotations"], EXCHANGE_AUTHORITY: step.asked}
        manifest = {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}
    await put_secret(tools, manifest, there, data)


async def _issue_certificate(
    tools: Tools, resource: Resource, step: IssueCertificate, _: BrokerTarget | str
) -> None:
    namespace = step.manifest["metadata"]["namespace"]
    authority = await tools.kube.get("v1", "Secret", namespace, step.authority)
    found = authority_view(authority)
    if authority is None or found is None or found.broken or not found.issuer:
        raise KubeError(CONFLICT, "Stale", f"Secret {step.authority} has no authority any more")
    if step.is_new and found.signer != step.signer:
        raise KubeError(
            CONFLICT,
            "Stale",
            f"Secret {step.authority} has another authority than when the plan was made",
        )
    there = await own_secret(tools, resource, step.manifest)
    data = certificates.certificate(authority, step, tools.now())
    await put_secret(tools, step.manifest, there, data)


async def own_secret(tools: Tools, resource: Resource, manifest: Manifest) -> Json | None:
    """The Secret as it is now; None: there is none. Refused when it is somebody else's."""
    metadata = manifest["metadata"]
    there = await tools.kube.get("v1", "Secret", metadata["namespace"], metadata["name"])
    if there is not None and not is_ours(there, manifest):
        raise foreign(manifest)
    return there


async def put_secret(
    tools: Tools, manifest: Manifest, there: Json | None, data: Mapping[str, str | None]
) -> None:
    """Make it, or change what was read and nothing newer."""
    if there is None:
        tools.cache.put(await tools.kube.create({**manifest, "data": dict(data)}))
        return
    metadata = manifest["metadata"]
    patch: Json = {
        "metadata": {
            # The version makes sure that nobody's new password is overwritten by one that we made from an older look.
            "resourceVersion": there["metadata"]["resourceVersion"],
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "ownerReferences": metadata.get("ownerReferences"),
        }
    }
    if data:
        patch["data"] = dict(data)
    tools.cache.put(
        await tools.kube.merge_patch("v1", "Secret", metadata["namespace"], metadata["name"], patch)
    )


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


SECRET_STEPS: StepHandlers = {
    MakeCredentials: _make_credentials,
    MakeAuthority: _make_authority,
    ExchangeAuthority: _exchange_authority,
    IssueCertificate: _issue_certificate,
}
