"""All cases of the table, and the recorded answers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.localplane.kube_table.cases import (
    applies,
    crds,
    deletions,
    lists,
    objects,
    pod_security,
    quotas,
    rules,
    schemas,
)
from tests.localplane.kube_table.table import Case, Json

CASES: tuple[Case, ...] = (
    *objects.CASES,
    *schemas.CASES,
    *rules.CASES,
    *crds.CASES,
    *applies.CASES,
    *deletions.CASES,
    *lists.CASES,
    *pod_security.CASES,
    *quotas.CASES,
)
ANSWERS = Path(__file__).with_name("answers.json")


def recorded() -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = json.loads(ANSWERS.read_text())
    return found


def record(answers: dict[str, list[Json]]) -> None:
    """A line per answer, so that a change shows what changed."""
    lines = []
    for name in sorted(answers):
        told = ",\n".join("  " + json.dumps(one, ensure_ascii=False, sort_keys=True) for one in answers[name])
        lines.append(f"{json.dumps(name)}: [\n{told}\n]")
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
