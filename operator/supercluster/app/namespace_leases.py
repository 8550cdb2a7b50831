"""A Lease of a fixed name in each namespace: of all operators that were to serve a namespace one acts there.

An operator of another release, or one for all namespaces, takes the same Lease (O28, B4). The states of a namespace:

    unknown --first resource--> waiting --Lease taken--> listing --lists are fresh--> served
    waiting, listing, served --no resource is left--> unknown, and the Lease is released
    listing, served --not renewed in time, or taken by another--> waiting

A round of a namespace begins while it is served. `time_left_s` bounds each of its requests, so a round whose namespace
was lost ends with its next write. The other namespaces go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field

from supercluster.app.lease import LeaseHolder, LeaseLostError
from supercluster.reconcilers.ports import Key
from supercluster.reconcilers.worker import Outcome

log = logging.getLogger(__name__)

# The same for every release.
NAME = "supercluster-operator"
_BEGAN_BY: ContextVar[LeaseHolder | None] = ContextVar(
    "holder of the namespace when the round began", default=None
)


@dataclass(slots=True)
class NamespaceLeases:
    copies: LeaseHolder
    """The Lease that copies of one release agree by: whoever lacks it takes none of these."""
    holder: Callable[[str], LeaseHolder]
    """A new one for a namespace; `copies`, if that is its Lease."""
    list_anew: Callable[[], Awaitable[None]]
    """What changed while another operator acted may not have been heard of yet."""
    wake: Callable[[str], None]
    """The resources of a namespace, which is served from now on."""
    failed: asyncio.Future[None] = field(default_factory=asyncio.Future)
    """Has the error of a namespace that can't be served for a reason of our own."""
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _served: dict[str, LeaseHolder] = field(default_factory=dict)

    def time_left_s(self) -> float:
        """How long the round that asks may go on writing without another renewal."""
        holder = _BEGAN_BY.get()
        return min(self.copies.time_left_s, holder.time_left_s) if holder is not None else 0.0

    async def guard(self, key: Key, reconcile: Callable[[Key], Awaitable[Outcome]]) -> Outcome:
        """A round, if the resource's namespace is served. It is asked for, if not."""
        holder = self._served.get(key.namespace)
        if holder is None:
            if key.namespace not in self._tasks:
                task = asyncio.create_task(self._serve(key.namespace), name=f"lease in {key.namespace}")
                task.add_done_callback(self._ended)
                self._tasks[key.namespace] = task
            return Outcome()
        _BEGAN_BY.set(holder)
        return await reconcile(key)

    async def keep_only(self, namespaces: Iterable[str]) -> None:
        """Release those without a resource."""
        await self._release(self._tasks.keys() - set(namespaces))

    async def release(self) -> None:
        """Let others take over at once, if the API server answers while the Leases are ours."""
        await self._release(set(self._tasks))
        await self.copies.release()

    async def _serve(self, namespace: str) -> None:
        while True:
            holder = self.holder(namespace)
            keeping: asyncio.Task[None] | None = None
            try:
                if holder is not self.copies:
                    await holder.acquire()
                    keeping = asyncio.create_task(holder.keep())
                await self.list_anew()
                self._served[namespace] = holder
                log.info("serving", extra={"namespace": namespace})
                self.wake(namespace)
                await (keeping or asyncio.Event().wait())
            except LeaseLostError as error:
                log.warning("not served any more", extra={"namespace": namespace, "reason": str(error)})
            finally:
                self._served.pop(namespace, None)
                if keeping is not None:
                    keeping.cancel()
                    await asyncio.gather(keeping, return_exceptions=True)
                    await holder.release()

    async def _release(self, namespaces: set[str]) -> None:
        tasks = [self._tasks.pop(name) for name in namespaces]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self.failed.done():
            self.failed.set_exception(error)
