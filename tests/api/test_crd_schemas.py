"""What the definitions refuse and fill in: schema, defaults and CEL rules of each kind, as an API server applies them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import celpy
import jsonschema
import pytest
from celpy import celtypes
from celpy.adapter import json_to_cel
from hypothesis import given
from hypothesis import strategies as st

from supercluster.api.crd import CATEGORIES, KINDS, Kind, definition
from supercluster.api.names import SUBJECT_PATTERN

KIND = {kind.name: kind for kind in KINDS}

STREAM = {"superCluster": "demo", "subjects": ["flights.>"]}
CLUSTER = {"superCluster": "demo"}
MIGRATION = {"blue": {"superCluster": "demo"}, "green": {"superCluster": "next"}}
PIPELINE = {"superCluster": "demo", "python": {"file": "/main.py"}}
MOVE = {"superCluster": "demo", "streamRef": "flights", "destination": {"cluster": "west"}}


def schema_of(kind: Kind) -> dict[str, Any]:
    schema: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def fill_defaults(schema: dict[str, Any], value: Any) -> Any:
    """Defaulting as Kubernetes does it: parents first, then what is inside."""
    if isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = copy.deepcopy(child["default"])
            if name in value:
                fill_defaults(child, value[name])
    elif isinstance(value, list):
        for item in value:
            fill_defaults(schema.get("items", {}), item)
    return value


def evaluated(expression: str, activation: dict[str, Any]) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression)).evaluate(activation)


def broken_rules(schema: dict[str, Any], value: Any, old: Any) -> list[str]:
    """Messages of the CEL rules that do not hold; rules on oldSelf count only when there is an old value."""
    messages = []
    for rule in schema.get("x-kubernetes-validations", []):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        activation = {"self": json_to_cel(value)}
        if old is not None:
            activation["oldSelf"] = json_to_cel(old)
        if evaluated(rule["rule"], activation) != celtypes.BoolType(True):
            told_by = rule.get("messageExpression")
            messages.append(str(evaluated(told_by, activation)) if told_by else rule["message"])
    if isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                previous = old.get(name) if isinstance(old, dict) else None
                messages += broken_rules(child, value[name], previous)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:  # Of an item nobody says here what it was before.
            messages += broken_rules(schema["items"], item, None)
    return messages


def admit(
    kind: str,
    spec: dict[str, Any],
    old: dict[str, Any] | None = None,
    name: str = "flights",
    status: dict[str, Any] | None = None,
) -> list[str]:
    """Everything the API server has against a manifest; empty when it is taken. `status`: what it has by then."""
    schema = schema_of(KIND[kind])

    def whole(part: dict[str, Any]) -> dict[str, Any]:
        body = {"metadata": {"name": name}, "spec": copy.deepcopy(part)}
        if status is not None:
            body["status"] = copy.deepcopy(status)
        filled = fill_defaults(schema, body)
        assert isinstance(filled, dict)
        return filled

    new = whole(spec)
    errors = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(new)]
    return errors or broken_rules(schema, new, None if old is None else whole(old))


SUBJECT = schema_of(KIND["Stream"])["properties"]["spec"]["properties"]["subjects"]["items"]


@pytest.mark.covers("OP-1")
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Stream", STREAM),
        ("Cluster", CLUSTER),
        ("SuperCluster", {}),
        ("StreamMove", MOVE),
        ("Migration", MIGRATION),
    ],
)
def test_the_shortest_manifest_of_each_kind_is_taken(kind: str, spec: dict[str, Any]) -> None:
    assert admit(kind, spec) == []


def defaults(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(path, schema, default) of every default of an object."""
    for name, child in schema.get("properties", {}).items():
        if isinstance(child.get("default"), dict):
            yield f"{path}.{name}", child, child["default"]
        yield from defaults(child, f"{path}.{name}")
    if "items" in schema:
        yield from defaults(schema["items"], f"{path}[]")


@pytest.mark.covers("OP-1")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_default_keeps_its_rules_as_it_stands_and_is_what_defaulting_gives(kind: Kind) -> None:
    """An API server judges a default by the rules of its object before it fills anything in."""
    for path, schema, default in defaults(schema_of(kind)):
        filled = fill_defaults(schema, copy.deepcopy(default))
        assert default == filled, path
        assert broken_rules(schema, default, None) == [], path


