"""The subscribers of a subject: a trie of subscriptions of one account, local ones and the interest of other
brokers.

Of a queue group's members at other brokers those of other clusters (`far`) count only where there are none in
the own one (CL-2, CL-6), and those of another super-cluster (`other_worlds`) only where this one has none
(BG-5).

A result is cached by subject, so that a known subject costs one dict hit. Subjects under `_INBOX.` and `_R_.`
are cached by all but their last token where no subscription names that last token: a client's unique reply
subjects then share one entry. A new or ended subscription without wildcards drops what it touches; one with
wildcards drops everything, or only inbox results when it can match only those. Caches are bounded and dropped
whole when full.

A subject that is not cached may lead to as many places of the trie as there are filters with other wildcards.
`visited` counts them, so that a look-up takes room of the turn that it is done in (SF-36).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from supercluster.broker.protocol.subjects import UNIQUE_PREFIXES, has_wildcard

S = TypeVar("S")

CACHE_ENTRIES_MAX = 32768
LIST_MAX = 32
"""Subscriptions with one subject, or one subject and queue group, beyond which they are kept in a dict."""

UNRESOLVED = object()
"""A match whose `window` nobody has looked up yet."""


class GroupMatch(Generic[S]):
    """Members of one queue group: here, and brokers with a weight (members there), none far while one is near."""

    __slots__ = ("local", "name", "remote")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.local: list[S] = []
        self.remote: dict[str, int] = {}


class Match(Generic[S]):
    """Result for a subject. `window` and `is_api` are the router's own notes and die with the cache entry."""

    __slots__ = ("anyone", "groups", "is_api", "nodes", "plain", "window")

    def __init__(self, plain: list[S], nodes: set[str], groups: list[GroupMatch[S]]) -> None:
        self.plain = plain
        self.nodes = sorted(nodes)
        self.groups = groups
        self.anyone = bool(plain or nodes or groups)
        self.window: Any = UNRESOLVED
        self.is_api = False

    @property
    def local(self) -> list[S]:
        """Everybody here, members of queue groups too."""
        return self.plain + [member for group in self.groups for member in group.local]


Members: TypeAlias = "list[S] | dict[S, None]"
"""In the order in which they came: a list takes less, and a dict loses one of many at once."""


def _with(members: Members[S], one: S) -> Members[S]:
    if type(members) is list:
        if len(members) < LIST_MAX:
            members.append(one)
            return members
        members = dict.fromkeys(members)
    assert type(members) is dict
    members[one] = None
    return members


def _without(members: Members[S], one: S) -> None:
    if type(members) is dict:
        del members[one]
    else:
        members.remove(one)  # type: ignore[union-attr]


class _Node(Generic[S]):
    __slots__ = ("children", "local_groups", "plain", "remote", "star", "tail")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[S]] = {}
        self.star: _Node[S] | None = None
        self.tail: _Node[S] | None = None
        self.plain: Members[S] = []
        self.local_groups: dict[bytes, Members[S]] = {}
        self.remote: dict[tuple[bytes, str], int] = {}
        """(queue or empty, broker) → members there."""

    def is_empty(self) -> bool:
        return not (self.children or self.star or self.tail or self.plain or self.local_groups or self.remote)


