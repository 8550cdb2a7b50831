"""Authorization: the administrator may do everything, all others what roles and bindings (RBAC) allow them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from supercluster.localplane.apiserver.auth.identities import User
from supercluster.localplane.apiserver.storage.selectors import label_selector_matches
from supercluster.localplane.apiserver.storage.store import Store
from supercluster.localplane.json_data import Json

_GROUP = "rbac.authorization.k8s.io"
# What everybody who is known may read, as with a real API server's discovery roles.
OPEN_PATHS = ("/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def told(self, user: User) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f' in the namespace "{self.namespace}"' if self.namespace else " at the cluster scope"
        return f'User "{user.name}" cannot {self.verb} resource "{what}" in API group "{self.group}"{where}'


def _is_subject(subject: Json, user: User) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace', '')}:{name}"
    if kind == "Group":
        return name in user.groups
    return kind == "User" and name == user.name


def _has(values: list[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)


def rule_allows(rule: Json, request: Request) -> bool:
    if not _has(rule.get("verbs"), request.verb):
        return False
    if request.path:
        paths = rule.get("nonResourceURLs") or []
        return any(
            path == request.path or (path.endswith("*") and request.path.startswith(path[:-1]))
            for path in paths
        )
    if not _has(rule.get("apiGroups"), request.group):
        return False
    resources = rule.get("resources") or []
    full = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    if "*" not in resources and full not in resources and f"*/{request.subresource or '-'}" not in resources:
        return False
    names = rule.get("resourceNames") or []
    return not names or request.name in names


class Authorizer:
    """RBAC over the roles that are stored now."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def allows(self, user: User, request: Request) -> bool:
        if user.is_administrator:
            return True
        if request.path and request.verb == "get" and request.path.startswith(OPEN_PATHS):
            return True
        # Everybody may ask what they may do.
        if request.group == "authorization.k8s.io" and request.resource.startswith("selfsubject"):
            return True
        if request.group == "authentication.k8s.io" and request.resource == "selfsubjectreviews":
            return True
        return any(rule_allows(rule, request) for rule in self._rules(user, request.namespace))

    def rules_of(self, user: User, namespace: str) -> list[Json]:
        """All that a user may do in a namespace, as rules."""
        if user.is_administrator:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return list(self._rules(user, namespace))

    def _rules(self, user: User, namespace: str) -> Iterator[Json]:
        for binding in self._store.all_of((_GROUP, "clusterrolebindings")):
            yield from self._bound(binding, user, "")
        if namespace:
            for binding in self._store.all_of((_GROUP, "rolebindings"), namespace):
                yield from self._bound(binding, user, namespace)

    def _bound(self, binding: Json, user: User, namespace: str) -> Iterator[Json]:
        if not any(_is_subject(subject, user) for subject in binding.get("subjects") or []):
            return
        reference = binding.get("roleRef") or {}
        if reference.get("kind") == "ClusterRole":
            role = self._store.get((_GROUP, "clusterroles"), "", reference.get("name", ""))
        else:
            role = self._store.get((_GROUP, "roles"), namespace, reference.get("name", ""))
        if role is None:
            return
        yield from role.get("rules") or []
        for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []:
            for other in self._store.all_of((_GROUP, "clusterroles")):
                if label_selector_matches(selector, other["metadata"].get("labels") or {}):
                    yield from other.get("rules") or []
