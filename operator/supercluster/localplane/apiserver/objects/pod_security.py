"""Pod Security's levels: the violations of a pod's spec, in Kubernetes' words. Pure.

All checks of `baseline` and `restricted` follow Kubernetes 1.36, except for AppArmor and Windows, which no
pod of this plane can have. Messages name the version in a namespace's labels (`enforce-version: v1.30`); the
checks are those of the latest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
LEVELS = ("privileged", "baseline", "restricted")
PREFIX = "pod-security.kubernetes.io/"
ADDABLE = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
SYSCTLS = frozenset(
    {
        *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports"),
        *("net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_syncookies"),
        *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
        *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
    }
)
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
PLAIN_VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
SECCOMP = frozenset({"RuntimeDefault", "Localhost"})


@dataclass(frozen=True, slots=True)
class Policy:
    """What one label of a namespace asks for."""

    level: str = "privileged"
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"


def policy(labels: Mapping[str, str], mode: str) -> Policy:
    """Of a mode: enforce or warn. What can't be read enforces the strictest level, and warns of nothing. Without a label of its own,
    warn is what enforce is."""
    if mode == "warn" and PREFIX + mode not in labels:
        return policy(labels, "enforce")
    level = labels.get(PREFIX + mode, "privileged")
    if level not in LEVELS:
        level = "restricted" if mode == "enforce" else "privileged"
    version = labels.get(f"{PREFIX}{mode}-version", "latest")
    return Policy(level, version if _is_version(version) else "latest")


def label_problems(labels: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Labels that can't be read: name, value, what it has to be."""
    for mode in ("enforce", "audit", "warn"):
        level = labels.get(PREFIX + mode)
        if level is not None and level not in LEVELS:
            yield PREFIX + mode, level, f"must be one of {', '.join(LEVELS)}"
        version = labels.get(f"{PREFIX}{mode}-version")
        if version is not None and not _is_version(version):
            yield f"{PREFIX}{mode}-version", version, 'must be "latest" or "v1.x"'


def _is_version(text: str) -> bool:
    number = text.removeprefix("v1.")
    return text == "latest" or (number != text and number.isdecimal() and number == str(int(number)))


@dataclass(frozen=True, slots=True)
class Violation:
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


def violations(level: str, spec: Json) -> list[Violation]:
    """What of a pod's spec the level does not allow, in Kubernetes' order."""
    checks = {"baseline": (*_BASELINE, *_OVERLAPPING), "restricted": (*_BASELINE, *_RESTRICTED)}
    # Root of a user namespace is nobody outside of it.
    relaxed = _RELAXED[level] if spec.get("hostUsers") is False and level in _RELAXED else ()
    asked = [check for check in checks.get(level, ()) if check not in relaxed]
    return [found for check in asked if (found := check(spec)) is not None]


def told(found: Iterable[Violation]) -> str:
    return ", ".join(map(str, found))


# ------------------------------------------------------------------ words


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _named(names: list[str], one: str = "container") -> str:
    return f"{one if len(names) == 1 else f'{one}s'} {_quoted(names)}"


def _containers(spec: Json) -> Iterator[Json]:
    for part in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(part) or ()


def _context(part: Json) -> Json:
    return part.get("securityContext") or {}


def _where(spec: Json, is_bad: Callable[[Json], bool]) -> list[str]:
    return [container["name"] for container in _containers(spec) if is_bad(container)]


def _setters(is_pod: bool, containers: list[str]) -> str:
    return " and ".join([*(["pod"] if is_pod else []), *([_named(containers)] if containers else [])])


# ------------------------------------------------------------------ baseline


def _host_namespaces(spec: Json) -> Violation | None:
    found = sorted(key for key in ("hostIPC", "hostNetwork", "hostPID") if spec.get(key))
    return Violation("host namespaces", ", ".join(f"{key}=true" for key in found)) if found else None