class Sublist(Generic[S]):
    """Subscriptions of one account."""

    def __init__(
        self, far: Collection[str] = frozenset(), other_worlds: Collection[str] = frozenset()
    ) -> None:
        self._tiers = (far, other_worlds)
        """Brokers of other clusters, and those among them of other super-clusters; may change between calls, for brokers that have
        no subscriptions here."""
        self._root: _Node[S] = _Node()
        self.cache: dict[bytes, Match[S]] = {}
        """Results by subject; read it directly on the hot path, `match` on a miss."""
        self._inboxes: dict[bytes, Match[S]] = {}
        self._inbox_prefixes: dict[bytes, Match[S] | None] = {}
        """By prefix: the result for whatever token follows, or None where that differs by token."""
        self.local_count = 0
        self.visited = 0
        """Places of the trie that were looked at, since `take_visited`."""

    def insert(self, subject: bytes, queue: bytes, subscription: S) -> None:
        """Add a local subscription to a valid filter."""
        node = self._node(subject)
        if queue:
            node.local_groups[queue] = _with(node.local_groups.get(queue, []), subscription)
        else:
            node.plain = _with(node.plain, subscription)
        self.local_count += 1
        self._changed(subject)

    def remove(self, subject: bytes, queue: bytes, subscription: S) -> None:
        """Take a local subscription out; it must be in."""
        path = self._path(subject)
        node = path[-1][0]
        if queue:
            members = node.local_groups[queue]
            _without(members, subscription)
            if not members:
                del node.local_groups[queue]
        else:
            _without(node.plain, subscription)
        self.local_count -= 1
        self._prune(path)
        self._changed(subject)

    def set_remote(self, node_name: str, subject: bytes, queue: bytes, count: int) -> None:
        """Note how many members a broker has for (subject, queue); 0 takes it out."""
        if count:
            self._node(subject).remote[queue, node_name] = count
        else:
            path = self._path(subject)
            if not path:
                return
            path[-1][0].remote.pop((queue, node_name), None)
            self._prune(path)
        self._changed(subject)

    def match(self, subject: bytes) -> Match[S]:
        """Who wants the valid literal `subject`."""
        if subject.startswith(UNIQUE_PREFIXES):
            return self._match_inbox(subject)
        found = self.cache.get(subject)
        if found is not None:
            return found
        found = self.lookup(subject)
        if len(self.cache) >= CACHE_ENTRIES_MAX:
            self.cache.clear()
        self.cache[subject] = found
        return found

    def lookup(self, subject: bytes) -> Match[S]:
        """`match` without the caches: for subjects that do not come again."""
        return self._collect(self._ends(self._frontier(subject.split(b"."))))

    def take_visited(self) -> int:
        """How many places of the trie were looked at since the last call."""
        visited, self.visited = self.visited, 0
        return visited

    def first_token_is_wanted(self, token: bytes) -> bool:
        """Could any subscription match a subject that starts with this token?"""
        root = self._root
        return token in root.children or root.star is not None or root.tail is not None

    def invalidate(self) -> None:
        """Forget all results (with the notes on them)."""
        self.cache.clear()
        self._inboxes.clear()
        self._inbox_prefixes.clear()

    def _match_inbox(self, subject: bytes) -> Match[S]:
        dot = subject.rfind(b".")
        prefix = subject[:dot]
        prefixes = self._inbox_prefixes
        shared = prefixes.get(prefix)
        if shared is not None:
            return shared
        if prefix not in prefixes:
            if len(prefixes) >= CACHE_ENTRIES_MAX:
                prefixes.clear()
            frontier = self._frontier(prefix.split(b"."))
            if not any(node.children for node in frontier[0]):
                shared = prefixes[prefix] = self._collect(self._ends(self._step(frontier, b"")))
                return shared
            prefixes[prefix] = None
        found = self._inboxes.get(subject)
        if found is None:
            found = self.lookup(subject)
            if len(self._inboxes) >= CACHE_ENTRIES_MAX:
                self._inboxes.clear()
            self._inboxes[subject] = found
        return found

    def _changed(self, subject: bytes) -> None:
        if subject.startswith(UNIQUE_PREFIXES):
            if has_wildcard(subject):
                self._inboxes.clear()
                self._inbox_prefixes.clear()
            else:
                self._inboxes.pop(subject, None)
                self._inbox_prefixes.pop(subject[: subject.rfind(b".")], None)
        elif has_wildcard(subject):
            self.invalidate()
        else:
            self.cache.pop(subject, None)

    def _frontier(self, tokens: list[bytes]) -> tuple[list[_Node[S]], list[_Node[S]]]:
        """Nodes that the tokens lead to, and the `>` nodes that were passed."""
        frontier: tuple[list[_Node[S]], list[_Node[S]]] = ([self._root], [])
        for token in tokens:
            if not frontier[0]:
                break
            frontier = self._step(frontier, token)
        return frontier

    def _step(
        self, frontier: tuple[list[_Node[S]], list[_Node[S]]], token: bytes
    ) -> tuple[list[_Node[S]], list[_Node[S]]]:
        """One token further; the list of passed nodes is the same one, longer."""
        nodes, tails = frontier
        following: list[_Node[S]] = []
        self.visited += len(nodes)
        for node in nodes:
            if node.tail is not None:
                tails.append(node.tail)
            if node.star is not None:
                following.append(node.star)
            child = node.children.get(token)
            if child is not None:
                following.append(child)
        return following, tails

    @staticmethod
    def _ends(frontier: tuple[list[_Node[S]], list[_Node[S]]]) -> Iterator[_Node[S]]:
        yield from frontier[0]
        yield from frontier[1]

    def _collect(self, ends: Iterator[_Node[S]]) -> Match[S]:
        plain: list[S] = []
        nodes: set[str] = set()
        groups: dict[bytes, GroupMatch[S]] = {}
        for node in ends:
            self.visited += 1
            plain += node.plain
            for queue, members in node.local_groups.items():
                groups.setdefault(queue, GroupMatch(queue)).local += members
            for (queue, broker), count in node.remote.items():
                if queue:
                    remote = groups.setdefault(queue, GroupMatch(queue)).remote
                    remote[broker] = remote.get(broker, 0) + count
                else:
                    nodes.add(broker)
        for far in self._tiers:
            if far:
                for group in groups.values():
                    near = {broker: count for broker, count in group.remote.items() if broker not in far}
                    if near:
                        group.remote = near
        return Match(plain, nodes, list(groups.values()))

    def _node(self, subject: bytes) -> _Node[S]:
        node = self._root
        tokens = subject.split(b".")
        for token in tokens:
            if token == b"*":
                node.star = following = node.star or _Node()
            elif token == b">":
                node.tail = following = node.tail or _Node()
            else:
                following = (
                    node.children.setdefault(token, _Node())
                    if token not in node.children
                    else node.children[token]
                )
            node = following
        return node

    def _path(self, subject: bytes) -> list[tuple[_Node[S], bytes]]:
        """Nodes from the root to the subject's, each with the token that leads to it; empty when there is none."""
        path: list[tuple[_Node[S], bytes]] = [(self._root, b"")]
        for token in subject.split(b"."):
            node = path[-1][0]
            following = (
                node.star if token == b"*" else node.tail if token == b">" else node.children.get(token)
            )
            if following is None:
                return []
            path.append((following, token))
        return path

    @staticmethod
    def _prune(path: list[tuple[_Node[S], bytes]]) -> None:
        for (parent, _), (node, token) in zip(reversed(path[:-1]), reversed(path), strict=False):
            if not node.is_empty():
                return
            if token == b"*":
                parent.star = None
            elif token == b">":
                parent.tail = None
            else:
                del parent.children[token]
