"""The operator by its chart, as helm installs it on a real Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from e2e.demo.manifests import ROOT

RELEASE, SYSTEM_NAMESPACE = "supercluster", "supercluster-system"
WAIT_SECONDS = 300


def install_command(helm: str | Path, served: str, images: Mapping[str, str] | None = None) -> list[str]:
    """The helm command that installs the chart for namespaces, separated by commas. `images` has other names of the images by the part of the
    values that they belong to: `image`, `brokerImage`."""
    chart = str(ROOT / "charts" / "supercluster")
    command = [str(helm), "install", RELEASE, chart, "--wait", "--timeout", f"{WAIT_SECONDS}s"]
    command += ["--namespace", SYSTEM_NAMESPACE, "--create-namespace"]
    command += ["--set", f"namespaces={{{served}}}"]
    for key, image in (images or {}).items():
        repository, _, tag = image.rpartition(":")
        command += ["--set", f"{key}.repository={repository}", "--set-string", f"{key}.tag={tag}"]
    return command
