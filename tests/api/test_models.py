from __future__ import annotations

import pytest
from pydantic import ValidationError

from supercluster.api import Cluster, Stream, SuperCluster


def stream(**spec: object) -> Stream:
    return Stream.model_validate(
        {
            "metadata": {"name": "flights", "uid": "u"},
            "spec": {"superCluster": "demo", "subjects": ["f.>"], **spec},
        }
    )


def test_a_stream_is_named_after_its_resource_unless_it_says_otherwise() -> None:
    assert stream().stream_name == "flights"
    assert stream(name="KV_flights").stream_name == "KV_flights"


def test_fields_of_a_newer_version_are_dropped_not_refused() -> None:
    assert "fromTheFuture" not in stream(fromTheFuture=1).to_object()["spec"]


def test_a_number_and_a_quantity_are_one_size() -> None:
    assert stream(limits={"maxBytes": 1024}).spec.limits.max_bytes == "1024"


def test_a_number_and_a_quantity_are_one_amount_of_a_resource() -> None:
    def cluster(cpu: int | str, memory: int | str) -> Cluster:
        requests = {"cpu": cpu, "memory": memory}
        spec = {"superCluster": "demo", "resources": {"requests": requests}}
        return Cluster.model_validate({"metadata": {"name": "east"}, "spec": spec})

    assert cluster(2, 1073741824) == cluster("2", "1073741824")


def test_objects_round_trip_in_the_api_s_spelling() -> None:
    written = stream(ackPolicy="Append", placement={"preferredLeader": "east-0"}).to_object()
    assert written["spec"]["ackPolicy"] == "Append"
    assert written["spec"]["placement"]["preferredLeader"] == "east-0"
    assert Stream.model_validate(written) == stream(
        ackPolicy="Append", placement={"preferredLeader": "east-0"}
    )


def test_models_can_not_be_changed() -> None:
    with pytest.raises(ValidationError):
        stream().spec.replicas = 5  # type: ignore[misc]


def test_the_identity_is_the_uid_unless_volumes_are_taken_over() -> None:
    fresh = SuperCluster.model_validate({"metadata": {"name": "demo", "uid": "aaa"}})
    taken = SuperCluster.model_validate(
        {
            "metadata": {"name": "demo", "uid": "aaa"},
            "spec": {"identity": "6f1c0a52-8a5e-4a8b-9a8e-0d6f0a3f7a11"},
        }
    )
    assert fresh.identity == "aaa"
    assert taken.identity == "6f1c0a52-8a5e-4a8b-9a8e-0d6f0a3f7a11"


def test_a_cluster_never_deletes_volumes_by_default() -> None:
    cluster = Cluster.model_validate({"metadata": {"name": "east"}, "spec": {"superCluster": "demo"}})
    assert cluster.spec.deletion_policy == "Retain"
    assert stream().spec.deletion_policy == "Retain"
