"""The operator's part of the preflight of a migration, from both sides' answers; blue does the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from supercluster.api import Migration
from supercluster.api.conditions import Reason
from supercluster.api.migration import FINDINGS_MAX, Finding, PreflightReport
from supercluster.reconcilers.planners.migration.views import MigrationObserved, SideView, Trouble

# The bound of leader time (SF-28): beyond it green would let messages expire by another time than blue.
CLOCKS_APART_MAX_MS = 1_000
# Of a condition's message; status.preflight has the others.
TOLD_MAX = 3
# The brokers' codes for a user that green's migration port does not let in, and for certificates that one side does not trust.
SECRETS_LACK = frozenset({"CredentialsRefused", "CertificateRefused"})


def own_trouble(desired: Migration, observed: MigrationObserved) -> Trouble | None:
    """Why it can't start, whatever blue's brokers say. Both sides have answered."""
    blue, green = observed.blue, observed.green
    assert blue.told is not None
    assert green.told is not None
    if blue.told.identity == green.told.identity:
        return Reason.SAME_SUPER_CLUSTER, (
            f"spec.blue and spec.green are one super-cluster: both answer with identity {blue.told.identity}; name another one as spec.green"
        )
    others = [each for each in blue.greens if each != green.told.identity]
    if others:
        # The Secret of its brokers has one user for that, so what comes now would cut off what was handed over.
        return Reason.MIGRATION_OVERLAPS, (
            f"blue's brokers are linked with one green at a time, and forward to the super-cluster with identity {others[0]}, which has streams that "
            f"they handed over or are to hand over; {desired.spec.green.text} has identity {green.told.identity}: name the former as spec.green"
        )
    if blue.told.version != green.told.version:
        return Reason.OTHER_VERSION, (
            f"blue's brokers have version {blue.told.version} and green's {green.told.version}; roll one of them out first, so that both have one"
        )
    apart_ms = abs(blue.clock_ahead_ms - green.clock_ahead_ms)
    if apart_ms > CLOCKS_APART_MAX_MS:
        return Reason.CLOCKS_APART, (
            f"the clocks of blue and green are {apart_ms / 1000:.1f} s apart, and {CLOCKS_APART_MAX_MS / 1000:.0f} s at most are allowed: mend the "
            "time service of the one that is wrong"
        )
    if green.has_tls and not blue.has_tls:
        return Reason.PREFLIGHT_REFUSED, (
            f"links of {desired.spec.green.text} are encrypted, and {desired.spec.blue.text} has no certificates to show: set spec.tls.mode to Required "
            "there or to Off at green, or name spec.blue.caSecret where blue is somewhere else"
        )
    return None


def port_trouble(desired: Migration, green: SideView) -> Trouble | None:
    """Why blue's brokers can't dial green's yet."""
    if not green.addresses:
        return Reason.MIGRATION_PORT_CLOSED, (
            f"{desired.spec.green.text} does not listen on a migration port yet; where it is a SuperCluster, its brokers are restarted for it one by "
            "one (spec.migration.enabled), else give them ports.migration and name spec.green.addresses"
        )
    return None


def report(findings: Iterable[Finding], checked_at: str, **figures: int) -> PreflightReport:
    """Those that refuse first; so many as a status holds. `figures`: what was counted, by the report's own names."""
    found = sorted(findings, key=lambda each: each.level != "Refused")
    refused = sum(each.level == "Refused" for each in found)
    return PreflightReport(
        checked_at=checked_at,
        **figures,
        refused=refused,
        warnings=len(found) - refused,
        findings=tuple(found[:FINDINGS_MAX]),
    )


def waits_for_secrets(desired: Migration, found: PreflightReport) -> bool:
    """Is all that speaks against it that brokers of one side lack the user or the authorities that this operator has just given both sides? They
    read their Secret again within a minute or so."""
    codes = {each.code for each in found.findings if each.level == "Refused"}
    return desired.spec.green.super_cluster is not None and bool(codes) and codes <= SECRETS_LACK


def told(findings: Sequence[Finding], count: int) -> str:
    """The first of them, with what to do about each."""
    texts = [
        f"{each.code}{f' ({each.subject})' if each.subject else ''}: {each.message}{f'; {each.remedy}' if each.remedy else ''}"
        for each in findings[:TOLD_MAX]
    ]
    more = count - len(texts)
    return ". ".join(texts) + (f". And {more} more: status.preflight.findings" if more > 0 else "")
