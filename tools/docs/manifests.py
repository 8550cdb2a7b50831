"""Manifests in the pages that the API server would refuse: of our kinds, in YAML blocks and in what shell blocks hand to kubectl.

The embedded API server's own code checks names of fields, types, values and rules. A part of a manifest, without a kind, is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tools.docs.commands import BLOCK, HEREDOC, SHELL, pages_of

from supercluster.api.common import GROUP
from supercluster.api.crd import KINDS, definition
from supercluster.localplane.apiserver.schema import cel, schemas, validation

ROOTS = {
    kind.name: schemas.custom_root(definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    for kind in KINDS
}


def refused_manifests(root: Path) -> list[str]:
    """One line for each fault of a manifest in the pages below that root: where it is, and what it is."""
    found: list[str] = []
    for page in pages_of(root):
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            where = (
                f"{page.relative_to(root)}, block of line {text.count(chr(10), 0, block.start('text')) + 1}"
            )
            found += [f"{where}: {fault}" for fault in _faults(block["language"].strip(), block["text"])]
    return found


def _faults(language: str, text: str) -> Iterator[str]:
    if language in SHELL:
        texts = [each["body"] for each in HEREDOC.finditer(text)]
    else:
        texts = [text] if language == "yaml" else []
    for each in texts:
        if f"apiVersion: {GROUP}/" not in each:
            continue
        try:
            bodies = list(yaml.safe_load_all(each))
        except yaml.YAMLError as error:
            yield f"no YAML: {error}"
            continue
        for body in bodies:
            if str(body.get("apiVersion")).startswith(f"{GROUP}/"):
                yield from _faults_of(body)


def _faults_of(body: dict[str, Any]) -> Iterator[str]:
    kind = str(body.get("kind"))
    schema = ROOTS.get(kind)
    if schema is None:
        yield f"{kind} is no kind of ours"
        return
    name = f"{kind} {body['metadata']['name']}"
    yield from (f'{name}: unknown field "{path}"' for path in schemas.prune(body, schema))
    schemas.default(body, schema)
    for cause in (*validation.problems(body, schema), *cel.problems(body, None, schema)):
        yield f"{name}: {cause.field}: {cause.message}"
