"""A kubeconfig of an API server that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

KUBECONFIG = """\
current-context: a
contexts:
- {name: a, context: {cluster: a, namespace: shop}}
- {name: b, context: {cluster: b}}
clusters:
- {name: a, cluster: {server: 'http://127.0.0.1:9'}}
- {name: b, cluster: {server: 'http://127.0.0.2:9'}}
"""


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path
