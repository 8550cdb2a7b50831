"""Mutants of accounts: limits that are not judged, or not by all alike."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

ACCOUNT_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "account-limits-not-judged",
        "SF-12",
        "The map's leader creates streams beyond the account's limits.",
        (
            "jetstream/meta_leader/decisions.py",
            "        self._room.check_account(config)\n        members = self._room.place(config)\n        account, name = self._request.key\n",
            "        members = self._room.place(config)\n        account, name = self._request.key\n",
        ),
    ),
    mutant(
        "accounts-left-out-of-snapshots",
        "SF-13",
        "A map that comes from a snapshot has no limits of accounts.",
        ("jetstream/meta/state.py", '            "accounts": self.accounts.to_json(),\n', ""),
    ),
)
