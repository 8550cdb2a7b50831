"""Writes docs/compatibility.md from the code's own tables and from the list of differences.

`python -m tests.compat.documents` writes it, `--check` (part of `make check`) says that it would change. What a field is
for is said here; whether it is supported is asked of the code that reads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.compat.differences import DIFFERENCES
from tests.compat.table import load

from supercluster.broker.dropin import flags
from supercluster.broker.jetstream.api import parser
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.monitor import shares, system_requests

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "compatibility.md"

STREAM_FIELDS = {
    "name": "no spaces, dots, wildcards or path separators; up to 255 bytes",
    "description": "up to 4096 bytes",
    "subjects": "the stream's name without any; overlaps are refused",
    "retention": "limits, interest, workqueue",
    "storage": "file, memory. A stream in memory whose copies are all gone (that of a broker alone which starts again, or of the only replica in a cluster) begins anew under its name, empty and without its consumers, durable ones among them: these stood in its own log. So publishes to one of interest retention are acknowledged and kept for nobody until its consumers are created again. nats-server keeps neither stream nor consumers when it is alone, and both, empty, in a cluster",
    "discard": "old, new",
    "discard_new_per_subject": "",
    "num_replicas": "1 to 5; a change of it runs as a move does",
    "max_consumers": "without it any number (nats-server: 1,000, unless it is configured)",
    "max_msgs": "",
    "max_bytes": "",
    "max_age": "",
    "max_msgs_per_subject": "",
    "max_msg_size": "headers count",
    "duplicate_window": "two minutes, or max_age where that is less",
    "no_ack": "",
    "placement": "cluster, tags; a change of it is a move. preferred: the broker that should lead",
    "consumer_limits": "inactive_threshold, max_ack_pending",
    "first_seq": "when the stream is created",
    "sealed": "",
    "deny_delete": "",
    "deny_purge": "",
    "allow_rollup_hdrs": "",
    "allow_direct": "",
    "mirror_direct": "as the origin allows; the nearest of the origin's leader and its mirrors' answers direct gets of it, mirrors at most 10 s behind",
    "mirror": "filters, transforms, start by sequence and time; `external`: a stream of another account by an imported API, read without a consumer; no `consumer`",
    "sources": "the same; counters are added up over all of them",
    "subject_transform": "",
    "republish": "",
    "compression": "s2: the log's entries are deflated; what they are compressed by is an implementation detail",
    "allow_msg_ttl": "cannot be taken back",
    "subject_delete_marker_ttl": "a second at least; brings allow_msg_ttl, allow_rollup_hdrs and purging along",
    "allow_msg_counter": "when the stream is created",
    "allow_atomic": "1,000 messages and 8 MiB per batch, 50 batches at once",
    "allow_batched": "fast batches; kept by the broker that takes them",
    "allow_msg_schedules": "cannot be taken back",
    "persist_mode": "async is kept and changes nothing: the fsync policy says when is written",
    "metadata": "up to 128 KiB; keys of supercluster.dev/ are for these brokers",
    "template_owner": "NATS has it no more",
}
"""NATS's fields of a stream's configuration, with what is to be said of them."""

CONSUMER_FIELDS = {
    "name": "",
    "durable_name": "",
    "description": "up to 4096 bytes",
    "deliver_policy": "all, last, new, by_start_sequence, by_start_time, last_per_subject",
    "opt_start_seq": "",
    "opt_start_time": "",
    "ack_policy": "none, all, explicit",
    "ack_wait": "a change of it, or of backoff, holds for what waits already",
    "max_deliver": "an acknowledgement that comes after that counts",
    "backoff": "1,024 steps at most",
    "filter_subject": "",
    "filter_subjects": "1,024 at most; none may take in another one as a whole",
    "replay_policy": "instant, original",
    "rate_limit_bps": "push consumers",
    "sample_freq": "",
    "max_waiting": "pull consumers",
    "max_ack_pending": "",
    "flow_control": "push consumers",
    "idle_heartbeat": "push consumers; of pull requests it is a field of the request",
    "headers_only": "",
    "max_batch": "",
    "max_expires": "",
    "max_bytes": "",
    "inactive_threshold": "",
    "deliver_subject": "",
    "deliver_group": "",
    "num_replicas": "a consumer's state is in its stream's log, on all its replicas",
    "mem_storage": "taken; a consumer's state is in its stream's log",
    "metadata": "up to 128 KiB",
    "pause_until": "in the log; who pauses again says so by PAUSE",
    "priority_groups": "one pin for all groups of a consumer, as NATS has it; the next leader pins anew",
    "priority_policy": "",
    "priority_timeout": "",
    "direct": "",
}

HEADERS = {
    "Nats-Msg-Id": "duplicates within duplicate_window",
    "Nats-Expected-Stream": "",
    "Nats-Expected-Last-Sequence": "",
    "Nats-Expected-Last-Subject-Sequence": "",
    "Nats-Expected-Last-Subject-Sequence-Subject": "",
    "Nats-Expected-Last-Msg-Id": "",
    "Nats-Rollup": "sub, all",
    "Nats-TTL": "with allow_msg_ttl: seconds, a duration of a second or more, never",
    "Nats-Marker-Reason": "on delete markers",
    "Nats-Incr": "with allow_msg_counter",
    "Nats-Batch-Id": "with allow_atomic; 64 characters at most",
    "Nats-Batch-Sequence": "",
    "Nats-Batch-Commit": "1, or eob: the end is not stored",
    "Nats-Schedule": "with allow_msg_schedules: @at, @every, cron with seconds, @hourly and the like",
    "Nats-Schedule-TTL": "with allow_msg_ttl",
    "Nats-Schedule-Target": "",
    "Nats-Schedule-Source": "the last message of that subject is sent on",
    "Nats-Schedule-Time-Zone": "of cron; Local is UTC",
    "Nats-Schedule-Rollup": "sub",
    "Nats-Scheduler": "on what is sent on; with Nats-Schedule-Next: purge it ends a schedule",
    "Nats-Schedule-Next": "",
    "Nats-Counter-Sources": "kept from one sum to the next",
    "Nats-Trace-Dest": "the publisher's broker tells which ways the message takes from there, a thousand at most; other brokers tell nothing",
    "Nats-Trace-Only": "the message goes nowhere",
}

CALLS = (
    "INFO",
    "STREAM.CREATE.S",
    "STREAM.UPDATE.S",
    "STREAM.DELETE.S",
    "STREAM.INFO.S",
    "STREAM.LIST",
    "STREAM.NAMES",
    "STREAM.PURGE.S",
    "STREAM.MSG.GET.S",
    "STREAM.MSG.DELETE.S",
    "STREAM.SNAPSHOT.S",
    "STREAM.RESTORE.S",
    "STREAM.LEADER.STEPDOWN.S",
    "STREAM.PEER.REMOVE.S",
    "ACCOUNT.STREAM.MOVE.A.S",
    "ACCOUNT.STREAM.CANCEL_MOVE.A.S",
    "ACCOUNT.PURGE.A",
    "DIRECT.GET.S",
    "DIRECT.GET.S.a.subject",
    "CONSUMER.CREATE.S",
    "CONSUMER.CREATE.S.C",
    "CONSUMER.CREATE.S.C.a.filter",
    "CONSUMER.DURABLE.CREATE.S.C",
    "CONSUMER.DELETE.S.C",
    "CONSUMER.INFO.S.C",
    "CONSUMER.LIST.S",
    "CONSUMER.NAMES.S",
    "CONSUMER.MSG.NEXT.S.C",
    "CONSUMER.PAUSE.S.C",
    "CONSUMER.RESET.S.C",
    "CONSUMER.UNPIN.S.C",
    "CONSUMER.LEADER.STEPDOWN.S.C",
    "META.LEADER.STEPDOWN",
    "SERVER.REMOVE",
)
"""Calls under `$JS.API.`, with S for a stream, C for a consumer and A for an account."""

CORE = {
    "PUB, HPUB, SUB, UNSUB, PING, PONG, MSG, HMSG": ("yes", "core"),
    "CONNECT: verbose, pedantic, echo, headers, no_responders, name, lang, version, protocol": (
        "yes",
        "core",
    ),
    "CONNECT: user, pass, auth_token": ("yes", "credentials"),
    "CONNECT: nkey, sig": ("yes", "nkeys"),
    "CONNECT: jwt (passed over beside a password or nkey, refused alone)": ("no", "nkeys"),
    "INFO: server_id, server_name, host, port, headers, max_payload, client_id, client_ip, connect_urls, cluster, ldm": (
        "yes",
        "core",
    ),
    "INFO: nonce, auth_required": ("yes", "nkeys"),
    "INFO: tls_required, tls_available, tls_verify": ("yes", "tls"),
    "INFO: version 2.15.1, api_lvl 5; Nats-Required-Api-Level; levels in metadata": ("yes", "levels"),
    "JetStream's pedantic creates and updates: what would be filled in is refused (10157)": (
        "yes",
        "pedantic",
    ),
    "queue groups; own server first, then by the number of members": ("yes", "core"),
    "no responders (503 with Nats-Subject)": ("yes", "core"),
    "-ERR of the protocol": ("yes", "protocol-errors"),
    "max_payload, max_connections, max_subscriptions, time limit of CONNECT": ("yes", "limits"),
    "accounts, passwords, tokens": ("yes", "credentials"),
    "imports and exports of streams and services, subject mappings": ("yes", "accounts"),
    "JetStream domains (`$JS.<domain>.API`)": ("yes", "domains"),
    "passwords and tokens hashed by bcrypt, of a cost of 16 at most": ("yes", "passwords"),
    "users by nkey": ("yes", "nkeys"),
    "TLS behind INFO or before it, certificates of clients, users by certificate (`clientTls`)": (
        "yes",
        "tls",
    ),
    "WebSocket, with TLS or without (`ports.websocket`, `websocketTls`)": ("yes", "websocket"),
    "leaf nodes, MQTT, JWT": ("no", ""),
    **{
        f"$SYS.REQ.SERVER.PING.{kind} and $SYS.REQ.SERVER.<id>.{kind}": (
            *(("no", "") if kind in system_requests.NOT_HERE else ("yes", "system")),
        )
        for kind in (*system_requests.OF_SERVER, *system_requests.NOT_HERE)
    },
    **{f"$SYS.REQ.ACCOUNT.<account>.{kind}": ("yes", "system") for kind in system_requests.OF_ACCOUNT},
    f"$SYS.REQ.ACCOUNT.PING.STATZ and .CONNZ (of the own account), $SYS.REQ.USER.INFO; "
    f"{shares.ACCOUNT_PER_S_MAX} a second and account": ("yes", "system"),
    "$SYS.ACCOUNT.<account>.CONNECT, .DISCONNECT, .SERVER.CONNS; $SYS.SERVER.<id>.STATSZ, .CLIENT.AUTH.ERR, .LAMEDUCK": (
        "yes",
        "system",
    ),
}
"""What of the client protocol, whether it is there, and the group of rows that shows it."""


BLOCKS = {
    "`authorization`, `accounts`": "users by password, bcrypt hash, token or nkey, permissions, `allowed_connection_types`, limits of streams; by a "
    "reload too: clients stay while what they have shown holds, under the permissions of now (a changed `no_auth_user`, which nats-server does "
    "not reload, ends the clients that came as it); `auth_callout` is refused",
    "`jetstream`": "yes, but for encryption at rest; `sync_interval: always` is for all streams but those that say `never` by their metadata; of its `limits`, `max_ha_assets` is passed over with a warning",
    "`max_connections`, `max_payload`, `max_pending`, `max_subscriptions`, `max_sub_tokens`, `no_header_support`, `write_deadline`": "yes, with nats-server's "
    "defaults; `max_payload` up to 32 MiB, and at most 1048576 connections where there is no limit",
    "`server_name`": "at most 63 bytes, and none of `. * > @ / \\`: a host's short name, not its full one",
    "`limits` of an account": "`max_connections`, which each server counts for itself, `max_subscriptions`, `max_payload`; all by a reload "
    "too; `max_leafnodes` is taken, as there are none",
    "`http`, `https`": "yes, one of them; `https` shows the certificate of `tls`, and looks at none. `/jsz`, `/connz`, `/subsz`, `/accountz`, `/accstatz`, `/leafz` and "
    "`/healthz` are as nats-server has them, with what `$SYS.REQ.SERVER.<id>` tells; `/varz`, `/routez` and `/gatewayz` are the brokers' own, "
    "with NATS's names where there are any (a link is one route; `/gatewayz` lists all links of a cluster)",
    "`tls`, `allow_non_tls`": "yes, but for certificates of a system's store, pinned ones and OCSP of clients; `cipher_suites` of TLS 1.3 alone "
    "leave no TLS 1.2",
    "`websocket`": "yes, with browsers' origins, credentials in cookies but for `jwt_cookie`, and a `no_auth_user` of its own; changed origins "
    "and cookies by a reload, too (nats-server: at its next start)",
    "`cluster`": "yes, but for permissions of routes; the first start needs all servers (`docs/adr/drop-in-clusters.md`)",
    "`gateway`": "yes, where all files name the same clusters, and the first start has all of them; the first by name begins the map of "
    "streams (`docs/adr/drop-in-clusters.md`)",
    "`leafnodes`, `mqtt`": "refused: not there",
    "`operator`, `resolver` and what belongs to them": "refused: there are no accounts by JWT",
}
"""Blocks of nats-server's configuration, and what of them is there."""


