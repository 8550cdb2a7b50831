from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from supercluster.api.conditions import EVENTS, REASONS, TYPES, ConditionType, EventReason, Reason
from supercluster.api.generate import files, main


@pytest.mark.covers("OP-1")
def test_what_is_committed_is_what_the_models_say() -> None:
    assert main(["--check"]) == 0


def test_check_names_the_stale_file_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(tmp_path)]) == 0
    stale = tmp_path / "crds" / "streams.yaml"
    stale.write_text("kind: Nothing\n")
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "crds/streams.yaml: differs from the models" in capsys.readouterr().err
    assert stale.read_text() == "kind: Nothing\n"


def test_the_generated_yaml_reads_back_without_anchors() -> None:
    for name, text in files().items():
        if name.endswith(".yaml"):
            assert yaml.safe_load(text)["kind"] == "CustomResourceDefinition"
            assert "&id" not in text


def test_every_type_reason_and_event_is_explained() -> None:
    assert set(TYPES) == set(ConditionType)
    assert set(REASONS) == set(Reason)
    assert set(EVENTS) == set(EventReason)