def _host_ports(spec: Json) -> Violation | None:
    names, ports = [], set()
    for container in _containers(spec):
        used = {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}
        if used:
            names.append(container["name"])
            ports |= used
    if not names:
        return None
    verb, noun = "uses" if len(names) == 1 else "use", "hostPort" if len(ports) == 1 else "hostPorts"
    return Violation("hostPort", f"{_named(names)} {verb} {noun} {', '.join(sorted(ports))}")


def _probe_hosts(spec: Json) -> Violation | None:
    names, hosts = set(), set()
    for container in _containers(spec):
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(key) for key in ("livenessProbe", "readinessProbe", "startupProbe")]
        for handler in (*handlers, lifecycle.get("postStart"), lifecycle.get("preStop")):
            for way in ("httpGet", "tcpSocket"):
                host = ((handler or {}).get(way) or {}).get("host")
                if host:
                    names.add(container["name"])
                    hosts.add(host)
    if not names:
        return None
    verb, noun = "uses" if len(names) == 1 else "use", "host" if len(hosts) == 1 else "hosts"
    detail = f"{_named(sorted(names))} {verb} probe or lifecycle {noun} {_quoted(sorted(hosts))}"
    return Violation("probe or lifecycle host", detail)


def _privileged(spec: Json) -> Violation | None:
    names = _where(spec, lambda container: bool(_context(container).get("privileged")))
    detail = f"{_named(names)} must not set securityContext.privileged=true"
    return Violation("privileged", detail) if names else None


def _proc_mount(spec: Json) -> Violation | None:
    names = _where(spec, lambda container: _context(container).get("procMount", "Default") != "Default")
    if not names:
        return None
    types = {_context(one)["procMount"] for one in _containers(spec) if one["name"] in names}
    return Violation(
        "procMount", f"{_named(names)} must not set securityContext.procMount to {_quoted(sorted(types))}"
    )


def _selinux(spec: Json) -> Violation | None:
    def options(part: Json) -> Json:
        return _context(part).get("seLinuxOptions") or {}

    def is_bad(part: Json) -> bool:
        own = options(part)
        return own.get("type", "") not in SELINUX_TYPES or bool(own.get("user")) or bool(own.get("role"))

    names = _where(spec, is_bad)
    if not names and not is_bad(spec):
        return None
    parts = [options(spec), *map(options, _containers(spec))]
    types = sorted({own["type"] for own in parts if own.get("type", "") not in SELINUX_TYPES})
    data = [f"type{'s' if len(types) > 1 else ''} {_quoted(types)}"] if types else []
    data += [f"{key} may not be set" for key in ("user", "role") if any(own.get(key) for own in parts)]
    setters = _setters(is_bad(spec), names)
    return Violation(
        "seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"
    )


def _sysctls(spec: Json) -> Violation | None:
    found = [each["name"] for each in _context(spec).get("sysctls") or () if each["name"] not in SYSCTLS]
    return Violation("forbidden sysctls", ", ".join(found)) if found else None


def _added(container: Json) -> list[str]:
    return (_context(container).get("capabilities") or {}).get("add") or []


def _default_capabilities(spec: Json) -> Violation | None:
    names = _where(spec, lambda container: not ADDABLE.issuperset(_added(container)))
    if not names:
        return None
    added = {word for container in _containers(spec) for word in _added(container)} - ADDABLE
    detail = f"{_named(names)} must not include {_quoted(sorted(added))} in securityContext.capabilities.add"
    return Violation("non-default capabilities", detail)


def _host_paths(spec: Json) -> Violation | None:
    names = [volume["name"] for volume in spec.get("volumes") or () if volume.get("hostPath")]
    return Violation("hostPath volumes", _named(names, "volume")) if names else None