@pytest.mark.covers("OP-1")
def test_the_length_of_a_name_that_rules_read_is_bounded_by_the_schema() -> None:
    """Only then an API server's estimate of the rules' cost stays within its budget."""
    found = schema_of(KIND["Cluster"])["properties"]["metadata"]["properties"]
    assert {name: bounds["maxLength"] for name, bounds in found.items()} == {"name": 40, "generateName": 40}
    assert admit("Cluster", CLUSTER, name="a" * 40) == []
    assert re.search("too long", admit("Cluster", CLUSTER, name="a" * 41)[0])
    # The embedded API server does not judge metadata by the schema, so a rule says it as well.
    body = {
        "metadata": {"name": "a" * 41},
        "spec": fill_defaults(schema_of(KIND["Cluster"]), {"spec": CLUSTER})["spec"],
    }
    assert any("at most 40" in message for message in broken_rules(schema_of(KIND["Cluster"]), body, None))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"subjects": []}, "non-empty|too short"),
        ({"subjects": [""]}, "non-empty|too short"),
        ({"subjects": ["a..b"]}, "'a..b' has an empty token"),
        ({"subjects": ["a."]}, "'a.' has an empty token"),
        ({"subjects": [".a"]}, "'.a' has an empty token"),
        ({"subjects": ["good", "a.>.b"]}, "'a.>.b' has a '>' that is not the last token"),
        ({"subjects": [">.b"]}, "'>.b' has a '>' that is not the last token"),
        ({"subjects": ["a>"]}, "'a>' has a '>' that is not the last token"),
        ({"subjects": [">"]}, "'>' captures every subject"),
        ({"subjects": ["a*.b"]}, "'a\\*.b' has a '\\*' beside other characters"),
        ({"subjects": ["b.*a"]}, "'b.\\*a' has a '\\*' beside other characters"),
        ({"subjects": ["**"]}, "has a '\\*' beside other characters"),
        ({"subjects": ["a b"]}, "'a b' has white space"),
        ({"subjects": ["a.\tb"]}, "has white space"),
        ({"subjects": ["$JS.API.>"]}, "belongs to the brokers"),
        ({"subjects": ["$SYS.a"]}, "belongs to the brokers"),
        ({"subjects": ["_INBOX.a"]}, "belongs to the brokers"),
        ({"superCluster": "My.Own"}, "'My.Own' is not a name in Kubernetes"),
        ({"placement": {"cluster": "east_1"}}, "'east_1' is not a name in Kubernetes"),
        ({"replicas": 6}, "maximum of 5"),
        ({"replicas": 0}, "minimum of 1"),
        ({"name": "a.b"}, "'a.b' is not a name of a stream"),
        ({"storage": "Tape"}, "is not one of"),
        ({"duplicateWindow": "2 minutes"}, "does not match"),
        ({"limits": {"maxBytes": "1 GB"}}, "does not match"),
        ({"limits": {"maxBytes": -4}}, "minimum of 0"),
        (
            {"limits": {"maxMessages": 5, "maxMessagesPerSubject": 6}},
            "must not be more than limits.maxMessages",
        ),
        ({"duplicateWindow": "0s"}, "duplicateWindow must be at least 100ms"),
        ({"duplicateWindow": "99ms"}, "duplicateWindow must be at least 100ms"),
        ({"limits": {"maxAge": "1m"}}, "must not be longer than spec.limits.maxAge"),
        ({"discardNewPerSubject": True}, "needs spec.discard New"),
        ({"discardNewPerSubject": True, "discard": "New"}, "needs spec.discard New"),
        ({"minReplicas": 4}, "must not be more than spec.replicas"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(change: dict[str, Any], complaint: str) -> None:
    messages = admit("Stream", STREAM | change)
    assert len(messages) == 1
    assert re.search(complaint, messages[0])


def test_an_age_below_100ms_is_refused() -> None:
    messages = admit("Stream", STREAM | {"limits": {"maxAge": "1ms"}, "duplicateWindow": "100ms"})
    assert any("limits.maxAge must be at least 100ms" in message for message in messages)


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {"maxBytes": "512Mi", "maxAge": "24h", "maxMessageSize": 1048576}},
        {"limits": {"maxMessagesPerSubject": 1}, "discard": "New", "discardNewPerSubject": True},
        {"minReplicas": 2, "replicas": 2},
        {"subjects": ["a", "b.*.c", "*.>", "*", "*.*", "a.>", "é.ü", "$KV.a.>", "_INBOX", "a-b_c.$1"]},
        {"name": "KV_prices"},
        {"duplicateWindow": "100ms", "limits": {"maxAge": "100ms"}},
        {"ackPolicy": "None", "fsync": "Always", "storage": "Memory"},
    ],
)
def test_a_stream_that_makes_sense_is_taken(change: dict[str, Any]) -> None:
    assert admit("Stream", STREAM | change) == []


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("Stream", STREAM, STREAM | {"storage": "Memory"}),
        ("Stream", STREAM, STREAM | {"retention": "WorkQueue"}),
        ("Stream", STREAM, STREAM | {"superCluster": "other"}),
        ("Stream", STREAM, STREAM | {"name": "other"}),
        ("Stream", STREAM | {"name": "a"}, STREAM),
        ("Cluster", CLUSTER, CLUSTER | {"storage": {"type": "EmptyDir"}}),
        ("Cluster", CLUSTER, CLUSTER | {"storage": {"className": "fast"}}),
        ("Cluster", CLUSTER, CLUSTER | {"ports": {"client": 4333}}),
        ("Cluster", CLUSTER, CLUSTER | {"superCluster": "other"}),
        ("SuperCluster", {}, {"identity": "6f1c0a52-8a5e-4a8b-9a8e-0d6f0a3f7a11"}),
    ],
)
def test_what_can_not_change_is_refused_on_update(
    kind: str, old: dict[str, Any], new: dict[str, Any]
) -> None:
    messages = admit(kind, new, old)
    assert len(messages) == 1
    assert "can't be" in messages[0]
    assert admit(kind, old, old) == []


