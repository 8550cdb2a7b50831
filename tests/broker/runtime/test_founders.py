"""Who begins the map of streams among brokers that found one another by addresses."""

from __future__ import annotations

import pytest

from supercluster.broker.runtime.founders import voters


@pytest.mark.parametrize(
    ("count", "wanted"), [(0, 0), (1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)]
)
def test_an_odd_number_of_the_first_brokers_begins(count: int, wanted: int) -> None:
    names = tuple(f"s{number}" for number in range(count))
    assert voters(names, "A", ()) == names[:wanted]


def test_of_clusters_that_name_the_same_ones_just_one_begins() -> None:
    clusters = {"B", "a", "C"}
    begin = {cluster: voters(("s1",), cluster, clusters - {cluster}) for cluster in clusters}
    assert begin == {"B": ("s1",), "C": (), "a": ()}
    assert voters(("s1",), "B", clusters) == ("s1",), "a list may have the own cluster as well"
