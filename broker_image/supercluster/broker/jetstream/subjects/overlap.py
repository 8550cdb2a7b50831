"""The relation of subjects with wildcards, by token, so that a subject need not be compared with each of
thousands in a configuration.

A broker reads a configuration in one turn, as every replica does, and nothing else runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

# A token → what follows it; where a subject ends, it stands under what no token is.
_Node = dict[str, Any]
_END = "."


class OverlapTree:
    """Two subjects overlap when there is a literal one that both match. `looked_at` counts on what was looked at, since a
    wildcard may lead to many."""

    def __init__(self, subjects: Iterable[str] = ()) -> None:
        self.looked_at = 0
        self._root: _Node = {}
        for subject in subjects:
            self.add(subject)

    def add(self, subject: str) -> None:
        _end_of(self._root, subject)[_END] = subject

    def overlapping(self, subject: str) -> str | None:
        """One of those that are there that overlaps with this one."""
        nodes = [self._root]
        for token in subject.split("."):
            self.looked_at += len(nodes)
            for node in nodes:
                if ">" in node:
                    return _any_of(node[">"])
            if token == ">":
                longer = (child for node in nodes for key, child in node.items() if key != _END)
                return next(map(_any_of, longer), None)
            if token == "*":
                nodes = [child for node in nodes for key, child in node.items() if key != _END]
            else:
                nodes = [node[key] for node in nodes for key in (token, "*") if key in node]
        self.looked_at += len(nodes)
        return next((str(node[_END]) for node in nodes if _END in node), None)


def _end_of(root: _Node, subject: str) -> _Node:
    """Where the subject ends; the way there is made where there is none."""
    node = root
    for token in subject.split("."):
        node = node.setdefault(token, {})
    return node


def _any_of(node: _Node) -> str:
    """One of the subjects below; every node leads to one."""
    while _END not in node:
        node = next(iter(node.values()))
    return str(node[_END])


def first_overlap(subjects: Iterable[str]) -> tuple[str, str] | None:
    """The first of the subjects that overlaps with one before it, behind that one."""
    tree = OverlapTree()
    for subject in subjects:
        other = tree.overlapping(subject)
        if other is not None:
            return other, subject
        tree.add(subject)
    return None


def first_within(filters: Sequence[str]) -> tuple[str, str] | None:
    """The first of the filters that another one of them takes in as a whole, and that one. Filters that only have some subjects in
    common may stand beside one another."""
    root: _Node = {}
    for item in filters:
        end = _end_of(root, item)
        if _END in end:
            return item, item
        end[_END] = item
    for item in filters:
        nodes = [root]
        for token in item.split("."):
            wider = [node[">"][_END] for node in nodes if ">" in node and node[">"][_END] != item]
            if wider:
                return item, wider[0]
            steps = () if token == ">" else {token, "*"}
            nodes = [node[step] for node in nodes for step in steps if step in node]
        for node in nodes:
            if node.get(_END, item) != item:
                return item, node[_END]
    return None
