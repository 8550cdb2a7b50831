"""The chart lints, refuses wrong values and grants no more than the operator uses; the images run as a plain user."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.helm_command import run_helm_in

from supercluster.api import StreamPipeline
from supercluster.api.cluster import Ports
from supercluster.api.crd import KINDS, definition
from supercluster.app.user_metrics import user_families
from supercluster.reconcilers.handlers.registration import CHILDREN
from supercluster.reconcilers.observe.cache import ObjectCache
from supercluster.reconcilers.planners.cluster.manifests import BROKER_UID
from supercluster.reconcilers.planners.pipeline.manifests import EXIT_REFUSED, SPARK_GROUP, driver_object
from tools import lock_images

LINUX_3_13 = {"python_version": "3.13", "python_full_version": "3.13.0", "sys_platform": "linux"}
ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "supercluster"
DOCKERFILES = ("broker_image/Dockerfile", "operator/Dockerfile", "spark/Dockerfile")


@pytest.fixture
def run_helm(helm: Path, tmp_path: Path) -> Any:
    return partial(run_helm_in, tmp_path, helm)


def rendered(run_helm: Any, *values: str) -> list[dict[str, Any]]:
    text = run_helm("template", "op", str(CHART), "--namespace", "ops", *values).stdout
    return [body for body in yaml.safe_load_all(text) if body]


def rules(bodies: list[dict[str, Any]], kind: str, name: str) -> list[dict[str, Any]]:
    (found,) = [body for body in bodies if body["kind"] == kind and body["metadata"]["name"] == name]
    entries: list[dict[str, Any]] = found["rules"]
    return entries


def allows(entries: list[dict[str, Any]], group: str, resource: str, verb: str) -> bool:
    return any(
        group in entry["apiGroups"] and resource in entry["resources"] and verb in entry["verbs"]
        for entry in entries
    )


@pytest.mark.e2e
def test_the_chart_lints_strictly(run_helm: Any) -> None:
    assert "0 chart(s) failed" in run_helm("lint", "--strict", str(CHART)).stdout


@pytest.mark.e2e
@pytest.mark.parametrize(
    "value",
    [
        "replicas=-1",
        "logLevel=loud",
        "namespaces={A_B}",
        "typo=1",
        "image.repository=",
        "brokerImage.digest=md5:1",
        "alerts.enabled=yes",
    ],
)
def test_wrong_values_are_refused_by_the_schema(run_helm: Any, value: str) -> None:
    done = run_helm("template", "op", str(CHART), "--set", value, check=False)
    assert done.returncode != 0
    assert value.split("=")[0].split(".")[-1] in done.stderr


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("value", "served"),
    [
        ("logLevel=info", ["ops"]),
        ("namespaces={flights,shop}", ["flights", "shop"]),
        ("allNamespaces=true", []),
    ],
)
def test_each_command_of_the_notes_names_its_namespace(run_helm: Any, value: str, served: list[str]) -> None:
    shown = run_helm(
        *("install", "op", str(CHART), "--namespace", "ops", "--dry-run=client", "--set", value)
    ).stdout
    notes = shown.partition("\nNOTES:\n")[2]
    commands = [line.split() for line in notes.splitlines() if line.strip().startswith(("kubectl ", "helm "))]
    namespaces = {
        " ".join(words[3:5]): words[2] if words[1] == "-n" else words[-1]
        for words in commands
        if "delete" not in words
    }
    first = (served or ["default"])[0]
    assert namespaces == {
        "rollout status": "ops",
        "apply -f": first,
        "get streaming": first,
        "get secret": first,
        "uninstall op": "ops",
    }
    deletions = [words for words in commands if "delete" in words]
    assert [words[2] for words in deletions if words[1] == "-n"] == [
        each for each in served for _ in range(2)
    ]
    assert all(words[1] == "-n" or words[-1] == "--all-namespaces" for words in deletions)
    # The operator is needed until they are gone, and a Cluster until its Streams are.
    assert commands[-1][0] == "helm"
    assert commands[-1 - len(deletions) : -1] == deletions
    kinds = {
        name.partition(".")[0] for words in deletions for name in words[words.index("delete") + 1].split(",")
    }
    assert kinds == {kind.plural for kind in KINDS}
    assert ["streams" in " ".join(words) for words in deletions[:2]] == [True, False]


@pytest.mark.e2e
def test_the_chart_can_be_a_dependency_that_is_switched_off(run_helm: Any, tmp_path: Path) -> None:
    """O23."""
    parent = tmp_path / "shop"
    shutil.copytree(CHART, parent / "charts" / "supercluster")
    dependency = {"name": "supercluster", "version": "*", "condition": "supercluster.enabled"}
    chart = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (parent / "values.yaml").write_text("global: {region: eu}\nsupercluster: {enabled: true, replicas: 2}\n")
    on = run_helm("template", "op", str(parent)).stdout
    assert "kind: Deployment" in on
    off = run_helm("template", "op", str(parent), "--set", "supercluster.enabled=false").stdout
    assert "kind:" not in off


@pytest.mark.e2e
def test_servers_that_do_not_know_every_field_of_the_definitions_are_refused(run_helm: Any) -> None:
    """O33: fieldPath of validation rules came with 1.28."""
    assert any("fieldPath:" in path.read_text() for path in (ROOT / "crds").iterdir())
    old = run_helm("template", "op", str(CHART), "--kube-version", "1.27.9", check=False)
    assert old.returncode != 0
    assert "1.28" in old.stderr
    assert run_helm("template", "op", str(CHART), "--kube-version", "1.28.0").returncode == 0


def manifest_of_the_notes() -> list[dict[str, Any]]:
    """What the notes have behind EOF's first mention."""
    text = (CHART / "templates" / "NOTES.txt").read_text()
    return list(yaml.safe_load_all(text.split("<<EOF\n")[1].split("\nEOF")[0]))