def test_naming_a_stream_as_its_resource_is_no_change_of_name() -> None:
    assert admit("Stream", STREAM | {"name": "flights"}, STREAM) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ports": {"client": 6222}}, "four different numbers"),
        ({"ports": {"migration": 6222}}, "another number than the other ports"),
        ({"ports": {"bulk": 4222}}, "ports.bulk must be another number"),
        ({"ports": {"bulk": 7333, "migration": 7333}}, "ports.bulk must be another number"),
        ({"raft": {"heartbeat": "300ms"}}, "three times raft.heartbeat"),
        ({"raft": {"heartbeat": "1ms"}}, "at least 10ms"),
        ({"fsyncInterval": "2h"}, "between 10ms and 60s"),
        ({"storage": {"type": "EmptyDir", "className": "fast"}}, "storage.className is for"),
        ({"replicas": 65}, "maximum of 64"),
    ],
)
def test_a_cluster_that_contradicts_itself_is_refused(change: dict[str, Any], complaint: str) -> None:
    messages = admit("Cluster", CLUSTER | change)
    assert len(messages) == 1
    assert re.search(complaint, messages[0])


@pytest.mark.covers("OP-1")
@pytest.mark.parametrize("amount", [2, 1073741824, "2", "500m", "1.5", "1Gi"])
def test_an_amount_of_a_resource_is_a_number_or_a_text(amount: Any) -> None:
    amounts = {"cpu": amount, "memory": amount}
    assert admit("Cluster", CLUSTER | {"resources": {"requests": amounts, "limits": amounts}}) == []
    assert admit("StreamPipeline", PIPELINE | {"driver": {"cpu": amount}}) == []


@pytest.mark.parametrize("amount", [-1, 1.5, "-1", "2 cores", True])
def test_what_is_no_amount_of_a_resource_is_refused(amount: Any) -> None:
    assert admit("Cluster", CLUSTER | {"resources": {"requests": {"cpu": amount}}}) != []


def test_a_name_that_pods_can_not_be_named_after_is_refused() -> None:
    assert "DNS label" in admit("Cluster", CLUSTER, name="east.one")[0]
    assert "has a dot" in admit("Stream", STREAM, name="flights.eu")[0]
    assert admit("Stream", STREAM | {"name": "flights_eu"}, name="flights.eu") == []


