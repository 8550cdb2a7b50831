"""The content of a credentials Secret: missing entries are created, existing ones stay
(docs/broker-process.md names the files).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from supercluster.reconcilers.observe.views import secret_json
from supercluster.reconcilers.planners.naming import (
    GATEWAY_USER,
    MIGRATION_FILE,
    MIGRATION_USER,
    OPERATOR_USER,
    ROUTE_USER,
)
from supercluster.reconcilers.planners.super_cluster.credentials import (
    APPLICATION,
    AUTHORITIES,
    GATEWAY,
    MIGRATION,
    OPERATOR,
    ROUTE,
)
from supercluster.reconcilers.ports import mapping

ACCOUNT = "$G"


def completed(
    secret: Mapping[str, Any], missing: tuple[str, ...], application_user: str, password: Callable[[], str]
) -> dict[str, str]:
    """The Secret's data with the missing users made. What else the files have, such as accounts, stays."""
    data = {str(key): str(value) for key, value in mapping(secret.get("data")).items()}
    before = secret_json(secret, "users.json")
    users = [dict(mapping(user)) for user in before.get("users") or ()]
    links = {ROUTE: ("cluster.json", ROUTE_USER), GATEWAY: ("gateway.json", GATEWAY_USER)}
    wanted = {APPLICATION: (application_user, "client"), OPERATOR: (OPERATOR_USER, "operator")}
    for part in missing:
        if part == AUTHORITIES:
            continue  # No user: `secrets.py` makes the file.
        if part == MIGRATION:
            link = secret_json(secret, MIGRATION_FILE)
            entry = {"user": MIGRATION_USER, "password": password()}
            data[MIGRATION_FILE] = _encoded(
                {"send": entry, **link, "accept": [*(link.get("accept") or ()), entry]}
            )
            continue
        if part in links:
            file, name = links[part]
            entry = {"user": name, "password": password()}
            link = secret_json(secret, file)
            data[file] = _encoded({**link, "accept": [*(link.get("accept") or ()), entry], "send": entry})
            continue
        name, role = wanted[part]
        users = [user for user in users if user.get("user") != name]
        users.append({"user": name, "password": password(), "account": ACCOUNT, "role": role})
    data["users.json"] = _encoded({**before, "users": users})
    return data


def _encoded(content: Mapping[str, Any]) -> str:
    return b64encode((json.dumps(content, indent=1) + "\n").encode()).decode()
