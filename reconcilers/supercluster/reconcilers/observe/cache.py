"""A cache of objects from events and from the operator's own writes. The newest version wins, so the operator
reads its own writes.

It holds only custom resources and objects with the operator's labels. Models are parsed once per version of
an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from supercluster.api import Cluster, Stream, StreamMove, SuperCluster, User
from supercluster.api.common import Resource
from supercluster.api.crd import KINDS, Kind, ResourceT
from supercluster.reconcilers.planners.move.views import owner_uid
from supercluster.reconcilers.planners.plan import LABEL_SUPER_CLUSTER
from supercluster.reconcilers.ports import Key, mapping


def key_of(body: Mapping[str, Any]) -> Key:
    metadata = mapping(body.get("metadata"))
    return Key(str(body.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", "")))


def key_of_resource(resource: Resource) -> Key:
    return Key(type(resource).__name__, resource.metadata.namespace, resource.metadata.name)


class ObjectCache:
    """What is known of Kubernetes now."""

    def __init__(self, kinds: Iterable[Kind[Any]] = KINDS) -> None:
        kinds = tuple(kinds)
        self._kinds: Mapping[str, type[Resource]] = {kind.name: kind.model for kind in kinds}
        self._child_labels = {kind.child_label: kind.name for kind in kinds if kind.child_label}
        self._objects: dict[Key, Mapping[str, Any]] = {}
        self._models: dict[Key, Resource | ValidationError] = {}
        self._by_owner: dict[tuple[str, str, str, str], set[Key]] = {}
        self._unlisted: set[str] = set()
        self._on_own_write: Callable[[Key], None] = lambda _: None

    def tell_of_own_writes(self, listener: Callable[[Key], None]) -> None:
        """Whom our own writes concern is woken by the answer already: the watch brings them a tenth of a second later."""
        self._on_own_write = listener

    def is_ours(self, body: Mapping[str, Any]) -> bool:
        """Custom resources, and what carries our labels."""
        labels = mapping(mapping(body.get("metadata")).get("labels"))
        is_child = LABEL_SUPER_CLUSTER in labels or not self._child_labels.keys().isdisjoint(labels)
        return is_child or body.get("kind") in self._kinds

    def wrote(self, body: Mapping[str, Any]) -> None:
        """The answer to a write of ours."""
        if self.put(body):
            self._on_own_write(key_of(body))

    def put(self, body: Mapping[str, Any]) -> bool:
        """Take over an object unless a newer version of it is known. True when something is new."""
        key, version = key_of(body), _version(body)
        known = self._objects.get(key)
        if known is not None and _uid(known) == _uid(body) and _version(known) >= version:
            return False
        self._forget(key)
        self._objects[key] = body = _without_managers(body)
        for owner in self._owners(body):
            self._by_owner.setdefault(owner, set()).add(key)
        return True

    def remove(self, body: Mapping[str, Any]) -> bool:
        """The object is no more; one of the same name that came later stays."""
        key = key_of(body)
        known = self._objects.get(key)
        if known is None or _uid(known) != _uid(body):
            return False
        self._forget(key)
        return True

    @property
    def unlisted(self) -> frozenset[str]:
        """What has to be listed before an object that is not here counts as absent."""
        return frozenset(self._unlisted)

    def expect_lists(self, names: Iterable[str]) -> None:
        """This process begins to lead: what it knows may be out of date until each of these was listed."""
        self._unlisted = set(names)

    def listed(self, name: str) -> None:
        self._unlisted.discard(name)

    def unreadable(self, namespace: str, super_cluster: str) -> tuple[Key, ...]:
        """Custom resources of a super-cluster, or of one that can't be told, that do not fit our models, by name: of a newer
        version, as a rule."""
        found = {Key("SuperCluster", namespace, super_cluster)}
        for kind in self._kinds:
            for name in (super_cluster, ""):
                found |= self._by_owner.get((kind, namespace, "super", name), set())
        return tuple(sorted((key for key in found if self._is_unreadable(key)), key=str))

    def _is_unreadable(self, key: Key) -> bool:
        try:
            self.parsed(self._kinds[key.kind], key.namespace, key.name)
        except ValidationError:
            return True
        return False

    def _forget(self, key: Key) -> None:
        known = self._objects.pop(key, None)
        self._models.pop(key, None)
        for owner in self._owners(known) if known is not None else ():
            self._by_owner[owner].discard(key)
            if not self._by_owner[owner]:
                del self._by_owner[owner]

    def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        return self._objects.get(Key(kind, namespace, name))

    def model(self, model: type[ResourceT], namespace: str, name: str) -> ResourceT | None:
        """The resource as a model; None when it is not there or does not fit the schema."""
        try:
            return self.parsed(model, namespace, name)
        except ValidationError:
            return None

    def parsed(self, model: type[ResourceT], namespace: str, name: str) -> ResourceT | None:
        """The resource as a model.

        Raises:
            ValidationError: it is there and does not fit the schema.
        """
        key = Key(model.__name__, namespace, name)
        body = self._objects.get(key)
        if body is None:
            return None
        found = self._models.get(key)
        if found is None:
            try:
                found = model.model_validate(body)
            except ValidationError as error:
                found = error
            self._models[key] = found
        if isinstance(found, ValidationError):
            raise found
        assert isinstance(found, model)
        return found

    def of_super_cluster(
        self, model: type[ResourceT], namespace: str, super_cluster: str
    ) -> tuple[ResourceT, ...]:
        """Resources of a kind that name a super-cluster, in the order of their names."""
        return self._models_of(model, namespace, "super", super_cluster)

    def claimants(self, namespace: str, super_cluster: str, stream_name: str) -> tuple[Stream, ...]:
        """Stream resources that declare one stream."""
        return self._models_of(Stream, namespace, f"claims-of-{super_cluster}", stream_name)

    def namesakes(self, user: User) -> tuple[User, ...]:
        """Users that declare the same user of the same account, itself too."""
        metadata = user.metadata
        index = f"claims-of-{user.spec.super_cluster}"
        return self._models_of(User, metadata.namespace, index, user.claim)

    def moves_of(self, stream: Stream) -> tuple[StreamMove, ...]:
        """StreamMoves of a Stream resource; not those that an earlier Stream of its name has left behind."""
        metadata = stream.metadata
        moves = self.moves_about(metadata.namespace, stream.spec.super_cluster, metadata.name)
        return tuple(move for move in moves if owner_uid(move) in (None, metadata.uid))

    def moves_about(self, namespace: str, super_cluster: str, stream_ref: str) -> tuple[StreamMove, ...]:
        """StreamMoves that name a Stream resource, in the order of their names. Thousands of others are not looked at."""
        return self._models_of(StreamMove, namespace, f"claims-of-{super_cluster}", stream_ref)

    def _models_of(
        self, model: type[ResourceT], namespace: str, index: str, name: str
    ) -> tuple[ResourceT, ...]:
        keys = self._by_owner.get((model.__name__, namespace, index, name), set())
        found = (self.model(model, namespace, key.name) for key in sorted(keys, key=lambda key: key.name))
        return tuple(resource for resource in found if resource is not None)

    def children_of(self, model: type[Resource], namespace: str, name: str) -> Iterator[Mapping[str, Any]]:
        """Objects that were made for a resource, by the label of its kind."""
        return self._objects_of(namespace, model.__name__, name)

    def claims_of(self, namespace: str, super_cluster: str) -> Iterator[Mapping[str, Any]]:
        """Volume claims of a super-cluster's brokers; those of a Cluster that is gone too, if it kept them."""
        return self._objects_of(namespace, "claims", super_cluster)

    def _objects_of(self, namespace: str, index: str, name: str) -> Iterator[Mapping[str, Any]]:
        for key in sorted(self._by_owner.get(("", namespace, index, name), set()), key=str):
            yield self._objects[key]

    def all_of(self, model: type[ResourceT]) -> Iterator[ResourceT]:
        """Resources of a kind, of all namespaces."""
        for key in sorted((key for key in self._objects if key.kind == model.__name__), key=str):
            found = self.model(model, key.namespace, key.name)
            if found is not None:
                yield found

    def has_any(self, namespace: str, *models: type[Resource]) -> bool:
        """Has the namespace a resource of these kinds, readable or not?"""
        return any(
            key.namespace == namespace and self._kinds.get(key.kind) in models for key in self._objects
        )

    def all_keys(self) -> tuple[Key, ...]:
        return tuple(self._objects)

    def _owners(self, body: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
        key, model = key_of(body), self._kinds.get(str(body.get("kind")))
        spec, labels = mapping(body.get("spec")), mapping(mapping(body.get("metadata")).get("labels"))
        if model is None:
            owners = {kind: labels[label] for label, kind in self._child_labels.items() if label in labels}
            for kind, name in owners.items():
                yield "", key.namespace, kind, str(name)
            is_brokers = owners.keys() <= {Cluster.__name__}
            if is_brokers and key.kind == "PersistentVolumeClaim" and LABEL_SUPER_CLUSTER in labels:
                yield "", key.namespace, "claims", str(labels[LABEL_SUPER_CLUSTER])
        elif model is not SuperCluster:
            named = model.named_super_clusters(spec)
            for super_cluster in named:
                yield key.kind, key.namespace, "super", super_cluster
            claimed = model.claimed_name(spec, key.name)
            if claimed:
                yield key.kind, key.namespace, f"claims-of-{named[0] if named else ''}", claimed


def _without_managers(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Who set which field is a good part of an object's size, and nobody here asks."""
    metadata = mapping(body.get("metadata"))
    if "managedFields" not in metadata:
        return body
    return {**body, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _uid(body: Mapping[str, Any]) -> str:
    return str(mapping(body.get("metadata")).get("uid", ""))


def _version(body: Mapping[str, Any]) -> int:
    """Versions of one object grow; a server that does not count gives 0, and the last word is taken."""
    text = str(mapping(body.get("metadata")).get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