def nodes(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += nodes(schema[key], f"{path}[]")
    return found


@pytest.mark.covers("OP-1")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schemas_are_structural_and_every_field_is_described(kind: Kind) -> None:
    for path, node in nodes(schema_of(kind)):
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert "$ref" not in node, path
        assert not ("properties" in node and "additionalProperties" in node), path
        if not path.startswith((".apiVersion", ".kind", ".metadata")) and path and not path.endswith("[]"):
            assert node.get("description"), path
        if node.get("type") == "array" and path.startswith(".spec"):
            assert "maxItems" in node, f"{path}: CEL's cost needs a bound"


@pytest.mark.covers("OP-1")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_status_is_a_subresource_with_conditions_generation_and_columns(kind: Kind) -> None:
    version = definition(kind)["spec"]["versions"][0]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert version["subresources"]["status"] == {}
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert status["observedGeneration"]["type"] == "integer"
    assert [column["name"] for column in version["additionalPrinterColumns"]][-1] == "Age"


def at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.strip(".").split("."):
        schema = schema["properties"][name]
    return schema


@pytest.mark.covers("OP-1")
def test_a_count_that_kubectl_scale_changes_is_a_field_with_a_default() -> None:
    """An API server answers nothing about a resource whose field for the count is unset."""
    scales = {kind.name: kind.scale for kind in KINDS if kind.scale is not None}
    assert set(scales) == {"Cluster", "Stream", "StreamPipeline"}
    for name, scale in scales.items():
        schema = schema_of(KIND[name])
        assert at(schema, scale.wanted)["default"] >= 1
        assert at(schema, scale.present)["type"] == "integer"
        if scale.selector:
            assert at(schema, scale.selector)["type"] == "string"


def test_names_do_not_shadow_each_other() -> None:
    names = [definition(kind)["spec"]["names"] for kind in KINDS]
    words = [word for entry in names for word in (entry["plural"], entry["singular"], *entry["shortNames"])]
    assert len(set(words) | set(CATEGORIES)) == len(words) + len(CATEGORIES)
    assert "all" not in CATEGORIES


@pytest.mark.covers("OP-1", "MV-13")
@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (MOVE | {"stream": "flights"}, "either spec.streamRef or spec.stream"),
        (
            {key: value for key, value in MOVE.items() if key != "streamRef"},
            "either spec.streamRef or spec.stream",
        ),
        (MOVE | {"replicas": 5}, "either spec.destination or spec.replicas"),
        ({**MOVE, "destination": {}, "replicas": 6}, "maximum of 5"),
        (MOVE | {"destination": {}}, "must name a cluster, tags, or both"),
        (MOVE | {"destination": {"tags": []}}, "must name a cluster, tags, or both"),
        (MOVE | {"approval": "Perhaps"}, "is not one of"),
        (MOVE | {"maintenanceWindow": {"cron": "at night"}}, "does not match"),
        (MOVE | {"maintenanceWindow": {"cron": "0 2 * * *", "durationMinutes": 0}}, "minimum of 1"),
        (MOVE | {"maintenanceWindow": {"cron": "0 2 * * *", "timeZone": "../etc/passwd"}}, "does not match"),
        (MOVE | {"bandwidth": {"bytesPerS": "fast"}}, "does not match"),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(spec: dict[str, Any], complaint: str) -> None:
    messages = admit("StreamMove", spec)
    assert len(messages) == 1
    assert re.search(complaint, messages[0])


WINDOW = {"cron": "0 2 * * sat", "durationMinutes": 90, "timeZone": "Europe/Berlin"}


@pytest.mark.covers("MV-13")
@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        ({"approved": True}, True),
        ({"approval": "Manual"}, True),
        ({"suspend": True}, True),
        ({"cancel": True}, True),
        ({"destination": {"cluster": "south"}}, False),
        ({"streamRef": "others"}, False),
        ({"bandwidth": {"bytesPerS": "1Mi"}}, True),
        ({"maintenanceWindow": WINDOW}, False),
        ({"dryRun": True}, False),
        ({"superCluster": "other"}, False),
    ],
)
def test_only_approval_suspend_cancel_and_bandwidth_of_a_move_can_be_changed(
    change: dict[str, Any], is_taken: bool
) -> None:
    messages = admit("StreamMove", MOVE | change, MOVE)
    assert (messages == []) is is_taken
    assert all("only spec.approval" in message for message in messages)


def test_the_count_of_a_change_of_replicas_stays_as_it_was_created() -> None:
    five = {"superCluster": "demo", "streamRef": "flights", "replicas": 5}
    assert admit("StreamMove", five) == []
    assert "only spec.approval" in admit("StreamMove", five | {"replicas": 4}, five)[0]


def test_a_cancel_can_not_be_taken_back() -> None:
    assert "can't be taken back" in admit("StreamMove", MOVE, MOVE | {"cancel": True})[0]


