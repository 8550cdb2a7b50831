"""The bulk port: HTTP for those who read whole streams (`docs/adr/bulk-reads.md`), or append to one by blocks
(`stages.py`).

An answer is made block by block. Before each piece that is sent, the copy, the block's version and the user's
rights are looked at again. If one of them is another one, the connection ends there: nothing is sent of a
message that was removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from supercluster.broker.auth.users import User
from supercluster.broker.bulk import layout
from supercluster.broker.bulk.blocks import Block, Version, block_of, blocks_of, version_of
from supercluster.broker.bulk.cache import Kept, Made
from supercluster.broker.bulk.callers import Callers, CutError, RefusedError, account_of, info_of, refusal
from supercluster.broker.bulk.host import Host
from supercluster.broker.bulk.maker import Key, Maker, bounds_of
from supercluster.broker.bulk.request import (
    APPEND_RIGHT,
    Asked,
    WrongParameterError,
    asked_by,
    may_append,
    may_read,
)
from supercluster.broker.bulk.stages import Stages, WrongFrameError
from supercluster.broker.bulk.transcoder import FailedJobError, Transcoder, TranscoderDiedError
from supercluster.broker.jetstream.stream.sealed import SealedMessages
from supercluster.broker.monitor.http_port import HttpPort
from supercluster.broker.net.clients.strangers import RationedLog
from supercluster.broker.net.hooks import Core
from supercluster.broker.raft.errors import DiskError

log = logging.getLogger(__name__)

PIECE_BYTES = 256 << 10
"""Read and written at once: larger ones leave the processor's cache between the two."""
NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""A read fails that would wait for the disk: then it is done on a thread, which costs as much as the rest."""
PIECE_S = 10.0
"""A reader that takes less than a piece in this time is cut."""
ANSWER_S = 300.0
"""No further block is begun then."""
RANGES_MAX = 65_536
"""Nor behind so many ranges of deleted messages, which the end frame names."""
LOOK_S = 10.0
"""How often columns are looked for whose messages are gone."""
CONTENT_TYPE = "application/octet-stream"


@dataclass(slots=True)
class Answer:
    """One request, and what was sent of it."""

    asked: Asked
    account: str
    stream: str
    user: User | None
    """None: there are no users."""
    sealed: SealedMessages
    at: int
    """The next sequence to serve."""
    end_s: float
    first: int = 0
    """The first sequence that was served; 0: none was."""
    rows: int = 0
    total: int = 0
    deleted: list[tuple[int, int]] = field(default_factory=list)
    why: str = ""
    """Why it ends before a block that is there; empty: there is none, or the reader may go on asking."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A block to be sent: its columns' files are open."""

    block: Block
    version: Version
    made: Made
    files: list[tuple[Kept, int]]
    """With their descriptors, in the order of the request."""


NO_FIGURES = dict.fromkeys(("bulk_readers", "bulk_cache_bytes", "bulk_rows", "bulk_jobs"), 0)


