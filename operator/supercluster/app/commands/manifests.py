"""`supercluster apply`: manifests from files, folders or standard input, by server-side apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import yaml

from supercluster.app.commands.errors import UsageError
from supercluster.app.kube import KubeClient
from supercluster.reconcilers.ports import Json, KubeError, mapping

SUFFIXES = (".yaml", ".yml", ".json")


class ManifestError(UsageError):
    """A manifest can't be read; the message names file, document and field."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file."""

    source: str
    body: Json

    @property
    def label(self) -> str:
        group = str(self.body["apiVersion"]).rpartition("/")[0]
        kind = str(self.body["kind"]).lower()
        return f"{kind}{'.' + group if group else ''}/{self.body['metadata']['name']}"


def read(paths: list[str], stdin: TextIO) -> list[Document]:
    """All documents, in the order of the arguments; in a folder, by file name.

    Raises:
        ManifestError: a file can't be read or is no manifest.
    """
    return [document for path in paths for document in _read_one(path, stdin)]


def _read_one(path: str, stdin: TextIO) -> Iterator[Document]:
    if path == "-":
        yield from _documents("standard input", stdin.read())
        return
    root = Path(path)
    if root.is_dir():
        files = sorted(file for file in root.iterdir() if file.suffix in SUFFIXES)
        if not files:
            raise ManifestError(f"{path}: no file in it ends in {', '.join(SUFFIXES)}")
    else:
        files = [root]
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ManifestError(f"{file}: {error}") from error
        yield from _documents(str(file), text)


def _documents(source: str, text: str) -> Iterator[Document]:
    try:
        bodies = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ManifestError(f"{source}: not YAML: {error}") from error
    for number, body in enumerate(bodies, start=1):
        if body is None:
            continue
        where = f"{source}, document {number}" if len(bodies) > 1 else source
        if isinstance(body, dict) and body.get("kind") == "List":
            for item in body.get("items") or ():
                yield _checked(where, item)
        else:
            yield _checked(where, body)


def _checked(where: str, body: Any) -> Document:
    if not isinstance(body, dict):
        raise ManifestError(
            f"{where}: a manifest is a mapping with apiVersion, kind and metadata, not {type(body).__name__}"
        )
    for key in ("apiVersion", "kind"):
        if not isinstance(body.get(key), str) or not body[key]:
            raise ManifestError(f"{where}: {key} is missing")
    if not mapping(body.get("metadata")).get("name"):
        raise ManifestError(f"{where}: metadata.name is missing from {body['kind']}")
    return Document(where, body)


@dataclass(slots=True)
class Applier:
    """Applies documents one after the other."""

    kube: KubeClient
    namespace: str
    force: bool = False
    _scopes: dict[str, Mapping[str, bool]] = field(default_factory=dict)

    async def apply(self, document: Document) -> str:
        """Apply one document; "created", "configured" or "unchanged".

        Raises:
            KubeError: it was refused.
        """
        body = await self._placed(document.body)
        metadata = body["metadata"]
        before = await self.kube.get(
            body["apiVersion"], body["kind"], metadata.get("namespace", ""), metadata["name"]
        )
        after = await self.kube.apply(body, force=self.force, query={"fieldValidation": "Strict"})
        if before is None:
            return "created"
        same = before["metadata"].get("resourceVersion") == after["metadata"].get("resourceVersion")
        return "unchanged" if same else "configured"

    async def _placed(self, body: Json) -> Json:
        """The body with the namespace it goes to."""
        api_version, kind = body["apiVersion"], body["kind"]
        if api_version not in self._scopes:
            path = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
            try:
                answer = await self.kube.request("GET", path)
            except KubeError as error:
                if error.status == 404:
                    raise _unserved(api_version, kind) from error
                raise
            self._scopes[api_version] = {
                str(entry["kind"]): bool(entry.get("namespaced"))
                for entry in answer.get("resources") or ()
                if "/" not in str(entry.get("name"))
            }
        namespaced = self._scopes[api_version].get(kind)
        if namespaced is None:
            raise _unserved(api_version, kind)
        metadata = dict(body["metadata"])
        if namespaced:
            metadata.setdefault("namespace", self.namespace)
        return {**body, "metadata": metadata}


def _unserved(api_version: str, kind: str) -> KubeError:
    return KubeError(
        404,
        "NotFound",
        f"the server has no {kind} in {api_version}; install the definitions, or correct the manifest",
    )


def fail(document: Document, error: KubeError) -> str:
    """One line for a document that was refused."""
    hint = ""
    if error.status == 409 and error.reason == "Conflict":
        hint = "\n  another tool owns these fields; --force takes them over"
    return f"{document.source}: {document.label}: {error.message}{hint}"