def test_the_notes_have_a_first_manifest_that_the_models_take() -> None:
    found = manifest_of_the_notes()
    assert [body["kind"] for body in found] == ["SuperCluster", "Cluster", "Stream"]
    models = {kind.name: kind.model for kind in KINDS}
    for body in found:
        assert body["apiVersion"] == "supercluster.dev/v1alpha1"
        models[body["kind"]].model_validate(body)


@pytest.mark.e2e
def test_the_operator_may_do_what_it_does_and_nothing_by_wildcard(run_helm: Any) -> None:
    granted = rules(rendered(run_helm), "Role", "supercluster-operator")
    for group, resource in [
        *((group, plural) for group, _, plural in CHILDREN),
        ("policy", "poddisruptionbudgets"),
    ]:
        assert allows(granted, group, resource, "watch"), resource
    for kind in KINDS:
        assert allows(granted, "supercluster.dev", kind.plural, "watch")
        assert allows(granted, "supercluster.dev", f"{kind.plural}/status", "patch")
        made_by_us = {"create", "delete"} if kind.plural == "streammoves" else set()
        for verb in ("create", "update", "delete"):
            assert allows(granted, "supercluster.dev", kind.plural, verb) is (verb in made_by_us)
    for resource in ("services", "configmaps", "secrets", "poddisruptionbudgets"):
        assert not allows(granted, "", resource, "delete"), f"{resource}: garbage collection removes them"
    for entry in granted:
        assert "*" not in [*entry["apiGroups"], *entry["resources"], *entry["verbs"]]


