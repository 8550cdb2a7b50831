"""Reads exports, imports and mappings of accounts in the format of nats-server's configuration, from plain
data.

A drop-in's configuration file and `users.json` share it. `WrongImportError.path` gives the position of an
error, and the caller that read the text knows its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from supercluster.broker.protocol.imports import (
    RESPONSE_TYPES,
    SINGLETON,
    THRESHOLD_DEFAULT_MS,
    AccountSpec,
    Destination,
    Export,
    Path,
    ServiceImport,
    StreamImport,
    SubjectMapping,
    WrongImportError,
)
from supercluster.broker.protocol.renaming import Fixed, Renaming, RenamingError
from supercluster.broker.protocol.subject_transform import TransformError, compile_transform
from supercluster.broker.protocol.subjects import has_wildcard, is_valid_filter

ITEMS_MAX = 4096
"""Exports, imports or mappings of one account."""
_THRESHOLD_MAX_MS = 86_400_000

DurationNs = Callable[[bytes], int | None]
_RESPONSES = {**{name: name for name in RESPONSE_TYPES}, "single": SINGLETON, "streamed": "stream"}
KEYS = ("exports", "imports", "mappings")


def read_account(
    name: str, data: Mapping[str, Any], duration_ns: DurationNs, *, has_jetstream: bool = True
) -> AccountSpec:
    """An account's part of the book. `data` has any of `KEYS`.

    Raises:
        WrongImportError: something is wrong by itself.
    """
    path: Path = (name,)
    exports = [_export(item, at, duration_ns) for at, item in _items(data.get("exports"), (*path, "exports"))]
    streams: list[StreamImport] = []
    services: list[ServiceImport] = []
    for at, item in _items(data.get("imports"), (*path, "imports")):
        found = _import(item, at)
        if isinstance(found, StreamImport):
            streams.append(found)
        else:
            twin = next((one for one in services if one.naming.here == found.naming.here), None)
            if twin is not None:
                raise WrongImportError(
                    at,
                    f"service import subject {found.naming.here.decode()!r} is imported twice: from account "
                    f"{twin.account!r} as well",
                )
            services.append(found)
    mappings = read_mappings(data.get("mappings"), (*path, "mappings"))
    return AccountSpec(name, tuple(exports), tuple(streams), tuple(services), mappings, has_jetstream)


def read_mappings(data: Any, path: Path) -> tuple[SubjectMapping, ...]:
    """`{"foo": "bar", "a.*": [{"destination": "b.$1", "weight": "50%"}]}`.

    Raises:
        WrongImportError: something is wrong by itself.
    """
    if data is None:
        return ()
    if not isinstance(data, Mapping) or len(data) > ITEMS_MAX:
        raise WrongImportError(path, f"mappings have to be a map of at most {ITEMS_MAX} subjects")
    return tuple(_mapping(subject, told, (*path, subject)) for subject, told in data.items())


# ---- exports ---------------------------------------------------------------------------------------------------------


def _export(item: Mapping[str, Any], path: Path, duration_ns: DurationNs) -> Export:
    kind = _kind(item, path, ("accounts", "response_type", "response_threshold", "account_token_position"))
    subject = _subject(item[kind], (*path, kind), kind)
    is_service = kind == "service"
    for name in ("response_type", "response_threshold"):
        if name in item and not is_service:
            raise WrongImportError((*path, name), f"{name} is for services, and this exports a stream")
    response = item.get("response_type", SINGLETON)
    if not isinstance(response, str) or response.lower() not in _RESPONSES:
        raise WrongImportError(
            (*path, "response_type"), f"response_type {response!r} is none of {', '.join(RESPONSE_TYPES)}"
        )
    accounts = item.get("accounts")
    if accounts is not None and not _is_texts(accounts):
        raise WrongImportError((*path, "accounts"), "accounts has to be a list of names")
    token = item.get("account_token_position", 0)
    if type(token) is not int or not 0 <= token <= len(subject.split(b".")):
        raise WrongImportError(
            (*path, "account_token_position"), f"account_token_position {token!r} is no token of the subject"
        )
    if token and subject.split(b".")[token - 1] != b"*":
        raise WrongImportError((*path, "account_token_position"), f"token {token} of the subject has to be *")
    return Export(
        subject,
        is_service,
        frozenset(accounts) if accounts is not None else None,
        token,
        _RESPONSES[response.lower()],
        _threshold_ms(item, path, duration_ns),
        path,
    )


def _threshold_ms(item: Mapping[str, Any], path: Path, duration_ns: DurationNs) -> int:
    told = item.get("response_threshold")
    if told is None:
        return THRESHOLD_DEFAULT_MS
    found = duration_ns(told.encode()) if isinstance(told, str) else None
    found_ms = found // 1_000_000 if found is not None else 0
    if not 1 <= found_ms <= _THRESHOLD_MAX_MS:
        raise WrongImportError(
            (*path, "response_threshold"), "response_threshold has to be a time of 1ms to 24h, as in 2m"
        )
    return found_ms


# ---- imports ---------------------------------------------------------------------------------------------------------


def _import(item: Mapping[str, Any], path: Path) -> StreamImport | ServiceImport:
    kind = _kind(item, path, ("to", "prefix", "share"))
    source = item[kind]
    if not isinstance(source, Mapping) or set(source) - {"account", "subject"}:
        raise WrongImportError((*path, kind), f"{kind} has to be a map with account and subject")
    account = source.get("account")
    if not isinstance(account, str) or not account or "subject" not in source:
        raise WrongImportError((*path, kind), f"{kind} needs an account name and a subject")
    there = _subject(source["subject"], (*path, kind), "subject")
    here = _text(item, "to", path)
    prefix = _text(item, "prefix", path)
    if prefix and kind == "service":
        raise WrongImportError((*path, "prefix"), "prefix is for streams; a service has to")
    if prefix and here:
        raise WrongImportError((*path, "prefix"), "only one of to and prefix may be there")
    if prefix and (has_wildcard(prefix) or not is_valid_filter(prefix)):
        raise WrongImportError(
            (*path, "prefix"), f"prefix {prefix.decode()!r} has to be a subject without wildcards"
        )
    shares = item.get("share", False)
    if type(shares) is not bool or (shares and kind == "stream"):
        raise WrongImportError((*path, "share"), "share has to be true or false, and is for services")
    if prefix:
        here = prefix + b"." + there
    try:
        if kind == "stream":
            return StreamImport(account, Renaming(there, here or there), path)
        naming = Fixed(there, here or there) if not has_wildcard(there) else Renaming(there, here or there)
        return ServiceImport(account, naming, shares, path)
    except RenamingError as error:
        raise WrongImportError((*path, "to") if "to" in item else path, str(error)) from None


# ---- mappings --------------------------------------------------------------------------------------------------------


def _mapping(subject: str, told: Any, path: Path) -> SubjectMapping:
    source = _subject(subject, path, "mapping")
    listed = told if isinstance(told, list) else [told]
    destinations: list[Destination] = []
    for at, one in enumerate(listed):
        place: Path = (*path, at) if isinstance(told, list) else path
        item = {"destination": one} if isinstance(one, str) else one
        if not isinstance(item, Mapping) or not isinstance(item.get("destination", item.get("dest")), str):
            raise WrongImportError(
                place, "a mapping's destination has to be a subject, or a map with destination and weight"
            )
        if "cluster" in item:
            raise WrongImportError(place, "mappings for one cluster are not supported")
        if unknown := sorted(set(item) - {"destination", "dest", "weight"}):
            raise WrongImportError((*place, unknown[0]), f'unknown field "{unknown[0]}"')
        text = item.get("destination", item.get("dest"))
        try:
            transform = compile_transform(subject, text)
        except TransformError as error:
            raise WrongImportError(place, f"mapping of {subject!r} to {text!r}: {error}") from None
        if transform is None:
            raise WrongImportError(place, "a mapping needs a destination")
        destinations.append(Destination(transform, _percent(item, place)))
    if sum(one.percent for one in destinations) > 100:
        raise WrongImportError(path, f"the weights of mapping {subject!r} are more than 100%")
    return SubjectMapping(source, tuple(destinations), path)


def _percent(item: Mapping[str, Any], path: Path) -> int:
    told = item.get("weight", 100)
    if isinstance(told, str):
        digits = told.removesuffix("%")
        told = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 4 else None
    if type(told) is not int or not 0 <= told <= 100:
        raise WrongImportError((*path, "weight"), "weight has to be a percentage from 0% to 100%")
    return told


# ---- values ----------------------------------------------------------------------------------------------------------


def _items(
    data: Any, path: Path
) -> list[tuple[Path, Mapping[str, Any]]]:  # the path of each, and what it says
    if data is None:
        return []
    if not isinstance(data, list) or len(data) > ITEMS_MAX:
        raise WrongImportError(path, f"{path[-1]} has to be a list of at most {ITEMS_MAX}")
    for at, item in enumerate(data):
        if not isinstance(item, Mapping):
            raise WrongImportError((*path, at), f"what is in {path[-1]} has to be maps")
    return [((*path, at), item) for at, item in enumerate(data)]


def _kind(item: Mapping[str, Any], path: Path, more: tuple[str, ...]) -> str:
    found = [kind for kind in ("stream", "service") if kind in item]
    if unknown := sorted(set(item) - {"stream", "service", *more}):
        raise WrongImportError((*path, unknown[0]), f'unknown field "{unknown[0]}"')
    if len(found) != 1:
        raise WrongImportError(path, "either a stream or a service has to be there, and not both")
    return found[0]


def _subject(value: Any, path: Path, what: str) -> bytes:
    if not isinstance(value, str) or not is_valid_filter(value.encode()):
        raise WrongImportError(path, f"{what}: {str(value)[:80]!r} is no subject")
    return value.encode()


def _text(item: Mapping[str, Any], name: str, path: Path) -> bytes:
    value = item.get(name, "")
    if not isinstance(value, str):
        raise WrongImportError((*path, name), f"{name} has to be a text")
    return value.encode()


def _is_texts(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= ITEMS_MAX
        and all(isinstance(one, str) and one for one in value)
    )
