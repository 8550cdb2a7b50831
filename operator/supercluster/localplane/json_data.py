"""Objects of Kubernetes as they are sent and stored."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
