"""The API as clients meet it: paths, media types, lists in pages, watches, subresources and refusals."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.localplane.apiserver.apilab import a_definition, a_map, a_pod, a_set

from supercluster.localplane.apiserver.http.server import ApiServer

Json = dict[str, Any]
TOKEN = "secret-of-the-test"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"


class Api:
    """A client of a server in this process."""

    def __init__(self, server: ApiServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def call(
        self, method: str, path: str, body: Any = None, *, expect: int | None = None, **headers: str
    ) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sending = io.BytesIO(raw) if raw is not None and len(raw) > 1_000_000 else raw
        sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        async with self.session.request(
            method, self.server.plain_url + path, data=sending, headers=sent
        ) as response:
            text = await response.text()
            if expect is not None:
                assert response.status == expect, text
            try:
                return response.status, json.loads(text)
            except ValueError:
                return response.status, text

    async def get(self, path: str) -> Any:
        return (await self.call("GET", path, expect=200))[1]

    async def make(self, path: str, body: Any) -> Json:
        made: Json = (await self.call("POST", path, body, expect=201))[1]
        return made

    async def patch(self, path: str, change: Any, kind: str = "merge-patch+json", expect: int = 200) -> Any:
        return (await self.call("PATCH", path, change, expect=expect, Content_Type=f"application/{kind}"))[1]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    server = ApiServer(tmp_path, TOKEN)
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Api(server, session)
    await server.stop()


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    async for line in response.content:
        yield json.loads(line)


async def test_nothing_is_answered_without_the_token(api: Api) -> None:
    for header in ("", "Bearer wrong", "Basic c2VjcmV0"):
        async with api.session.get(
            api.server.plain_url + MAPS, headers={"Authorization": header}
        ) as response:
            assert response.status == 401
            assert (await response.json())["reason"] == "Unauthorized"
    async with api.session.get(api.server.plain_url + "/healthz") as response:
        assert await response.text() == "ok"


async def test_discovery_lists_subresources_and_new_definitions_at_once(api: Api) -> None:
    apps = {item["name"]: item for item in (await api.get("/apis/apps/v1"))["resources"]}
    assert {"statefulsets", "statefulsets/status", "statefulsets/scale"} <= set(apps)
    assert apps["statefulsets"]["shortNames"] == ["sts"]
    assert "shortNames" not in apps["statefulsets/status"]
    assert (await api.call("GET", "/apis/example.com/v1"))[0] == 404
    await api.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
    names = [item["name"] for item in (await api.get("/apis/example.com/v1"))["resources"]]
    assert names == ["widgets", "widgets/status"]
    assert "example.com" in [group["name"] for group in (await api.get("/apis"))["groups"]]
    document = await api.get("/openapi/v3/apis/example.com/v1")
    assert "com.example.v1.Widget" in document["components"]["schemas"]
    patch = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "fieldValidation" in [item["name"] for item in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Widget"


async def test_a_document_of_the_openapi_refers_only_to_what_it_has(api: Api) -> None:
    for path in (await api.get("/openapi/v3"))["paths"]:
        document = await api.get(f"/openapi/v3/{path}")
        named = set(document["components"]["schemas"])

        def references(value: Any) -> set[str]:
            if isinstance(value, dict):
                own = {value["$ref"].rsplit("/", 1)[1]} if isinstance(value.get("$ref"), str) else set()
                return own.union(*(references(item) for item in value.values()))
            return set().union(*(references(item) for item in value)) if isinstance(value, list) else set()

        assert references(document) <= named


async def test_a_list_comes_in_pages_of_one_revision(api: Api) -> None:
    for number in range(5):
        await api.make(MAPS, a_map(f"m{number}"))
    first = await api.get(f"{MAPS}?limit=2")
    await api.make(MAPS, a_map("m00"))
    await api.call("DELETE", f"{MAPS}/m4", expect=200)
    second = await api.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
    third = await api.get(f"{MAPS}?limit=2&continue={second['metadata']['continue']}")
    names = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]
    assert names == ["m0", "m1", "m2", "m3", "m4"]
    assert first["metadata"]["remainingItemCount"] == 3
    assert "continue" not in third["metadata"]
    assert first["metadata"]["resourceVersion"] == third["metadata"]["resourceVersion"]


async def test_selectors_choose_from_a_list(api: Api) -> None:
    await api.make(PODS, a_pod("one"))
    await api.make(PODS, {**a_pod("two", nodeName="n"), "metadata": {"name": "two", "labels": {"app": "db"}}})

    async def names(query: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await api.get(f"{PODS}?{query}"))["items"]]

    assert await names("labelSelector=app%3Dweb") == ["one"]
    assert await names("labelSelector=app+in+(web,db),app!%3Dweb") == ["two"]
    assert await names("fieldSelector=spec.nodeName%3Dn") == ["two"]
    assert await names("fieldSelector=status.phase%3DPending") == ["one", "two"]


async def test_a_watch_goes_on_from_a_revision(api: Api) -> None:
    await api.make(MAPS, a_map("a"))
    start = (await api.get(MAPS))["metadata"]["resourceVersion"]
    await api.patch(f"{MAPS}/a", {"data": {"k": "2"}})
    await api.make(MAPS, a_map("b"))
    await api.call("DELETE", f"{MAPS}/a", expect=200)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{api.server.plain_url}{MAPS}?watch=true&resourceVersion={start}&timeoutSeconds=60"
    async with api.session.get(url, headers=headers) as response:
        events = events_of(response)
        seen = [await anext(events) for _ in range(3)]
        await api.make(MAPS, a_map("c"))
        seen.append(await anext(events))
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
        ("ADDED", "c"),
    ]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert revisions == sorted(revisions)


async def test_an_object_enters_and_leaves_the_selection_of_a_watch(api: Api) -> None:
    await api.make(MAPS, a_map("a"))
    start = (await api.get(MAPS))["metadata"]["resourceVersion"]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{api.server.plain_url}{MAPS}?watch=1&resourceVersion={start}&labelSelector=on%3Dyes"
    async with api.session.get(url, headers=headers) as response:
        events = events_of(response)
        for labels in ({"on": "yes"}, {"on": "yes", "x": "1"}, {"on": None}):
            await api.patch(f"{MAPS}/a", {"metadata": {"labels": labels}})
        assert [(await anext(events))["type"] for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]


async def test_a_watch_with_initial_events_says_when_they_end(api: Api) -> None:
    await api.make(MAPS, a_map("a"))
    url = f"{api.server.plain_url}{MAPS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    async with api.session.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        events = events_of(response)
        assert (await anext(events))["type"] == "ADDED"
        bookmark = await anext(events)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_from_too_old_a_revision_is_told_so(api: Api) -> None:
    await api.make(MAPS, a_map("a"))
    for number in range(2_100):
        api.server.store.put(
            ("", "configmaps"), {"metadata": {"name": "a", "namespace": "default"}, "n": number}
        )
    url = f"{api.server.plain_url}{MAPS}?watch=1&resourceVersion=3"
    async with api.session.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        event = await anext(events_of(response))
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_watch_ends_when_its_time_is_over(api: Api) -> None:
    url = f"{api.server.plain_url}{MAPS}?watch=1&timeoutSeconds=1"
    async with api.session.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert [event async for event in events_of(response)] == []


async def test_a_watch_over_websocket(api: Api) -> None:
    await api.make(MAPS, a_map("a"))
    url = f"{api.server.plain_url}{MAPS}?watch=1"
    async with api.session.ws_connect(url, headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
        first = json.loads((await socket.receive()).data)
        await api.make(MAPS, a_map("b"))
        second = json.loads((await socket.receive()).data)
    assert [event["object"]["metadata"]["name"] for event in (first, second)] == ["a", "b"]


async def test_stopping_the_server_ends_its_watches(tmp_path: Path) -> None:
    server = ApiServer(tmp_path, TOKEN)
    await server.start()
    async with aiohttp.ClientSession() as session:
        url = f"{server.plain_url}{MAPS}?watch=1"
        async with session.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            await server.stop()
            assert await response.content.read() == b""


async def test_each_patch_type_over_http(api: Api) -> None:
    await api.make(SETS, a_set())
    path = f"{SETS}/web"
    await api.patch(path, {"spec": {"replicas": 2}})
    operations = [
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
    ]
    assert (await api.patch(path, operations, "json-patch+json"))["spec"]["replicas"] == 3
    failed = await api.patch(path, operations, "json-patch+json", expect=422)
    assert failed["reason"] == "Invalid"
    containers = [{"name": "side", "image": "s:1"}]
    change = {"spec": {"template": {"spec": {"containers": containers}}}}
    merged = await api.patch(path, change, "strategic-merge-patch+json")
    assert {item["name"] for item in merged["spec"]["template"]["spec"]["containers"]} == {"c", "side"}
    applied = b"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: web}\nspec: {replicas: 3}\n"
    status, shown = await api.call(
        "PATCH", f"{path}?fieldManager=t", applied, Content_Type="application/apply-patch+yaml"
    )
    assert (status, shown["spec"]["replicas"]) == (200, 3)
    missing = await api.call("PATCH", path, applied, Content_Type="application/apply-patch+yaml")
    assert missing[0] == 422
    assert (await api.call("PATCH", path, {}, Content_Type="text/plain"))[0] == 415


async def test_custom_resources_have_no_strategic_patches(api: Api) -> None:
    await api.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
    path = "/apis/example.com/v1/namespaces/default/widgets"
    await api.make(path, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})
    refusal = await api.patch(f"{path}/w", {}, "strategic-merge-patch+json", expect=415)
    assert "merge-patch+json" in refusal["message"]


async def test_unknown_fields_are_warned_of(api: Api) -> None:
    body = {**a_map(), "datta": {}}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with api.session.post(api.server.plain_url + MAPS, json=body, headers=headers) as response:
        assert response.status == 201
        assert response.headers["Warning"] == '299 - "unknown field \\"datta\\""'
    status, refusal = await api.call(
        "POST", f"{MAPS}?fieldValidation=Strict", {**body, "metadata": {"name": "b"}}
    )
    assert status == 400
    assert 'strict decoding error: unknown field "datta"' in refusal["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/api/v1/nothing", None, 404),
        ("GET", "/apis/none.example.com/v1/things", None, 404),
        ("GET", f"{MAPS}/missing", None, 404),
        ("POST", MAPS, b"{not json", 400),
        ("POST", MAPS, b"[]", 400),
        ("POST", MAPS, {"metadata": "text"}, 400),
        ("POST", "/api/v1/configmaps", {"metadata": {"name": "a"}}, 400),
        ("PUT", MAPS, {}, 405),
        ("POST", f"{MAPS}/a", {}, 405),
        ("GET", f"{MAPS}?labelSelector=a+b", None, 400),
        ("GET", f"{MAPS}?limit=many", None, 400),
        ("GET", f"{MAPS}?continue=rubbish", None, 400),
        ("GET", f"{MAPS}?watch=1&resourceVersion=soon", None, 400),
        ("POST", f"{MAPS}?dryRun=Some", {"metadata": {"name": "a"}}, 422),
        ("DELETE", f"{MAPS}/a?propagationPolicy=Sideways", None, 422),
        ("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "x" * 4_000_000}}, 413),
    ],
)  # fmt: skip
async def test_bad_requests_get_a_status_of_the_right_code(
    api: Api, method: str, path: str, body: Any, code: int
) -> None:
    status, answer = await api.call(method, path, body)
    assert (status, answer["kind"], answer["code"]) == (code, "Status", code)
    assert answer["message"]


async def test_the_scale_of_a_workload(api: Api) -> None:
    await api.make(SETS, a_set())
    scale = await api.get(f"{SETS}/web/scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == (
        "Scale",
        {"replicas": 1},
        "app=web",
    )
    await api.patch(f"{SETS}/web/scale", {"spec": {"replicas": 4}})
    assert (await api.get(f"{SETS}/web"))["spec"]["replicas"] == 4
    stale = {**scale, "spec": {"replicas": 9}}
    assert (await api.call("PUT", f"{SETS}/web/scale", stale))[0] == 409


async def test_an_eviction_needs_the_budgets_consent(api: Api) -> None:
    pod = await api.make(PODS, a_pod("p", nodeName="n"))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(f"{PODS}/p/status", {"status": ready})
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await api.make(
        budgets,
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}},
    )
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    status, refusal = await api.call("POST", f"{PODS}/p/eviction", eviction)
    assert (status, refusal["reason"]) == (429, "TooManyRequests")
    allowed = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    await api.patch(f"{budgets}/b/status", {"status": allowed})
    await api.call("POST", f"{PODS}/p/eviction", eviction, expect=201)
    evicted = await api.get(f"{PODS}/{pod['metadata']['name']}")
    assert evicted["metadata"]["deletionTimestamp"]
    told = next(each for each in evicted["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (told["status"], told["reason"]) == ("True", "EvictionByEvictionAPI")
    after = (await api.get(f"{budgets}/b"))["status"]
    assert after["disruptionsAllowed"] == 0
    assert list(after["disruptedPods"]) == ["p"]


async def test_the_log_of_a_container_is_shortened_and_followed(api: Api, tmp_path: Path) -> None:
    pod = await api.make(PODS, a_pod("p", nodeName="n"))
    status, waiting = await api.call("GET", f"{PODS}/p/log")
    assert (status, "waiting to start" in waiting["message"]) == (400, True)
    path = tmp_path / "pods" / "default" / pod["metadata"]["uid"] / "c.log"
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\nthree\n")
    assert (await api.call("GET", f"{PODS}/p/log"))[1] == "one\ntwo\nthree\n"
    assert (await api.call("GET", f"{PODS}/p/log?tailLines=2&container=c"))[1] == "two\nthree\n"
    assert (await api.call("GET", f"{PODS}/p/log?limitBytes=5"))[1] == "one\nt"
    assert (await api.call("GET", f"{PODS}/p/log?container=x"))[0] == 400
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{api.server.plain_url}{PODS}/p/log?follow=true&tailLines=0"
    async with api.session.get(url, headers=headers) as response:
        with path.open("a") as handle:
            handle.write("four\n")
        assert await response.content.readline() == b"four\n"
        await api.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
        assert await response.content.read() == b""


async def test_a_service_account_may_do_what_its_roles_say(api: Api) -> None:
    account = "/api/v1/namespaces/default/serviceaccounts"
    await api.make(account, {"metadata": {"name": "bob"}})
    token = (await api.make(f"{account}/bob/token", {"spec": {"expirationSeconds": 600}}))["status"]["token"]
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rule = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps", "pods/log"]}
    await api.make(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})

    async def may(method: str, path: str) -> int:
        return (await api.call(method, path, Authorization=f"Bearer {token}"))[0]

    assert await may("GET", MAPS) == 403
    binding = {
        "metadata": {"name": "bob-reads"},
        "subjects": [{"kind": "ServiceAccount", "name": "bob", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
    }
    await api.make(f"{rbac}/rolebindings", binding)
    assert await may("GET", MAPS) == 200
    assert await may("GET", f"{MAPS}?watch=1&timeoutSeconds=1") == 403
    assert await may("GET", "/api/v1/namespaces/kube-system/configmaps") == 403
    assert await may("GET", "/api/v1/configmaps") == 403
    assert await may("DELETE", MAPS) == 403
    assert await may("GET", PODS) == 403
    assert await may("GET", "/apis") == 200
    review = {
        "spec": {"resourceAttributes": {"verb": "list", "resource": "configmaps", "namespace": "default"}}
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await api.call("POST", path, review, Authorization=f"Bearer {token}"))[1]["status"] == {
        "allowed": True
    }
    await api.call("DELETE", f"{account}/bob", expect=200)
    assert await may("GET", MAPS) == 401


async def test_tokens_end_and_cannot_be_forged(api: Api) -> None:
    account = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = (await api.make(account, {}))["status"]["token"]
    header, claims, signature = token.split(".")
    forged = f"{header}.{claims[:-4]}AAAA.{signature}"
    assert (await api.call("GET", "/apis", Authorization=f"Bearer {forged}"))[0] == 401
    assert (await api.call("GET", "/apis", Authorization=f"Bearer {token}"))[0] == 200
    for seconds in (1, "x", 10**9):
        assert (await api.call("POST", account, {"spec": {"expirationSeconds": seconds}}))[0] == 400


async def test_writes_survive_a_kill_because_they_are_stored_before_the_answer(
    api: Api, tmp_path: Path
) -> None:
    made = await api.make(MAPS, a_map("kept"))
    # Another process would see what is on the disk now; the first server is still running.
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("state.sqlite3", "state.sqlite3-wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    again = ApiServer(copy, TOKEN)
    found = again.store.get(("", "configmaps"), "default", "kept")
    assert found == made
    assert again.store.revision >= int(made["metadata"]["resourceVersion"])
    again.store.close()


async def test_old_events_are_dropped(api: Api) -> None:
    path = "/api/v1/namespaces/default/events"
    involved = {"kind": "Pod", "name": "p", "namespace": "default"}
    old = {"metadata": {"name": "old"}, "involvedObject": involved, "lastTimestamp": "2020-01-01T00:00:00Z"}
    await api.make(path, old)
    await api.make(path, {"metadata": {"name": "new"}, "involvedObject": involved})
    api.server.drop_old_events()
    assert [item["metadata"]["name"] for item in (await api.get(path))["items"]] == ["new"]


async def test_many_writers_at_once_lose_no_update(api: Api) -> None:
    await api.make(MAPS, a_map("n", count="0"))

    async def add() -> None:
        while True:
            now = await api.get(f"{MAPS}/n")
            now["data"]["count"] = str(int(now["data"]["count"]) + 1)
            if (await api.call("PUT", f"{MAPS}/n", now))[0] == 200:
                return

    await asyncio.gather(*(add() for _ in range(12)))
    assert (await api.get(f"{MAPS}/n"))["data"]["count"] == "12"


async def test_a_fresh_cluster_has_namespaces_accounts_and_the_usual_roles(api: Api) -> None:
    names = [item["metadata"]["name"] for item in (await api.get("/api/v1/namespaces"))["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    accounts = (await api.get("/api/v1/serviceaccounts"))["items"]
    assert {item["metadata"]["namespace"] for item in accounts} == set(names)
    roles = (await api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles"))["items"]
    assert {item["metadata"]["name"] for item in roles} == {"admin", "cluster-admin", "edit", "view"}
    await api.make("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await api.get("/api/v1/namespaces/team/serviceaccounts/default")


async def test_a_quota_counts_pods_that_have_not_ended(api: Api) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    await api.make(
        quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1", "limits.memory": "3Gi"}}}
    )
    await api.make(
        quotas, {"metadata": {"name": "r"}, "spec": {"hard": {"pods": "0"}, "scopes": ["BestEffort"]}}
    )

    def sized(name: str, memory: str) -> Json:
        container = {"name": "c", "image": "img:1", "resources": {"limits": {"memory": memory}}}
        return a_pod(name, containers=[container])

    await api.make(PODS, sized("a", "1Gi"))
    status, refusal = await api.call("POST", PODS, sized("b", "2560Mi"))
    told = "limits.memory=2560Mi,pods=1, used: limits.memory=1Gi,pods=1, limited: limits.memory=3Gi,pods=1"
    assert (status, refusal["message"]) == (
        403,
        f'pods "b" is forbidden: exceeded quota: q, requested: {told}',
    )
    await api.patch(f"{PODS}/a/status", {"status": {"phase": "Failed"}})
    assert (await api.call("POST", f"{PODS}?dryRun=All", sized("b", "2560Mi")))[0] == 201
    await api.make(PODS, sized("b", "2560Mi"))
