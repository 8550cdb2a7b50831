"""Pod Security's labels of a namespace: pods that are refused, warnings, and labels that can't be read."""

from __future__ import annotations

from typing import Any

from tests.localplane.kube_table.table import (
    SECRETS,
    Case,
    Json,
    Step,
    case,
    json_patch,
    merge,
    post,
    watch,
)

# A real server may not have heard of changed labels yet, so there is a second namespace, which has them from its beginning.
PODS = "/api/v1/namespaces/{ns}-s/pods"
JOBS = "/apis/batch/v1/namespaces/{ns}-s/jobs"
SETS = "/apis/apps/v1/namespaces/{ns}-s/statefulsets"
NAMESPACE = "/api/v1/namespaces/{ns}-s"
LABEL = "pod-security.kubernetes.io"
CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def made(**labels: str) -> Step:
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "{ns}-s", "labels": _labels(labels)},
    }
    return post("/api/v1/namespaces", body, shows=("kind",), message=True)


def _labels(labels: Json) -> Json:
    return {f"{LABEL}/{key.replace('_', '-')}": value for key, value in labels.items()}


def labelled(**labels: str) -> Step:
    return merge(
        NAMESPACE,
        {
            "metadata": {
                "labels": {f"{LABEL}/{key.replace('_', '-')}": value for key, value in labels.items()}
            }
        },
        shows=("kind",),
        message=True,
    )


def container(name: str = "c", context: Json | None = None, **more: Any) -> Json:
    return {
        "name": name,
        "image": "i:1",
        **({"securityContext": context} if context is not None else {}),
        **more,
    }


def good(name: str = "c", **context: Any) -> Json:
    return container(name, {**CONTEXT, **context})


def pod(*containers: Json, name: str = "a", **spec: Any) -> Step:
    # Without a service account's token: on the real server nobody has made the account yet.
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": list(containers or [container()]),
            "automountServiceAccountToken": False,
            **spec,
        },
    }
    return post(PODS, body, shows=("kind",), message=True, when=_has_account)


def _has_account(answer: Any) -> bool:
    return "serviceaccount" not in str(answer.get("message", ""))


def job(*containers: Json) -> Step:
    template = {"spec": {"containers": list(containers), "restartPolicy": "Never"}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    return post(JOBS, {**body, "spec": {"suspend": True, "template": template}}, shows=("kind",))


def stateful_set(*containers: Json) -> Step:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": list(containers)}}
    spec = {"replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": spec}
    return post(SETS, body, shows=("kind",))


# A real server looks for pods in a cache that is a moment behind.
PAUSE = watch(SECRETS)
RESTRICTED, BASELINE = made(enforce="restricted"), made(enforce="baseline")
POD_CONTEXT = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
LEAN = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

CASES: tuple[Case, ...] = (
    case("security-restricted-takes-a-good-pod", RESTRICTED, pod(good())),
    case("security-restricted-takes-what-the-pod-says", RESTRICTED, pod(container(context=LEAN), securityContext=POD_CONTEXT)),
    case("security-restricted-refuses-a-plain-pod", RESTRICTED, pod(container(), container("d"), initContainers=[container("e")])),
    case("security-restricted-escalation", RESTRICTED, pod(good(allowPrivilegeEscalation=True))),
    case("security-restricted-capabilities", RESTRICTED, pod(good(capabilities={"drop": ["ALL"], "add": ["NET_ADMIN", "CHOWN"]}), good("d", capabilities={"drop": ["KILL"]}))),
    case("security-restricted-net-bind-service", RESTRICTED, pod(good(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}))),
    case("security-restricted-root", RESTRICTED, pod(good(runAsNonRoot=False), securityContext={"runAsNonRoot": False})),
    case("security-restricted-root-user", RESTRICTED, pod(good(runAsUser=0), securityContext={"runAsUser": 0})),
    case("security-restricted-seccomp", RESTRICTED, pod(good(seccompProfile={"type": "Unconfined"}))),
    case("security-restricted-volumes", RESTRICTED, pod(good(), volumes=[{"name": "h", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {"server": "s", "path": "/"}}, {"name": "e", "emptyDir": {}}])),
    case("security-baseline-takes-a-plain-pod", BASELINE, pod()),
    case("security-baseline-host-namespaces", BASELINE, pod(hostNetwork=True, hostPID=True)),
    case("security-baseline-host-port", BASELINE, pod(container(ports=[{"containerPort": 80, "hostPort": 80}]), container("d", ports=[{"containerPort": 81, "hostPort": 81}]))),
    case("security-baseline-host-path", BASELINE, pod(volumes=[{"name": "h", "hostPath": {"path": "/"}}])),
    case("security-baseline-privileged", BASELINE, pod(container(context={"privileged": True}), container("d", {"privileged": True}))),
    case("security-baseline-capabilities", BASELINE, pod(container(context={"capabilities": {"add": ["NET_ADMIN", "CHOWN"]}}))),
    case("security-baseline-seccomp", BASELINE, pod(securityContext={"seccompProfile": {"type": "Unconfined"}})),
    case("security-baseline-selinux", BASELINE, pod(container(context={"seLinuxOptions": {"type": "bad_t", "user": "u"}}))),
    case("security-baseline-sysctl", BASELINE, pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]})),
    case("security-user-namespaces-relax-it", RESTRICTED, pod(container(context={**LEAN, "runAsUser": 0, "procMount": "Unmasked"}), hostUsers=False, securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}})),
    case("security-baseline-proc-mount-in-a-user-namespace", BASELINE, pod(container(context={"procMount": "Unmasked"}), hostUsers=False)),
    case("security-baseline-probe-host", BASELINE, pod(container(livenessProbe={"httpGet": {"port": 80, "host": "10.0.0.1"}}))),
    case("security-warns-of-a-pod", made(warn="restricted"), pod()),
    case("security-refuses-without-warning", made(warn="restricted", enforce="baseline"), pod(hostIPC=True), pod(name="b")),
    case("security-warns-of-templates", made(warn="restricted"), job(container()), stateful_set(container())),
    case("security-enforces-no-templates", RESTRICTED, job(container()), stateful_set(container())),
    case("security-names-the-version", made(enforce="restricted", enforce_version="v1.36"), pod(container(context={}))),
    case("security-dry-run", RESTRICTED, pod().but(query="dryRun=All")),
    case("security-images-are-checked-again", made(), pod(), PAUSE, labelled(enforce="restricted"), PAUSE, json_patch(f"{PODS}/a", [{"op": "replace", "path": "/spec/containers/0/image", "value": "i:2"}], shows=("kind",), message=True), merge(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, shows=("kind",))),
    case("security-labels-that-cannot-be-read", made(enforce="strict"), made(), labelled(enforce="strict"), labelled(warn="loud", warn_version="1.30"), labelled(audit_version="v1.x")),
    case("security-warns-of-pods-that-are-there", made(), pod(), pod(name="b"), pod(name="c", hostNetwork=True), PAUSE, labelled(enforce="restricted"), labelled(enforce="baseline"), labelled(enforce="privileged")),
)  # fmt: skip
