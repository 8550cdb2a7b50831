"""From requests to answers: authentication, parsing, and the one call that carries out the request.

Every write is in the state file before its answer is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from supercluster.localplane.apiserver import errors
from supercluster.localplane.apiserver.auth.authorizer import Authorizer, Request
from supercluster.localplane.apiserver.auth.identities import Identities, User
from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.http import (
    bodies,
    discovery,
    listing,
    openapi,
    parameters,
    paths,
    representation,
)
from supercluster.localplane.apiserver.http.paths import Target
from supercluster.localplane.apiserver.http.subresources import Subresources
from supercluster.localplane.apiserver.http.watches import Watches
from supercluster.localplane.apiserver.objects.objects import Objects
from supercluster.localplane.apiserver.objects.writes import Mutate, Write
from supercluster.localplane.apiserver.schema import schemas
from supercluster.localplane.apiserver.schema.patches import json_patch, merge_patch
from supercluster.localplane.apiserver.schema.strategic import strategic_patch
from supercluster.localplane.apiserver.storage.registry import Registry, Resource
from supercluster.localplane.apiserver.storage.store import Store
from supercluster.localplane.json_data import Json

log = logging.getLogger(__name__)

Answer = web.StreamResponse
Made = Callable[[Resource, Json], None]

APPLY_TYPES = ("application/apply-patch+yaml", "application/apply-patch+json")
MERGE_TYPES = ("application/json-patch+json", "application/merge-patch+json")
STRATEGIC_TYPE = "application/strategic-merge-patch+json"
# Everybody may ask whether the server lives, as with a real one.
ANONYMOUS = ("/healthz", "/livez", "/readyz", "/version")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
USER: web.RequestKey[User] = web.RequestKey("user", User)


class Handlers:
    """All of the HTTP API."""

    def __init__(
        self,
        objects: Objects,
        identities: Identities,
        authorizer: Authorizer,
        watches: Watches,
        subresources: Subresources,
        made: Made,
    ) -> None:
        self._objects = objects
        self._store: Store = objects.store
        self._registry: Registry = objects.registry
        self._identities = identities
        self._authorizer = authorizer
        self._watches = watches
        self._sub = subresources
        self._made = made

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=bodies.MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        return app

    # --- every request ---

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[Answer]]
    ) -> Answer:
        """Check who asks, turn refusals into Status objects, and save what was written before answering."""
        try:
            self._authenticate(request)
            answer = await handler(request)
            self._store.flush()
        except ApiError as error:
            # A refusal may come after a part was done, as in the deletion of a collection.
            self._store.flush()
            return _json(error.to_json(), error.code)
        except web.HTTPRequestEntityTooLarge:
            message = f"the body is larger than {bodies.MAX_BODY_BYTES} bytes"
            refusal = ApiError(413, "RequestEntityTooLarge", message)
            return _json(refusal.to_json(), 413)
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path)
            failure = ApiError(
                500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}"
            )
            return _json(failure.to_json(), 500)
        return answer

    def _authenticate(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = None
        if scheme.lower() == "bearer":
            user = self._identities.user(token.strip(), int(self._objects.chance.now().timestamp()))
        if user is None:
            if request.path in ANONYMOUS and not token:
                return
            raise errors.ApiError(401, "Unauthorized", "Unauthorized")
        request[USER] = _impersonated(request, user)

    async def _dispatch(self, request: web.Request) -> Answer:
        if request.path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        document = self._document(request)
        if document is not None:
            if request.path != "/version":
                self._authorize_path(request)
            return document
        target = paths.parse(self._registry, request.path)
        self._authorize(request, target)
        if target.resource.create_only:
            if request.method != "POST":
                raise errors.method_not_allowed(request.method, request.path)
            return _json(self._sub.review(target, await parameters.body(request), request[USER]), 201)
        if target.subresource not in ("", "status", "finalize"):
            return await self._subresource(request, target)
        return await (self._one(request, target) if target.name else self._collection(request, target))

    def _authorize_path(self, request: web.Request) -> None:
        asked = Request(verb="get", path=request.path)
        if not self._authorizer.allows(request[USER], asked):
            raise errors.forbidden(
                "", "", "", f'User "{request[USER].name}" cannot get path "{request.path}"'
            )

    def _authorize(self, request: web.Request, target: Target) -> None:
        if request.method == "GET":
            verb = "get" if target.name else "watch" if parameters.flag(request, "watch") else "list"
        elif request.method == "DELETE" and not target.name:
            verb = "deletecollection"
        else:
            verb = VERBS.get(request.method, request.method.lower())
        resource = target.resource
        asked = Request(
            verb, resource.group, resource.plural, target.subresource, target.namespace, target.name
        )
        user = request[USER]
        if not self._authorizer.allows(user, asked):
            raise errors.forbidden(resource.group, resource.plural, target.name, asked.told(user))

    def _document(self, request: web.Request) -> Answer | None:
        """The answers that say what is served."""
        path = request.path.rstrip("/")
        parts = path.strip("/").split("/")
        registry = self._registry
        document: Json | None = None
        if path in ("/api", "/apis") and parameters.wants_aggregated(request):
            raw = bodies.encode(discovery.aggregated(registry, core=path == "/api"))
            return web.Response(body=raw, headers={"Content-Type": parameters.AGGREGATED_TYPE})
        if path == "/openapi/v2":
            return web.Response(body=openapi.VERSION_2, headers={"Content-Type": openapi.VERSION_2_TYPE})
        if path == "/version":
            document = discovery.version()
        elif path == "/api":
            document = discovery.core_versions(request.host)
        elif path == "/apis":
            document = discovery.group_list(registry)
        elif path == "/openapi/v3":
            document = openapi.index(registry)
        elif path.startswith("/openapi/v3/"):
            document = openapi.document(registry, path.removeprefix("/openapi/v3/"))
        elif len(parts) == 2 and parts[0] == "apis":
            document = discovery.one_group(registry, parts[1])
        elif len(parts) == 2 and parts[0] == "api":
            document = discovery.resource_list(registry, "", parts[1])
        elif len(parts) == 3 and parts[0] == "apis":
            document = discovery.resource_list(registry, parts[1], parts[2])
        return None if document is None else _json(document)

    # --- collections ---

    async def _collection(self, request: web.Request, target: Target) -> Answer:
        if request.method == "POST":
            return await self._create(request, target)
        if request.method == "DELETE":
            return await self._delete_collection(request, target)
        if request.method != "GET":
            raise errors.method_not_allowed(request.method, request.path)
        query, form = parameters.query(request, target), parameters.form(request)
        if query.watch:
            return await self._watches.serve(request, target.resource, query, form)
        found = listing.page(self._store, target.resource, query)
        metadata: Json = {"resourceVersion": str(found.revision)}
        if found.continue_token:
            metadata["continue"] = found.continue_token
            if not query.label_selector and not query.field_selector:
                metadata["remainingItemCount"] = found.remaining
        now = self._objects.chance.now()
        return _json(representation.many(target.resource, found.items, metadata, form, now))

    async def _create(self, request: web.Request, target: Target) -> Answer:
        body = await parameters.body(request)
        if target.resource.namespaced and not target.namespace:
            raise errors.bad_request(f"a {target.resource.kind} is created in a namespace")
        write = parameters.writing(request)
        new = self._objects.create(target.resource, target.namespace, body, write)
        if not write.dry_run:
            self._made(target.resource, new)
        return self._written(request, target, new, write, 201)

    async def _delete_collection(self, request: web.Request, target: Target) -> Answer:
        options, dry_run = parameters.delete_options(request, await parameters.body(request))
        write = parameters.writing(request)
        write.dry_run = write.dry_run or dry_run
        found = listing.page(self._store, target.resource, parameters.query(request, target))
        for item in found.items:
            metadata = item["metadata"]
            self._objects.delete(
                target.resource, metadata.get("namespace", ""), metadata["name"], options, write
            )
        metadata = {"resourceVersion": str(self._store.revision)}
        form, now = parameters.form(request), self._objects.chance.now()
        return _json(representation.many(target.resource, found.items, metadata, form, now))

    # --- one object ---

    async def _one(self, request: web.Request, target: Target) -> Answer:
        if request.method == "GET":
            found = self._objects.get(target.resource, target.namespace, target.name)
            return self._shown(request, target, found)
        if request.method == "PUT":
            body, write = await parameters.body(request), parameters.writing(request)
            new = self._objects.update(
                target.resource, target.namespace, target.name, body, write, target.subresource
            )
            return self._written(request, target, new, write)
        if request.method == "PATCH":
            return await self._patch(request, target)
        if request.method == "DELETE" and not target.subresource:
            return await self._delete(request, target)
        raise errors.method_not_allowed(request.method, request.path)

    def _shown(self, request: web.Request, target: Target, obj: Json, status: int = 200) -> web.Response:
        form, now = parameters.form(request), self._objects.chance.now()
        return _json(representation.one(target.resource, obj, form, now), status)

    def _written(
        self, request: web.Request, target: Target, obj: Json, write: Write, status: int = 200
    ) -> Answer:
        answer = self._shown(request, target, obj, status)
        for warning in write.warnings:
            quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
            answer.headers.add("Warning", f'299 - "{quoted}"')
        return answer

    async def _patch(self, request: web.Request, target: Target) -> Answer:
        patch, write = await parameters.body(request), parameters.writing(request)
        if parameters.media_type(request) in APPLY_TYPES:
            return self._apply(request, target, patch, write)
        mutate = _mutation(request, target.resource, patch)
        new = self._objects.patch(
            target.resource, target.namespace, target.name, mutate, write, target.subresource
        )
        return self._written(request, target, new, write)

    def _apply(self, request: web.Request, target: Target, config: Any, write: Write) -> Answer:
        if not request.query.get("fieldManager"):
            cause = errors.Cause(
                "fieldManager", "Required value: is required for apply patch", "FieldValueRequired"
            )
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", [cause])
        new, created = self._objects.apply(
            target.resource,
            target.namespace,
            target.name,
            config,
            write,
            subresource=target.subresource,
            force=parameters.flag(request, "force"),
        )
        if created and not write.dry_run:
            self._made(target.resource, new)
        return self._written(request, target, new, write, 201 if created else 200)

    async def _delete(self, request: web.Request, target: Target) -> Answer:
        options, dry_run = parameters.delete_options(request, await parameters.body(request))
        write = parameters.writing(request)
        write.dry_run = write.dry_run or dry_run
        resource = target.resource
        last, gone = self._objects.delete(resource, target.namespace, target.name, options, write)
        if not gone:
            return self._shown(request, target, last)
        details = {
            "name": target.name,
            "group": resource.group,
            "kind": resource.plural,
            "uid": last["metadata"]["uid"],
        }
        return _json(errors.success(details=details))

    # --- below an object ---

    async def _subresource(self, request: web.Request, target: Target) -> Answer:
        method, name = request.method, target.subresource
        if name == "log" and method == "GET":
            return await self._sub.log(request, target)
        if name == "scale" and method == "GET":
            return _json(self._sub.scale(target))
        if name == "scale" and method in ("PUT", "PATCH"):
            body, write = await parameters.body(request), parameters.writing(request)
            mutate: Mutate = (
                (lambda old: body) if method == "PUT" else _mutation(request, target.resource, body)
            )
            return _json(self._sub.set_scale(target, mutate, write))
        if method != "POST":
            raise errors.method_not_allowed(method, request.path)
        body, write = await parameters.body(request), parameters.writing(request)
        if name == "eviction":
            return _json(self._sub.evict(request, target, body, write), 201)
        if name == "token":
            return _json(self._sub.token(target, body), 201)
        if name == "binding":
            return _json(self._sub.bind(target, body, write), 201)
        raise errors.method_not_allowed(method, request.path)


def _impersonated(request: web.Request, user: User) -> User:
    """The user whom an administrator asks for another (`kubectl --as`)."""
    name = request.headers.get("Impersonate-User")
    if not name:
        return user
    if not user.is_administrator:
        raise errors.forbidden("", "users", name, f'User "{user.name}" cannot impersonate resource "users"')
    groups = tuple(request.headers.getall("Impersonate-Group", []))
    if name.startswith("system:serviceaccount:"):
        groups += ("system:serviceaccounts", f"system:serviceaccounts:{name.split(':')[2]}")
    return User(name, (*groups, "system:authenticated"))


def _mutation(request: web.Request, resource: Resource, patch: Any) -> Mutate:
    """What a patch does, by its media type."""
    media_type = parameters.media_type(request)
    if media_type == "application/json-patch+json":
        return lambda old: json_patch(old, patch)
    if media_type == "application/merge-patch+json":
        return lambda old: merge_patch(old, patch)
    if media_type == STRATEGIC_TYPE and resource.crd_version is None:
        return lambda old: strategic_patch(old, patch, schemas.root(resource))
    accepted = (*MERGE_TYPES, *((STRATEGIC_TYPE,) if resource.crd_version is None else ()), *APPLY_TYPES)
    raise errors.unsupported_media_type(media_type, accepted)


def _json(value: Json, status: int = 200) -> web.Response:
    return web.Response(body=bodies.encode(value), status=status, content_type="application/json")
