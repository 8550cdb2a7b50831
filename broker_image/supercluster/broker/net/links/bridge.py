"""The traffic on a link between two super-clusters: interest and messages of users, in the accounts that are
migrated.

It takes one hop, as between clusters: a message goes from the broker that read it to brokers with
subscribers. None of these forwards it, nor offers it to a stream. Traffic that belongs to one super-cluster
stays there: the system account, `$SYS`, and all of `$JS` except advisories (`$JS.EVENT`). The core's frames
carry requests and acknowledgements to the owner of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from supercluster.broker.protocol.frames import RemoteMessage

OWN_PREFIXES = (b"$SYS.", b"$JS.")
ADVISORIES = b"$JS.EVENT."


def is_users(subject: bytes) -> bool:
    """May a message with that subject cross, or interest in it be told? Wildcards in the first tokens may match such a subject."""
    return not subject.startswith(OWN_PREFIXES) or subject.startswith(ADVISORIES)


class Bridge:
    """Of one link."""

    def __init__(self, carries: Callable[[str], bool]) -> None:
        self.carries = carries
        """Do messages of that account cross?"""
        self.told: set[str] = set()
        """Accounts whose interest the other side was told."""
        self.taken: set[str] = set()
        """Accounts of which this side routes by what the other one told."""

    def narrowed(self, entries: Mapping[tuple[bytes, bytes], int]) -> dict[tuple[bytes, bytes], int]:
        """What one side is told of an account's interest, or takes of what it is told."""
        return {key: members for key, members in entries.items() if is_users(key[0])}

    def messages(self, account: str, messages: Sequence[RemoteMessage]) -> list[RemoteMessage]:
        """Of messages that came over the link, those that may."""
        if not self.carries(account):
            return []
        return [message for message in messages if is_users(message[2])]
