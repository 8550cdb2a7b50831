"""Sends the table's requests to a server, and reduces answers to what must agree."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tests.localplane.kube_table.definitions import SHARED
from tests.localplane.kube_table.table import CRDS, TYPES, Case, Json, Step

# An end for what hangs: background work of a real API server takes seconds at most.
BACKGROUND_S = 60.0
POLL_S = 0.05
CASES_AT_ONCE = 8
DROPPED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
AGENT = "table"


@dataclass(slots=True)
class Server:
    """An API server's address and how to talk to it."""

    url: str
    token: str
    context: ssl.SSLContext | None = None


@dataclass(slots=True)
class Variables:
    """What paths and bodies name in braces."""

    values: dict[str, str] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        for name, value in self.values.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def back(self, text: str) -> str:
        for name in ("ns", "group", "run"):
            text = text.replace(self.values[name], f"{{{name}}}")
        return text


class Bench:
    """One server under the table."""

    def __init__(self, server: Server, session: aiohttp.ClientSession, run: str) -> None:
        self._server = server
        self._session = session
        self._run = run

    @property
    def _shared(self) -> dict[str, str]:
        return {"run": self._run, "group": f"{self._run}.example.com"}

    async def prepare(self) -> None:
        """Make the shared definitions, and wait until they are served."""
        variables = Variables({**self._shared, "ns": "default"})
        for crd in SHARED:
            status, _, found = await self._send(Step("POST", CRDS, crd), variables)
            assert status == 201, found
            plural = crd["spec"]["names"]["plural"]
            await self._until(Step("GET", f"/apis/{{group}}/v1/{plural}", until=200), variables)

    async def clear(self) -> None:
        variables = Variables({**self._shared, "ns": "default"})
        for crd in SHARED:
            await self._send(Step("DELETE", f"{CRDS}/{crd['metadata']['name']}"), variables)

    async def answers(self, cases: list[Case], *, again: bool = False) -> dict[str, list[Json]]:
        """The answers of each case. `again`: it was asked before, and what it made may be there still."""
        places = asyncio.Semaphore(CASES_AT_ONCE)

        async def one(case: Case) -> list[Json]:
            async with places:
                return await self.run(case, f"{self._run}-again" if again else self._run)

        found = await asyncio.gather(*(one(case) for case in cases))
        return {case.name: answers for case, answers in zip(cases, found, strict=True)}

    async def run(self, case: Case, prefix: str) -> list[Json]:
        namespace = f"{prefix}-{case.name}"[:60]
        variables = Variables({**self._shared, "ns": namespace})
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await self._until(Step("POST", "/api/v1/namespaces", body, until=201), variables)
        answers = []
        for step in case.steps:
            if step.method == "WATCH":
                answers.append(await self._watch(step, variables))
                continue
            status, warnings, found = await self._until(step, variables)
            _save(step, found, variables)
            answers.append(_reduced(step, status, warnings, found, variables))
        await self._send(Step("DELETE", f"/api/v1/namespaces/{namespace}"), variables)
        return answers

    async def _until(self, step: Step, variables: Variables) -> tuple[int, list[str], Any]:
        async with asyncio.timeout(BACKGROUND_S):
            while True:
                status, warnings, found = await self._send(step, variables)
                if step.until in (0, status) and (step.when is None or step.when(found)):
                    return status, warnings, found
                await asyncio.sleep(POLL_S)

    def _request(self, step: Step, variables: Variables) -> Any:
        body = step.body if isinstance(step.body, str | None) else json.dumps(step.body)
        url = self._server.url + variables.fill(step.path)
        if step.query:
            url += "?" + variables.fill(step.query)
        headers = {"Authorization": f"Bearer {self._server.token}", "User-Agent": AGENT}
        if body is not None:
            headers["Content-Type"] = TYPES[step.type]
        return self._session.request(
            "GET" if step.method == "WATCH" else step.method,
            url,
            data=variables.fill(body).encode() if body is not None else None,
            headers=headers,
            ssl=self._server.context or False,
        )

    async def _send(self, step: Step, variables: Variables) -> tuple[int, list[str], Any]:
        async with self._request(step, variables) as response:
            text = await response.text()
            warnings = response.headers.getall("Warning", [])
            try:
                return response.status, warnings, json.loads(text)
            except ValueError:
                return response.status, warnings, text

    async def _watch(self, step: Step, variables: Variables) -> Json:
        events: list[Any] = []
        async with self._request(step, variables) as response:
            if response.status != 200:
                found = json.loads(await response.text())
                return _reduced(step, response.status, [], found, variables)
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "BOOKMARK" and not event["object"]["metadata"].get("annotations"):
                    # A real server sends one before the end of a watch when it comes to it.
                    continue
                events.append([event["type"], _shown_event(step, event, variables)])
        return {"status": 200, "events": events}


