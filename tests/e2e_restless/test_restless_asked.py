"""What the audit of a restless run takes for a deletion that nobody asked for, and for Ready."""

from __future__ import annotations

from typing import Any

from e2e.restless.asked import Asked
from e2e.restless.audit import errors_of, not_ready, stripped
from e2e.restless.site import tell_deletions

BEFORE = {
    "ncl/east": "1",
    "sts/east": "2",
    "pvc/data-east-0": "3",
    "str/orders": "4",
    "stream/orders": "noon",
}


def test_an_object_that_was_made_anew_without_a_request_is_wrong() -> None:
    after = BEFORE | {"sts/east": "9"}
    assert Asked().wrongs(BEFORE, after) == ["sts/east was made anew, and nobody asked to delete it"]


def test_the_objects_of_a_cluster_go_with_it_but_for_its_volumes() -> None:
    asked = Asked()
    asked.delete("ncl/east")
    assert asked.wrongs(BEFORE, BEFORE | {"ncl/east": "8", "sts/east": "9"}) == []
    told = asked.wrongs(BEFORE, BEFORE | {"pvc/data-east-0": "7"})
    assert told == ["pvc/data-east-0 was made anew, and nobody asked to delete it"]


def test_a_stream_goes_only_with_a_resource_that_says_so() -> None:
    kept, gone = Asked(), Asked()
    kept.delete("str/orders")
    gone.delete("str/orders", with_data=True)
    after = BEFORE | {"str/orders": "5", "stream/orders": "one"}
    assert kept.wrongs(BEFORE, after) == ["stream/orders was made anew, and nobody asked to delete it"]
    assert gone.wrongs(BEFORE, after) == []


def test_what_was_asked_to_go_has_to_be_back() -> None:
    asked = Asked()
    asked.delete("ncl/east")
    after = {target: uid for target, uid in BEFORE.items() if target != "sts/east"}
    assert asked.wrongs(BEFORE, after) == ["sts/east is gone"]


def test_each_request_is_good_for_one_deletion() -> None:
    """After the first one that was asked for, no later one was seen."""
    asked = Asked()
    asked.delete("ncl/east")
    lines = [
        "ADDED StatefulSet east 9",
        "DELETED StatefulSet east 2",
        "DELETED StatefulSet east 2",
        "DELETED Pod",
    ]
    tell_deletions([*lines, "DELETED Cluster east 1", "DELETED StatefulSet other 5"], asked.saw)
    after = BEFORE | {"ncl/east": "8", "sts/east": "9"}
    assert asked.wrongs(BEFORE, after) == []
    asked.saw("sts/east", "9")
    assert asked.wrongs(BEFORE, after) == ["sts/east was deleted 2 times, and asked to be 1 times"]
    asked.delete("ncl/east")
    assert asked.wrongs(BEFORE, after) == []


def resource(status: str, observed: int = 2, **metadata: Any) -> dict[str, Any]:
    entry = {"type": "Ready", "status": status, "reason": "Because", "message": "of this"}
    told = {"observedGeneration": observed, "conditions": [entry]}
    return {"metadata": {"generation": 2, **metadata}, "status": told}


def test_ready_is_what_says_so_of_its_newest_generation_and_is_not_being_deleted() -> None:
    assert not_ready({"str/a": resource("True")}) == []
    assert not_ready({"str/a": resource("False")}) == ["str/a Ready: Because: of this"]
    assert not_ready({"str/a": resource("True", 1)}) == ["str/a was not looked at since generation 2"]
    assert not_ready({"str/a": resource("True", deletionTimestamp="now")}) == ["str/a is being deleted"]
    assert not_ready({"str/a": {"metadata": {"generation": 1}}}) != []


def test_labels_and_keys_that_the_operator_wrote_have_to_be_back() -> None:
    before = {"secret/a": {"metadata": {"labels": {"x": "1", "y": "2"}}, "data": {"k": "v", "l": "w"}}}
    assert stripped(before, before) == []
    after = {"secret/a": {"metadata": {"labels": {"x": "1"}}, "data": {"k": "v"}}}
    assert stripped(before, after) == ["secret/a has no label y any more", "secret/a has no key l any more"]
    assert stripped(before, {}) == []


def test_a_certificate_that_an_act_changed_is_no_error_and_any_other_error_is_one() -> None:
    told = "2026-11-29T15:10:27.356Z ERROR    runtime.process: "
    changed = (
        told
        + "certificates stay as they were: gatewayTls: certFile /v/tls/tls.crt with keyFile /v/tls/tls.key can't be used: [SSL]"
    )
    other = told + "credentials stay as they were: file /v/users/users.json can't be used"
    info = "2026-11-29T15:10:27.356Z INFO     runtime.process: west-0 starts"
    assert errors_of([changed, other, info]) == [other]