class _Asked(dict[str, Any]):
    """A configuration that remembers which of its fields were asked for."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def _fields(
    known: Mapping[str, str],
    read: Callable[[dict[str, Any]], object],
    given: Mapping[str, Any],
) -> list[tuple[str, str, str]]:
    asked = _Asked(given)
    read(asked)
    unknown = asked.names - known.keys()
    assert not unknown, f"say in tests/compat/documents.py what these fields are: {sorted(unknown)}"
    return [(name, "yes" if name in asked.names else "no", note) for name, note in known.items()]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def _source() -> str:
    broker = ROOT / "broker_image" / "supercluster" / "broker"
    files = [*sorted((broker / "jetstream").rglob("*.py")), broker / "monitor" / "tracer.py"]
    return "".join(path.read_text(encoding="utf-8") for path in files)


def _flag_rows() -> list[tuple[str, ...]]:
    def shown(names: set[str]) -> str:
        return ", ".join(f"`-{name}`" if len(name) < 4 else f"`--{name}`" for name in sorted(names))

    taken = {*flags._LONG, *flags._SWITCHES, *flags._VALUES}
    return [
        ("taken", shown(taken)),
        ("passed over with a warning", shown({*flags._USELESS_SWITCHES, *flags._USELESS_VALUES})),
    ]


def text() -> str:
    """The whole document."""
    groups = {row.group for row in load()}
    for what, (_, group) in CORE.items():
        assert not group or group in groups, f"no row shows {what}: there is no group {group}"
    stream = _fields(STREAM_FIELDS, read_stream, {"name": "S"})
    consumer = _fields(
        CONSUMER_FIELDS,
        read_consumer,
        {"durable_name": "C", "ack_policy": "explicit"},
    )
    source = _source()
    headers = [(f"`{name}`", "yes" if name in source else "no", note) for name, note in HEADERS.items()]
    calls = [
        (f"`$JS.API.{call}`", "yes" if parser.is_supported(b"$JS.API." + call.encode()) else "no")
        for call in CALLS
    ]
    core = [
        (what, state, f"`make compat ONLY={group}`" if group else "") for what, (state, group) in CORE.items()
    ]
    differences = [
        (found.title, found.nats, found.ours, found.reason)
        for found in sorted(DIFFERENCES, key=lambda found: found.id)
    ]
    lines = [
        "# What NATS clients can count on",
        "",
        "The reference is nats-server 2.15.1. `make compat` runs the rows of `tests/compat/rows/`, one per behaviour, on a",
        "broker alone, on a cluster of three and on nats-server: what is said here with *yes* is what both do. This file is",
        "written by `python -m tests.compat.documents` from the code's own tables; `make check` compares.",
        "",
        "Unsupported features are refused with an error that names them (err_code 19002), never passed over.",
        "",
        "Operator mode (JWTs: operators, accounts and users that are signed, and their resolvers) is not supported, by",
        "design: accounts and users come from Kubernetes resources or from the configuration, and one place says who may do",
        "what. A configuration that asks for it is refused at the start. So are authentication by callout, leaf nodes and MQTT.",
        "",
        "A plain publisher, whose message asks for no acknowledgement, is told by -ERR when its message was not stored. The",
        "text begins with `Permissions Violation for Publish to`: nats-py, nats.js and the Go client report such an error and",
        "stay connected (nats.go 1.52 passes it to the error handler as ErrPermissionViolation), while nats-py and the Go",
        "client close their connection for good on an error that they do not know.",
        "",
        "## A stream's configuration",
        "",
        *_table(("field", "supported", ""), [(f"`{name}`", state, note) for name, state, note in stream]),
        "## A consumer's configuration",
        "",
        *_table(("field", "supported", ""), [(f"`{name}`", state, note) for name, state, note in consumer]),
        "## Headers of a publish",
        "",
        *_table(("header", "supported", ""), headers),
        "## Calls of the JetStream API",
        "",
        *_table(("call", "supported"), calls),
        "## The client protocol",
        "",
        *_table(("what", "supported", "shown by"), core),
        "## Flags of nats-server",
        "",
        *_table(("", "flags"), _flag_rows()),
        "## Blocks of nats-server's configuration",
        "",
        *_table(("block", ""), tuple(BLOCKS.items())),
        "## What differs on purpose",
        "",
        "Both behaviours are asserted in `tests/compat/differs/`.",
        "",
        *_table(("what", "nats-server", "these brokers", "why"), differences),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the document, or compare it."""
    wanted = text()
    if "--check" not in sys.argv:
        DOCUMENT.write_text(wanted, encoding="utf-8")
        return 0
    if not DOCUMENT.exists() or DOCUMENT.read_text(encoding="utf-8") != wanted:
        print(
            "docs/compatibility.md is not what the code says: run python -m tests.compat.documents",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
