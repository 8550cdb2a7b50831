"""What has to be so in the end: resources Ready, nothing gone, every acknowledged message there, no exception anywhere."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from e2e.restless.asked import Asked, Uids
from e2e.restless.ledger import Verdict, judge
from e2e.restless.publishers import Load
from e2e.restless.site import KINDS, OWNED, KubectlError, RestlessSite

READY_SECONDS = 300.0
LOOK_SECONDS = 1.0
EXAMPLES_MAX = 5
ERROR = re.compile(r'Traceback|"level": "(error|critical)"|^\S+Z (ERROR|CRITICAL) ')
NOT_USED = re.compile(r"certificates stay as they were: .*/tls\.crt ")
"""An act took the certificate out of its Secret, or put another text there, and a broker says that it keeps the one that it has."""
EXCEPTION = re.compile(r"Traceback|\b[A-Z]\w+(Error|Exception)\b: ")


@dataclass(frozen=True, slots=True)
class Before:
    """What was there before the first act."""

    uids: Uids
    owned: Mapping[str, Any]


def not_ready(found: dict[str, dict[str, Any]]) -> list[str]:
    """Resources that are not Ready, with what they say. Pure."""
    told = []
    for target, body in found.items():
        status, generation = body.get("status") or {}, body["metadata"].get("generation", 0)
        conditions = {entry["type"]: entry for entry in status.get("conditions") or ()}
        if "deletionTimestamp" in body["metadata"]:
            told.append(f"{target} is being deleted")
        elif status.get("observedGeneration", 0) < generation:
            told.append(f"{target} was not looked at since generation {generation}")
        else:
            for kind in ("Ready", "Whole"):
                entry = conditions.get(kind)
                if (entry is None and kind == "Ready") or (entry is not None and entry["status"] != "True"):
                    told.append(
                        f"{target} {kind}: {(entry or {}).get('reason')}: {(entry or {}).get('message')}"
                    )
    return told


def wait_ready(
    site: RestlessSite, expected: set[str], owned: Mapping[str, Any], say: Callable[[str], None]
) -> list[str]:
    """Until every resource is Ready, and what the last act took off the objects in `owned` is there again; what is wrong when the time
    is over."""
    deadline, told = time.monotonic() + READY_SECONDS, [""]
    while time.monotonic() < deadline:
        site.mind_operator()
        try:
            found = site.listed(KINDS)
            bare = stripped(owned, site.listed(OWNED))
        except KubectlError as error:
            told = [str(error)]
        else:
            wrongs = not_ready(found) + [f"{target} is gone" for target in sorted(expected - found.keys())]
            wrongs += bare
            if not wrongs:
                return []
            if wrongs != told:
                say(
                    f"not Ready yet: {wrongs[0]}"
                    + (f" and {len(wrongs) - 1} more" if len(wrongs) > 1 else "")
                )
            told = wrongs
        time.sleep(LOOK_SECONDS)
    return told


def exceptions(site: RestlessSite) -> list[str]:
    """Events that tell of an exception, and what logs have of them."""
    found = []
    for event in json.loads(site.kubectl("get", "events", "-o", "json"))["items"]:
        if EXCEPTION.search(event.get("message") or ""):
            about = event["involvedObject"]
            found.append(f"event of {about['kind']} {about['name']}: {event['reason']}: {event['message']}")
    for name, path in site.logs().items():
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        bad = errors_of(lines)
        if bad:
            found.append(f"log of {name} ({path}): {len(bad)} errors, the first: {bad[0][:400]}")
    return found


def errors_of(lines: Iterable[str]) -> list[str]:
    """Of a log, those that no act explains. Pure."""
    return [line for line in lines if ERROR.search(line) and not NOT_USED.search(line)]


def verdicts(site: RestlessSite, load: Load) -> dict[str, Verdict]:
    """By stream; its publishers have ended."""
    return {stream: judge(sent, site.messages(stream)) for stream, sent in load.sent.items()}


def stripped(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Labels and keys that the operator wrote and that are gone. Pure; objects by kind/name."""
    told = []
    for target, body in before.items():
        if target in after:
            for where, old, new in (
                ("label", body["metadata"].get("labels"), after[target]["metadata"].get("labels")),
                ("key", body.get("data"), after[target].get("data")),
            ):
                missing = sorted((old or {}).keys() - (new or {}).keys())
                if missing:
                    told.append(f"{target} has no {where} {', '.join(missing)} any more")
    return told


def wrongs_of(site: RestlessSite, before: Before, asked: Asked, found: dict[str, Verdict]) -> list[str]:
    """Everything that is wrong, but for resources that are not Ready."""
    wrongs = asked.wrongs(before.uids, site.uids())
    for stream, verdict in found.items():
        if not verdict.is_clean:
            wrongs.append(f"stream {stream}: {'; '.join(verdict.examples)}")
    wrongs += [f"an operator ended by itself with exit code {code}" for code in site.operator_ends]
    return wrongs + exceptions(site)
