"""The room that a broker tells others of."""

from __future__ import annotations

from supercluster.broker.storage.disk.space import Space


class Disk:
    def __init__(self, free: int) -> None:
        self.free = free

    def free_bytes(self) -> int:
        return self.free


def test_room_is_what_messages_may_take_by_disk_and_capacity() -> None:
    assert Space(Disk(1000), reserve_bytes=300).room_bytes() == 700
    assert Space(Disk(200), reserve_bytes=300).room_bytes() == 0
    space = Space(Disk(10_000), capacity_bytes=1000, reserve_bytes=100)
    assert space.room_bytes() == 900
    space.took(850)
    assert space.room_bytes() == 50
    assert space.has_room(50)
    assert not space.has_room(51)
    space.took(200)
    assert space.room_bytes() == 0
