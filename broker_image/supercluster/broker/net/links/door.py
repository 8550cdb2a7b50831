"""The ports for brokers: each lets in one kind of broker, with credentials, TLS and rules of its own.

A further kind of link is one more `Door`: dialling, handshakes and introductions make no other difference
between them. The exception is another super-cluster: its brokers go by their far names
(`migration/worlds.py`), since their own may equal those of brokers here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from supercluster.broker.auth.link_credentials import LinkCredentials
from supercluster.broker.migration.worlds import MARK, far_name, world_id
from supercluster.broker.net.clients.certificates import GatewayCertificates
from supercluster.broker.net.links.broker_facts import BrokerFacts
from supercluster.broker.protocol.frames import Hello


class Finder(Protocol):
    """Has brokers get to know each other by short connections that never become links."""

    def met(self, hello: Hello, address: str) -> bytes:
        """A broker introduced itself, from that address; returns whom this one knows, as GATEWAYS has it."""

    def introduced(self, hello: Hello, body: memoryview) -> None:
        """The answer of a broker that this one introduced itself to."""


@dataclass(slots=True)
class Door:
    """One port, and the way to the same port of others."""

    name: str
    credentials: Callable[[], LinkCredentials]
    refusal: Callable[[BrokerFacts, Hello], str]
    """Why a broker has no place behind this port; empty when it has. Names of the own super-cluster were compared before."""
    links: Mapping[str, object]
    """Those that it has, by what brokers behind it are called here."""
    introduced_url: Callable[[BrokerFacts], str]
    """Where a broker that introduces itself by it can be reached."""
    leads_home: bool = False
    """May one of the addresses that are asked lead to this very broker?"""
    tls: GatewayCertificates | None = None
    """None: in plain."""
    plain: str = "refused"
    """With `tls`: what becomes of links without it (`settings.PLAIN`). It changes while links are up."""
    finder: Finder | None = None
    """None: nobody introduces himself by it."""
    is_far: bool = False
    """Does it lead to other super-clusters? They dial whomever they want to; elsewhere the smaller name of a pair does."""

    @property
    def dials_tls(self) -> bool:
        return self.tls is not None and self.plain != "dialled"

    @property
    def accepts_plain(self) -> bool:
        return self.tls is None or self.plain != "refused"

    def lets_in(self, *, encrypted: bool) -> bool:
        """May there be a link like that?"""
        return encrypted or self.accepts_plain

    def broker_of(self, hello: Hello) -> str:
        """What the broker is called here."""
        return far_name(hello.node, world_id(hello.identity)) if self.is_far else hello.node

    def cluster_of(self, hello: Hello) -> str:
        """What its cluster is called here."""
        return far_name(hello.cluster, world_id(hello.identity)) if self.is_far else hello.cluster


@dataclass(frozen=True, slots=True)
class Expected:
    """Whom a connection was opened to; empty where whoever answers is right."""

    node: str = ""
    identity: str = ""
    tls_name: str = ""
    """Its certificate has to be for this name, besides what the port's own TLS asks for."""


ANYBODY = Expected()


def cluster_refusal(facts: BrokerFacts, hello: Hello) -> str:
    """The cluster port takes brokers of the own cluster."""
    if hello.cluster == facts.cluster:
        return ""
    return (
        f"it is of cluster {hello.cluster}, this one of {facts.cluster}: "
        "they link over the gateway port, not the cluster port"
    )


def gateway_refusal(facts: BrokerFacts, hello: Hello) -> str:
    """The gateway port takes brokers of other clusters."""
    if hello.cluster != facts.cluster:
        return ""
    return f"both are of cluster {facts.cluster}: they link over the cluster port, not the gateway port"


def migration_refusal(facts: BrokerFacts, hello: Hello) -> str:
    """The migration port takes brokers of other super-clusters."""
    if hello.identity == facts.identity:
        return f"both are of super-cluster {facts.super_cluster} ({facts.identity}): the migration port is for brokers of another one"
    if world_id(hello.identity) == world_id(facts.identity):
        return f"identities {hello.identity} and {facts.identity} have the same world: one of them has to be another one"
    return ""


def name_refusal(hello: Hello) -> str:
    """A broker calls itself by the name that its own super-cluster has for it."""
    if MARK not in hello.node:
        return ""
    return f"its name is {hello.node}, and {MARK} is not allowed in it: it separates the names of a broker and its super-cluster"
