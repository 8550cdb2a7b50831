"""Finds the stream that captures a subject, among thousands: the patterns of one account's streams form a
tree of tokens.

The first publish to a subject needs this look-up, so it must not visit every stream.
"""

from __future__ import annotations

from typing import TypeAlias

_Added: TypeAlias = tuple[int, str]
"""A pattern's place in the order in which patterns were added, and its group."""
_NONE = (1 << 62, "")
"""Later than any pattern."""
_Alone: TypeAlias = tuple[list[bytes], _Added]
"""The only pattern below some token: its tokens behind that. Thousands of long patterns would be a hundred thousand nodes, which
take a quarter of a second to make (SF-36)."""


class _Node:
    __slots__ = ("children", "group", "rest")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node | _Alone] = {}
        """By token; `*` stands for any."""
        self.group = _NONE
        """Of the pattern that ends here."""
        self.rest = _NONE
        """Of the pattern that goes on with `>` here."""

    def put(self, tokens: list[bytes], added: _Added) -> None:
        """Add a pattern; `tokens` are those below this node."""
        node = self
        for at, token in enumerate(tokens):
            if token == b">":
                node.rest = min(node.rest, added)
                return
            child = node.children.get(token)
            if child is None:
                node.children[token] = tokens[at + 1 :], added
                return
            if isinstance(child, tuple):
                alone, child = child, _Node()
                child.put(*alone)
                node.children[token] = child
            node = child
        node.group = min(node.group, added)


class CaptureMap:
    """Patterns and the groups they belong to. Where patterns overlap, the one that was added first has the subject. The meta group
    refuses overlaps within an account, but streams that another super-cluster has by now may overlap those that are here."""

    def __init__(self) -> None:
        self._root = _Node()
        self._num_added = 0
        self.matches_inboxes = False
        """Could a pattern match a subject that starts with `_INBOX.`?"""

    def add(self, pattern: bytes, group: str) -> None:
        """The group's stream captures what matches the pattern."""
        self.matches_inboxes = self.matches_inboxes or pattern.startswith((b"*", b">", b"_INBOX"))
        self._num_added += 1
        self._root.put(pattern.split(b"."), (self._num_added, group))

    def find(self, subject: bytes) -> str:
        """The group whose stream captures the subject; an empty text when none does."""
        tokens = subject.split(b".")
        first = _NONE
        ways: list[tuple[_Node | _Alone, int]] = [(self._root, 0)]
        while ways:
            node, at = ways.pop()
            if isinstance(node, tuple):
                if node[1] < first and _fits(node[0], tokens[at:]):
                    first = node[1]
                continue
            if at == len(tokens):
                first = min(first, node.group)
                continue
            first = min(first, node.rest)
            for token in (b"*", tokens[at]):
                child = node.children.get(token)
                if child is not None:
                    ways.append((child, at + 1))
        return first[1]


def _fits(pattern: list[bytes], tokens: list[bytes]) -> bool:
    """Does a pattern match the tokens of a subject?"""
    if pattern and pattern[-1] == b">":
        pattern = pattern[:-1]
        if len(tokens) <= len(pattern):
            return False
    elif len(tokens) != len(pattern):
        return False
    return all(wanted in (b"*", token) for wanted, token in zip(pattern, tokens, strict=False))
