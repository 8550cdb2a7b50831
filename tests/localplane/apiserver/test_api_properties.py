"""Properties that hold for any object: applies are idempotent, sets of fields round-trip, old lists are right."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tiers import examples

from supercluster.localplane.apiserver.schema import fieldsets, managed_fields
from supercluster.localplane.apiserver.schema.patches import merge_patch
from supercluster.localplane.apiserver.schema.schemas import ANYTHING
from supercluster.localplane.apiserver.storage.store import Store, clone

Json = dict[str, Any]

KEYS = st.sampled_from(["a", "b", "c", "d"])
SCALARS = st.one_of(st.integers(0, 3), st.sampled_from(["x", "y"]), st.booleans())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.dictionaries(KEYS, inner, max_size=3), st.lists(inner, max_size=2)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
# Whose items are known by their name, as containers are.
NAMED: Json = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "free": ANYTHING,
    },
}
ITEMS = st.lists(
    st.builds(lambda name, more: {**more, "name": name}, st.sampled_from(["one", "two", "three"]), st.dictionaries(KEYS, SCALARS, max_size=2)),
    max_size=3,
    unique_by=lambda item: item["name"],
)  # fmt: skip
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "items": ITEMS,
        "tags": st.lists(st.sampled_from(["p", "q", "r"]), max_size=3, unique=True),
        "free": OBJECTS,
    },
)


def applied(live: Json, config: Json, name: str) -> Json:
    """The live object after a forced apply, managers included."""
    config = {"metadata": {"name": "x"}, **clone(config)}
    result = managed_fields.apply(live, config, NAMED, (name, "v1"), "", True, "now")
    managed_fields.write(result.obj["metadata"], result.managers)
    return result.obj


@settings(max_examples=examples(25, 60))
@given(CONFIGS)
def test_sets_of_fields_are_written_and_read_without_loss(config: Json) -> None:
    paths = fieldsets.field_paths(config, NAMED)
    assert fieldsets.from_v1(fieldsets.to_v1(paths)) == paths


@settings(max_examples=examples(25, 60))
@given(CONFIGS, CONFIGS)
def test_an_apply_twice_is_an_apply_once(other: Json, config: Json) -> None:
    live = applied({"metadata": {}}, other, "other")
    once = applied(live, config, "tool")
    assert applied(once, config, "tool") == once


@settings(max_examples=examples(25, 60))
@given(CONFIGS, CONFIGS)
def test_after_an_apply_the_object_has_what_the_configuration_says(other: Json, config: Json) -> None:
    result = applied(applied({"metadata": {}}, other, "other"), config, "tool")
    for path in fieldsets.field_paths(config, NAMED):
        # An empty list or object asks for nothing that others' items would contradict.
        if fieldsets.lookup(config, NAMED, path) not in ([], {}):
            assert fieldsets.same_at(result, config, NAMED, path), fieldsets.shown(path)


@settings(max_examples=examples(25, 60))
@given(CONFIGS, CONFIGS)
def test_a_tool_that_takes_all_back_leaves_the_others_fields(other: Json, config: Json) -> None:
    before = applied({"metadata": {}}, other, "other")
    after = applied(applied(before, config, "tool"), {}, "tool")
    kept = next((item for item in managed_fields.read(after["metadata"]) if item.name == "other"), None)
    for path in kept.paths if kept else ():
        assert fieldsets.present(after, NAMED, path), fieldsets.shown(path)


@settings(max_examples=examples(25, 60))
@given(OBJECTS, OBJECTS)
def test_a_merge_patch_twice_is_a_merge_patch_once(target: Json, patch: Json) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@settings(max_examples=examples(25, 50))
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.booleans()), max_size=12))
def test_a_list_at_any_revision_is_what_was_there_then(steps: list[tuple[str, bool]]) -> None:
    store = Store(None)
    kind = ("", "configmaps")
    then = {store.revision: store.all_of(kind)}
    for name, keep in steps:
        if keep:
            store.put(kind, {"metadata": {"name": name, "namespace": "n"}, "at": store.revision})
        elif store.get(kind, "n", name) is not None:
            store.remove(kind, "n", name)
        then[store.revision] = store.all_of(kind)
    for revision, objects in then.items():
        assert store.list_at(kind, None, revision) == objects
    store.close()
