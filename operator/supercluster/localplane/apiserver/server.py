"""HTTP in front of the objects: authentication, dispatch by path and method, lists, watches and patches."""

from __future__ import annotations

import asyncio
import datetime as dt
import hmac
import secrets
import ssl
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from supercluster.localplane.apiserver import bodies, certificates, discovery, errors, listing, paths, schemas
from supercluster.localplane.apiserver.errors import ApiError
from supercluster.localplane.apiserver.objects import Chance, DeleteOptions, Objects, Write, timestamp
from supercluster.localplane.apiserver.patches import json_patch, merge_patch
from supercluster.localplane.apiserver.paths import Target
from supercluster.localplane.apiserver.resources import (
    CRDS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    Registry,
    Resource,
)
from supercluster.localplane.apiserver.rules import KindRules
from supercluster.localplane.apiserver.store import Store
from supercluster.localplane.apiserver.strategic import strategic_patch

Json = dict[str, Any]
Answer = web.StreamResponse

APPLY_TYPES = ("application/apply-patch+yaml", "application/apply-patch+json")
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    *APPLY_TYPES,
)
FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
LOOPBACK = "127.0.0.1"
# A watch that waits must end when the server stops; aiohttp waits this long for handlers.
SHUTDOWN_S = 1.0


def system_chance() -> Chance:
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    return Chance(
        now=lambda: dt.datetime.now(dt.UTC),
        uid=lambda: str(uuid.uuid4()),
        suffix=lambda: "".join(secrets.choice(alphabet) for _ in range(5)),
    )


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("true", "1")


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "")
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f"{name}={text!r} in the query is not a whole number") from None


