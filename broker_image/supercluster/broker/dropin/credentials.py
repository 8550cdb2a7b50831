"""Users as a configuration file or a flag names them: nothing is read again but with the file."""

from __future__ import annotations

from supercluster.broker.dropin.options import Options
from supercluster.broker.runtime.credentials import Credentials, User


class NamedUsers(Credentials):
    """In place of a directory of credentials."""

    def __init__(self, options: Options) -> None:
        super().__init__(None)
        self._anonymous: User | None = None
        self.replace(options)

    def replace(self, options: Options) -> None:
        """These are the users from now on."""
        self._users = users_of(options)
        named = (user for user in self._users if user.user and user.user == options.no_auth_user)
        self._anonymous = next(named, None)

    def load(self) -> None:
        """They are there already."""

    def refresh(self) -> bool:
        return False

    def find(self, user: str, password: str, token: str) -> User | None:
        if self._anonymous is not None and not (user or password or token):
            return self._anonymous
        return super().find(user, password, token)


def users_of(options: Options) -> tuple[User, ...]:
    """The users with their roles: those of the system account are the system's."""
    return tuple(
        User(
            account=user.account,
            role="system" if user.account == options.system_account else "client",
            user=user.user,
            password=user.password,
            token=user.token,
            permissions=user.permissions,
        )
        for user in options.users
    )
