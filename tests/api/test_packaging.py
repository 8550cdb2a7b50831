"""What a wheel has to bring along."""

from __future__ import annotations

import tomllib
from pathlib import Path

from supercluster.api.crd import KINDS

ROOT = Path(__file__).resolve().parents[2]


def test_every_definition_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    files = {f"crds/{kind.plural}.yaml" for kind in KINDS}
    assert files <= included.keys()
    assert all((ROOT / name).exists() for name in included)
