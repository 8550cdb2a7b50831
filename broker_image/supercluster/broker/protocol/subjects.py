"""The validity of subjects, and the matching of filters and subjects.

Tokens are separated by dots; `*` stands for one token, `>` at the end for one or more.
"""

from __future__ import annotations

INBOX_PREFIX = b"_INBOX."
"""Reply subjects of all usual clients start so: they are many, short-lived, and never worth a cache entry each."""

REPLY_PREFIX = b"_R_."
"""Reply subjects of requests that go to another account: one for each request, as clients' own are."""
UNIQUE_PREFIXES = (INBOX_PREFIX, REPLY_PREFIX)

API_PREFIX = b"$JS.API."
ACK_PREFIX = b"$JS.ACK."
FLOW_PREFIX = b"$JS.FC."
SNAPSHOT_PREFIX = b"$JS.SNAPSHOT."

RESERVED_REPLY_HEADS = frozenset((b"_R_.", b"_GR_", b"$GR.", b"$JS."))
"""The first four bytes of reply subjects that have to be looked at: one slice per message tells."""
_RESERVED_REPLIES = (b"_GR_.", b"$GR.", ACK_PREFIX)

SUBJECT_TOKENS_MAX = 256
"""Of a message's subject and of a subscription: each token costs time in every tree of subjects. NATS recommends 16."""

_SPACES = b" \t\r\n\x0b\x0c\x00"


def is_valid_filter(subject: bytes) -> bool:
    """May a subscription have this subject?"""
    if not subject or subject.startswith(b".") or subject.endswith(b".") or b".." in subject:
        return False
    if any(byte in subject for byte in _SPACES):
        return False
    tail = subject.find(b">")
    return tail < 0 or b">" not in subject.split(b".")[:-1]


def is_valid_literal(subject: bytes) -> bool:
    """May a message have this subject? Wildcards as whole tokens are not allowed, inside of a token they are."""
    if not is_valid_filter(subject):
        return False
    if b"*" not in subject and b">" not in subject:
        return True
    tokens = subject.split(b".")
    return b"*" not in tokens and b">" not in tokens


def too_many_tokens(subject: bytes) -> str:
    """What to tell whoever has more than are allowed in a subject; empty: it has not."""
    count = subject.count(b".") + 1
    return (
        f"a subject has {count} tokens, at most {SUBJECT_TOKENS_MAX} are allowed"
        if count > SUBJECT_TOKENS_MAX
        else ""
    )


def is_reserved_reply(reply: bytes) -> bool:
    """Is it a reply subject of servers' own, which no client may ask for answers at: nats-server's of imports, gateways and
    acknowledgements? An answer to a forged one would count as one to what somebody else asked."""
    if reply.startswith(REPLY_PREFIX):
        return True
    return reply.startswith(_RESERVED_REPLIES) and reply not in _RESERVED_REPLIES


def has_wildcard(subject: bytes) -> bool:
    """Is there a `*` or `>` that stands for tokens?"""
    if b"*" not in subject and b">" not in subject:
        return False
    tokens = subject.split(b".")
    return b"*" in tokens or tokens[-1] == b">"


def matches(subject: bytes, pattern: bytes) -> bool:
    """Does `pattern` (with wildcards) match the literal `subject`?"""
    if subject == pattern:
        return True
    wanted = pattern.split(b".")
    tokens = subject.split(b".")
    if wanted[-1] == b">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(tokens) != len(wanted):
        return False
    return all(want in (b"*", token) for want, token in zip(wanted, tokens, strict=False))


def overlap(one: bytes, other: bytes) -> bool:
    """Is there a subject that both filters match?"""
    left = one.split(b".")
    right = other.split(b".")
    for index in range(max(len(left), len(right))):
        if index >= len(left) or index >= len(right):
            return False
        if b">" in (left[index], right[index]):
            return True
        if left[index] != right[index] and b"*" not in (left[index], right[index]):
            return False
    return True


def is_subset(inner: bytes, outer: bytes) -> bool:
    """Does `outer` match all that `inner` matches?"""
    left = inner.split(b".")
    right = outer.split(b".")
    for index, want in enumerate(right):
        if index >= len(left):
            return False
        if want == b">":
            return True
        if left[index] == b">" or (want != b"*" and left[index] != want):
            return False
    return len(left) == len(right)
