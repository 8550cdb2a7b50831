"""The ports for brokers: each lets in one kind of broker, with credentials, TLS and rules of its own.

A further kind of link is one more `Door`: dialling, handshakes and introductions know no other difference between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from supercluster.broker.auth.credentials import LinkCredentials
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
    """Why a broker has no place behind this port; empty when it has."""
    introduced_url: Callable[[BrokerFacts], str]
    """Where a broker that introduces itself by it can be reached."""
    leads_home: bool = False
    """May one of the addresses that are asked lead to this very broker?"""
    tls: GatewayCertificates | None = None
    """None: in plain."""
    finder: Finder | None = None
    """None: nobody introduces himself by it."""


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
