"""Creating, replacing and patching; strict decoding; preconditions; generations; names and labels; dry runs."""

from __future__ import annotations

from tests.localplane.kube_table.table import (
    CLAIMS,
    MAPS,
    PLAINS,
    SECRETS,
    SETS,
    THINGS,
    Case,
    a_map,
    a_secret,
    case,
    delete,
    get,
    json_patch,
    merge,
    plain,
    post,
    put,
    strategic,
    thing,
)

RV = {"rv": "metadata.resourceVersion"}
UID = {"uid": "metadata.uid"}
A, TA, PA = f"{MAPS}/a", f"{THINGS}/a", f"{PLAINS}/a"


def _template(**pod: object) -> dict[str, object]:
    return {
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], **pod},
    }


def _set(**spec: object) -> dict[str, object]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "w"},
        "spec": {
            "replicas": 0,
            "serviceName": "w",
            "selector": {"matchLabels": {"app": "w"}},
            "template": _template(),
            **spec,
        },
    }


def _claim(size: str = "1Gi", **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec},
    }


DUPLICATE = '{"apiVersion":"{group}/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"n":1,"n":2}}'
DUPLICATE_MAP = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}'
DUPLICATE_YAML = "apiVersion: {group}/v1\nkind: Thing\nmetadata: {name: a}\nspec:\n  s: a\n  s: b\n"
ODD = {"n": 1, "odd": 1, "closed": {"odd": 1}, "items": [{"odd": 1}]}

