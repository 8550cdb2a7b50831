"""Users from a configuration file or a flag. They change only when the configuration file is read again."""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.link_credentials import LinkCredentials, Login
from supercluster.broker.auth.users import STANDARD, WEBSOCKET, User
from supercluster.broker.dropin.addresses import Remote
from supercluster.broker.dropin.link_options import LinkOption
from supercluster.broker.dropin.options import Options


class DropInCredentials(Credentials):
    """In place of a directory of credentials."""

    def __init__(self, options: Options) -> None:
        super().__init__(None)
        self.replace(options)

    def replace(self, options: Options) -> None:
        """These are the users from now on."""
        self.users = users_of(options)
        self.accounts = options.accounts
        self.client_limits = dict(options.client_limits)
        self._links = links_of(options)
        self._gateways = _links(options.gateway, options.gateway.sent)
        by_name = {user.user: user for user in self.users if user.user}
        by_web = options.websocket_no_auth_user or options.no_auth_user
        names = {STANDARD: options.no_auth_user, WEBSOCKET: by_web}
        self._anonymous = {way: by_name[name] for way, name in names.items() if name in by_name}

    @property
    def links(self) -> LinkCredentials:
        """Without an `authorization` of the block whoever comes is let in, as in nats-server."""
        return self._links

    @property
    def gateways(self) -> LinkCredentials:
        """As on the cluster port."""
        return self._gateways

    def load(self) -> None:
        """They are there already."""

    def refresh(self) -> bool:
        return False


def links_of(options: Options) -> LinkCredentials:
    """What other servers of the cluster have to say, and what is said to them: what a route names, else the same."""
    named = next((route for route in options.cluster.routes if route.user), None)
    return _links(options.cluster, named)


def _links(block: LinkOption, named: Remote | None) -> LinkCredentials:
    own = Login(block.user, block.password)
    sent = Login(named.user, named.password) if named is not None else own
    return LinkCredentials((own,) if block.user else (), sent)


def users_of(options: Options) -> tuple[User, ...]:
    """The users with their roles: those of the system account are the system's."""
    system = options.system_account
    return tuple(replace(user, role="system") if user.account == system else user for user in options.users)
