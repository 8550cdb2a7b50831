"""Environment, arguments and paths of containers."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.localplane.client import Json
from supercluster.localplane.node import images
from supercluster.localplane.node.environment import (
    MissingReference,
    Sources,
    container_env,
    expand,
    field_value,
    inherited,
    resource_value,
    rewrite,
)

POD: Json = {
    "metadata": {
        "name": "p-0",
        "namespace": "ns",
        "uid": "u",
        "labels": {"app": "x", "zone": "b"},
        "annotations": {"a/b": "c"},
    },
    "spec": {"nodeName": "node-1", "serviceAccountName": "robot", "containers": []},
    "status": {"podIP": "127.77.0.9", "hostIP": "127.77.0.1"},
}
MAPS = {"plain": {"metadata": {"name": "plain"}, "data": {"one": "1", "bad name": "x"}}}
SECRETS = {
    "hidden": {"metadata": {"name": "hidden"}, "data": {"word": base64.b64encode(b"hunter2").decode()}}
}
SOURCES = Sources(MAPS.get, SECRETS.get)


def env_of(*entries: Json, **container: object) -> dict[str, str]:
    return container_env({"name": "c", "env": list(entries), **container}, POD, {"PATH": "/bin"}, SOURCES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$$(A)", "$(A)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$$$(A)", "$1"),
    ],
)
def test_variables_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_later_entries_see_earlier_ones_but_not_the_other_way_round() -> None:
    env = env_of(
        {"name": "LATE", "value": "$(EARLY)"},
        {"name": "EARLY", "value": "1"},
        {"name": "NOW", "value": "$(EARLY)"},
    )
    assert (env["LATE"], env["NOW"]) == ("$(EARLY)", "1")


def test_values_come_from_fields_config_maps_and_secrets() -> None:
    env = env_of(
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "plain", "key": "one"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "word"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "word", "optional": True}}},
        {"name": "URL", "value": "nats://$(WORD)@$(IP)"},
    )
    assert env["URL"] == "nats://hunter2@127.77.0.9"
    assert env["ONE"] == "1"
    assert "NONE" not in env


def test_env_from_takes_whole_objects_with_a_prefix_and_leaves_out_bad_names() -> None:
    env = env_of(
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "plain"}}, {"secretRef": {"name": "hidden"}}]
    )
    assert (env["P_one"], env["word"]) == ("1", "hunter2")
    assert "P_bad name" not in env


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"configMapKeyRef": {"name": "gone", "key": "x"}}, 'configmap "gone" not found'),
        ({"secretKeyRef": {"name": "hidden", "key": "x"}}, "couldn't find key x in Secret hidden"),
        ({"fieldRef": {"fieldPath": "spec.nonsense"}}, "'spec.nonsense' is not one of"),
    ],
)
def test_what_is_missing_is_named(source: Json, told: str) -> None:
    with pytest.raises(MissingReference, match=told):
        env_of({"name": "X", "valueFrom": source})


def test_fields_of_the_downward_api() -> None:
    assert field_value("metadata.labels['zone']", POD) == "b"
    assert field_value("metadata.annotations['a/b']", POD) == "c"
    assert field_value("metadata.labels", POD) == 'app="x"\nzone="b"\n'
    assert field_value("spec.serviceAccountName", POD) == "robot"


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("limits.memory", "1Mi", "512"),
        ("limits.cpu", "1", "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.cpu", "1m", "250"),
    ],
)
def test_resources_are_given_in_units_of_the_divisor_rounded_up(
    resource: str, divisor: str, expected: str
) -> None:
    container = {
        "name": "c",
        "resources": {"limits": {"memory": "512Mi", "cpu": "1500m"}, "requests": {"cpu": "250m"}},
    }
    assert resource_value({"resource": resource, "divisor": divisor}, container, [container]) == expected


def test_little_of_the_laptops_environment_is_inherited() -> None:
    own = {"PATH": "/bin", "AWS_SECRET": "x", "LC_ALL": "C", "PYTHONPATH": "p", "PYTHONSTARTUP": "no"}
    assert set(inherited(own)) == {"PATH", "LC_ALL", "PYTHONPATH"}


MOUNTS = {"/data": "/state/v1", "/data/deep": "/state/v2", "/etc/app": "/state/v3"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/state/v1"),
        ("/data/x.db", "/state/v1/x.db"),
        ("--dir=/data", "--dir=/state/v1"),
        ("/data/deep/x", "/state/v2/x"),
        ("/etc/app:/data", "/state/v3:/state/v1"),
        ("file:///data/x", "file:///state/v1/x"),
        ("cat '/data/a b' \"/etc/app\"", "cat '/state/v1/a b' \"/state/v3\""),
        ("/database", "/database"),
        ("/var/data", "/var/data"),
        ("./data", "./data"),
        ("http://data/x", "http://data/x"),
        ("/data-old", "/data-old"),
        ("/data.bak", "/data.bak"),
    ],
)
def test_mount_paths_are_replaced_where_a_path_begins_and_ends(text: str, expected: str) -> None:
    assert rewrite(text, MOUNTS) == expected


@given(st.text())
def test_text_without_a_mount_path_stays_as_it_is(text: str) -> None:
    assert rewrite(text.replace("/", "|"), MOUNTS) == text.replace("/", "|")


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("supercluster/broker", "supercluster/broker"),
        ("supercluster/broker:1.2", "supercluster/broker"),
        ("reg.example:5000/team/supercluster/broker@sha256:abc", "team/supercluster/broker"),
        ("localhost/x:1", "x"),
        ("docker.io/library/nginx", "library/nginx"),
    ],
)
def test_registry_tag_and_digest_are_ignored(image: str, name: str) -> None:
    assert images.repository(image) == name


def test_a_command_replaces_the_entry_point_and_arguments_follow_it() -> None:
    own = images.argv("ghcr.io/x/supercluster/broker:9", [], ["--help"], "/bin")
    assert own[1:] == ["-m", "supercluster.broker.main", "--help"]
    assert images.argv("localplane/sh", ["sleep"], ["1"], "/bin:/usr/bin")[1:] == ["1"]
    with pytest.raises(FileNotFoundError, match="'no-such-thing'"):
        images.argv("localplane/sh", ["no-such-thing"], [], "/bin")


def test_an_image_that_was_brought_along_comes_first_and_no_other_tag_does(tmp_path: Path) -> None:
    assert images.loaded(tmp_path) == {}
    words = {"supercluster/broker:0.0.9": ["python3", "/opt/older.py"]}
    (tmp_path / "images.json").write_text(json.dumps(words))
    brought = images.loaded(tmp_path)
    older = images.argv("supercluster/broker:0.0.9", [], ["--help"], "/bin", brought)
    assert older == [sys.executable, "/opt/older.py", "--help"]
    newer = images.argv("supercluster/broker:0.1.0", [], ["--help"], "/bin", brought)
    assert newer[1:] == ["-m", "supercluster.broker.main", "--help"]


@pytest.mark.parametrize("text", ["{", "[]", '{"a": []}', '{"a": "word"}', '{"a": [1]}'])
def test_a_file_of_images_that_makes_no_sense_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "images.json").write_text(text)
    with pytest.raises(OSError, match=r"images\.json"):
        images.loaded(tmp_path)


def test_an_image_that_only_ends_alike_is_unknown() -> None:
    with pytest.raises(images.UnknownImage):
        images.entry_point("notsupercluster/broker")