def test_a_broker_can_not_have_a_part_in_more_moves_than_there_are() -> None:
    moves = {"concurrentMax": 1, "concurrentPerNodeMax": 2}
    assert "must not be more than moves.concurrentMax" in admit("SuperCluster", {"moves": moves})[0]


@pytest.mark.covers("MR-4")
@pytest.mark.parametrize(
    "budget", [{"concurrentMax": 1, "concurrentPerNodeMax": 2}, {"concurrentPerNodeMax": 3}]
)
def test_a_broker_can_not_take_more_new_replicas_than_there_are_repairs(budget: dict[str, Any]) -> None:
    policy = {"superCluster": "demo", "selector": {"namePattern": "*"}, "budget": budget}
    told = "budget.concurrentPerNodeMax must not be more than budget.concurrentMax"
    assert told in admit("ReplicaPolicy", policy)[0]
    assert told in admit("SuperCluster", {"repair": {"budget": budget}})[0]
    most = {"concurrentMax": 3, "concurrentPerNodeMax": 3}
    assert admit("ReplicaPolicy", policy | {"budget": most}) == []


def test_a_cluster_is_not_named_like_another_ones_service() -> None:
    assert "must not end in -brokers" in admit("Cluster", CLUSTER, name="east-brokers")[0]


@pytest.mark.covers("OP-1")
def test_accounts_are_named_once_each_and_their_limits_are_numbers() -> None:
    shop = {"name": "shop", "limits": {"streamsMax": 2, "storageBytesMax": "1Gi", "streamBytesMax": 1024}}
    assert admit("SuperCluster", {"accounts": [shop, {"name": "$G"}]}) == []
    refused: tuple[dict[str, Any], ...] = (
        {"limits": {}},
        {"name": "a b"},
        {"name": ""},
        {"name": "x" * 129},
        {"name": "a", "limits": {"streamsMax": -1}},
        {"name": "a", "limits": {"consumersPerStreamMax": 1 << 31}},
        {"name": "a", "limits": {"memoryBytesMax": "lots"}},
    )
    for wrong in refused:
        assert admit("SuperCluster", {"accounts": [wrong]}) != [], wrong
    assert admit("SuperCluster", {"accounts": [{"name": f"a{n}"} for n in range(257)]}) != []
    accounts = schema_of(KIND["SuperCluster"])["properties"]["spec"]["properties"]["accounts"]
    assert (accounts["x-kubernetes-list-type"], accounts["x-kubernetes-list-map-keys"]) == ("map", ["name"])


@pytest.mark.covers("OP-1")
def test_what_accounts_give_to_each_other_has_one_kind_and_bounds() -> None:
    source = {"account": "STORE", "subject": "a.*"}
    shop = {
        "name": "SHOP",
        "jetstream": False,
        "exports": [{"stream": "a.>"}, {"service": "b", "accounts": ["STORE"], "responseType": "Stream"}],
        "imports": [{"stream": source, "prefix": "p"}, {"service": source, "to": "c.$1", "share": True}],
        "mappings": [{"subject": "a", "destinations": [{"subject": "b", "weight": 40}]}],
    }
    assert admit("SuperCluster", {"accounts": [shop]}) == []
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"exports": [{}]}, "an export needs either stream or service; set just one of them"),
        ({"exports": [{"stream": "a", "service": "a"}]}, "an export needs either stream or service"),
        (
            {"exports": [{"stream": "a", "responseType": "Stream"}]},
            "responseType of an export is for a service",
        ),
        ({"exports": [{"service": "a", "responseType": "Two"}]}, "not one of"),
        ({"exports": [{"service": "a", "responseThreshold": "soon"}]}, "does not match"),
        ({"exports": [{"stream": "a", "accountTokenPosition": 0}]}, "less than the minimum"),
        ({"exports": [{"stream": ""}]}, "non-empty"),
        ({"imports": [{"to": "a"}]}, "an import needs either stream or service"),
        ({"imports": [{"stream": {"account": "A"}}]}, "subject"),
        ({"imports": [{"service": source, "prefix": "p"}]}, "prefix of an import is for a stream"),
        ({"imports": [{"stream": source, "share": True}]}, "share of an import is for a service"),
        ({"imports": [{"stream": source, "to": "a", "prefix": "p"}]}, "an import has to or prefix"),
        ({"mappings": [{"subject": "a", "destinations": []}]}, "non-empty"),
        (
            {"mappings": [{"subject": "a", "destinations": [{"subject": "b", "weight": 101}]}]},
            "greater than the maximum",
        ),
        ({"exports": [{"stream": "a"}] * 257}, "too long"),
    )
    for wrong, words in refused:
        assert words in str(admit("SuperCluster", {"accounts": [{"name": "A", **wrong}]})), wrong


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"failureRecoveryInterval": "4s"}, "failureRecoveryInterval must be at least 5s"),
        ({"failureRecoveryInterval": "25h"}, "failureRecoveryInterval must be at most 24h"),
        ({"checkInterval": "999ms"}, "checkInterval must be between 1s and 24h"),
        ({"checkInterval": "25h"}, "checkInterval must be between 1s and 24h"),
        ({"failureRecoveryInterval": "24h", "checkInterval": "24h"}, ""),
    ],
)
def test_intervals_of_repair_are_such_as_brokers_can_tell(rules: dict[str, str], told: str) -> None:
    policy = {"superCluster": "demo", "selector": {"namePattern": "*"}, **rules}
    assert told in "; ".join(admit("ReplicaPolicy", policy))
    assert bool(admit("ReplicaPolicy", policy)) == bool(told)
    assert bool(admit("SuperCluster", {"repair": rules})) == bool(told)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [("A+B", True), ("ü", True), ("x" * 255, True), ("x" * 256, False)]
    + [(name, False) for name in ("a b", "a.b", "x*", "x>", "a/b", "a\\b", "")],
)
def test_a_move_takes_the_names_of_streams_that_brokers_take(name: str, is_taken: bool) -> None:
    spec = {"superCluster": "demo", "stream": name, "destination": {"cluster": "west"}}
    assert (admit("StreamMove", spec) == []) == is_taken


