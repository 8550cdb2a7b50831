"""The environment of a broker's parts: its name, settings, clocks, randomness, its volume, and the sink of
events.

All parts share it, and it makes no decisions. A reload of the configuration replaces settings and accounts as
a whole, so a part looks them up whenever it needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.ports import Clock, GroupStore
from supercluster.broker.protocol.imports import NO_ACCOUNTS, AccountBook


class Rng(Protocol):
    """The part of `random.Random` that a broker uses."""

    def randrange(self, start: int, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...


@dataclass(slots=True)
class Environment:
    """See the module. One per broker."""

    settings: CoreSettings
    store: GroupStore
    clock: Clock
    rng: Rng
    event: Callable[[str, str, str], None]
    """Takes group, reason and text: a log line, and an event of the resource."""
    accounts: AccountBook = NO_ACCOUNTS
    """What accounts import and export, and which have no JetStream."""
    knows_time: Callable[[], bool] = lambda: True
    """Does the clock count? Before, no group is led and nothing goes because of its age (SF-28)."""
    node: str = field(init=False)

    def __post_init__(self) -> None:
        self.node = self.settings.node

    def new_token(self) -> str:
        """A random name part."""
        return f"{self.rng.getrandbits(48):012x}"

    @property
    def volume_member(self) -> str:
        """The identity under which this volume joins groups, as long as it loses none of its copies (SF-4)."""
        return f"{self.node}@{self.store.incarnation}"

    def new_member(self) -> str:
        """An identity that never was, for a copy that was lost while its volume was not."""
        return f"{self.volume_member}.{self.new_token()}"
