"""The cache of columns: what it counts, what goes first, and what readers keep."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.bulk.cache import Cache, Kept, Made


def made(name: str, size: int = 10, version: int = 1) -> Made:
    return Made(version, 1, [], {"payload": Kept(name, size, 0)})


def test_the_one_that_was_read_least_of_late_goes_first() -> None:
    gone: list[str] = []
    cache = Cache(30, gone.append)
    for name in "abc":
        cache.put(name, made(name))
    assert cache.find("a", 1) is not None
    assert cache.room(10) == 10
    assert gone == ["b"]
    assert cache.room(31) == 30
    assert (gone, len(cache), cache.used_bytes) == (["b", "c", "a"], 0, 0)


def test_a_file_that_is_read_stays_and_takes_its_room_until_it_is_closed() -> None:
    gone: list[str] = []
    cache = Cache(30, gone.append)
    kept = cache.put("a", made("a", 20)).columns["payload"]
    cache.opened(kept)
    assert (cache.room(30), gone) == (10, [])
    cache.drop("a")
    assert (cache.used_bytes, gone) == (20, ["a"])
    cache.closed(kept)
    assert cache.room(30) == 30


def test_another_version_is_found_no_more_and_removed() -> None:
    gone: list[str] = []
    cache = Cache(100, gone.append)
    cache.put("a", made("a"))
    assert cache.find("a", 2) is None
    assert (gone, cache.used_bytes) == (["a"], 0)
    cache.put("a", made("old"))
    cache.put("a", made("new", version=2))
    assert (gone, cache.used_bytes, cache.version_of("a")) == (["a", "old"], 10, 2)
    found = cache.put("a", Made(2, 1, [], {"time": Kept("time", 5, 0)}))
    assert (sorted(found.columns), cache.used_bytes) == (["payload", "time"], 15)


@given(st.lists(st.tuples(st.sampled_from("pocrd"), st.integers(0, 3), st.integers(1, 9))))
def test_used_bytes_are_those_of_all_files_that_are_there_or_read(acts: list[tuple[str, int, int]]) -> None:
    there: dict[str, int] = {}

    def remove(name: str) -> None:
        del there[name]

    cache = Cache(25, remove)
    opened: list[Kept] = []
    for number, (act, block, size) in enumerate(acts):
        if act == "p":
            there[str(number)] = size
            cache.put(block, made(str(number), size, version=size % 2))
        elif act == "o" and (found := cache.find(block, cache.version_of(block))) is not None:
            cache.opened(found.columns["payload"])
            opened.append(found.columns["payload"])
        elif act == "c" and opened:
            cache.closed(opened.pop())
        elif act == "r":
            cache.room(size)
        elif act == "d":
            cache.drop(block)
        read = {kept.name: kept.size_bytes for kept in opened}
        assert cache.used_bytes == sum({**read, **there}.values())