ELSEWHERE = {"urls": ["https://10.0.0.7:8222"], "credentialsSecret": "next"}


@pytest.mark.covers("BG-2")
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"green": {}}, "either superCluster or urls"),
        ({"green": {"superCluster": "next", "urls": ELSEWHERE["urls"]}}, "either superCluster or urls"),
        ({"green": {"urls": ["https://10.0.0.7:8222"]}}, "urls need credentialsSecret"),
        ({"green": {"urls": ["nats://10.0.0.7:4222"], "credentialsSecret": "next"}}, "does not match"),
        ({"green": {"urls": ["http://u:p@10.0.0.7:8222"], "credentialsSecret": "next"}}, "does not match"),
        ({"green": {"superCluster": "next", "caSecret": "ca"}}, "are for urls"),
        ({"green": {"superCluster": "demo"}}, "must be two super-clusters"),
        ({"scope": {"streams": ["flights"]}}, "a selection of streams is not implemented"),
        ({"scope": {"account": "a b"}}, "does not match"),
        ({"clients": {"cannotFollow": "Drop"}}, "is not one of"),
        ({"clusters": {"west": "a b"}}, "does not match"),
        ({"clusters": {f"c{number}": "east" for number in range(65)}}, "too many|at most|properties"),
        ({"abort": True, "finalize": True}, "can't both be true"),
    ],
)
def test_a_migration_that_makes_no_sense_is_refused(change: dict[str, Any], complaint: str) -> None:
    messages = admit("Migration", MIGRATION | change, status={"pointOfNoReturnAt": "2026-01-01T00:00:00Z"})
    assert len(messages) == 1
    assert re.search(complaint, messages[0])


@pytest.mark.covers("BG-2")
@pytest.mark.parametrize(
    "change", [{"green": ELSEWHERE}, {"green": {**ELSEWHERE, "addresses": ["[fd00::7]:7223"], "caSecret": "ca"}}, {"scope": {"account": "A"}}, {"clusters": {"west": "east"}}]
)  # fmt: skip
def test_a_migration_that_makes_sense_is_taken(change: dict[str, Any]) -> None:
    assert admit("Migration", MIGRATION | change) == []


STARTED = {"startedAt": "2026-01-01T00:00:00Z"}
OPENED = STARTED | {"openedAt": "2026-01-01T00:01:00Z"}
STATED = OPENED | {"pointOfNoReturnAt": "2026-01-01T00:02:00Z"}


