"""Rights that roles grant, and those that were used by what an API server's audit log says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

CREATED = 201


class Right(NamedTuple):
    group: str
    resource: str
    """With its subresource: `streams/status`."""
    verb: str


def granted(roles: Iterable[dict[str, Any]]) -> set[Right]:
    """The rights of Roles and ClusterRoles, where they are granted left out."""
    return {
        Right(group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def requests(log: Path, user: str) -> Iterable[tuple[Right, int]]:
    """A user's requests for objects, each with the answer's status. A write that made its object by a patch is a creation too,
    since the API server asks for both rights."""
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            about = event.get("objectRef")
            if event["user"]["username"] != user or not about:
                continue
            resource = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
            code = int(event["responseStatus"]["code"])
            yield Right(about.get("apiGroup", ""), resource, event["verb"]), code
            if event["verb"] == "patch" and code == CREATED:
                yield Right(about.get("apiGroup", ""), resource, "create"), code
