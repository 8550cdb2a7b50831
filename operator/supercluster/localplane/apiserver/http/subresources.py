"""The subresources that are not merely a part of their object (scale, eviction, log, token and binding), and
reviews.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from aiohttp import web

from supercluster.localplane.apiserver import errors
from supercluster.localplane.apiserver.auth.authorizer import Authorizer, Request
from supercluster.localplane.apiserver.auth.identities import (
    DEFAULT_EXPIRATION_S,
    ISSUER,
    MAX_EXPIRATION_S,
    MIN_EXPIRATION_S,
    Identities,
    User,
)
from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.http import parameters
from supercluster.localplane.apiserver.http.paths import Target
from supercluster.localplane.apiserver.objects import evictions, logs, scale
from supercluster.localplane.apiserver.objects.objects import Objects
from supercluster.localplane.apiserver.objects.writes import Mutate, Write
from supercluster.localplane.apiserver.storage.store import clone
from supercluster.localplane.json_data import Json
from supercluster.localplane.node.logs import answer, path_of, pod_directory, read
from supercluster.localplane.times import stamp


class Subresources:
    """What POST, GET, PUT and PATCH below an object do."""

    def __init__(
        self, objects: Objects, identities: Identities, authorizer: Authorizer, state_dir: Path
    ) -> None:
        self._objects = objects
        self._identities = identities
        self._authorizer = authorizer
        self._state_dir = state_dir

    # --- scale ---

    def scale(self, target: Target) -> Json:
        found = self._objects.get(target.resource, target.namespace, target.name)
        scale.check(target.resource, found)
        return scale.read(target.resource, found)

    def set_scale(self, target: Target, mutate: Mutate, write: Write) -> Json:
        """Change the number of replicas by changing the Scale."""
        resource = target.resource

        def change(old: Json) -> Json:
            return scale.write(resource, old, mutate(scale.read(resource, old)))

        new = self._objects.patch(resource, target.namespace, target.name, change, write, subresource="scale")
        return scale.read(resource, new)

    # --- pods ---

    def evict(self, request: web.Request, target: Target, body: Any, write: Write) -> Json:
        """Delete a pod if the budgets that select it allow."""
        given = body.get("deleteOptions") if isinstance(body, dict) else None
        options, dry_run = parameters.delete_options(request, given)
        write.dry_run = write.dry_run or dry_run
        pod = self._objects.get(target.resource, target.namespace, target.name)
        evictions.check(self._objects, pod, write)
        if not write.dry_run:
            evictions.mark(self._objects, target.resource, pod, write)
        self._objects.delete(target.resource, target.namespace, target.name, options, write)
        return errors.success(code=201)

    def bind(self, target: Target, body: Any, write: Write) -> Json:
        """Give a pod its node."""
        node = ((body.get("target") if isinstance(body, dict) else None) or {}).get("name")
        if not node:
            raise errors.bad_request("target.name of a Binding names the node; it is missing")

        def change(old: Json) -> Json:
            if old["spec"].get("nodeName") not in (None, "", node):
                name = old["metadata"]["name"]
                raise errors.conflict(
                    "", "pods", name, f"pod {name} is already assigned to {old['spec']['nodeName']}"
                )
            new: Json = clone(old)
            new["spec"]["nodeName"] = node
            return new

        self._objects.patch(target.resource, target.namespace, target.name, change, write)
        return errors.success(code=201)

    async def log(self, request: web.Request, target: Target) -> web.StreamResponse:
        """The log of a container, followed if asked."""
        for name in ("timestamps", "sinceSeconds", "sinceTime"):
            if request.query.get(name, "false") != "false":
                raise errors.bad_request(f"{name} is not supported by the embedded control plane's logs")
        pod = self._objects.get(target.resource, target.namespace, target.name)
        container = logs.choose_container(pod, request.query.get("container", ""))
        folder = pod_directory(self._state_dir, target.namespace, pod["metadata"]["uid"])
        path = path_of(folder, container, previous=parameters.flag(request, "previous"))
        logs.check_started(pod, container, path)
        uid = pod["metadata"]["uid"]

        def ended() -> bool:
            now = self._objects.store.get(target.resource.storage, target.namespace, target.name)
            if now is None or now["metadata"]["uid"] != uid:
                return True
            return (now.get("status") or {}).get("phase") in ("Succeeded", "Failed")

        lines = read(
            path,
            follow=parameters.flag(request, "follow"),
            tail=parameters.number(request, "tailLines"),
            limit_bytes=parameters.number(request, "limitBytes"),
            ended=ended,
        )
        return await answer(request, lines, "text/plain; charset=utf-8")

    # --- identities ---

    def token(self, target: Target, body: Any) -> Json:
        """A TokenRequest with the token in its status."""
        account = self._objects.get(target.resource, target.namespace, target.name)
        spec = (body.get("spec") if isinstance(body, dict) else None) or {}
        seconds = spec.get("expirationSeconds") or DEFAULT_EXPIRATION_S
        if not isinstance(seconds, int) or not MIN_EXPIRATION_S <= seconds <= MAX_EXPIRATION_S:
            raise errors.bad_request(
                f"spec.expirationSeconds of a TokenRequest must be between {MIN_EXPIRATION_S} and {MAX_EXPIRATION_S},"
                f" not {seconds!r}"
            )
        now = self._objects.chance.now()
        token = self._identities.issue(account, int(now.timestamp()), seconds, spec.get("audiences") or [])
        end = stamp(now + dt.timedelta(seconds=seconds))
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "spec": {"audiences": spec.get("audiences") or [ISSUER], "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": end},
        }

    def review(self, target: Target, body: Any, user: User) -> Json:
        """Answer a review; reviews are not stored."""
        kind = target.resource.kind
        spec: Json = (body.get("spec") if isinstance(body, dict) else None) or {}
        review: Json = {
            "kind": kind,
            "apiVersion": target.resource.api_version,
            "metadata": {"creationTimestamp": None},
        }
        if kind == "SelfSubjectReview":
            info = {"username": user.name, "groups": list(user.groups), "uid": user.uid}
            return {**review, "status": {"userInfo": info}}
        if kind == "TokenReview":
            found = self._identities.user(spec.get("token", ""), int(self._objects.chance.now().timestamp()))
            if found is None:
                return {**review, "spec": {}, "status": {"authenticated": False, "error": "unknown token"}}
            info = {"username": found.name, "groups": list(found.groups), "uid": found.uid}
            return {**review, "spec": {}, "status": {"authenticated": True, "user": info}}
        if kind == "SelfSubjectRulesReview":
            rules = self._authorizer.rules_of(user, spec.get("namespace", ""))
            about_objects = [rule for rule in rules if rule.get("resources")]
            about_paths = [rule for rule in rules if rule.get("nonResourceURLs")]
            found_rules = {
                "resourceRules": about_objects,
                "nonResourceRules": about_paths,
                "incomplete": False,
            }
            return {**review, "spec": spec, "status": found_rules}
        if kind == "SubjectAccessReview":
            user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""))
        allowed = self._authorizer.allows(user, _asked(spec))
        return {**review, "spec": spec, "status": {"allowed": allowed}}


def _asked(spec: Json) -> Request:
    attributes = spec.get("resourceAttributes")
    if isinstance(attributes, dict):
        return Request(
            verb=attributes.get("verb", ""),
            group=attributes.get("group", ""),
            resource=attributes.get("resource", ""),
            subresource=attributes.get("subresource", ""),
            namespace=attributes.get("namespace", ""),
            name=attributes.get("name", ""),
        )
    other = spec.get("nonResourceAttributes")
    if isinstance(other, dict):
        return Request(verb=other.get("verb", ""), path=other.get("path", ""))
    raise ApiError(
        422, "Invalid", "spec of an access review needs resourceAttributes or nonResourceAttributes"
    )
