"""The judge of commit subjects, as pre-commit calls it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "check-subject.sh"


def judged(tmp_path: Path, subject: str) -> subprocess.CompletedProcess[str]:
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nA body. It may have full stops.\n")
    return subprocess.run([TOOL, message], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "subject",
    ["net: bound what strangers keep", "Merge branch 'a'", "fixup! net: bound", "raft: " + "x" * 66],
)
def test_a_subject_of_the_form_is_taken(tmp_path: Path, subject: str) -> None:
    assert judged(tmp_path, subject).returncode == 0


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("Bound what strangers keep", "area: imperative"),
        ("net: Bound what strangers keep", "area: imperative"),
        ("net: bound what strangers keep.", "full stop"),
        ("raft: " + "x" * 67, "73 characters"),
    ],
)
def test_another_subject_is_refused_with_the_reason(tmp_path: Path, subject: str, why: str) -> None:
    found = judged(tmp_path, subject)
    assert found.returncode == 1
    assert why in found.stderr
