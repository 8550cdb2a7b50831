"""Checks that the imports of all accounts of users.json have exports, and that none of them goes round in a
circle.

It reads entries as brokers do (`broker/protocol/imports.py`), including those that an administrator wrote. An
unreadable part of such an entry is not checked here: the brokers report it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from supercluster.api.conditions import Reason
from supercluster.reconcilers.planners.stream.subjects import overlap
from supercluster.reconcilers.planners.super_cluster.account_rules import called_here, pattern_here
from supercluster.reconcilers.planners.user.refusals import Finding


@dataclass(frozen=True, slots=True)
class _Offer:
    """An export."""

    is_service: bool
    subject: str
    accounts: tuple[str, ...] | None
    position: int
    where: str

    def admits(self, account: str, subject: str) -> bool:
        if self.accounts is not None and account not in self.accounts:
            return False
        return not self.position or subject.split(".")[self.position - 1 : self.position] == [account]


@dataclass(frozen=True, slots=True)
class _Wish:
    """An import of `account`."""

    account: str
    is_service: bool
    source: str
    there: str
    here: str
    where: str


def exchange_findings(
    entries: Mapping[str, Mapping[str, Any]], places: Mapping[str, str]
) -> tuple[Finding, ...]:
    """`entries`: all accounts of users.json; `places`: how people find the fields of each, by name."""
    offers = {name: tuple(_offers(entry, places[name])) for name, entry in entries.items()}
    wishes = [wish for name, entry in entries.items() for wish in _wishes(name, entry, places[name])]
    found = [
        *(finding for wish in wishes if (finding := _unmet(wish, offers)) is not None),
        *_unknown_accounts(offers),
    ]
    return tuple(found) or tuple(_circles(wishes))


def is_subset(inner: str, outer: str) -> bool:
    """Does `outer` match all that `inner` matches?

    Example: is_subset("flights.*", "flights.>") is True
    """
    ours, theirs = inner.split("."), outer.split(".")
    for index, token in enumerate(theirs):
        if index >= len(ours):
            return False
        if token == ">":
            return True
        if ours[index] == ">" or token not in ("*", ours[index]):
            return False
    return len(ours) == len(theirs)


def _offers(entry: Mapping[str, Any], where: str) -> Iterator[_Offer]:
    for index, item in enumerate(_maps(entry.get("exports"))):
        is_service = "service" in item
        subject, position = (
            item.get("service" if is_service else "stream"),
            item.get("account_token_position"),
        )
        accounts = item.get("accounts")
        if isinstance(subject, str):
            yield _Offer(
                is_service,
                subject,
                tuple(map(str, accounts)) if isinstance(accounts, list) else None,
                position if isinstance(position, int) else 0,
                f"{where}.exports[{index}]",
            )


def _wishes(name: str, entry: Mapping[str, Any], where: str) -> Iterator[_Wish]:
    for index, item in enumerate(_maps(entry.get("imports"))):
        is_service = "service" in item
        source = item.get("service" if is_service else "stream")
        if not isinstance(source, dict):
            continue
        account, there = source.get("account"), source.get("subject")
        to, prefix = item.get("to") or None, item.get("prefix") or None
        if not all(isinstance(each, str | None) for each in (account, there, to, prefix)):
            continue
        if account and there:
            here = pattern_here(there, called_here(there, to, prefix), is_service=is_service)
            yield _Wish(name, is_service, account, there, here, f"{where}.imports[{index}]")


def _maps(items: object) -> list[dict[str, Any]]:
    """Those of a list, at their places; what is none is empty."""
    found = items if isinstance(items, list) else []
    return [each if isinstance(each, dict) else {} for each in found]


def _unmet(wish: _Wish, offers: Mapping[str, tuple[_Offer, ...]]) -> Finding | None:
    kind = "service" if wish.is_service else "stream"
    if wish.source not in offers:
        told = (
            f"{wish.where}.{kind}.account {wish.source!r} exports nothing; add exports to that account in spec.accounts, or take "
            "the import out"
        )
        return Reason.IMPORT_NOT_EXPORTED, told
    fitting = [
        each
        for each in offers[wish.source]
        if each.is_service == wish.is_service and is_subset(wish.there, each.subject)
    ]
    if any(each.admits(wish.account, wish.there) for each in fitting):
        return None
    field = f"{wish.where}.{kind}.subject {wish.there!r}"
    if fitting:
        told = (
            f"{field} is exported by account {wish.source!r} as {fitting[0].where}, and not to {wish.account!r}; let its accounts or its "
            "account token have that account, or take the import out"
        )
    else:
        told = f"{field} is no {kind} that account {wish.source!r} exports; add it to exports of that account, or take the import out"
    return Reason.IMPORT_NOT_EXPORTED, told


def _unknown_accounts(offers: Mapping[str, tuple[_Offer, ...]]) -> Iterator[Finding]:
    for each in (offer for found in offers.values() for offer in found):
        for index, account in enumerate(each.accounts or ()):
            if account not in offers:
                told = f"{each.where}.accounts[{index}] {account!r} is not declared; add it to spec.accounts, or take it out"
                yield Reason.ACCOUNT_NOT_DECLARED, told


def _circles(wishes: list[_Wish]) -> Iterator[Finding]:
    for is_service in (True, False):
        steps = [each for each in wishes if each.is_service == is_service]
        by_account: dict[str, list[int]] = {}
        for at, step in enumerate(steps):
            by_account.setdefault(step.account, []).append(at)
        graph = {
            at: [other for other in by_account.get(step.source, ()) if overlap(step.there, steps[other].here)]
            for at, step in enumerate(steps)
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            way = [steps[at] for at in error.args[1][1:]]
            first = way[0]
            also = ", ".join(each.where for each in way[1:4])
            told = (
                f"{first.where} {first.there!r} of account {first.source!r} comes back to where it began"
                + (f", over {also}; take one of these imports out" if also else "; take it out")
            )
            yield Reason.IMPORT_CYCLE, told
