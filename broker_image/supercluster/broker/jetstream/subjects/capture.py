"""Which stream captures a subject, among thousands: the patterns of one account's streams as a tree of tokens.

A publish to a subject that was not seen before asks this, so it must not look at every stream.
"""

from __future__ import annotations


class _Node:
    __slots__ = ("children", "group", "rest")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        """By token; `*` stands for any."""
        self.group = ""
        """Of the pattern that ends here."""
        self.rest = ""
        """Of the pattern that goes on with `>` here."""


class CaptureMap:
    """Patterns and the groups they belong to. Patterns of one account do not overlap: the meta group refuses that."""

    def __init__(self) -> None:
        self._root = _Node()
        self.matches_inboxes = False
        """Could a pattern match a subject that starts with `_INBOX.`?"""

    def add(self, pattern: bytes, group: str) -> None:
        """The group's stream captures what matches the pattern."""
        self.matches_inboxes = self.matches_inboxes or pattern.startswith((b"*", b">", b"_INBOX"))
        tokens = pattern.split(b".")
        open_ended = tokens[-1] == b">"
        node = self._root
        for token in tokens[:-1] if open_ended else tokens:
            node = node.children.setdefault(token, _Node())
        if open_ended:
            node.rest = node.rest or group
        else:
            node.group = node.group or group

    def find(self, subject: bytes) -> str:
        """The group whose stream captures the subject; an empty text when none does."""
        tokens = subject.split(b".")
        ways = [(self._root, 0)]
        while ways:
            node, at = ways.pop()
            if at == len(tokens):
                if node.group:
                    return node.group
            elif node.rest:
                return node.rest
            else:
                for token in (b"*", tokens[at]):
                    child = node.children.get(token)
                    if child is not None:
                        ways.append((child, at + 1))
        return ""