def _bad_seccomp(spec: Json) -> Violation | None:
    def profile(part: Json) -> str | None:
        return (_context(part).get("seccompProfile") or {}).get("type")

    def is_bad(part: Json) -> bool:
        return profile(part) is not None and profile(part) not in SECCOMP

    names = _where(spec, is_bad)
    if not names and not is_bad(spec):
        return None
    types = {str(profile(part)) for part in (spec, *_containers(spec)) if is_bad(part)}
    setters = _setters(is_bad(spec), names)
    detail = f"{setters} must not set securityContext.seccompProfile.type to {_quoted(sorted(types))}"
    return Violation("seccompProfile", detail)


# ------------------------------------------------------------------ restricted


def _escalation(spec: Json) -> Violation | None:
    names = _where(spec, lambda container: _context(container).get("allowPrivilegeEscalation") is not False)
    detail = f"{_named(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail) if names else None


def _dropped_capabilities(spec: Json) -> Violation | None:
    def keeps(container: Json) -> bool:
        return "ALL" not in ((_context(container).get("capabilities") or {}).get("drop") or ())

    keeping = _where(spec, keeps)
    adding = _where(spec, lambda container: bool(set(_added(container)) - {"NET_BIND_SERVICE"}))
    details = []
    if keeping:
        details.append(f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        added = {word for container in _containers(spec) for word in _added(container)} - {"NET_BIND_SERVICE"}
        details.append(
            f"{_named(adding)} must not include {_quoted(sorted(added))} in securityContext.capabilities.add"
        )
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def _volume_types(spec: Json) -> Violation | None:
    bad = [volume for volume in spec.get("volumes") or () if not PLAIN_VOLUMES & volume.keys()]
    if not bad:
        return None
    names = [volume["name"] for volume in bad]
    types = sorted({key for volume in bad for key in volume if key != "name"})
    verb, noun = "uses" if len(names) == 1 else "use", "type" if len(types) == 1 else "types"
    return Violation(
        "restricted volume types",
        f"{_named(names, 'volume')} {verb} restricted volume {noun} {_quoted(types)}",
    )


def _root(spec: Json) -> Violation | None:
    asked = _context(spec).get("runAsNonRoot")
    explicit = _where(spec, lambda container: _context(container).get("runAsNonRoot") is False)
    if explicit or asked is False:
        detail = f"{_setters(asked is False, explicit)} must not set securityContext.runAsNonRoot=false"
        return Violation("runAsNonRoot != true", detail)
    silent = _where(spec, lambda container: _context(container).get("runAsNonRoot") is None and not asked)
    detail = f"pod or {_named(silent)} must set securityContext.runAsNonRoot=true"
    return Violation("runAsNonRoot != true", detail) if silent else None


def _root_user(spec: Json) -> Violation | None:
    names = _where(spec, lambda container: _context(container).get("runAsUser") == 0)
    is_pod = _context(spec).get("runAsUser") == 0
    if not names and not is_pod:
        return None
    return Violation("runAsUser=0", f"{_setters(is_pod, names)} must not set runAsUser=0")


def _seccomp(spec: Json) -> Violation | None:
    bad = _bad_seccomp(spec)
    if bad is not None or _context(spec).get("seccompProfile"):
        return bad
    silent = _where(spec, lambda container: not _context(container).get("seccompProfile"))
    detail = f'pod or {_named(silent)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", detail) if silent else None


_Check = Callable[[Json], Violation | None]
_BASELINE: tuple[_Check, ...] = (
    *(_host_namespaces, _host_ports, _probe_hosts, _privileged, _selinux, _sysctls),
)
_OVERLAPPING: tuple[_Check, ...] = (_default_capabilities, _host_paths, _proc_mount, _bad_seccomp)
"""`restricted` has stricter ones in their places."""
_RESTRICTED: tuple[_Check, ...] = (
    *(_escalation, _dropped_capabilities, _proc_mount, _volume_types, _root, _root_user, _seccomp),
)
_RELAXED: dict[str, tuple[_Check, ...]] = {"baseline": (_proc_mount,), "restricted": (_root, _root_user)}
