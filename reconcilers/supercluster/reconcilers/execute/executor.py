"""Carries out a step against Kubernetes or the brokers, and shows the cache what came of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from supercluster.api import API_VERSION
from supercluster.api.common import Resource
from supercluster.api.super_cluster import EXCHANGE_AUTHORITY
from supercluster.reconcilers.execute import certificates
from supercluster.reconcilers.execute.credentials import completed
from supercluster.reconcilers.execute.destructive import MAY_SHRINK, Destroyer, is_drop, made_by_us
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.observe.certificates import authority_view, signers
from supercluster.reconcilers.observe.targets import each_broker
from supercluster.reconcilers.observe.views import credentials_view
from supercluster.reconcilers.planners.plan import (
    IDENTITY_ANNOTATION,
    MANAGED_BY,
    Apply,
    CancelMove,
    CordonBroker,
    CreateObject,
    CreateStream,
    DeleteObject,
    DeleteStream,
    ExchangeAuthority,
    ExpandClaim,
    ForceMapRecovery,
    ForceRecovery,
    HandOverLeaderships,
    IssueCertificate,
    LeaveBrokers,
    MakeAuthority,
    MakeCredentials,
    Manifest,
    MarkClaim,
    SetAccount,
    SetFinalizers,
    StartMove,
    StayBrokers,
    Step,
    UpdateStream,
)
from supercluster.reconcilers.planners.stream.config import changed_fields, in_its_place, mark_of
from supercluster.reconcilers.planners.stream.subjects import first_overlap
from supercluster.reconcilers.ports import (
    Brokers,
    BrokersRefusedError,
    BrokersUnreachableError,
    BrokerTarget,
    Json,
    Kube,
    KubeError,
    mapping,
)

SUBJECTS_OVERLAP = 10065
_CONFLICT = 409


class StepRefusedError(Exception):
    """The step can't succeed as things are; the words are for the resource's condition."""


@dataclass(slots=True)
class Executor:
    kube: Kube
    brokers: Brokers
    cache: ObjectCache
    password: Callable[[], str]
    now: Callable[[], datetime] = field(kw_only=True)
    """By which certificates are made."""
    time_left_s: Callable[[], float] = lambda: math.inf
    """How long this process may still change anything, brokers included (the Lease)."""

    @property
    def destroyer(self) -> Destroyer:
        return Destroyer(self.kube, self.brokers, self.cache)

    async def run(self, resource: Resource, step: Step, target: BrokerTarget | str) -> None:
        """Carry out one step for a resource, within the time that is left.

        Raises:
            KubeError, BrokersUnreachableError, BrokersRefusedError: it was not carried out.
            StepRefusedError: it was not, and trying again is no use until something changes.
            HeldError: it was not, since it would destroy something that may be needed.
        """
        left_s = self.time_left_s()
        if left_s <= 0:
            raise BrokersUnreachableError(f"{step}: not begun, since the lease was not renewed in time")
        try:
            async with asyncio.timeout(left_s if left_s < math.inf else None) as limit:
                await self._run(resource, step, target)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise BrokersUnreachableError(
                f"{step}: cut off, since the lease was not renewed in time"
            ) from error

    async def _run(self, resource: Resource, step: Step, target: BrokerTarget | str) -> None:
        match step:
            case Apply():
                await self._apply(resource, step, target)
            case DeleteObject():
                await self.destroyer.delete(resource, step, target)
            case ExpandClaim():
                patch = {"spec": {"resources": {"requests": {"storage": step.size}}}}
                kind = "PersistentVolumeClaim"
                self.cache.put(await self.kube.merge_patch("v1", kind, step.namespace, step.name, patch))
            case MarkClaim():
                await self._mark_claim(step)
            case MakeCredentials():
                await self._make_credentials(resource, step)
            case MakeAuthority():
                await self._make_authority(resource, step)
            case ExchangeAuthority():
                await self._exchange_authority(resource, step, target)
            case IssueCertificate():
                await self._issue_certificate(resource, step)
            case SetFinalizers():
                if is_drop(resource, step):
                    await self.destroyer.drop_finalizer(resource, step, target)
                await self._set_finalizers(resource, step)
            case CreateObject():
                await self.destroyer.judge_creation(resource, step, target)
                await self._create(step)
            case CreateStream() | UpdateStream() | DeleteStream():
                if isinstance(target, str):
                    raise BrokersUnreachableError(target)
                await self._stream_step(resource, step, target)
            case StartMove() | CancelMove():
                if isinstance(target, str):
                    raise BrokersUnreachableError(target)
                await self._move_step(step, target)
            case ForceRecovery():
                if isinstance(target, str):
                    raise BrokersUnreachableError(target)
                await self.brokers.recover_stream(
                    target, step.stream, step.node, step.accepted_sequence, step.id
                )
            case ForceMapRecovery():
                await self._recover_map(resource, step)
            case SetAccount():
                if isinstance(target, str):
                    raise BrokersUnreachableError(target)
                await self.brokers.set_account(target, step.name, step.record)
            case HandOverLeaderships():
                if isinstance(target, str):
                    raise BrokersUnreachableError(target)
                await self.brokers.hand_over(target, step.broker, step.avoid, step.hold_ms)
            case LeaveBrokers():
                if isinstance(target, str):
                    raise BrokersUnreachableError(target)
                await self.destroyer.leave(resource, step, target)
            case CordonBroker():
                if isinstance(target, str):
                    raise BrokersUnreachableError(target)
                record = {"reason": step.reason, "declaredBy": step.declared_by} if step.reason else None
                await self.brokers.cordon_broker(target, step.broker, record)
            case StayBrokers():
                if isinstance(target, str):
                    raise BrokersUnreachableError(target)
                for broker in step.brokers:
                    await self.brokers.stay_broker(target, broker)

    async def _recover_map(self, resource: Resource, step: ForceMapRecovery) -> None:
        metadata = resource.metadata
        targets = each_broker(self.cache, metadata.namespace, metadata.name)
        if isinstance(targets, str):
            raise BrokersUnreachableError(targets)
        if step.node not in targets:
            raise BrokersUnreachableError(f"broker {step.node} has no pod with an address")
        body: Json = {"node": step.node, "acceptLastIndex": step.accepted_index, "id": step.id}
        if step.accepts_doubt:
            body["acceptDoubtful"] = True
        await self.brokers.recover_map(targets[step.node], body)

    async def _apply(self, resource: Resource, step: Apply, target: BrokerTarget | str) -> None:
        manifest, metadata = step.manifest, step.manifest["metadata"]
        kind, namespace, name = manifest["kind"], metadata["namespace"], metadata["name"]
        there = None
        if kind in MAY_SHRINK or self.cache.get(kind, namespace, name) is None:
            there = await self.kube.get(manifest["apiVersion"], kind, namespace, name)
        if there is not None and not made_by_us(there):
            raise StepRefusedError(_foreign(manifest))
        if there is not None:
            manifest = await self.destroyer.judge_apply(resource, manifest, there, target)
        self.cache.put(await self._applied(manifest))

    async def _create(self, step: CreateObject) -> None:
        try:
            self.cache.wrote(await self.kube.create(step.manifest))
        except KubeError as error:
            metadata, kind = step.manifest["metadata"], step.manifest["kind"]
            if error.status != _CONFLICT:
                raise
            there = await self.kube.get(
                step.manifest["apiVersion"], kind, metadata["namespace"], metadata["name"]
            )
            if there is not None and not _is_what_we_would_make(step.manifest, there):
                raise StepRefusedError(_foreign(step.manifest)) from error
            if there is not None:
                self.cache.wrote(there)
            raise

    async def _mark_claim(self, step: MarkClaim) -> None:
        kind = "PersistentVolumeClaim"
        there = await self.kube.get("v1", kind, step.namespace, step.name)
        if there is None or mapping(there.get("metadata")).get("uid") != step.uid:
            return
        annotations = mapping(there["metadata"].get("annotations"))
        if annotations.get(IDENTITY_ANNOTATION):
            self.cache.put(there)
            return
        version = there["metadata"]["resourceVersion"]
        patch = {
            "metadata": {
                "resourceVersion": version,
                "annotations": {IDENTITY_ANNOTATION: step.identity},
            }
        }
        self.cache.put(await self.kube.merge_patch("v1", kind, step.namespace, step.name, patch))

    async def _applied(self, manifest: Manifest) -> Json:
        try:
            return await self.kube.apply(manifest)
        except KubeError as error:
            metadata = manifest["metadata"]
            known = self.cache.get(manifest["kind"], metadata["namespace"], metadata["name"])
            if not error.is_invalid or known is None or "spec" not in manifest:
                raise
        # Lists are merged by keys such as a port's number. Where somebody changed such a key, applying leaves their member
        # beside ours, and the two may contradict each other; a merge patch puts the whole list back.
        patch = {"metadata": {"annotations": dict(metadata.get("annotations", {}))}, "spec": manifest["spec"]}
        return await self.kube.merge_patch(
            manifest["apiVersion"], manifest["kind"], metadata["namespace"], metadata["name"], patch
        )

    async def _make_credentials(self, resource: Resource, step: MakeCredentials) -> None:
        metadata = step.manifest["metadata"]
        name = metadata["name"]
        there = await self.kube.get("v1", "Secret", metadata["namespace"], name)
        if there is None:
            data = completed({}, step.missing, step.application_user, self.password)
            self.cache.put(await self.kube.create({**step.manifest, "data": data}))
            return
        found = credentials_view(there)
        assert found is not None
        annotations = mapping(mapping(there.get("metadata")).get("annotations"))
        is_ours = (
            annotations.get(IDENTITY_ANNOTATION) == metadata["annotations"][IDENTITY_ANNOTATION]
            or made_by_us(there)
            or resource.metadata.uid in {mapping(each).get("uid") for each in found.owners}
        )
        if not is_ours:
            raise StepRefusedError(_foreign(step.manifest))
        if found.broken:
            raise StepRefusedError(f"Secret {name}: {found.broken}; nothing of it is changed")
        missing = found.missing(step.application_user)
        patch: Json = {
            "metadata": {
                # The version makes sure that nobody's new password is overwritten by one that we made from an older look.
                "resourceVersion": there["metadata"]["resourceVersion"],
                "labels": metadata["labels"],
                "annotations": metadata["annotations"],
                "ownerReferences": None,
            }
        }
        if missing:
            patch["data"] = completed(there, missing, step.application_user, self.password)
        self.cache.put(await self.kube.merge_patch("v1", "Secret", metadata["namespace"], name, patch))

    async def _make_authority(self, resource: Resource, step: MakeAuthority) -> None:
        there = await self._own_secret(resource, step.manifest)
        found = authority_view(there)
        data = {}
        if found is not None and found.broken:
            raise StepRefusedError(f"Secret {_name(step.manifest)}: {found.broken}; nothing of it is changed")
        if found is None or not found.issuer:
            signed = await self._signers(step)
            make = partial(certificates.successor_of, signed) if signed else certificates.authority
            data = make(_name(step.manifest), self.now())
        await self._put_secret(step.manifest, there, data)

    async def _signers(self, step: MakeAuthority) -> tuple[bytes, ...]:
        """Authorities that signed what brokers show; each once."""
        found: dict[bytes, None] = {}
        for name in step.signed:
            secret = await self.kube.get("v1", "Secret", step.manifest["metadata"]["namespace"], name)
            found |= dict.fromkeys(signers(secret or {}))
        return tuple(found)

    async def _exchange_authority(
        self, resource: Resource, step: ExchangeAuthority, target: BrokerTarget | str
    ) -> None:
        there = await self._own_secret(resource, step.manifest)
        found = authority_view(there)
        is_seen = found is not None and (found.issuer, found.trusted) == (step.issuer, step.trusted)
        if there is None or found is None or found.broken or not is_seen:
            raise KubeError(
                _CONFLICT, "Stale", f"Secret {_name(step.manifest)} was changed since the plan was made"
            )
        await self.destroyer.judge_exchange(resource, step, there, target)
        data = certificates.exchanged(there, step, self.now())
        manifest = step.manifest
        if step.asked:
            annotations = {**manifest["metadata"]["annotations"], EXCHANGE_AUTHORITY: step.asked}
            manifest = {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}
        await self._put_secret(manifest, there, data)

    async def _issue_certificate(self, resource: Resource, step: IssueCertificate) -> None:
        namespace = step.manifest["metadata"]["namespace"]
        authority = await self.kube.get("v1", "Secret", namespace, step.authority)
        found = authority_view(authority)
        if authority is None or found is None or found.broken or not found.issuer:
            raise KubeError(_CONFLICT, "Stale", f"Secret {step.authority} has no authority any more")
        if step.is_new and found.signer != step.signer:
            raise KubeError(
                _CONFLICT,
                "Stale",
                f"Secret {step.authority} has another authority than when the plan was made",
            )
        there = await self._own_secret(resource, step.manifest)
        data = certificates.certificate(authority, step, self.now())
        await self._put_secret(step.manifest, there, data)

    async def _own_secret(self, resource: Resource, manifest: Manifest) -> Json | None:
        """The Secret as it is now; None: there is none. Refused when it is somebody else's."""
        metadata = manifest["metadata"]
        there = await self.kube.get("v1", "Secret", metadata["namespace"], metadata["name"])
        if there is None or made_by_us(there):
            return there
        annotations = mapping(mapping(there.get("metadata")).get("annotations"))
        if annotations.get(IDENTITY_ANNOTATION) != metadata["annotations"][IDENTITY_ANNOTATION]:
            raise StepRefusedError(_foreign(manifest))
        return there

    async def _put_secret(
        self, manifest: Manifest, there: Json | None, data: Mapping[str, str | None]
    ) -> None:
        """Make it, or change what was read and nothing newer."""
        if there is None:
            self.cache.put(await self.kube.create({**manifest, "data": dict(data)}))
            return
        metadata = manifest["metadata"]
        patch: Json = {
            "metadata": {
                "resourceVersion": there["metadata"]["resourceVersion"],
                "labels": metadata["labels"],
                "annotations": metadata["annotations"],
                "ownerReferences": metadata.get("ownerReferences"),
            }
        }
        if data:
            patch["data"] = dict(data)
        self.cache.put(
            await self.kube.merge_patch("v1", "Secret", metadata["namespace"], metadata["name"], patch)
        )

    async def _set_finalizers(self, resource: Resource, step: SetFinalizers) -> None:
        metadata = resource.metadata
        patch = {"metadata": {"finalizers": list(step.finalizers), "resourceVersion": step.resource_version}}
        try:
            body = await self.kube.merge_patch(
                API_VERSION, type(resource).__name__, metadata.namespace, metadata.name, patch
            )
        except KubeError as error:
            if error.status == 404 and not step.finalizers:
                return
            raise
        if metadata.deletion_timestamp is not None and not step.finalizers:
            known = self.cache.get(type(resource).__name__, metadata.namespace, metadata.name)
            if known is not None:
                self.cache.remove(known)
            return
        self.cache.wrote(body)

    async def _stream_step(
        self, resource: Resource, step: CreateStream | UpdateStream | DeleteStream, target: BrokerTarget
    ) -> None:
        if isinstance(step, DeleteStream):
            await self.destroyer.delete_stream(resource, step, target)
            return
        if isinstance(step, CreateStream):
            await self._judged(self.brokers.create_stream(target, step.config), step, target)
            return
        # A move or another count of replicas may have begun or ended since the look; an update with what was there before
        # would be a request to take it back.
        now = await self.brokers.stream_info(target, step.config["name"])
        config = in_its_place(step.config, mapping((now or {}).get("config")))
        answer = await self._judged(self.brokers.update_stream(target, config), step, target)
        left = [
            field for field in changed_fields(config, mapping(answer.get("config"))) if field in step.fields
        ]
        if left:
            raise StepRefusedError(
                f"the brokers took an update of {', '.join(step.fields)} and did not change: {', '.join(left)}"
            )

    async def _move_step(self, step: StartMove | CancelMove, target: BrokerTarget) -> None:
        if isinstance(step, CancelMove):
            await self.brokers.cancel_move(target, step.stream, step.id)
        else:
            await self.brokers.start_move(
                target, step.stream, step.id, step.goal, step.bytes_per_s, step.nodes
            )

    async def _judged(
        self, answer: Awaitable[Json], step: CreateStream | UpdateStream, target: BrokerTarget
    ) -> Json:
        """The answer; a refusal for overlapping subjects with the names of both sides, which NATS's error does not have."""
        try:
            return await answer
        except BrokersRefusedError as error:
            if error.err_code != SUBJECTS_OVERLAP:
                raise
            name, subjects = step.config["name"], step.config.get("subjects") or ()
            for info in await self.brokers.stream_infos(target):
                other = mapping(info.get("config"))
                pair = first_overlap(subjects, other.get("subjects") or ())
                if other.get("name") != name and pair is not None:
                    mark = mark_of(other)
                    whose = f"declared by Stream {mark}" if mark else "which no resource declares"
                    raise StepRefusedError(
                        f"spec.subjects has {pair[0]}, which overlaps with {pair[1]} of stream {other.get('name')}, {whose}; "
                        "a subject belongs to one stream: narrow one of the two"
                    ) from error
            raise


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def _foreign(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return (
        f"{manifest['kind']} {metadata['name']} exists in namespace {metadata['namespace']} and was not made by {MANAGED_BY} for "
        "this resource; rename one of the two"
    )


def _is_what_we_would_make(manifest: Manifest, there: Mapping[str, Any]) -> bool:
    """Another look, or an earlier process, has made it: it is ours, and for the same owner."""
    wanted, found = (
        {str(each["uid"]) for each in body["metadata"].get("ownerReferences") or ()}
        for body in (manifest, there)
    )
    return made_by_us(there) and wanted <= found