class ApiServer:
    """The Kubernetes API over one state file."""

    def __init__(self, state_dir: Path, token: str, chance: Chance | None = None) -> None:
        self.state_dir = state_dir
        self.chance = chance or system_chance()
        self.store = Store(state_dir / "state.sqlite3")
        self.registry = Registry()
        self.rules = KindRules(self.registry, self.store, self.chance.now)
        self.objects = Objects(self.store, self.registry, self.rules, self.chance)
        # For clients, with TLS, for kubectl sends no token without it; and for what runs in this process.
        self.url = ""
        self.plain_url = ""
        self.authority = ""
        self._token = token
        self._runner: web.AppRunner | None = None
        self._watches: set[asyncio.Task[Any]] = set()
        for crd in self.store.all_of(CRDS):
            self.registry.define(crd)
        self._first_objects()

    def _first_objects(self) -> None:
        """What a cluster has before anybody made anything."""
        write = Write(manager="kube-apiserver")
        namespaces = self.registry.by_storage(NAMESPACES)
        accounts = self.registry.by_storage(SERVICE_ACCOUNTS)
        assert namespaces is not None
        assert accounts is not None
        for name in FIRST_NAMESPACES:
            if self.store.get(NAMESPACES, "", name) is None:
                self.objects.create(namespaces, "", {"metadata": {"name": name}}, write)
        for namespace in self.store.all_of(NAMESPACES):
            self._default_account(namespace["metadata"]["name"])
        self.store.flush()

    def _default_account(self, namespace: str) -> None:
        accounts = self.registry.by_storage(SERVICE_ACCOUNTS)
        assert accounts is not None
        if self.store.get(SERVICE_ACCOUNTS, namespace, "default") is None:
            write = Write(manager="kube-controller-manager")
            self.objects.create(accounts, namespace, {"metadata": {"name": "default"}}, write)

    # --- life ---

    async def start(self, port: int = 0) -> None:
        """Listen with TLS for clients, and without it for what runs in this process; both on loopback only."""
        app = web.Application(middlewares=[self._guard], client_max_size=bodies.MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        certificate = certificates.ensure(self.state_dir, self.chance.now())
        self.authority = certificate.certificate.read_text()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        for secure in (True, False):
            site = web.TCPSite(
                self._runner, LOOPBACK, port if secure else 0, ssl_context=context if secure else None
            )
            await site.start()
        addresses = self._runner.addresses
        self.url = f"https://{LOOPBACK}:{addresses[0][1]}"
        self.plain_url = f"http://{LOOPBACK}:{addresses[1][1]}"

    async def stop(self) -> None:
        for task in self._watches:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
        self.store.close()

    # --- every request ---

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[Answer]]
    ) -> Answer:
        """Check who asks, turn refusals into Status objects, and save what was written before answering."""
        try:
            self._authenticate(request)
            return await handler(request)
        except ApiError as error:
            return _json(error.to_json(), error.code)
        except web.HTTPRequestEntityTooLarge:
            message = f"the body is larger than {bodies.MAX_BODY_BYTES} bytes"
            refusal = ApiError(413, "RequestEntityTooLarge", message)
            return _json(refusal.to_json(), 413)

    def _authenticate(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            token.strip().encode(), self._token.encode()
        ):
            raise errors.unauthorized()

    async def _dispatch(self, request: web.Request) -> Answer:
        if request.path.startswith(("/api/", "/apis/")) and request.path.strip("/").count("/") >= 2:
            document = self._discovery(request)
            if document is not None:
                return _json(document)
            return await self._resource(request, paths.parse(self.registry, request.path))
        document = self._discovery(request)
        if document is not None:
            return _json(document)
        if request.path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        raise errors.no_such_path()

    def _discovery(self, request: web.Request) -> Json | None:
        path = request.path.rstrip("/")
        parts = path.strip("/").split("/")
        if path == "/version":
            return discovery.version()
        if path == "/api":
            return discovery.core_versions(request.host)
        if path == "/apis":
            return discovery.group_list(self.registry)
        if len(parts) == 2 and parts[0] == "apis":
            return discovery.one_group(self.registry, parts[1])
        if len(parts) == 2 and parts[0] == "api":
            return discovery.resource_list(self.registry, "", parts[1])
        if len(parts) == 3 and parts[0] == "apis":
            return discovery.resource_list(self.registry, parts[1], parts[2])
        return None

    async def _resource(self, request: web.Request, target: Target) -> Answer:
        if not target.name:
            return await self._collection(request, target)
        handler = {
            "GET": self._get,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }.get(request.method)
        if handler is None:
            raise errors.method_not_allowed(request.method, request.path)
        if target.subresource not in ("", "status", "finalize"):
            raise errors.no_such_path()
        return await handler(request, target)

    async def _collection(self, request: web.Request, target: Target) -> Answer:
        if request.method == "POST":
            return await self._create(request, target)
        if request.method == "DELETE":
            return await self._delete_collection(request, target)
        if request.method != "GET":
            raise errors.method_not_allowed(request.method, request.path)
        return await self._list(request, target)

    # --- reading ---

    def _query(self, request: web.Request, target: Target) -> listing.Query:
        seconds = _number(request, "timeoutSeconds")
        return listing.Query(
            namespace=target.namespace or None,
            name=target.name,
            label_selector=request.query.get("labelSelector", ""),
            field_selector=request.query.get("fieldSelector", ""),
            resource_version=request.query.get("resourceVersion", ""),
            limit=_number(request, "limit"),
            continue_token=request.query.get("continue", ""),
            watch=_flag(request, "watch"),
            bookmarks=_flag(request, "allowWatchBookmarks"),
            send_initial_events=_flag(request, "sendInitialEvents"),
            timeout_s=float(seconds) if seconds else listing.DEFAULT_WATCH_S,
        )

    async def _list(self, request: web.Request, target: Target) -> Answer:
        query = self._query(request, target)
        if query.watch:
            return await self._watch(request, target, query)
        resource = target.resource
        found = listing.page(self.store, resource, query)
        metadata: Json = {"resourceVersion": str(found.revision)}
        if found.continue_token:
            metadata["continue"] = found.continue_token
            if not query.label_selector and not query.field_selector:
                metadata["remainingItemCount"] = found.remaining
        items = [self.objects.served(resource, item) for item in found.items]
        return _json(
            {
                "kind": resource.list_name,
                "apiVersion": resource.api_version,
                "metadata": metadata,
                "items": items,
            }
        )

    async def _watch(self, request: web.Request, target: Target, query: listing.Query) -> Answer:
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        loop = asyncio.get_running_loop()
        pending: list[bytes] = []
        try:
            async for event in listing.watch(self.store, target.resource, query, loop.time):
                if event is not None:
                    shown = event.obj
                    if event.type != "ERROR":
                        shown = self.objects.served(target.resource, shown)
                    pending.append(bodies.encode({"type": event.type, "object": shown}) + b"\n")
                elif pending:
                    await response.write(b"".join(pending))
                    pending.clear()
            if pending:
                await response.write(b"".join(pending))
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # The client left or the server stops; a watch has nothing to clean up but itself.
            if task.cancelling() and self._runner is None:
                raise
        finally:
            self._watches.discard(task)
        return response

    async def _get(self, request: web.Request, target: Target) -> Answer:
        if _flag(request, "watch"):
            return await self._watch(request, target, self._query(request, target))
        return _json(self.objects.get(target.resource, target.namespace, target.name))

    # --- writing ---

    def _write(self, request: web.Request) -> Write:
        dry_run = request.query.getall("dryRun", [])
        if any(value not in ("", "All") for value in dry_run):
            raise errors.bad_request(f"dryRun={dry_run!r} is not supported; All would be right")
        validation = request.query.get("fieldValidation", "") or "Warn"
        if validation not in ("Ignore", "Warn", "Strict"):
            raise errors.bad_request(f"fieldValidation={validation!r} is not one of Ignore, Warn and Strict")
        agent = request.headers.get("User-Agent", "unknown").split("/")[0] or "unknown"
        manager = request.query.get("fieldManager", "") or agent
        return Write(manager=manager, dry_run="All" in dry_run, field_validation=validation)

    async def _body(self, request: web.Request) -> Any:
        return bodies.decode(await request.read(), request.headers.get("Content-Type", ""))

    async def _create(self, request: web.Request, target: Target) -> Answer:
        body = await self._body(request)
        if target.resource.namespaced and not target.namespace:
            raise errors.bad_request(f"a {target.resource.kind} is created in a namespace")
        write = self._write(request)
        made = self.objects.create(target.resource, target.namespace, body, write)
        self._follow_creation(target.resource, made, write)
        return self._written(made, write, 201)

    def _follow_creation(self, resource: Resource, made: Json, write: Write) -> None:
        if resource.storage == NAMESPACES and not write.dry_run:
            self._default_account(made["metadata"]["name"])

    def _written(self, obj: Json, write: Write, status: int = 200) -> Answer:
        self.store.flush()
        response = _json(obj, status)
        for warning in write.warnings:
            response.headers.add("Warning", f'299 - "{warning}"')
        return response

    async def _put(self, request: web.Request, target: Target) -> Answer:
        body = await self._body(request)
        write = self._write(request)
        new = self.objects.update(
            target.resource, target.namespace, target.name, body, write, target.subresource
        )
        return self._written(new, write)

    async def _patch(self, request: web.Request, target: Target) -> Answer:
        media_type = request.headers.get("Content-Type", "").split(";")[0].strip().lower()
        patch = await self._body(request)
        write = self._write(request)
        if media_type in APPLY_TYPES:
            return self._apply(request, target, patch, write)
        mutate = self._mutation(media_type, target.resource, patch)
        new = self.objects.patch(
            target.resource, target.namespace, target.name, mutate, write, target.subresource
        )
        return self._written(new, write)

    @staticmethod
    def _mutation(media_type: str, resource: Resource, patch: Any) -> Callable[[Json], Json]:
        if media_type == "application/json-patch+json":
            return lambda old: json_patch(old, patch)
        if media_type == "application/merge-patch+json":
            return lambda old: merge_patch(old, patch)
        if media_type == "application/strategic-merge-patch+json" and resource.crd_version is None:
            return lambda old: strategic_patch(old, patch, schemas.root(resource))
        custom = tuple(name for name in PATCH_TYPES if "strategic" not in name)
        raise errors.unsupported_media_type(
            media_type, PATCH_TYPES if resource.crd_version is None else custom
        )

    def _apply(self, request: web.Request, target: Target, config: Any, write: Write) -> Answer:
        if not request.query.get("fieldManager"):
            causes = [errors.Cause("fieldManager", "Required value: is required for apply patch")]
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", causes)
        new, created = self.objects.apply(
            target.resource,
            target.namespace,
            target.name,
            config,
            write,
            subresource=target.subresource,
            force=_flag(request, "force"),
        )
        if created:
            self._follow_creation(target.resource, new, write)
        return self._written(new, write, 201 if created else 200)

    async def _options(self, request: web.Request) -> DeleteOptions:
        body = await self._body(request) or {}
        if not isinstance(body, dict):
            raise errors.bad_request("the body of a delete is a DeleteOptions object")
        preconditions = body.get("preconditions") or {}
        propagation = request.query.get("propagationPolicy") or body.get("propagationPolicy")
        orphan = body.get("orphanDependents")
        if propagation is None and orphan is not None:
            propagation = "Orphan" if orphan else "Background"
        grace = body.get("gracePeriodSeconds")
        if "gracePeriodSeconds" in request.query:
            grace = _number(request, "gracePeriodSeconds")
        return DeleteOptions(
            grace_seconds=grace,
            propagation=propagation,
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
        )

    async def _delete(self, request: web.Request, target: Target) -> Answer:
        options = await self._options(request)
        write = self._write(request)
        last, gone = self.objects.delete(target.resource, target.namespace, target.name, options, write)
        self.store.flush()
        if not gone:
            return _json(last)
        resource = target.resource
        details = {
            "name": target.name,
            "group": resource.group,
            "kind": resource.plural,
            "uid": last["metadata"]["uid"],
        }
        return _json(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    async def _delete_collection(self, request: web.Request, target: Target) -> Answer:
        options = await self._options(request)
        write = self._write(request)
        found = listing.page(self.store, target.resource, self._query(request, target))
        for item in found.items:
            metadata = item["metadata"]
            namespace = metadata.get("namespace", "")
            self.objects.delete(target.resource, namespace, metadata["name"], options, write)
        self.store.flush()
        return _json(
            {
                "kind": target.resource.list_name,
                "apiVersion": target.resource.api_version,
                "metadata": {"resourceVersion": str(self.store.revision)},
                "items": found.items,
            }
        )

    def now(self) -> str:
        return timestamp(self.chance.now())


def _json(value: Json, status: int = 200) -> web.Response:
    return web.Response(body=bodies.encode(value), status=status, content_type="application/json")
