"""What creates, updates and deletes do to an object, whatever way they arrive."""

from __future__ import annotations

import datetime as dt

import pytest
from tests.localplane.apiserver.apilab import Lab, a_definition, a_map, a_pod, a_set

from supercluster.localplane.apiserver.errors import ApiError


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_a_new_object_gets_its_identity_from_the_server(lab: Lab) -> None:
    body = {"metadata": {"name": "a", "uid": "mine", "generation": 7, "creationTimestamp": None}}
    made = lab.create("configmaps", body)
    metadata = made["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert metadata["namespace"] == "default"
    assert int(metadata["resourceVersion"]) == lab.store.revision
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")


def test_generated_names_differ(lab: Lab) -> None:
    first = lab.create("pods", {**a_pod(), "metadata": {"generateName": "web-"}})
    second = lab.create("pods", {**a_pod(), "metadata": {"generateName": "web-"}})
    assert first["metadata"]["name"].startswith("web-")
    assert first["metadata"]["name"] != second["metadata"]["name"]


@pytest.mark.parametrize("name", ["UPPER", "a_b", "-a", "a" * 254, "a/b", ""])
def test_a_name_that_kubernetes_would_refuse_is_refused(lab: Lab, name: str) -> None:
    with pytest.raises(ApiError) as refusal:
        lab.create("configmaps", a_map(name))
    assert (refusal.value.code, refusal.value.reason) == (422, "Invalid")
    assert refusal.value.causes[0].field == "metadata.name"


def test_the_second_of_a_name_already_exists(lab: Lab) -> None:
    lab.create("configmaps", a_map())
    with pytest.raises(ApiError) as refusal:
        lab.create("configmaps", a_map())
    assert (refusal.value.code, refusal.value.reason) == (409, "AlreadyExists")


def test_an_object_needs_its_namespace(lab: Lab) -> None:
    with pytest.raises(ApiError) as refusal:
        lab.create("configmaps", a_map(), namespace="nowhere")
    assert refusal.value.message == 'namespaces "nowhere" not found'


def test_a_body_for_another_kind_is_refused(lab: Lab) -> None:
    with pytest.raises(ApiError) as refusal:
        lab.create("configmaps", {**a_map(), "kind": "Secret"})
    assert refusal.value.code == 400
    assert "'Secret'" in refusal.value.message


def test_a_write_from_a_stale_version_conflicts(lab: Lab) -> None:
    old = lab.create("configmaps", a_map())
    lab.patch("configmaps", "a", {"data": {"k": "new"}})
    with pytest.raises(ApiError) as refusal:
        lab.update("configmaps", {**old, "data": {"k": "mine"}})
    assert (refusal.value.code, refusal.value.reason) == (409, "Conflict")
    assert "the object has been modified" in refusal.value.message
    assert lab.get("configmaps", "a")["data"] == {"k": "new"}


def test_a_write_that_changes_nothing_keeps_the_revision(lab: Lab) -> None:
    lab.create("configmaps", a_map())
    before = lab.store.revision
    lab.now += dt.timedelta(hours=1)
    lab.patch("configmaps", "a", {"data": {"k": "v"}})
    assert lab.store.revision == before


def test_a_dry_run_shows_the_result_and_stores_nothing(lab: Lab) -> None:
    shown = lab.create("configmaps", a_map(), dry_run=True)
    assert shown["metadata"]["uid"]
    assert not lab.exists("configmaps", "a")
    lab.create("configmaps", a_map())
    changed = lab.patch("configmaps", "a", {"data": {"k": "2"}}, dry_run=True)
    assert changed["data"] == {"k": "2"}
    assert lab.get("configmaps", "a")["data"] == {"k": "v"}


def test_the_generation_grows_with_the_spec_only(lab: Lab) -> None:
    lab.create("statefulsets", a_set())
    assert lab.get("statefulsets", "web")["metadata"]["generation"] == 1
    lab.patch("statefulsets", "web", {"metadata": {"labels": {"x": "y"}}})
    lab.patch("statefulsets", "web", {"status": {"replicas": 1}}, subresource="status")
    assert lab.get("statefulsets", "web")["metadata"]["generation"] == 1
    lab.patch("statefulsets", "web", {"spec": {"replicas": 5}})
    assert lab.get("statefulsets", "web")["metadata"]["generation"] == 2


def test_status_and_spec_are_written_apart(lab: Lab) -> None:
    lab.create("customresourcedefinitions", a_definition(), namespace="")
    made = lab.create("widgets", {"metadata": {"name": "w"}, "spec": {"n": 1}, "status": {"ready": True}})
    assert "status" not in made
    lab.patch("widgets", "w", {"status": {"ready": True}})
    assert "status" not in lab.get("widgets", "w")
    lab.patch("widgets", "w", {"status": {"ready": True}, "spec": {"n": 2}}, subresource="status")
    stored = lab.get("widgets", "w")
    assert stored["status"] == {"ready": True}
    assert stored["spec"] == {"n": 1}


def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_out(lab: Lab) -> None:
    lab.create("configmaps", {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
    lab.delete("configmaps", "a")
    held = lab.get("configmaps", "a")
    assert held["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    with pytest.raises(ApiError) as refusal:
        lab.patch("configmaps", "a", {"metadata": {"finalizers": ["example.com/hold", "example.com/other"]}})
    assert refusal.value.code == 422
    lab.patch("configmaps", "a", {"metadata": {"finalizers": None}})
    assert not lab.exists("configmaps", "a")


def test_a_pod_on_a_node_ends_gracefully_and_one_without_at_once(lab: Lab) -> None:
    lab.create("pods", a_pod("placed", nodeName="n1", terminationGracePeriodSeconds=7))
    lab.create("pods", a_pod("waiting"))
    lab.delete("pods", "placed")
    lab.delete("pods", "waiting")
    assert not lab.exists("pods", "waiting")
    placed = lab.get("pods", "placed")["metadata"]
    assert placed["deletionTimestamp"] == "2026-01-01T00:00:07Z"
    assert placed["deletionGracePeriodSeconds"] == 7
    lab.delete("pods", "placed", grace_seconds=0)
    assert not lab.exists("pods", "placed")


def test_a_delete_for_another_uid_conflicts(lab: Lab) -> None:
    lab.create("configmaps", a_map())
    with pytest.raises(ApiError) as refusal:
        lab.delete("configmaps", "a", uid="other")
    assert refusal.value.code == 409
    assert lab.exists("configmaps", "a")


def test_a_patch_for_another_uid_is_invalid_and_a_replacement_conflicts(lab: Lab) -> None:
    """As kube-apiserver 1.36 answers. Of a custom resource's status it reads no metadata."""
    there = lab.create("configmaps", a_map())
    other = {"metadata": {"name": "a", "uid": "other"}, "data": {"k": "v"}}
    with pytest.raises(ApiError) as patched:
        lab.patch("configmaps", "a", other)
    with pytest.raises(ApiError) as applied:
        lab.apply("configmaps", other, "tool")
    for refused in (patched.value, applied.value):
        assert (refused.code, refused.causes[0].field) == (422, "metadata.uid")
        assert refused.message.endswith('metadata.uid: Invalid value: "other": field is immutable')
    with pytest.raises(ApiError) as refusal:
        lab.update("configmaps", {**there, "metadata": {**there["metadata"], "uid": "other"}})
    assert refusal.value.code == 409
    lab.create("customresourcedefinitions", a_definition(), namespace="")
    made = lab.create("widgets", {"metadata": {"name": "a"}, "spec": {}})
    status = {"metadata": {"uid": "other"}, "status": {"seen": 1}}
    assert (
        lab.patch("widgets", "a", status, subresource="status")["metadata"]["uid"] == made["metadata"]["uid"]
    )


def test_unknown_fields_are_refused_warned_of_or_dropped(lab: Lab) -> None:
    body = a_set()
    body["spec"]["replicaz"] = 3
    body["spec"]["template"]["spec"]["containers"][0]["imag"] = "x"
    with pytest.raises(ApiError) as refusal:
        lab.create("statefulsets", body, field_validation="Strict")
    assert refusal.value.code == 400
    assert 'unknown field "spec.replicaz"' in refusal.value.message
    assert 'unknown field "spec.template.spec.containers[0].imag"' in refusal.value.message
    made = lab.create("statefulsets", body, field_validation="Ignore")
    assert "replicaz" not in made["spec"]


def test_the_first_namespaces_cannot_be_deleted(lab: Lab) -> None:
    with pytest.raises(ApiError) as refusal:
        lab.delete("namespaces", "default", "")
    assert refusal.value.code == 403


@pytest.mark.parametrize(
    ("plural", "body", "change", "field"),
    [
        ("statefulsets", a_set(), {"spec": {"serviceName": "other"}}, "spec"),
        ("statefulsets", a_set(), {"spec": {"template": {"metadata": {"labels": {"app": "x"}}}}}, "spec.template.metadata.labels"),
        ("pods", a_pod(), {"spec": {"hostNetwork": True}}, "spec"),
        ("configmaps", {**a_map(), "immutable": True}, {"data": {"k": "2"}}, "data"),
        ("services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}, {"spec": {"clusterIP": "None"}}, "spec.clusterIP"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_refused(
    lab: Lab, plural: str, body: dict, change: dict, field: str
) -> None:
    made = lab.create(plural, body)
    with pytest.raises(ApiError) as refusal:
        lab.patch(plural, made["metadata"]["name"], change)
    assert refusal.value.code == 422
    assert field in [cause.field for cause in refusal.value.causes]


@pytest.mark.parametrize(
    ("plural", "body", "field"),
    [
        ("pods", {"metadata": {"name": "p"}, "spec": {"containers": []}}, "spec.containers"),
        ("pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}, "spec.containers[0].image"),
        ("services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 70000}]}}, "spec.ports[0].port"),
        ("services", {"metadata": {"name": "s"}, "spec": {"type": "ClusterIP"}}, "spec.ports"),
        ("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}}, "spec.resources[storage]"),
        ("configmaps", {"metadata": {"name": "a", "labels": {"k": "no spaces"}}}, "metadata.labels"),
        ("poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}}, "spec"),
        ("jobs", {"metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}, "spec.template.spec.restartPolicy"),
    ],
)  # fmt: skip
def test_wrong_objects_of_built_in_kinds_are_told_by_their_field(
    lab: Lab, plural: str, body: dict, field: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        lab.create(plural, body)
    assert (refusal.value.code, refusal.value.reason) == (422, "Invalid")
    assert field in [cause.field for cause in refusal.value.causes]


@pytest.mark.parametrize(
    ("plural", "body", "field"),
    [
        ("pods", a_pod(terminationGracePeriodSeconds="x"), "spec.terminationGracePeriodSeconds"),
        ("secrets", {"metadata": {"name": "s"}, "data": {"k": "not base64!"}}, "data.k"),
        ("configmaps", {"metadata": {"name": "a"}, "data": {"k": 1}}, "data.k"),
    ],
)
def test_what_go_cannot_decode_is_a_bad_request(lab: Lab, plural: str, body: dict, field: str) -> None:
    with pytest.raises(ApiError) as refusal:
        lab.create(plural, body)
    assert (refusal.value.code, refusal.value.reason) == (400, "BadRequest")
    assert field in refusal.value.message


def a_claim(**spec: object) -> dict:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    return {"metadata": {"name": "c"}, "spec": {**wanted, **spec}}


def sized(storage: str) -> dict:
    return {"spec": {"resources": {"requests": {"storage": storage}}}}


def test_a_claim_may_ask_for_more_and_not_for_less(lab: Lab) -> None:
    lab.create("persistentvolumeclaims", a_claim())
    assert lab.patch("persistentvolumeclaims", "c", sized("3Gi"))["spec"]["resources"]["requests"] == {
        "storage": "3Gi"
    }
    with pytest.raises(ApiError) as refusal:
        lab.patch("persistentvolumeclaims", "c", sized("2999Mi"))
    (cause,) = refusal.value.causes
    assert (refusal.value.code, cause.field) == (422, "spec.resources.requests.storage")
    assert "can not be less than status.capacity" in cause.message


@pytest.mark.parametrize("allows", [True, False, None])
def test_a_storage_class_has_to_allow_larger_volumes(lab: Lab, allows: bool | None) -> None:
    if allows is not None:
        body = {"metadata": {"name": "disk"}, "provisioner": "x", "allowVolumeExpansion": allows}
        lab.create("storageclasses", body, namespace="")
    lab.create("persistentvolumeclaims", a_claim(storageClassName="disk"))
    if allows:
        lab.patch("persistentvolumeclaims", "c", sized("3Gi"))
        return
    with pytest.raises(ApiError) as refusal:
        lab.patch("persistentvolumeclaims", "c", sized("3Gi"))
    assert refusal.value.code == 403
    assert "must support resize" in str(refusal.value)