def served(bodies: list[dict[str, Any]]) -> list[str]:
    """The arguments --namespace of the operator."""
    (deployment,) = [body for body in bodies if body["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return [arguments[i + 1] for i, word in enumerate(arguments) if word == "--namespace"]


def roles(bodies: list[dict[str, Any]]) -> list[tuple[str, str]]:
    found = [body["metadata"] for body in bodies if body["kind"] in ("Role", "ClusterRole")]
    return sorted((each.get("namespace", ""), each["name"]) for each in found)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("values", "namespaces"), [((), ["ops"]), (("--set", "namespaces={a,b}"), ["a", "b"])]
)
def test_a_few_namespaces_mean_rights_in_those_only(
    run_helm: Any, values: tuple[str, ...], namespaces: list[str]
) -> None:
    """O24."""
    bodies = rendered(run_helm, *values)
    accounts = ("supercluster-operator", "supercluster-driver")
    wanted = [(each, account) for each in namespaces for account in accounts]
    assert roles(bodies) == sorted([("", "op-ops"), ("ops", "op-lease"), *wanted])
    beyond = rules(bodies, "ClusterRole", "op-ops")
    assert {verb for entry in beyond for verb in entry["verbs"]} == {"get"}
    assert {kind for entry in beyond for kind in entry["resources"]} == {"nodes", "storageclasses"}
    assert served(bodies) == namespaces
    without = rendered(run_helm, *values, "--set", "nodeAccess=false")
    assert not [body for body in without if body["kind"].startswith("Cluster")]


@pytest.mark.e2e
def test_all_namespaces_are_served_where_that_is_asked_for(run_helm: Any) -> None:
    bodies = rendered(run_helm, "--set", "allNamespaces=true")
    assert roles(bodies) == [("", "op-ops"), ("", "supercluster-operator"), ("ops", "op-lease")]
    granted = rules(bodies, "ClusterRole", "supercluster-operator")
    leases = [entry for entry in granted if entry["resources"] == ["leases"]]
    assert [(each.get("resourceNames"), each["verbs"]) for each in leases] == [
        (None, ["create"]),
        (["supercluster-operator"], ["get", "update"]),
    ]
    assert served(bodies) == []
    both = ("--set", "allNamespaces=true", "--set", "namespaces={a}")
    refused = run_helm("template", "op", str(CHART), *both, check=False)
    assert "namespaces has to be empty" in refused.stderr


@pytest.mark.e2e
def test_the_rendered_arguments_are_ones_that_the_operator_takes(run_helm: Any) -> None:
    from supercluster.app.settings import parse

    (deployment,) = [body for body in rendered(run_helm) if body["kind"] == "Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    arguments = [word.replace("$(POD_IP)", "10.0.0.7") for word in container["args"]]
    parsed = parse(arguments, {"POD_NAMESPACE": "ops", "POD_NAME": "op-0"})
    assert (parsed.listen_host, parsed.lease_name, parsed.lease_namespace) == ("10.0.0.7", "op", "ops")
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert parsed.fixed_ids


@pytest.mark.e2e
def test_a_network_policy_keeps_ports_for_brokers_to_brokers(run_helm: Any) -> None:
    from supercluster.reconcilers.planners import naming

    assert "NetworkPolicy" not in {body["kind"] for body in rendered(run_helm)}
    chosen = ("--set", "networkPolicy.enabled=true", "--set", "namespaces={a,b}")
    peers = ("--set", "networkPolicy.monitoring[0].ipBlock.cidr=10.0.0.0/8")
    found = [body for body in rendered(run_helm, *chosen, *peers) if body["kind"] == "NetworkPolicy"]
    assert [body["metadata"]["namespace"] for body in found] == ["a", "b"]
    spec = found[0]["spec"]
    brokers = spec["podSelector"]["matchLabels"]
    assert brokers.items() <= naming.labels("demo", "east").items()
    rules = {port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]}
    assert rules["cluster"] == rules["gateway"] == [{"podSelector": {"matchLabels": brokers}}]
    assert rules[7223] == [{"namespaceSelector": {}, "podSelector": {"matchLabels": brokers}}]
    assert rules["client"] is None
    operator, other = rules["monitor"]
    assert operator["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "supercluster-operator"
    assert other == {"ipBlock": {"cidr": "10.0.0.0/8"}}
    everywhere = ("--set", "networkPolicy.enabled=true", "--set", "allNamespaces=true")
    refused = run_helm("template", "op", str(CHART), *everywhere, check=False)
    assert "needs the namespaces of the brokers by name" in refused.stderr


@pytest.mark.e2e
def test_where_the_platform_assigns_users_no_pod_names_one(run_helm: Any) -> None:
    from supercluster.app.settings import parse

    bodies = rendered(run_helm, "--set", "fixedIds=false")
    (deployment,) = [body for body in bodies if body["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    arguments = [word.replace("$(POD_IP)", "10.0.0.7") for word in pod["containers"][0]["args"]]
    assert not parse(arguments, {"POD_NAMESPACE": "ops", "POD_NAME": "op-0"}).fixed_ids


@pytest.mark.e2e
def test_the_chart_brings_the_definitions_of_the_models_and_never_takes_them(run_helm: Any) -> None:
    found = [body for body in rendered(run_helm) if body["kind"] == "CustomResourceDefinition"]
    for body in found:
        assert body["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    wanted = {kind.plural: definition(kind) for kind in KINDS}
    assert {body["spec"]["names"]["plural"]: body for body in found} == wanted
    without = rendered(run_helm, "--set", "crds.create=false")
    assert not [body for body in without if body["kind"] == "CustomResourceDefinition"]


@pytest.mark.e2e
def test_images_are_named_by_digest_and_fetched_with_secrets(run_helm: Any) -> None:
    from supercluster.app.settings import parse

    def of(*values: str) -> tuple[str, Any]:
        bodies = rendered(run_helm, *(word for value in values for word in ("--set", value)))
        (deployment,) = [body for body in bodies if body["kind"] == "Deployment"]
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        arguments = [word.replace("$(POD_IP)", "10.0.0.7") for word in container["args"]]
        return container["image"], parse(arguments, {})

    digest = f"sha256:{'0' * 64}"
    image, settings = of(f"image.digest={digest}", f"brokerImage.digest={digest}", "brokerImage.tag=v9")
    assert image.endswith(f"@{digest}")
    assert settings.broker_image == f"supercluster/broker:v9@{digest}"
    image, settings = of("brokerImage.pullSecrets[0].name=one", "brokerImage.pullSecrets[1].name=two")
    assert "@" not in image + settings.broker_image
    assert settings.broker_pull_secrets == ("one", "two")


@pytest.mark.e2e
def test_alerts_are_about_figures_that_there_are(run_helm: Any) -> None:
    """CL-5: a rotation that waits, a deadline that comes near, a User that is not Ready."""
    assert "PrometheusRule" not in {body["kind"] for body in rendered(run_helm)}
    asked = ("--set", "alerts.enabled=true", "--set", "alerts.labels.release=prometheus")
    (rule,) = [body for body in rendered(run_helm, *asked) if body["kind"] == "PrometheusRule"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    (group,) = rule["spec"]["groups"]
    alerts = {each["alert"]: each for each in group["rules"]}
    assert {name: each.get("for") for name, each in alerts.items()} == {
        "SuperclusterUserRotationWaits": "24h",
        "SuperclusterUserDeadlineNear": None,
        "SuperclusterUserNotReady": "10m",
    }
    page = (ROOT / "docs/guides/operate.md").read_text()
    figures = {each.name for each in user_families(ObjectCache(), datetime.now(UTC))}
    for name, alert in alerts.items():
        named = set(re.findall(r"supercluster_\w+", alert["expr"]))
        assert named
        assert named <= figures
        assert "{{ $labels.user }}" in alert["annotations"]["summary"]
        assert f"| `{name}` | {alert['labels']['severity']} |" in page


def test_the_chart_has_the_version_of_the_package() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version[1], version[1])


@pytest.mark.parametrize("path", DOCKERFILES)
def test_images_run_as_a_plain_user_in_exec_form(path: str) -> None:
    lines = (ROOT / path).read_text().splitlines()
    assert f"USER {BROKER_UID}:{BROKER_UID}" in lines
    assert lines[lines.index("ARG BASE=python:3.13-slim") :].count("FROM ${BASE}") == 1
    (entry,) = [line for line in lines if line.startswith("ENTRYPOINT")]
    assert entry.startswith('ENTRYPOINT ["')
    assert not any(line.startswith("HEALTHCHECK") for line in lines)
    assert any("USER=supercluster" in line for line in lines)


def test_the_broker_image_exposes_the_ports_that_a_broker_listens_on() -> None:
    lines = (ROOT / "broker_image/Dockerfile").read_text().splitlines()
    (exposed,) = [line.split()[1:] for line in lines if line.startswith("EXPOSE ")]
    ports = Ports()
    numbers = ports.model_dump(exclude_none=True).values()
    assert exposed == sorted(str(port) for port in (*numbers, ports.migration_port))


def test_the_build_context_has_what_the_package_needs() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = (ROOT / "pyproject.toml").read_text()
    included = re.search(r"only-include = \[(.*?)\]", project, re.DOTALL)
    assert included is not None
    folders = re.findall(r'"(.+?)"', included[1])
    for folder in folders:
        assert any(folder == entry or folder.startswith(f"{entry}/") for entry in kept), folder


@pytest.mark.parametrize("path", DOCKERFILES)
def test_the_build_context_has_the_locks_that_the_image_is_built_from(path: str) -> None:
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    named = re.findall(r"--requirement (\S+)", (ROOT / path).read_text())
    assert len(named) == 2
    for lock in named:
        assert (ROOT / lock).is_file()
        assert f"!{lock}" in kept


@pytest.mark.covers("SP-3")
def test_the_image_of_spark_takes_the_words_of_the_operator_and_of_spark(tmp_path: Path) -> None:
    """An executor's container gets `executor`, from Spark or as the image's own command."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    env = {**os.environ, "JAVA_HOME": str(tmp_path)}
    lines = (ROOT / "spark/Dockerfile").read_text().splitlines()
    entry, own = (
        json.loads(line.split(maxsplit=1)[1]) for line in lines if line.startswith(("ENTRYPOINT", "CMD"))
    )
    assert f"USER {SPARK_GROUP}:{SPARK_GROUP}" in lines, "the group of a claim's files"
    file = {"python": {"file": "/nowhere.py"}}
    named = {"pipeline": {"name": "nowhere"}}
    wanted: list[tuple[list[str], str]] = [(own, "SPARK_DRIVER_URL")]
    for program, told in ((file, "/nowhere.py is not there"), (named, "there is no pipeline 'nowhere'")):
        spec = {"superCluster": "demo", **program}
        pipeline = StreamPipeline.model_validate({"metadata": {"name": "p"}, "spec": spec})
        (container,) = driver_object(pipeline, "image")["spec"]["template"]["spec"]["containers"]
        assert "command" not in container, "the image's entry point"
        wanted.append((container["args"], told))
    for words, told in wanted:
        done = subprocess.run([sys.executable, *entry[1:], *words], capture_output=True, text=True, env=env)
        assert (done.returncode, entry[0]) == (EXIT_REFUSED, "python")
        assert told in done.stderr


def test_building_without_an_engine_says_so() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, str(ROOT / "tools" / "build-images.sh")],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "ENGINE": "no-such-engine"},
    )
    assert done.returncode == 2
    assert "no-such-engine" in done.stderr


def put_engine(folder: Path, digest: str) -> Path:
    """A container engine that notes what it is asked."""
    engine = folder / "engine"
    engine.write_text(
        f'#!/bin/sh\necho "$*" >> {folder}/asked\n'
        f'if [ "$1 $2" = "image inspect" ]; then echo "{digest}"; fi\n'
    )
    engine.chmod(0o755)
    return engine


def build(folder: Path, digest: str, **options: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    env = {"PATH": os.environ["PATH"], "ENGINE": str(put_engine(folder, digest)), **options}
    done = subprocess.run(
        ["bash", str(ROOT / "tools" / "build-images.sh")], capture_output=True, text=True, env=env
    )
    return done, [line for line in (folder / "asked").read_text().splitlines() if line.startswith("build ")]


def test_images_are_built_on_a_base_that_is_named_by_its_digest(tmp_path: Path) -> None:
    digest = f"mirror.example/python@sha256:{'0' * 64}"
    done, builds = build(tmp_path, digest)
    assert done.returncode == 0, done.stderr
    assert len(builds) == 3
    assert all(f"--build-arg BASE={digest} " in line for line in builds)
    assert digest in done.stdout


def test_a_base_with_a_digest_is_taken_as_it_is_and_one_without_is_refused(tmp_path: Path) -> None:
    named = f"mirror.example/python@sha256:{'1' * 64}"
    done, builds = build(tmp_path, "", BASE=named)
    assert done.returncode == 0
    assert all(f"BASE={named} " in line for line in builds)
    assert "pull" not in (tmp_path / "asked").read_text()
    (tmp_path / "asked").unlink()
    done, builds = build(tmp_path, "<no value>")
    assert (done.returncode, builds) == (1, [])
    assert "has no digest" in done.stderr


@pytest.mark.parametrize("path", DOCKERFILES)
def test_images_get_nothing_whose_hash_is_not_locked(path: str) -> None:
    """S13."""
    text = re.sub(r"\\\n\s*", "", (ROOT / path).read_text())
    installs = re.findall(r"-m pip .*?(?= && |\n)", text)
    assert len(installs) == 4
    for command in installs:
        assert "--require-hashes" in command or (
            "--no-deps" in command and ("--no-index" in command or "wheel" in command)
        )


def closure(wanted: list[str]) -> set[str]:
    """Names of all that these need here, by what is installed."""
    found: set[tuple[str, str]] = set()
    asked = [Requirement(text) for text in wanted]
    while asked:
        requirement = asked.pop()
        for extra in requirement.extras or {""}:
            key = canonicalize_name(requirement.name), extra
            if key not in found:
                found.add(key)
                for text in metadata.distribution(requirement.name).requires or ():
                    needed = Requirement(text)
                    if needed.marker is None or needed.marker.evaluate({**LINUX_3_13, "extra": extra}):
                        asked.append(needed)
    return {name for name, _ in found}


@pytest.mark.parametrize("part", list(lock_images.LOCKS))
def test_the_locks_have_the_versions_of_constraints_and_all_that_is_needed(part: str) -> None:
    pinned = dict(
        line.split("==") for line in lock_images.CONSTRAINTS.read_text().splitlines() if "==" in line
    )
    text = lock_images.LOCKS[part].read_text()
    entries = re.findall(r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE)
    locked = {canonicalize_name(name): version for name, version, _ in entries}
    assert text.count("==") == len(entries) == len(locked), "each has a version and hashes"
    assert locked == {name: version for name, version in by_name(pinned).items() if name in locked}
    assert set(locked) == closure(lock_images.requirements(part))


def by_name(pinned: dict[str, str]) -> dict[str, str]:
    return {str(canonicalize_name(name)): version for name, version in pinned.items()}


def test_a_lock_is_what_pip_reads() -> None:
    locked = {("b", "2"): {"0" * 64, "1" * 64}, ("A", "1"): {"2" * 64}}
    assert lock_images.render(locked) == lock_images.HEAD + (
        f"A==1 \\\n    --hash=sha256:{'2' * 64}\n"
        f"b==2 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n"
    )
