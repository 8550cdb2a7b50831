"""The hosts file of the cluster: names of pods and services, in place of a cluster's DNS.

As in DNS, a pod's name resolves while the pod is ready, or always if its service publishes addresses that are
not ready. A headless service's name has the addresses of all of its pods. Any other service's name has one of
them, because there is no proxy: callers use the pods' own ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from supercluster.localplane.client import Json
from supercluster.localplane.controllers.base import is_terminating
from supercluster.localplane.controllers.endpoints import counts_as_ready, selected_pods

DOMAIN = "cluster.local"


def forms(name: str) -> list[str]:
    """`x.ns` in the forms that callers use."""
    return [f"{name}.svc.{DOMAIN}", f"{name}.svc", name]


def lines(services: Iterable[Json], pods_of: Callable[[str], Iterable[Json]]) -> list[str]:
    """The file's lines. `pods_of` gives the pods of a namespace."""
    found: list[str] = ["127.0.0.1 localhost"]
    for service in sorted(services, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"])):
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        if service["spec"].get("type") == "ExternalName":
            continue
        open_pods = [
            pod for pod in selected_pods(service, pods_of(namespace)) if counts_as_ready(service, pod)
        ]
        is_headless = service["spec"].get("clusterIP") == "None"
        if is_headless:
            for pod in open_pods:
                spec = pod["spec"]
                if spec.get("subdomain") == name and spec.get("hostname"):
                    names = forms(f"{spec['hostname']}.{name}.{namespace}")
                    found.append(f"{pod['status']['podIP']} {' '.join(names)}")
        settled = [pod for pod in open_pods if not is_terminating(pod)] or open_pods
        named = " ".join(forms(f"{name}.{namespace}"))
        found += [f"{pod['status']['podIP']} {named}" for pod in (open_pods if is_headless else settled[:1])]
    return found


def write(path: Path, wanted: list[str]) -> bool:
    """Replace the file in one step. True when it changed."""
    text = "".join(line + "\n" for line in wanted)
    if path.exists() and path.read_text() == text:
        return False
    swap = path.with_suffix(".tmp")
    swap.write_text(text)
    swap.replace(path)
    return True
