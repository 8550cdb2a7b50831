from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supercluster.api.units import duration_ms, duration_ns, size_bytes


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0s", 0),
        ("500ms", 500_000_000),
        ("2m", 120 * 10**9),
        ("1h30m", 5400 * 10**9),
        ("24h", 86_400 * 10**9),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1024", 1024), ("1k", 1000), ("1Ki", 1024), ("512Mi", 512 * 2**20), ("3T", 3 * 10**12)],
)
def test_sizes_are_read_as_kubernetes_reads_quantities(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "5", "m", "1d", "-1s", "1.5h", "2m\n"])
def test_what_is_no_duration_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_ns(text)


@pytest.mark.parametrize("text", ["", "Mi", "1.5Gi", "1KB", "-1", "1 Mi"])
def test_what_is_no_size_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        size_bytes(text)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 999))
def test_parts_of_a_duration_add_up(hours: int, minutes: int, ms: int) -> None:
    assert duration_ms(f"{hours}h{minutes}m{ms}ms") == (hours * 60 + minutes) * 60_000 + ms
