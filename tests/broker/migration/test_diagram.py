"""The diagram in the docs is the table that runs."""

from __future__ import annotations

from pathlib import Path

from supercluster.broker.migration.diagram import mermaid

PAGE = Path(__file__).parents[3] / "docs/adr/cutover.md"


def test_the_page_shows_the_table_as_it_is() -> None:
    assert f"```mermaid\n{mermaid()}\n```" in PAGE.read_text(), "put the output of migration/diagram.py there"
