"""Checks the declaration of one account of spec.accounts by itself: subjects, wildcards, bounds.

The brokers have rules of their own for the same (`broker/protocol/imports_file.py`), and accept every account
that passes here. These rules are stricter where that is simpler: a function of a mapping has one way to be
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from supercluster.api.accounts import Account, Export, Import, Mapping
from supercluster.api.conditions import Reason
from supercluster.api.units import duration_ns
from supercluster.api.user import DEFAULT_ACCOUNT
from supercluster.reconcilers.planners.user.refusals import Finding, subject_problem

THRESHOLD_MIN_NS, THRESHOLD_MAX_NS = 1_000_000, 86_400_000_000_000
FUNCTIONS = {
    "wildcard": (1, 1),
    "partition": (1, 16),
    "random": (1, 1),
    "splitFromLeft": (2, 2),
    "splitFromRight": (2, 2),
    "sliceFromLeft": (2, 2),
    "sliceFromRight": (2, 2),
    "left": (2, 2),
    "right": (2, 2),
}
"""The functions of subject mappings, each with its least and greatest number of arguments. Arguments are numbers.

`split`, whose second argument is text, is matched by a pattern of its own.
"""
_BY_LOWER = {name.lower(): name for name in FUNCTIONS}
_CALL = re.compile(r"\{\{([A-Za-z]+)\(([0-9]{1,9}(?:, ?[0-9]{1,9})*)\)\}\}", re.ASCII)
_SPLIT = re.compile(r"\{\{[sS]plit\(([0-9]{1,9}), ?[^\s.,(){}]+\)\}\}", re.ASCII)
_WILDCARD = re.compile(r"\$([1-9][0-9]{0,3})", re.ASCII)
_CALLS_SHOWN = "{{wildcard(1)}}, {{partition(10,1)}}, {{split(1,-)}}, " + ", ".join(
    f"{{{{{name}(1,2)}}}}" for name in FUNCTIONS if FUNCTIONS[name] == (2, 2)
)


def findings_of(account: Account, where: str) -> Iterator[Finding]:
    """`where`: what stands before the fields of the account, such as spec.accounts[0]."""
    if account.jetstream is False and account.name == DEFAULT_ACCOUNT:
        told = f"{where}.jetstream false cannot be for account {DEFAULT_ACCOUNT}, which has the declared Streams; leave it out"
        yield Reason.OUT_OF_RANGE, told
    for index, export in enumerate(account.exports):
        yield from _of_export(export, f"{where}.exports[{index}]")
    asked: dict[str, str] = {}
    for index, wanted in enumerate(account.imports):
        place = f"{where}.imports[{index}]"
        found = tuple(_of_import(wanted, place))
        yield from found
        if found or wanted.service is None:
            continue
        here = pattern_here(wanted.service.subject, wanted.to or wanted.service.subject, is_service=True)
        if here in asked:
            told = f"{place} has the subject {here!r} here, as {asked[here]} has; set `to` of one of them to another subject"
            yield Reason.INVALID_SUBJECT, told
        asked.setdefault(here, place)
    mapped: set[str] = set()
    for index, mapping in enumerate(account.mappings):
        place = f"{where}.mappings[{index}]"
        if mapping.subject in mapped:
            told = (
                f"{place}.subject {mapping.subject!r} is there twice; put its destinations into one mapping"
            )
            yield Reason.INVALID_SUBJECT, told
        mapped.add(mapping.subject)
        yield from _of_mapping(mapping, place)


def renamed(there: str, here: str) -> tuple[str, str]:
    """The pattern here of what is imported as `here`, and what is wrong with that; both are subjects.

    Example: renamed("orders.*.>", "from.$1.>") == ("from.*.>", "")
    """
    theirs, ours = there.split("."), here.split(".")
    stars, taken = theirs.count("*"), set()
    following, pattern = 0, []
    for token in ours:
        number = _number_of(token, following + 1)
        if number is None:
            pattern.append(token)
            continue
        following += token == "*"
        if not 1 <= number <= stars or number in taken:
            return (
                "",
                f"has {token!r}, which is none of the {stars} wildcards of {there!r}, or is there twice",
            )
        taken.add(number)
        pattern.append("*")
    if len(taken) < stars or (theirs[-1] == ">") != (ours[-1] == ">"):
        return "", f"does not have each wildcard of {there!r} once; write them as $1, $2 and a last >"
    return ".".join(pattern), ""


def pattern_here(there: str, here: str, *, is_service: bool) -> str:
    """What an import matches here; empty: the subjects do not fit. One subject may be asked as any pattern."""
    return here if is_service and not has_wildcard(there) else renamed(there, here)[0]


def has_wildcard(subject: str) -> bool:
    tokens = subject.split(".")
    return "*" in tokens or tokens[-1] == ">"


def _number_of(token: str, following: int) -> int | None:
    """Which wildcard a token names; None: none, it stands for itself."""
    if token == "*":
        return following
    digits = token[1:]
    is_number = token.startswith("$") and len(token) < 6 and digits.isascii() and digits.isdigit()
    return int(digits) if is_number else None


def _of_export(export: Export, where: str) -> Iterator[Finding]:
    if (export.stream is None) == (export.service is None):
        yield Reason.OUT_OF_RANGE, f"{where} needs either stream or service; set just one of them"
        return
    field, subject = ("stream", export.stream) if export.stream is not None else ("service", export.service)
    assert subject is not None
    if problem := subject_problem(subject, takes_queue=False):
        yield Reason.INVALID_SUBJECT, f"{where}.{field} {subject!r} {problem}"
        return
    for name, value in (
        ("responseType", export.response_type),
        ("responseThreshold", export.response_threshold),
    ):
        if value is not None and field == "stream":
            yield Reason.OUT_OF_RANGE, f"{where}.{name} {value!r} is for a service; leave it out"
    threshold = export.response_threshold
    if threshold is not None and not THRESHOLD_MIN_NS <= duration_ns(threshold) <= THRESHOLD_MAX_NS:
        yield Reason.OUT_OF_RANGE, f"{where}.responseThreshold {threshold!r} has to be from 1ms to 24h"
    position, tokens = export.account_token_position, subject.split(".")
    if position is not None and (position > len(tokens) or tokens[position - 1] != "*"):
        told = f"{where}.accountTokenPosition {position} is no * of {subject!r}; set it to the place of a token that is *"
        yield Reason.OUT_OF_RANGE, told


def _of_import(wanted: Import, where: str) -> Iterator[Finding]:
    if (wanted.stream is None) == (wanted.service is None):
        yield Reason.OUT_OF_RANGE, f"{where} needs either stream or service; set just one of them"
        return
    kind, source = ("stream", wanted.stream) if wanted.stream is not None else ("service", wanted.service)
    assert source is not None
    if wanted.prefix is not None and kind == "service":
        yield Reason.OUT_OF_RANGE, f"{where}.prefix {wanted.prefix!r} is for a stream; set `to`"
    if wanted.share and kind == "stream":
        yield Reason.OUT_OF_RANGE, f"{where}.share true is for a service; leave it out"
    if wanted.prefix is not None and wanted.to is not None:
        yield Reason.OUT_OF_RANGE, f"{where}.prefix {wanted.prefix!r} is beside `to`; leave one of them out"
    fields = ((f"{kind}.subject", source.subject), ("to", wanted.to), ("prefix", wanted.prefix))
    for field, value in fields:
        problem = subject_problem(value, takes_queue=False) if value is not None else ""
        if not problem and field == "prefix" and has_wildcard(value or ""):
            problem = "has a wildcard; write a subject without * and >"
        if problem:
            yield Reason.INVALID_SUBJECT, f"{where}.{field} {value!r} {problem}"
            return
    if kind == "service" and not has_wildcard(source.subject):
        return  # One subject there is asked, whatever it is called here.
    problem = renamed(source.subject, called_here(source.subject, wanted.to, wanted.prefix))[1]
    if problem:
        field, value = next((each for each in reversed(fields) if each[1] is not None), fields[0])
        yield Reason.INVALID_SUBJECT, f"{where}.{field} {value!r} {problem}"


def called_here(there: str, to: str | None, prefix: str | None) -> str:
    return f"{prefix}.{there}" if prefix else to or there


def _of_mapping(mapping: Mapping, where: str) -> Iterator[Finding]:
    if problem := subject_problem(mapping.subject, takes_queue=False):
        yield Reason.INVALID_SUBJECT, f"{where}.subject {mapping.subject!r} {problem}"
        return
    for index, destination in enumerate(mapping.destinations):
        if problem := _destination_problem(mapping.subject, destination.subject):
            field = f"{where}.destinations[{index}].subject {destination.subject!r}"
            yield Reason.INVALID_SUBJECT, f"{field} {problem}"
    total = sum(each.weight for each in mapping.destinations)
    if total > 100:
        yield (
            Reason.OUT_OF_RANGE,
            f"{where}.destinations have weights of {total} together; they are at most 100",
        )


def _destination_problem(source: str, destination: str) -> str:
    """What is wrong with what a mapping leads to; empty: nothing."""
    theirs, ours = source.split("."), destination.split(".")
    stars = theirs.count("*")
    plain = [token for token in ours if "{{" not in token and "}}" not in token]
    if plain and (problem := subject_problem(".".join(plain), takes_queue=False)):
        return problem
    if ">" in ours[:-1]:
        return "has > before its end; > stands for all that follows, as the last token"
    if "*" in plain:
        return "has *; write $1, $2 for the wildcards of the mapped subject"
    if (theirs[-1] == ">") != (ours[-1] == ">"):
        return f"has to end with > just as {source!r} does"
    for token in ours:
        indexes = _indexes(token)
        if indexes is None:
            return f"has {token!r}, which is none of $1, {_CALLS_SHOWN}"
        if any(not 1 <= index <= stars for index in indexes):
            return f"has {token!r}, and {source!r} has {stars} wildcards *; count them from 1"
    return ""


def _indexes(token: str) -> tuple[int, ...] | None:
    """The wildcards that a token of a destination names; None: it is none."""
    if "{{" not in token and "}}" not in token:
        if not token.startswith("$") or len(token) == 1:
            return ()
        found = _WILDCARD.fullmatch(token)
        # What begins with another digit or a sign might be a number to brokers.
        is_plain = token[1].isascii() and token[1].isalpha()
        return (int(found[1]),) if found is not None else () if is_plain else None
    if (split := _SPLIT.fullmatch(token)) is not None:
        return (int(split[1]),)
    call = _CALL.fullmatch(token)
    if call is None:
        return None
    name = _BY_LOWER.get(call[1].lower(), "")
    arguments = tuple(map(int, call[2].split(",")))
    is_known = name and call[1] in (name, name.lower(), name[0].upper() + name[1:])
    if not is_known or not FUNCTIONS[name][0] <= len(arguments) <= FUNCTIONS[name][1]:
        return None
    if name == "random":
        return ()
    return arguments[1:] if name == "partition" else arguments[:1]
