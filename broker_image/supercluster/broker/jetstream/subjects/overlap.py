"""The relation of subjects with wildcards, by token, so that a subject need not be compared with each of
a hundred thousand.

A wildcard may lead to many places of the tree, so callers count them and work in slices. Within one configuration
`subject_set.py` compares without such steps.
"""

from __future__ import annotations

from collections.abc import Iterable
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
