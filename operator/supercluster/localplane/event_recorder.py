"""Kubernetes events, recorded in the background and bounded.

Repeated events are counted, and their count is written less and less often, so that a probe that fails every
second does not write every second.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass

import aiohttp

from supercluster.localplane.client import EVENTS, Client, Json, RequestError
from supercluster.localplane.times import now_utc, stamp

log = logging.getLogger(__name__)

WAITING_MAX = 1000
REMEMBERED_MAX = 2000
MESSAGE_CHARACTERS_MAX = 1024
REWRITE_MAX_S = 300.0


@dataclass(frozen=True, slots=True)
class _Note:
    obj: Json
    is_warning: bool
    reason: str
    message: str


@dataclass(slots=True)
class _Written:
    """An event in the API: how often it was seen, and from when on the count may be written again."""

    name: str
    count: int
    due_s: float
    wait_s: float


class EventRecorder:
    """Writes events for one component. Events are best effort: when too many wait, further ones are dropped."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._waiting: asyncio.Queue[_Note] = asyncio.Queue(WAITING_MAX)
        # What was written for an object, reason and message.
        self._written: OrderedDict[tuple[str, ...], _Written] = OrderedDict()

    def normal(self, obj: Json, reason: str, message: str) -> None:
        self._add(_Note(obj, False, reason, message))

    def warning(self, obj: Json, reason: str, message: str) -> None:
        self._add(_Note(obj, True, reason, message))

    def _add(self, note: _Note) -> None:
        try:
            self._waiting.put_nowait(note)
        except asyncio.QueueFull:
            log.debug("event dropped: %s %s", note.reason, note.message)

    async def run(self) -> None:
        while True:
            note = await self._waiting.get()
            try:
                await self._write(note)
            except (RequestError, aiohttp.ClientError, TimeoutError, OSError) as error:
                log.debug("event not written: %s", error)

    async def _write(self, note: _Note) -> None:
        meta = note.obj["metadata"]
        namespace = meta.get("namespace") or "default"
        same = (str(meta.get("uid")), note.reason, note.message)
        moment = stamp(now_utc())
        now_s = asyncio.get_running_loop().time()
        written = self._written.get(same)
        if written is not None:
            written.count += 1
            if now_s < written.due_s:
                return
            try:
                again = {"count": written.count, "lastTimestamp": moment}
                await self._client.patch(EVENTS, (namespace, written.name), again)
                written.wait_s = min(written.wait_s * 2, REWRITE_MAX_S)
                written.due_s = now_s + written.wait_s
                return
            except RequestError as error:
                if error.status != 404:
                    raise
        digest = hashlib.sha256("\0".join((*same, moment)).encode()).hexdigest()[:16]
        body: Json = {
            "metadata": {"name": f"{meta['name']}.{digest}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": note.obj.get("apiVersion"),
                "kind": note.obj.get("kind"),
                "name": meta["name"],
                "namespace": meta.get("namespace", ""),
                "uid": meta.get("uid"),
                "resourceVersion": meta.get("resourceVersion"),
            },
            "type": "Warning" if note.is_warning else "Normal",
            "reason": note.reason,
            "message": note.message[:MESSAGE_CHARACTERS_MAX],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        made = await self._client.create(EVENTS, body)
        self._written[same] = _Written(made["metadata"]["name"], 1, now_s, 1.0)
        self._written.move_to_end(same)
        while len(self._written) > REMEMBERED_MAX:
            self._written.popitem(last=False)
