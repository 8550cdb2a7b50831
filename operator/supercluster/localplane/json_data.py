"""The JSON type of Kubernetes objects as they are sent and stored."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