def _shown_event(step: Step, event: Json, variables: Variables) -> Any:
    if event["type"] == "ERROR":
        return {"code": event["object"]["code"], "reason": event["object"]["reason"]}
    if event["type"] == "BOOKMARK":
        return event["object"]["metadata"].get("annotations", {})
    return _back(_object(step, event["object"]), variables)


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _save(step: Step, found: Any, variables: Variables) -> None:
    for name, path in step.save.items():
        value = at(found, path)
        assert value is not None, f"{step} gave no {path}: {found}"
        variables.values[name] = str(value)


def _back(value: Json, variables: Variables) -> Json:
    found: Json = json.loads(variables.back(json.dumps(value)))
    return found


def _reduced(step: Step, status: int, warnings: list[str], found: Any, variables: Variables) -> Json:
    """What must agree of an answer."""
    answer: Json = {"status": status}
    if warnings and status < 400:
        answer["warnings"] = sorted(warnings)
    if not isinstance(found, dict):
        return answer
    if found.get("kind") == "Status":
        if found.get("status") == "Success":
            answer["success"] = True
            return _back(answer, variables)
        answer["reason"] = found.get("reason", "")
        details = found.get("details") or {}
        for key in ("group", "kind", "name"):
            if details.get(key):
                answer[key] = details[key]
        causes = [
            f"{cause.get('reason')} {cause.get('field', '')}"
            for cause in details.get("causes") or ()
            if cause.get("reason")
        ]
        if causes:
            answer["causes"] = sorted(set(causes))
        if step.message:
            answer["message"] = found.get("message", "")
    elif isinstance(found.get("items"), list):
        answer["items"] = [_object(step, item) for item in found["items"]]
        for key in ("continue", "remainingItemCount"):
            if found["metadata"].get(key):
                answer[key] = True if key == "continue" else found["metadata"][key]
    else:
        answer["object"] = _object(step, found)
    for path, wanted in step.same.items():
        answer.setdefault("same", {})[path] = at(found, path) == variables.fill(wanted)
    return _back(answer, variables)


def _object(step: Step, obj: Any) -> Any:
    """An object without what differs from run to run."""
    managed = (obj.get("metadata") or {}).get("managedFields")
    if step.shows is not None:
        shown = {path: at(obj, path) for path in step.shows}
    else:
        metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in DROPPED}
        if metadata.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = "set"
        if metadata.get("generateName") and metadata["name"] != metadata["generateName"]:
            metadata["name"] = (
                f"{metadata['generateName']}*{len(metadata['name']) - len(metadata['generateName'])}"
            )
        for owner in metadata.get("ownerReferences") or ():
            owner["uid"] = "some"
        shown = {**obj, "metadata": metadata}
    if step.managers:
        keys = ("manager", "operation", "apiVersion", "subresource", "fieldsV1")
        entries = [{key: entry[key] for key in keys if key in entry} for entry in managed or ()]
        shown["managers"] = sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
    return shown
