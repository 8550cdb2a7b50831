"""Lists in pages, selectors, and watches that begin, resume, or come too late."""

from __future__ import annotations

from tests.localplane.kube_table.table import (
    MAPS,
    SECRETS,
    THINGS,
    Case,
    Step,
    a_secret,
    case,
    delete,
    get,
    merge,
    post,
    thing,
    watch,
)

RV = {"rv": "metadata.resourceVersion"}
THREE = tuple(post(SECRETS, a_secret(name, {"labels": {"a": name, "b": "x"}}), shows=()) for name in "abc")
LISTED = ("metadata.name",)


def _selected(*queries: str) -> list[Step]:
    return [get(SECRETS, query, shows=LISTED) for query in queries]


CASES: tuple[Case, ...] = (
    case("list", *THREE, get(SECRETS)),
    case("list-in-pages", *THREE, get(SECRETS, "limit=2", shows=LISTED, save={"next": "metadata.continue"}), post(SECRETS, a_secret("aa"), shows=()), delete(f"{SECRETS}/c", shows=()), get(SECRETS, "limit=2&continue={next}", shows=LISTED)),
    case("list-of-one-page", *THREE, get(SECRETS, "limit=3", shows=LISTED), get(SECRETS, "limit=0", shows=LISTED)),
    case("list-in-pages-by-label", *THREE, get(SECRETS, "limit=1&labelSelector=b%3Dx", shows=LISTED)),
    case("list-wrong-queries", get(SECRETS, "limit=x"), get(SECRETS, "limit=-1"), get(SECRETS, "continue=rubbish"), get(SECRETS, "labelSelector=a+b"), get(SECRETS, "fieldSelector=a"), get(SECRETS, "resourceVersion=x")),
    case("label-selectors", *THREE, *_selected("labelSelector=a%3Da", "labelSelector=a!%3Da", "labelSelector=a+in+(a,b)", "labelSelector=a+notin+(a,b)", "labelSelector=a", "labelSelector=!a", "labelSelector=a%3Da,b%3Dx", "labelSelector=a%3D%3Db", "labelSelector=c!%3Dx")),
    case("label-selectors-wrong", get(SECRETS, "labelSelector=a%3Db+c"), get(SECRETS, "labelSelector=-a"), get(SECRETS, "labelSelector=a+in+a"), get(SECRETS, "labelSelector=a%3D" + "x" * 64), get(SECRETS, "labelSelector=a>b")),
    case("field-selectors", *THREE, *_selected("fieldSelector=metadata.name%3Da", "fieldSelector=metadata.name!%3Da", "fieldSelector=metadata.namespace%3D{ns}", "fieldSelector=type%3DOpaque", "fieldSelector=metadata.name%3Da,type%3Dx")),
    case("field-selectors-wrong", get(SECRETS, "fieldSelector=data.k%3Da"), get(MAPS, "fieldSelector=data.k%3Da"), get(THINGS, "fieldSelector=spec.n%3D1")),
    case("field-selectors-of-custom", post(THINGS, thing({"s": "x"})), post(THINGS, thing({"s": "y"}, name="b")), get(THINGS, "fieldSelector=spec.s%3Dx", shows=LISTED), get(THINGS, "fieldSelector=metadata.name%3Db", shows=LISTED)),
    case("list-at-a-version", post(SECRETS, a_secret(), save=RV), get(SECRETS, "resourceVersion={rv}", shows=LISTED), get(SECRETS, "resourceVersion=0", shows=LISTED), get(SECRETS, "resourceVersion={rv}&resourceVersionMatch=Exact", shows=LISTED), post(SECRETS, a_secret("b"), shows=()), get(SECRETS, "resourceVersion={rv}&resourceVersionMatch=Exact", shows=LISTED), get(SECRETS, "resourceVersion={rv}&resourceVersionMatch=NotOlderThan", shows=LISTED), get(SECRETS, "resourceVersionMatch=Exact"), get(SECRETS, "resourceVersion={rv}&resourceVersionMatch=Odd")),
    case("list-at-a-version-of-custom", post(THINGS, thing(), save=RV), post(THINGS, thing(name="b")), get(THINGS, "resourceVersion={rv}&resourceVersionMatch=Exact", shows=LISTED), get(THINGS, "resourceVersion={rv}", shows=LISTED)),
    case("get-at-a-version", post(SECRETS, a_secret(), save=RV), get(f"{SECRETS}/a", "resourceVersion={rv}"), get(f"{SECRETS}/a", "resourceVersion=0")),
    case("watch-from-now", post(SECRETS, a_secret(), save=RV), watch(SECRETS, "resourceVersion={rv}"), watch(SECRETS, shows=LISTED), watch(SECRETS, "resourceVersion=0", shows=LISTED)),
    case("watch-resumes", post(SECRETS, a_secret(), save=RV), post(SECRETS, a_secret("b")), merge(f"{SECRETS}/b", {"metadata": {"labels": {"x": "y"}}}), delete(f"{SECRETS}/a"), watch(SECRETS, "resourceVersion={rv}"), watch(SECRETS, "resourceVersion={rv}&fieldSelector=metadata.name%3Db", shows=LISTED)),
    case("watch-of-labels", post(SECRETS, a_secret("z"), save=RV), post(SECRETS, a_secret()), merge(f"{SECRETS}/a", {"metadata": {"labels": {"x": "y"}}}), merge(f"{SECRETS}/a", {"metadata": {"labels": {"z": "y"}}}), merge(f"{SECRETS}/a", {"metadata": {"labels": {"x": None}}}), watch(SECRETS, "resourceVersion={rv}&labelSelector=x%3Dy")),
    case("watch-with-initial-events", *THREE, watch(SECRETS, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=", shows=LISTED), watch(SECRETS, "sendInitialEvents=true"), watch(SECRETS, "resourceVersionMatch=NotOlderThan")),
    case("watch-too-old", post(THINGS, thing()), watch(THINGS, "resourceVersion=1")),
    case("watch-one", *THREE, get(f"{SECRETS}/b", "watch=true&timeoutSeconds=1", shows=LISTED), get(f"{SECRETS}/none", "watch=true")),
    case("watch-finalized", post(THINGS, thing(metadata={"finalizers": ["x/y"]}), save=RV), delete(f"{THINGS}/a"), merge(f"{THINGS}/a", {"metadata": {"finalizers": None}}), watch(THINGS, "resourceVersion={rv}")),
)  # fmt: skip
