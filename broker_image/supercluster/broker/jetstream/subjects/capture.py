"""Finds the stream that captures a subject, among thousands: the patterns of one account's streams form a
tree of tokens.

The first publish to a subject needs this look-up, so it must not visit every stream.
"""

from __future__ import annotations

_NONE = (1 << 62, "")
"""Later than any pattern."""


class _Node:
    __slots__ = ("children", "group", "rest")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        """By token; `*` stands for any."""
        self.group = _NONE
        """Of the pattern that ends here: its place in the order in which patterns were added, and its group."""
        self.rest = _NONE
        """Of the pattern that goes on with `>` here."""


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
        tokens = pattern.split(b".")
        open_ended = tokens[-1] == b">"
        node = self._root
        for token in tokens[:-1] if open_ended else tokens:
            node = node.children.setdefault(token, _Node())
        self._num_added += 1
        added = self._num_added, group
        if open_ended:
            node.rest = min(node.rest, added)
        else:
            node.group = min(node.group, added)

    def find(self, subject: bytes) -> str:
        """The group whose stream captures the subject; an empty text when none does."""
        tokens = subject.split(b".")
        first = _NONE
        ways = [(self._root, 0)]
        while ways:
            node, at = ways.pop()
            if at == len(tokens):
                first = min(first, node.group)
                continue
            first = min(first, node.rest)
            for token in (b"*", tokens[at]):
                child = node.children.get(token)
                if child is not None:
                    ways.append((child, at + 1))
        return first[1]