class BulkServer:
    """See the module."""

    def __init__(self, host: Host) -> None:
        loop = asyncio.get_running_loop()
        self._host = host
        self._settings = host.settings.bulk
        self._transcoder = Transcoder(loop)
        self.maker = Maker(host.place.data_dir, self._settings.quota_bytes, self._transcoder)
        self.port = HttpPort("bulk", host.clock.monotonic_ms)
        self._loop = loop
        self._looked_s = loop.time()
        self._ahead: set[asyncio.Task[tuple[Version, Made]]] = set()
        """They make columns that nobody waits for so far."""
        self.readers = 0
        self.writers = 0
        self.sent_rows = 0
        self._callers = Callers(host)
        self._log_failed = RationedLog(log.warning, host.clock.monotonic_ms)

    def figures(self) -> dict[str, int]:
        """For /metrics."""
        return {
            "bulk_readers": self.readers + self.writers,
            "bulk_cache_bytes": self.maker.cache.used_bytes,
            "bulk_rows": self.sent_rows,
            "bulk_jobs": self._transcoder.jobs,
        }

    async def start(self, address: str, port: int) -> int:
        """Bind and serve; returns the port.

        Raises:
            OSError: the address is in use or not ours, or the folder cannot be made.
        """
        self.maker.start()
        app = web.Application(client_max_size=0)
        app.router.add_get("/bulk/streams/{name}", self._reading, allow_head=False)
        app.router.add_post("/bulk/streams/{name}/stage", self._appending)
        return await self.port.start(app, address, port)

    async def stop(self) -> None:
        await self.port.stop()
        for task in self._ahead:
            task.cancel()
        await self._transcoder.close()

    def look(self) -> None:
        """Now and then: columns go whose block shows other messages now, or whose copy is gone."""
        if self._loop.time() - self._looked_s < LOOK_S:
            return
        self._looked_s = self._loop.time()
        for key in self.maker.cache:
            assert isinstance(key, Key)
            sealed = self._sealed(key.account, key.stream)[0]
            if (
                sealed is None
                or not sealed.is_open
                or version_of(key.block, bounds_of(sealed)) != self.maker.cache.version_of(key)
            ):
                self.maker.cache.drop(key)

    # ---- requests -------------------------------------------------------------------------------------------------

    async def _reading(self, request: web.Request) -> web.StreamResponse:
        return await self._served(request, may_read, self._answered)

    async def _appending(self, request: web.Request) -> web.StreamResponse:
        return await self._served(request, may_append, self._staged)

    async def _served(
        self,
        request: web.Request,
        may: Callable[[User | None, str], bool],
        answer: Callable[[web.Request, str, User | None], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        stream = request.match_info["name"]
        self.port.guards.begins(request.protocol)
        try:
            user = await self._callers.find(request)
            if not may(user, stream):
                does = "append to" if may is may_append else "read the whole"
                return refusal(403, f"the user may not {does} stream {stream}")
            return await answer(request, stream, user)
        except RefusedError as refused:
            return refused.answer
        finally:
            self.port.guards.ended(request.protocol)

    async def _answered(self, request: web.Request, stream: str, user: User | None) -> web.StreamResponse:
        try:
            asked = asked_by(request.query)
        except WrongParameterError as wrong:
            return refusal(400, str(wrong))
        account = account_of(user)
        sealed, nodes = self._sealed(account, stream)
        if sealed is None:
            return refusal(404, "no copy of the stream is here", nodes=nodes)
        if not sealed.is_open:
            return refusal(503, "this copy cannot serve now", nodes=nodes)
        if asked.lineage and asked.lineage != sealed.lineage:
            return refusal(409, "the stream is of another lineage", lineage=sealed.lineage)
        if self.readers >= self._settings.readers_max:
            return refusal(429, "too many readers", {"Retry-After": "1"}, nodes=nodes)
        answer = Answer(asked, account, stream, user, sealed, asked.first, self._loop.time() + ANSWER_S)
        self.readers += 1
        try:
            return await self._send(request, answer)
        except (TranscoderDiedError, DiskError) as error:
            self._log_failed("bulk port: stream %s: %s", stream, error)
            return refusal(503, "this copy cannot serve now", nodes=nodes)
        finally:
            self.readers -= 1

    async def _staged(self, request: web.Request, stream: str, user: User | None) -> web.StreamResponse:
        core = self._host.core
        if core is None:
            return refusal(404, "this broker has no streams")
        # A page in somebody's browser may not send this type, and may send none.
        if request.headers.get("Content-Type") != CONTENT_TYPE:
            return refusal(415, f"the body has to be {CONTENT_TYPE}")
        if self.writers >= self._settings.readers_max:
            return refusal(429, "too many writers", {"Retry-After": "1"})
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        self.writers += 1
        try:
            await response.prepare(request)
            call = partial(self._stage, core, stream, user)
            await Stages(call, self._callers.payload_bytes_max(user)).serve(request.content, response)
        except* (CutError, WrongFrameError, OSError, HttpProcessingError, web.RequestPayloadError) as cut:
            self._log_failed("bulk port: blocks for stream %s: %r", stream, cut.exceptions[0])
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.writers -= 1
        return response

    def _stage(
        self, core: Core, stream: str, user: User | None, payload: bytes, then: Callable[[bytes], None]
    ) -> None:
        """One block, as if the user had called the API over NATS.

        Raises:
            CutError: the user may not do it any more.
        """
        now = self._callers.now(user)
        if not may_append(now, stream):
            raise CutError
        core.call_api(info_of(now), (APPEND_RIGHT + stream).encode(), payload, then)

    def _sealed(self, account: str, stream: str) -> tuple[SealedMessages | None, list[str]]:
        core = self._host.core
        return core.sealed(account, stream) if core is not None else (None, [])

    # ---- sending --------------------------------------------------------------------------------------------------

    async def _send(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        """Raises TranscoderDiedError, DiskError: nothing was sent so far."""
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        try:
            async with self._next(answer) as ready:
                await response.prepare(request)
                if ready is not None:
                    await self._send_block(response, answer, ready)
            while ready is not None:
                try:
                    async with self._next(answer) as ready:
                        if ready is not None:
                            await self._send_block(response, answer, ready)
                except (TranscoderDiedError, DiskError) as error:
                    self._log_failed("bulk port: stream %s: %s", answer.stream, error)
                    break
            self._check(answer)
            first = answer.first or answer.asked.first
            last = answer.at - 1 if answer.first else first - 1
            covered = {
                "first": first,
                "last": last,
                "rows": answer.rows,
                "deleted": answer.deleted,
                "lineage": answer.sealed.lineage,
                "sums": answer.total,
                **({"why": answer.why} if answer.why else {}),
            }
            async with asyncio.timeout(PIECE_S):
                await response.write(layout.end_frame(first, covered))
                await response.write_eof()
        except (CutError, TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        return response

    @contextlib.asynccontextmanager
    async def _next(self, answer: Answer) -> AsyncIterator[Ready | None]:
        """The block to be sent next; None: the answer ends here.

        Raises:
            TranscoderDiedError, DiskError: nobody knows.
        """
        ready = await self._ready(answer)
        try:
            yield ready
        finally:
            self._close(ready.files if ready is not None else ())

    def _close(self, files: Iterable[tuple[Kept, int]]) -> None:
        for kept, descriptor in files:
            os.close(descriptor)
            self.maker.cache.closed(kept)

    async def _ready(self, answer: Answer) -> Ready | None:
        self._check(answer)
        sealed, columns = answer.sealed, answer.asked.columns
        if self._loop.time() > answer.end_s or len(answer.deleted) > RANGES_MAX or not sealed.keeps_messages:
            return None
        while (block := self._block(answer)) is not None:
            try:
                version, made = await self.maker.columns(
                    Key(answer.account, answer.stream, block), sealed, columns
                )
            except FailedJobError as error:
                log.info("bulk port: stream %s: no block from %d on: %s", answer.stream, block.first, error)
                if version_of(block, bounds_of(sealed)).first <= block.last:
                    answer.why = str(error)
                return None
            if answer.first and version.first != answer.at:
                return None  # What it began with was removed, or carried forward: the next block does not follow.
            files: list[tuple[Kept, int]] = []
            try:
                for name in columns:
                    kept = made.columns[name]
                    files.append((kept, os.open(self.maker.path(kept), os.O_RDONLY)))
                    self.maker.cache.opened(kept)
            except OSError as error:
                self._close(files)
                self.maker.cache.drop(Key(answer.account, answer.stream, block))
                raise DiskError(f"columns cannot be opened: {error}") from error
            return Ready(block, version, made, files)
        return None

    @staticmethod
    def _block_of(sealed: SealedMessages, seq: int) -> Block | None:
        segment = sealed.segment_of(seq)
        return block_of(blocks_of(segment, sealed.applied_index), seq) if segment is not None else None

    def _block(self, answer: Answer) -> Block | None:
        """The one that the next sequence is in."""
        sealed = answer.sealed
        if not answer.first:
            answer.at = max(answer.at, sealed.first_seq)
        while answer.at <= answer.asked.last:
            block = self._block_of(sealed, answer.at)
            if block is None or answer.first or block.first >= sealed.first_seq or not sealed.is_trimmed:
                return block
            answer.at = block.last + 1  # The limits eat it up: it would be another one before it was sent.
        return None

    def _make_ahead(self, answer: Answer, at: int) -> None:
        """Have the columns of the next block made while this one is sent. Readers that went leave jobs behind, which are bounded."""
        if len(self._ahead) >= self._settings.readers_max:
            return
        block = None
        with contextlib.suppress(DiskError):  # Who asks for the block hears of it: this answer has begun.
            block = self._block_of(answer.sealed, at) if at <= answer.asked.last else None
        if block is not None:
            making = self.maker.columns(
                Key(answer.account, answer.stream, block), answer.sealed, answer.asked.columns
            )
            task = self._loop.create_task(making)
            self._ahead.add(task)
            task.add_done_callback(self._made_ahead)

    def _made_ahead(self, task: asyncio.Task[tuple[Version, Made]]) -> None:
        self._ahead.discard(task)
        if not task.cancelled():
            task.exception()  # Who asks for the block hears of it.

    async def _send_block(self, response: web.StreamResponse, answer: Answer, ready: Ready) -> None:
        """Raises CutError."""
        self._make_ahead(answer, ready.block.last + 1)
        stamp: tuple[object, ...] = ()
        for place, (kept, descriptor) in enumerate(ready.files):
            head = layout.head(
                layout.COLUMN, place, ready.made.rows, ready.version.first, kept.size_bytes, kept.total
            )
            for offset in range(0, kept.size_bytes, PIECE_BYTES):
                piece = await self._read(descriptor, offset, min(PIECE_BYTES, kept.size_bytes - offset))
                self._check(answer)
                if stamp != answer.sealed.stamp:
                    if version_of(ready.block, bounds_of(answer.sealed)) != ready.version:
                        raise CutError
                    stamp = answer.sealed.stamp
                async with asyncio.timeout(PIECE_S):
                    await response.write(head + piece if head else piece)
                head = b""
            answer.total = (answer.total + kept.total) % layout.SUM_MODULUS
        answer.first = answer.first or ready.version.first
        answer.at = ready.block.last + 1
        answer.rows += ready.made.rows
        answer.deleted += ready.made.deleted
        self.sent_rows += ready.made.rows

    async def _read(self, descriptor: int, offset: int, size: int) -> bytearray:
        """Raises CutError: the file has less."""
        await asyncio.sleep(0)  # However quick a reader is, it leaves the loop to others.
        piece = bytearray(size)
        if not (NOWAIT and read_into(piece, descriptor, offset, NOWAIT)):
            is_read = await self._loop.run_in_executor(None, read_into, piece, descriptor, offset)
            if not is_read:
                raise CutError
        return piece

    def _check(self, answer: Answer) -> None:
        """Raises CutError: the copy is another one, or the user may not read it any more."""
        sealed = answer.sealed
        if not sealed.is_open or not sealed.is_same(self._sealed(answer.account, answer.stream)[0]):
            raise CutError
        now = self._callers.now(answer.user)
        if now is not answer.user:
            answer.user = now
            if not may_read(now, answer.stream):
                raise CutError


def read_into(piece: bytearray, descriptor: int, offset: int, flags: int = 0) -> bool:
    """Was all of it read?"""
    with contextlib.suppress(OSError):
        return os.preadv(descriptor, [piece], offset, flags) == len(piece)
    return False