@pytest.mark.covers("BG-8", "SF-21")
@pytest.mark.parametrize(
    ("old", "change", "status", "complaint"),
    [
        ({}, {"green": {"superCluster": "other"}}, None, ""),
        ({}, {"green": {"superCluster": "other"}}, STARTED, "can't be changed once"),
        ({}, {"scope": {"account": "A"}}, STARTED, "can't be changed once"),
        ({}, {"clusters": {"west": "east"}}, STARTED, "can't be changed once"),
        ({"clusters": {"west": "east"}}, {}, STARTED, "can't be changed once"),
        ({"clusters": {"west": "east"}}, {"clusters": {"west": "north"}}, STARTED, "can't be changed once"),
        ({"clusters": {"west": "east"}}, {"clusters": {"west": "east"}}, STARTED, ""),
        ({}, {"clusters": {"west": "east"}}, None, ""),
        ({}, {"clients": {"cannotFollow": "Bridge"}}, None, ""),
        ({}, {"clients": {"cannotFollow": "Bridge"}}, STARTED, "can't be changed once"),
        ({}, {"approval": "Manual"}, STARTED, ""),
        ({}, {"abort": True}, STARTED, ""),
        ({"abort": True}, {"abort": False}, STARTED, ""),
        ({"abort": True}, {"abort": False, "finalize": True}, STATED, ""),
        ({}, {"abort": True}, OPENED, "there is no way back to blue yet"),
        ({"abort": True}, {"abort": True}, OPENED, ""),
        ({}, {"finalize": True}, OPENED, "is not stated yet"),
        ({}, {"finalize": True}, STATED, ""),
        ({"finalize": True}, {"finalize": False}, STATED, "finalize can't be taken back"),
    ],
)
def test_what_of_a_migration_can_be_changed_when(
    old: dict[str, Any], change: dict[str, Any], status: dict[str, Any] | None, complaint: str
) -> None:
    messages = admit("Migration", MIGRATION | change, MIGRATION | old, status=status)
    assert len(messages) == bool(complaint)
    assert re.search(complaint, "".join(messages))


@pytest.mark.covers("BG-8")
def test_a_migration_can_not_be_created_finalized() -> None:
    assert "is not stated yet" in admit("Migration", MIGRATION | {"finalize": True})[0]


SUBJECT_PARTS = st.sampled_from(["a", "b", ".", "*", ">", " ", "$JS.", "\t", "-"])


@given(st.lists(SUBJECT_PARTS, min_size=1, max_size=6).map("".join))
def test_the_words_about_a_subject_say_all_that_its_pattern_says(subject: str) -> None:
    """An operator drops nothing that its API server took, and the other way round."""
    belongs_to_brokers = subject.startswith("$JS.")
    is_taken = re.search(SUBJECT_PATTERN, subject) is not None and not belongs_to_brokers
    messages = broken_rules(SUBJECT, subject, None)
    assert (messages == []) is is_taken
    assert all(subject in message for message in messages)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_message_about_a_name_or_a_subject_is_a_pattern(kind: Kind) -> None:
    for path, node in nodes(schema_of(kind)["properties"]["spec"]):
        if path.endswith((".superCluster", ".cluster", ".name", ".stream", ".subjects[]")):
            # Accounts are named in lists of lists of lists, where a rule per name would cost too much.
            assert "pattern" not in node or path == ".accounts[].name", path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_refused_change_says_how_to_get_the_new_value(kind: Kind) -> None:
    """`test_advice.py` and `test_advice_on_the_plane.py` follow the advice."""
    for _, node in nodes(schema_of(kind)):
        for rule in node.get("x-kubernetes-validations", []):
            if re.search("can't be (added|changed)", rule["message"]):
                _, _, instead = rule["message"].partition("; ")
                assert re.search(r"\b(create|declare|takes|set)\b", instead), rule["message"]


@pytest.mark.covers("OP-1")
@pytest.mark.parametrize(
    ("tls", "complaint"),
    [
        ({"clients": "Required"}, ""),
        ({"clients": "Optional", "monitoring": "Required", "authorityOverlap": "0s"}, ""),
        ({"mode": "Off"}, ""),
        ({"mode": "Off", "clients": "Optional"}, "set both to Off too"),
        ({"mode": "Off", "monitoring": "Required"}, "set both to Off too"),
        ({"clients": "On"}, "'On' is not one of"),
        ({"authorityOverlap": "8785h"}, "spec.tls.authorityOverlap must be between 0s and 8784h"),
    ],
)
def test_tls_of_clients_needs_the_certificates_of_brokers(tls: dict[str, str], complaint: str) -> None:
    told = "; ".join(admit("SuperCluster", {"tls": tls}))
    assert complaint in told if complaint else told == ""
