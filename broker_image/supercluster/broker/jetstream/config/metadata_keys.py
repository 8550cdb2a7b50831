"""Keys of a stream's `metadata` that these brokers read because NATS's configuration has no field for them.

A value is checked only when a request sets it. In a committed configuration an unknown value counts as the
default: a value that an older or newer broker accepted must not stop a stream or a broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from supercluster.broker.bounds import BROKER_NAME_BYTES_MAX
from supercluster.broker.jetstream.errors import invalid_config

PREFIX = "supercluster.dev/"
RESOURCE_KEY = PREFIX + "resource"
ACK_POLICY_KEY = PREFIX + "ack-policy"
FSYNC_KEY = PREFIX + "fsync"
PREFERRED_LEADER_KEY = PREFIX + "preferred-leader"

ACK_POLICIES = ("commit", "append", "none")
FSYNC_POLICIES = ("interval", "always", "never")
_CHOICES = {ACK_POLICY_KEY: ACK_POLICIES, FSYNC_KEY: FSYNC_POLICIES}
_KEYS = (RESOURCE_KEY, ACK_POLICY_KEY, FSYNC_KEY, PREFERRED_LEADER_KEY)
_SHOWN_CHARS = 80


def check_metadata(wanted: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Judge what a request changes; what a stream has already is no reason to refuse the rest of an update.

    Raises:
        ApiError: a key or a value of ours that means nothing.
    """
    for key, value in wanted.items():
        if not key.startswith(PREFIX) or present.get(key) == value:
            continue
        if key not in _KEYS:
            raise invalid_config(
                f"stream metadata has the unknown key {_shown(key)}; known are {', '.join(_KEYS)}"
            )
        choices = _CHOICES.get(key)
        if choices is not None and value not in choices:
            raise invalid_config(
                f"stream metadata {key} is {_shown(value)}; it has to be one of {', '.join(choices)}"
            )
        if key == PREFERRED_LEADER_KEY and not _may_be_a_broker(value):
            raise invalid_config(f"stream metadata {key} is {_shown(value)}; it has to be a broker's name")


def _may_be_a_broker(name: str) -> bool:
    """Empty: none is preferred."""
    return len(name.encode(errors="replace")) <= BROKER_NAME_BYTES_MAX and not any(
        c in " .*>@/\\" or not c.isprintable() for c in name
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")


def ack_policy_of(metadata: Mapping[str, str]) -> str:
    """One of ACK_POLICIES; the default where a committed configuration says something else."""
    policy = metadata.get(ACK_POLICY_KEY, "")
    return policy if policy in ACK_POLICIES else ACK_POLICIES[0]


def fsync_of(metadata: Mapping[str, str]) -> str:
    """One of FSYNC_POLICIES; the default where a committed configuration says something else."""
    policy = metadata.get(FSYNC_KEY, "")
    return policy if policy in FSYNC_POLICIES else FSYNC_POLICIES[0]


def unknown_fsync(metadata: Mapping[str, str]) -> str:
    """What a committed configuration has for its fsync policy and nobody knows; empty where all is well."""
    policy = metadata.get(FSYNC_KEY, "")
    return "" if policy in FSYNC_POLICIES else policy
