"""Checks against blue's map whether a migration may begin. Pure."""

from __future__ import annotations

from dataclasses import replace

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.meta.state import MetaState


def judge_start(state: MetaState, wanted: Migration) -> None:
    """May it begin?

    Raises:
        ApiError: another one has its id, or streams in common with it.
    """
    present = state.migrations.get(wanted.id)
    if present is not None:
        asked = replace(wanted, started_ns=0)
        present = replace(present, cancelled=False, final=False, final_ns=0, ended_ns=0, dropped=())
        known = replace(present, started_ns=0, world=asked.world)
        if known != asked:
            differs = ", ".join(
                name
                for name in ("green", "account", "clusters", "bridges")
                if getattr(known, name) != getattr(asked, name)
            )
            raise errors.error(errors.MIGRATION_DIFFERS, f"{wanted.id} differs in {differs}")
        return
    for found in state.migrations.values():
        if found.bars(wanted.account, state.ways):
            scope = f"account {found.account}" if found.account else "all accounts"
            going = ", whose streams are going back" if found.cancelled else ""
            raise errors.error(errors.MIGRATION_OVERLAPS, f"{found.id} of {scope}{going}")
