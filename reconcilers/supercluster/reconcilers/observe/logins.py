"""The logins in the brokers' Secret, and the rotation that its annotation records."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from supercluster.api import SuperCluster
from supercluster.reconcilers.observe.context import Context
from supercluster.reconcilers.planners.super_cluster.login_rotation import (
    FILES,
    LoginStage,
    LoginState,
    LoginsView,
    asks_for_logins,
)
from supercluster.reconcilers.ports import mapping

LOGINS_ANNOTATION = "supercluster.dev/logins"
"""On the brokers' Secret: the rotation under way and what asked for the last one, as JSON without any secret."""


async def look_at_logins(
    context: Context, desired: SuperCluster, credentials: Mapping[str, Any] | None
) -> LoginsView:
    """Brokers are asked only while something is exchanged."""
    view = logins_view(credentials)
    if not asks_for_logins(desired, view):
        return view
    metadata = desired.metadata
    return replace(
        view, reports=await context.credentials.of(context.cache, metadata.namespace, metadata.name)
    )


def logins_view(credentials: Mapping[str, Any] | None) -> LoginsView:
    if credentials is None:
        return LoginsView()
    annotations = mapping(mapping(credentials.get("metadata")).get("annotations"))
    text = str(annotations.get(LOGINS_ANNOTATION) or "{}")
    try:
        told = mapping(json.loads(text))
        state = None
        if told.get("stage"):
            former, coming = (
                {file: str(mapping(told[key])[file]) for file in FILES} for key in ("former", "coming")
            )
            state = LoginState(LoginStage(str(told["stage"])), former, coming)
    except (ValueError, KeyError) as error:
        return LoginsView(broken=f"the annotation {LOGINS_ANNOTATION} can't be read ({type(error).__name__})")
    return LoginsView(str(told.get("asked") or ""), state, digests_of(credentials))


def digests_of(credentials: Mapping[str, Any]) -> dict[str, str]:
    """Of the files, as brokers tell it of those that are in force."""
    data = mapping(credentials.get("data"))
    return {file: hashlib.sha256(b64decode(str(data.get(file) or ""))).hexdigest()[:16] for file in FILES}
