"""`python -m supercluster.api.generate` writes crds/*.yaml and docs/api.md; `--check` compares and writes nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from supercluster.api import docs
from supercluster.api.crd import KINDS, definition

HEADER = "# Generated from crds/supercluster/api by `make crds`; do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """Indents lists, as kubectl's readers are used to, and writes no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def files() -> dict[str, str]:
    """Path below the repository's root, and text, of everything generated."""
    generated = {
        f"crds/{kind.plural}.yaml": HEADER
        + yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
        for kind in KINDS
    }
    # helm upgrades what its templates have, and never what stands in a chart's crds/. An uninstall keeps them, and all resources.
    generated |= {
        f"charts/supercluster/files/{path}": text.replace(
            "\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n", 1
        )
        for path, text in generated.items()
    }
    generated["docs/api.md"] = docs.render()
    return generated


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m supercluster.api.generate",
        description="Write the custom resource definitions and their page of documentation from the models.",
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with what is there; exit 1 when it differs"
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parents[3], help="root of the repository"
    )
    arguments = parser.parse_args(argv)
    stale = []
    for name, text in files().items():
        path = arguments.root / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if not stale:
        return 0
    verb = "differs from the models; run `make crds`" if arguments.check else "written"
    for name in stale:
        print(f"{name}: {verb}", file=sys.stderr if arguments.check else sys.stdout)
    return 1 if arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
