"""Reports of each broker's free room to the meta group's leader, which places copies by it.

They are never replicated: a report is outdated after seconds, and a new leader gets one at once. The values
of an idle broker hardly change, and unchanged values are sent seldom.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.links.frames import Body, Frame, encode_load
from supercluster.broker.jetstream.placement.room import Room

LOAD_EVERY_MS = 2000
# What has hardly changed is said again after this, in case the word was lost.
LOAD_AGAIN_MS = 30_000
# A broker that has said nothing for so long while it was linked is not believed to have the room that it had.
LOAD_VALID_MS = 3 * LOAD_AGAIN_MS


class CapacityReports:
    """This broker's reports, and those of the others to it."""

    def __init__(
        self,
        node: str,
        own_room: Callable[[], Room],
        post: Callable[[str, int, Body], bool],
        meta_leader: Callable[[], str | None],
    ) -> None:
        self._node = node
        self._own_room = own_room
        self._post = post
        self._meta_leader = meta_leader
        self._told: dict[str, tuple[int, Room]] = {}
        self._due_ms = 0
        self._said: Room | None = None
        self._said_ms = 0

    def tick(self, now_ms: int) -> None:
        """Tell the meta leader what is here."""
        leader = self._meta_leader()
        if leader is None or leader == self._node or now_ms < self._due_ms:
            return
        self._due_ms = now_ms + LOAD_EVERY_MS
        room = self._own_room()
        if self._said is not None and room.is_like(self._said) and now_ms - self._said_ms < LOAD_AGAIN_MS:
            return
        if self._post(leader, Frame.LOAD, encode_load(room.file_bytes, room.memory_bytes)):
            self._said, self._said_ms = room, now_ms

    def tell_soon(self) -> None:
        """There is a meta leader that may not know: tell it with the next tick."""
        self._due_ms, self._said = 0, None

    def deadline_ms(self) -> int | None:
        leader = self._meta_leader()
        return self._due_ms if leader is not None and leader != self._node else None

    def took(self, node: str, room: Room, now_ms: int) -> None:
        """A broker told its room."""
        self._told[node] = (now_ms, room)

    def forget(self, node: str) -> None:
        """It is out of contact."""
        self._told.pop(node, None)

    def room_of(self, node: str, now_ms: int) -> Room | None:
        """A broker's room; None while it is not known."""
        if node == self._node:
            return self._own_room()
        told_ms, room = self._told.get(node, (0, None))
        return room if now_ms - told_ms <= LOAD_VALID_MS else None
