"""What must hold of the map of streams with every entry that is applied for the first time."""

from __future__ import annotations

from supercluster.broker.jetstream.meta.state import MetaState


class MapJudge:
    """See the module."""

    def __init__(self) -> None:
        self._streams: dict[str, int] = {}

    def beyond(self, state: MetaState) -> str:
        """The account that has got a stream beyond its limit by this entry; empty: none has."""
        counts: dict[str, int] = {}
        for account, _ in state.streams:
            counts[account] = counts.get(account, 0) + 1
        before, self._streams = self._streams, counts
        for account, count in counts.items():
            most = state.accounts.limits_of(account).streams_max
            if count > before.get(account, 0) and 0 < most < count:
                return f"account {account} gets stream {count} of at most {most}"
        unknown = counts.keys() - state.accounts.keys()
        return f"accounts {sorted(unknown)} have streams and no record" if unknown else ""
