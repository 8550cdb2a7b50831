"""What `supercluster migrate` makes of its arguments (BG-2)."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.api import Migration
from supercluster.app.commands import migrate


def wish(**fields: Any) -> migrate.Wish:
    return migrate.Wish("over", {"superCluster": "blue"}, {"superCluster": "green"}, **fields)


def test_names_of_clusters_stand_in_the_manifest() -> None:
    clusters = migrate.cluster_names(["west=east", "south=north"])
    spec = wish(clusters=clusters).manifest("ns")["spec"]
    assert spec["clusters"] == {"west": "east", "south": "north"}
    assert Migration.model_validate(wish(clusters=clusters).manifest("ns")).spec.clusters == spec["clusters"]
    assert "clusters" not in wish().manifest("ns")["spec"]


@pytest.mark.parametrize("texts", [["west"], ["=east"], ["west="], ["west=east", "west=north"]])
def test_a_name_without_the_other_one_is_refused(texts: list[str]) -> None:
    with pytest.raises(migrate.MigrateError, match="such as west=east"):
        migrate.cluster_names(texts)
