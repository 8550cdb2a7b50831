"""Frames about redirected clients, over the links within and between two super-clusters
(`redirect_words.py`).

Between the two they concern only the accounts that cross a link, in both directions. No guarantee depends on
them. Without them PONGs are not delayed, no connection follows a user's first one, and clients that reconnect
to another broker of blue stay there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from supercluster.broker.migration.worlds import world_of
from supercluster.broker.net.clients.redirect.facts import User
from supercluster.broker.net.clients.redirection import Redirection
from supercluster.broker.net.links.link import Link
from supercluster.broker.ports import Channel
from supercluster.broker.protocol import redirect_words
from supercluster.broker.protocol.frames import FrameType
from supercluster.broker.protocol.redirect_words import Closing


class RedirectLinks:
    """Of one broker. `links`: those with brokers of other super-clusters; `near`: those within this one."""

    def __init__(self, links: Mapping[str, Link], near: Mapping[str, Link], redirection: Redirection) -> None:
        self._links = links
        self._near = near
        self._redirection = redirection
        redirection.tell_unsettled = self._tell_unsettled
        redirection.tell_users = self._tell_users
        redirection.tell_parting = self._tell_parting

    def carries(self, link: Link) -> None:
        """The link is new, or other accounts cross it now."""
        self._say_users(link, self._redirection.users)

    def on_frame(self, link: Link, frame_type: int, body: memoryview) -> bool:
        """Was it one of these?

        Raises:
            FrameError: it is not well-formed.
        """
        if frame_type == FrameType.UNSETTLED:
            told = redirect_words.decode_closing(body)
            self._redirection.unsettled_told(link.peer.node, _crossing(link, told))
        elif frame_type == FrameType.USERS:
            users = [User(*user) for user in redirect_words.decode_users(body)]
            crossing = [user for user in users if _crosses(link, user.account)]
            self._redirection.users_reported(world_of(link.peer.node), crossing)
        else:
            return False
        return True

    def on_near_frame(self, frame_type: int, body: memoryview) -> bool:
        """Was it the one that brokers of one super-cluster tell each other?

        Raises:
            FrameError: it is not well-formed.
        """
        if frame_type != FrameType.PARTING:
            return False
        self._redirection.parting_told(*redirect_words.decode_parting(body))
        return True

    def _tell_parting(self, account: str, address: str) -> None:
        body = redirect_words.encode_parting(account, address)
        for link in self._near.values():
            link.frame(FrameType.PARTING, [body], Channel.CONTROL)

    def _tell_unsettled(self, connections: Collection[Closing]) -> None:
        for link in self._links.values():
            body = redirect_words.encode_closing(_crossing(link, connections)[: redirect_words.ENTRIES_MAX])
            link.frame(FrameType.UNSETTLED, [body], Channel.CONTROL)

    def _tell_users(self, users: Collection[User]) -> None:
        for link in self._links.values():
            self._say_users(link, users)

    def _say_users(self, link: Link, users: Iterable[User]) -> None:
        crossing = [user for user in users if _crosses(link, user.account)]
        for some in _pieces(crossing):
            link.frame(FrameType.USERS, [redirect_words.encode_users(some)], Channel.CONTROL)


def _crosses(link: Link, account: str) -> bool:
    return link.bridge is not None and link.bridge.carries(account)


def _crossing(link: Link, connections: Iterable[Closing]) -> list[Closing]:
    return [found for found in connections if _crosses(link, found.account)]


def _pieces(users: list[User]) -> Iterable[list[User]]:
    most = redirect_words.ENTRIES_MAX
    return (users[at : at + most] for at in range(0, len(users), most))