CASES: tuple[Case, ...] = (
    # --- creating ---
    case("create-twice", post(MAPS, a_map()), post(MAPS, a_map())),
    case("create-with-resource-version", post(MAPS, a_map(metadata={"resourceVersion": "1"}))),
    case("create-with-server-fields", post(THINGS, thing(metadata={"generation": 9, "uid": "x", "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-01T00:00:00Z"}))),
    case("create-without-name", post(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})),
    case("create-generated-name", post(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}})),
    case("create-in-missing-namespace", post("/api/v1/namespaces/{ns}-none/configmaps", a_map())),
    case("create-in-other-namespace", post(MAPS, a_map(metadata={"namespace": "default"}))),
    case("create-of-other-kind", post(MAPS, {**a_map(), "kind": "Secret"})),
    case("create-of-other-version", post(THINGS, {**thing(), "apiVersion": "{group}/v2"})),
    case("create-without-kind", post(MAPS, {"metadata": {"name": "a"}}), post(THINGS, {"metadata": {"name": "a"}})),
    case("create-no-object", post(MAPS, "[]"), post(MAPS, "{"), post(THINGS, "[]")),
    case("create-unknown-media-type", post(THINGS, thing(), type="apply")),
    case("dry-run-create", post(THINGS, thing({"n": 1}), "dryRun=All"), get(TA), post(MAPS, a_map(), "dryRun=Some")),
    case("dry-run-update", post(MAPS, a_map()), merge(A, {"data": {"k": "w"}}, "dryRun=All"), delete(A, None, "dryRun=All"), get(A)),
    # --- names and labels ---
    case("name-upper-case", post(MAPS, a_map("A")), post(THINGS, thing(name="a_b"))),
    case("name-too-long", post(MAPS, a_map("a" * 254)), post(THINGS, thing(name="a" * 254)), post(THINGS, thing(name="a" * 253), shows=())),
    case("name-with-dots", post(MAPS, a_map("a.b")), post(MAPS, a_map("a..b")), post(MAPS, a_map("a.-b"))),
    case("name-of-a-service", post("/api/v1/namespaces/{ns}/services", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "1a.b"}, "spec": {"clusterIP": "None"}})),
    case("name-of-a-set", post(SETS, {**_set(), "metadata": {"name": "w.w"}}, shows=())),
    case("label-value", post(MAPS, a_map(metadata={"labels": {"a": "no space"}})), post(THINGS, thing(metadata={"labels": {"a": "x" * 64}}))),
    case("label-key", post(MAPS, a_map(metadata={"labels": {"a/b/c": "x"}})), post(MAPS, a_map(metadata={"labels": {"-a": "x"}}))),
    case("label-value-type", post(MAPS, a_map(metadata={"labels": {"a": 1}})), post(THINGS, thing(metadata={"labels": {"a": 1}}))),
    case("annotation-key", post(MAPS, a_map(metadata={"annotations": {"a b": "x"}}))),
    case("annotations-too-large", post(MAPS, a_map(metadata={"annotations": {"a": "x" * 262_144}}))),
    case("finalizer-names", post(MAPS, a_map(metadata={"finalizers": ["plain"]})), post(THINGS, thing(metadata={"finalizers": ["no slash"]}))),
    case("owner-references", *(post(MAPS, a_map(name, metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", **more}, *others]})) for name, more, others in (("a", {"uid": ""}, []), ("b", {"apiVersion": ""}, []), ("c", {"controller": True}, [{"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "v", "controller": True}])))),
    # --- strict decoding ---
    *(case(f"unknown-fields-{how.lower()}", post(THINGS, thing(ODD), f"fieldValidation={how}", message=how == "Strict")) for how in ("Strict", "Warn", "Ignore")),
    *(case(f"unknown-fields-of-a-map-{how.lower()}", post(MAPS, {**a_map(), "odd": 1}, f"fieldValidation={how}")) for how in ("Strict", "Warn", "Ignore")),
    case("unknown-fields-in-metadata", post(THINGS, thing(metadata={"odd": 1}), "fieldValidation=Strict", message=True), post(THINGS, thing(metadata={"odd": 1}))),
    case("unknown-field-validation", post(THINGS, thing(), "fieldValidation=Some")),
    case("unknown-top-level-field", post(THINGS, {**thing(), "odd": 1}, "fieldValidation=Strict", message=True), post(THINGS, {**thing(), "odd": 1})),
    *(case(f"duplicate-fields-{how.lower()}", post(THINGS, DUPLICATE, f"fieldValidation={how}", message=how == "Strict")) for how in ("Strict", "Warn", "Ignore")),
    case("duplicate-fields-of-a-map", post(MAPS, DUPLICATE_MAP, "fieldValidation=Strict"), post(MAPS, DUPLICATE_MAP)),
    case("duplicate-fields-in-yaml", post(THINGS, DUPLICATE_YAML, "fieldValidation=Strict", type="yaml")),
    case("unknown-fields-by-patch", post(THINGS, thing({"n": 1})), merge(TA, {"spec": {"odd": 1}}, "fieldValidation=Strict"), merge(TA, {"spec": {"odd": 1}}), json_patch(TA, [{"op": "add", "path": "/spec/odd", "value": 1}], "fieldValidation=Strict")),
    case("wrong-type-in-a-built-in", post(MAPS, {**a_map(), "data": {"k": 1}}), post(SETS, _set(replicas="2"))),
    # --- replacing ---
    case("put-without-resource-version", post(MAPS, a_map()), put(A, a_map(k="w")), post(THINGS, thing()), put(TA, thing({"n": 1}))),
    case("put-stale", post(MAPS, a_map(), save=RV), put(A, a_map(k="w")), put(A, a_map(metadata={"resourceVersion": "{rv}"}, k="x"))),
    case("put-other-uid", post(MAPS, a_map()), put(A, a_map(metadata={"uid": "00000000-0000-0000-0000-000000000000"}))),
    case("put-other-name", post(MAPS, a_map()), put(A, a_map("b"))),
    case("put-missing", put(A, a_map()), put(TA, thing()), put(TA, thing(metadata={"resourceVersion": "1"}))),
    case("put-same", post(MAPS, a_map(), save=RV), put(A, a_map(), same={"metadata.resourceVersion": "{rv}"})),
    case("put-drops-labels", post(THINGS, thing({"n": 1}, metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}}), save=RV), put(TA, thing(metadata={"resourceVersion": "{rv}"}))),
    # --- patching ---
    case("patch-stale", post(MAPS, a_map()), merge(A, {"metadata": {"resourceVersion": "1"}, "data": {"k": "w"}})),
    case("patch-other-uid", post(MAPS, a_map()), merge(A, {"metadata": {"uid": "x"}, "data": {"k": "w"}})),
    case("patch-name", post(MAPS, a_map()), merge(A, {"metadata": {"name": "b"}}), merge(A, {"metadata": {"namespace": "default"}}), merge(A, {"metadata": {"name": None}})),
    case("patch-kind", post(MAPS, a_map()), merge(A, {"kind": "Secret"})),
    case("patch-missing", merge(A, {}), json_patch(A, []), strategic(A, {})),
    case("patch-null-removes", post(MAPS, a_map(k="v", l="w")), merge(A, {"data": {"k": None}}), merge(A, {"data": None})),
    case("patch-with-nothing", post(MAPS, a_map(), save=RV), merge(A, {}, same={"metadata.resourceVersion": "{rv}"})),
    case("patch-no-object", post(MAPS, a_map()), merge(A, "[]"), merge(A, "7"), json_patch(A, "{}"), json_patch(A, '[{"op":"odd","path":"/data"}]')),
    case("json-patch", post(MAPS, a_map()), json_patch(A, [{"op": "test", "path": "/data/k", "value": "v"}, {"op": "add", "path": "/data/l", "value": "w"}, {"op": "copy", "from": "/data/l", "path": "/data/m"}, {"op": "move", "from": "/data/k", "path": "/data/n"}])),
    case("json-patch-test-fails", post(MAPS, a_map()), json_patch(A, [{"op": "test", "path": "/data/k", "value": "x"}])),
    case("json-patch-missing-path", post(MAPS, a_map()), json_patch(A, [{"op": "remove", "path": "/data/x"}]), json_patch(A, [{"op": "replace", "path": "/data/x", "value": "1"}]), json_patch(A, [{"op": "add", "path": "/x/y/z", "value": "1"}])),
    case("json-patch-list", post(THINGS, thing({"atoms": ["a", "c"]})), json_patch(TA, [{"op": "add", "path": "/spec/atoms/1", "value": "b"}, {"op": "add", "path": "/spec/atoms/-", "value": "d"}]), json_patch(TA, [{"op": "add", "path": "/spec/atoms/9", "value": "z"}])),
    case("json-patch-resource-version", post(MAPS, a_map()), json_patch(A, [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}, {"op": "remove", "path": "/data"}])),
    case("strategic-of-custom", post(THINGS, thing()), strategic(TA, {"spec": {"n": 1}})),
    case("strategic-containers", post(SETS, _set(), shows=("spec.template.spec.containers",)), strategic(f"{SETS}/w", {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "j:1"}]}}}}, shows=("spec.template.spec.containers",)), strategic(f"{SETS}/w", {"spec": {"template": {"spec": {"containers": [{"name": "c", "$patch": "delete"}]}}}}, shows=("spec.template.spec.containers",))),
    case("strategic-finalizers", post(MAPS, a_map(metadata={"finalizers": ["a/b"]})), strategic(A, {"metadata": {"finalizers": ["a/c"]}}), strategic(A, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b", "a/c"]}})),
    # --- generations, status and scale ---
    case("generation-of-custom", post(THINGS, thing({"n": 1})), merge(TA, {"metadata": {"labels": {"a": "b"}}}), merge(TA, {"spec": {"n": 2}}), merge(f"{TA}/status", {"status": {"phase": "x"}}), merge(TA, {"metadata": {"generation": 9}})),
    case("generation-without-status", post(PLAINS, plain({"n": 1})), merge(PA, {"status": {"phase": "x"}}), merge(PA, {"metadata": {"labels": {"a": "b"}}}), merge(PA, {"spec": {"n": 2}})),
    case("generation-of-a-set", post(SETS, _set(), shows=("metadata.generation",)), merge(f"{SETS}/w", {"metadata": {"labels": {"a": "b"}}}, shows=("metadata.generation",)), merge(f"{SETS}/w", {"spec": {"minReadySeconds": 3}}, shows=("metadata.generation",))),
    case("generation-of-a-map", post(MAPS, a_map()), merge(A, {"data": {"k": "w"}})),
    case("status-is-apart", post(THINGS, thing({"n": 1}, status={"phase": "x"})), merge(TA, {"status": {"phase": "x"}}), merge(f"{TA}/status", {"status": {"phase": "y"}, "spec": {"n": 2}, "metadata": {"labels": {"a": "b"}}}), get(f"{TA}/status")),
    case("status-by-put", post(THINGS, thing({"n": 1}), save=RV), put(f"{TA}/status", thing({"n": 2}, metadata={"resourceVersion": "{rv}"}, status={"phase": "z", "odd": 1})), put(f"{TA}/status", thing({"n": 2}, metadata={"resourceVersion": "{rv}"}, status={"phase": "a"}))),
    case("status-that-does-not-fit", post(THINGS, thing()), merge(f"{TA}/status", {"status": {"replicas": "x"}}), merge(f"{TA}/status", {"status": {"odd": 1}}, "fieldValidation=Strict")),
    case("status-without-subresource", post(PLAINS, plain()), merge(f"{PA}/status", {"status": {"phase": "x"}}), get(f"{PLAINS}/b/status")),
    case("status-of-nothing", merge(f"{TA}/status", {"status": {"phase": "x"}}), get(f"{TA}/status")),
    case("scale-of-custom", post(THINGS, thing({"replicas": 3})), get(f"{TA}/scale"), merge(f"{TA}/scale", {"spec": {"replicas": 5}}), get(TA), merge(f"{TA}/status", {"status": {"replicas": 4, "selector": "a=b"}}), get(f"{TA}/scale")),
    case("scale-unset", post(THINGS, thing()), get(f"{TA}/scale"), merge(f"{TA}/scale", {"spec": {"replicas": 2}}), get(TA)),
    case("scale-stale", post(THINGS, thing({"replicas": 3}), save=RV), merge(TA, {"spec": {"replicas": 4}}), put(f"{TA}/scale", {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", "namespace": "{ns}", "resourceVersion": "{rv}"}, "spec": {"replicas": 1}})),
    case("scale-negative", post(THINGS, thing({"replicas": 3})), merge(f"{TA}/scale", {"spec": {"replicas": -1}})),
    case("scale-of-a-set", post(SETS, _set(), shows=()), get(f"{SETS}/w/scale", shows=("spec", "kind", "apiVersion")), merge(f"{SETS}/w/scale", {"spec": {"replicas": 0}}, shows=("spec",))),
    # --- what built-in kinds keep as it is ---
    case("set-immutable", post(SETS, _set(), shows=()), merge(f"{SETS}/w", {"spec": {"serviceName": "x"}}), merge(f"{SETS}/w", {"spec": {"selector": {"matchLabels": {"app": "x"}}}}), merge(f"{SETS}/w", {"spec": {"volumeClaimTemplates": []}}, shows=())),
    case("set-without-selector", post(SETS, _set(selector={})), post(SETS, _set(selector={"matchLabels": {"app": "x"}}))),
    case("claim-immutable", post(CLAIMS, _claim(), shows=()), merge(f"{CLAIMS}/c", {"spec": {"accessModes": ["ReadOnlyMany"]}}), merge(f"{CLAIMS}/c", {"spec": {"storageClassName": "x"}}, shows=("spec",))),
    case("claim-not-whole", post(CLAIMS, _claim(accessModes=[])), post(CLAIMS, _claim(resources={})), post(CLAIMS, _claim("x")), post(CLAIMS, _claim("-1Gi"))),
    case("claim-protected", post(CLAIMS, _claim(), shows=("metadata.finalizers",)), differs="The plane's controller of claims adds the finalizer, a moment after the API server stored the claim."),
    case("map-immutable", post(MAPS, {**a_map(), "immutable": True}), merge(A, {"data": {"k": "w"}}), merge(A, {"immutable": None})),
    case("map-keys", post(MAPS, {**a_map(), "data": {"a b": "x"}}), post(MAPS, {**a_map(), "data": {"..": "x"}})),
    case("secret-type", post(SECRETS, {**a_secret(), "type": "a/b", "stringData": {"k": "v"}}), merge(f"{SECRETS}/a", {"type": "a/c"}), post(SECRETS, {**a_secret("b"), "data": {"k": "not base64!"}})),
)  # fmt: skip
