"""Draws the diagram in docs/adr/cutover.md from the table of `migration/plan.py`. Pure."""

from __future__ import annotations

from supercluster.broker.migration.plan import TABLE, TURNS


def mermaid() -> str:
    """Each row that leads to another stage, and each turn that somebody else brings about, as an arrow."""
    arrows = [
        (stage, f"{row.do}, {row.why}", row.then)
        for stage, rows in TABLE.items()
        for row in rows
        if row.then is not None
    ]
    lines = [f"    {stage} --> {then}: {label}" for stage, label, then in (*arrows, *TURNS)]
    return "\n".join(("stateDiagram-v2", "    [*] --> pending", *lines, "    cleaned --> [*]"))
